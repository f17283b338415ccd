"""What Chakra's attributes mean: the figures that follow from ASTRA-sim's rules, and for every
attribute that it reads, that another value gives another result, a refusal or a note."""

import random

import pytest

pytest.importorskip("google.protobuf")
pytest.importorskip("loomnet._core")

from chakra_writer import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BROADCAST,
    COLLECTIVE,
    COMPUTE,
    GATHER,
    LOAD,
    METADATA,
    RECEIVE,
    REDUCE_SCATTER,
    SCATTER,
    SEND,
    node,
    process_groups,
    write,
)

import loomnet as ln
from loomnet.base.errors import UsageError

MIB = 1 << 20


def play(tmp_path, ranks, **values):
    """(length in us, bytes that each rank receives, what was passed over)."""
    folder = tmp_path / str(len(list(tmp_path.iterdir())))
    folder.mkdir()
    fabric = ln.star(hosts=max(len(ranks), 2), rate="100 Gb/s", delay="1 us", payload="4096 B")
    r = ln.run(fabric, ln.Trace(write(folder, ranks), **values), write=False)
    assert r["errors"] == 0
    received = [sum(n for *_, n in series.work) for series in r.data.hosts.values()]
    passed = r.data.fidelity.notes.get("passed over in t", "")
    return r.data.iterations[0].length_ps / 1e6, received[: len(ranks)], passed


def one(kind, size, **attributes):
    return [node(1, COLLECTIVE, comm_type=kind, comm_size=size, **attributes)]


# `comm_size` is what a rank puts in. Bytes that a rank receives, of 8 ranks and 1 MiB, as
# ASTRA-sim's rings and direct exchanges send them.
@pytest.mark.parametrize(
    ("kind", "each"),
    [
        (ALL_REDUCE, 2 * 7 * MIB // 8),
        (REDUCE_SCATTER, 7 * MIB // 8),
        (ALL_GATHER, 7 * MIB),
        (ALL_TO_ALL, 7 * MIB // 8),
    ],
)
def test_comm_size_is_what_a_rank_puts_in(tmp_path, kind, each):
    assert play(tmp_path, [one(kind, MIB)] * 8)[1] == [each] * 8


def test_a_gather_brings_the_root_all_of_each_rank_and_a_scatter_a_part(tmp_path):
    assert play(tmp_path, [one(GATHER, 1000)] * 4)[1] == [3000, 0, 0, 0]
    # PyTorch's ranks other than the root put nothing into a scatter.
    sizes = [4000, 0, 0, 0]
    assert play(tmp_path, [one(SCATTER, size) for size in sizes])[1] == [0, 1000, 1000, 1000]


def test_num_ops_take_the_time_of_the_roofline(tmp_path):
    # 2 * 10^9 operations at 100 * 10^12 per second take 20 us, 10^8 B at 1,000 GB/s 100 us.
    machine = {"peak_tflops": 100, "memory_bandwidth": "1000 GB/s"}
    for operations, size, us in ((2 * 10**9, 10**6, 20), (2 * 10**9, 10**8, 100), (0, 10**7, 10)):
        ranks = [[node(1, COMPUTE, num_ops=operations, tensor_size=size, us=7)]]
        assert play(tmp_path, ranks, **machine)[0] == us
        assert play(tmp_path, ranks)[0] == 7  # without a machine the duration counts
    on_the_cpu = [[node(1, COMPUTE, num_ops=10**12, tensor_size=10**8, us=7, is_cpu_op=1)]]
    assert play(tmp_path, on_the_cpu, **machine)[0] == 7
    length, _, passed = play(tmp_path, [[node(1, COMPUTE, num_ops=5)]], **machine)
    assert length == 0 and "num_ops without tensor_size" in passed


def launches(kernels=10):
    """A CPU that launches a kernel of 50 us every 10 us; a GPU that runs them in order."""
    nodes = []
    for k in range(kernels):
        cpu, gpu = 2 * k + 1, 2 * k + 2
        nodes.append(node(cpu, COMPUTE, after=[cpu - 2] if k else [], us=10, is_cpu_op=1))
        nodes.append(node(gpu, COMPUTE, after=[cpu, gpu - 2] if k else [cpu], us=50))
    return nodes


def test_cpu_and_gpu_work_at_the_same_time(tmp_path):
    assert play(tmp_path, [launches()])[0] == 10 + 10 * 50


def test_a_unit_takes_the_lowest_number_of_those_that_wait(tmp_path):
    # The GPU is busy until 10 us. Node 3 is ready at 2 us, node 2 at 5 us and goes first.
    waiting = [
        node(9, COMPUTE, us=10),
        node(1, COMPUTE, us=2, is_cpu_op=1),
        node(5, COMPUTE, us=3, after=[1], is_cpu_op=1),
        node(3, COMPUTE, us=11, after=[1]),
        node(2, COMPUTE, us=7, after=[5]),
        node(4, COMPUTE, us=20, after=[2], is_cpu_op=1),
    ]
    assert play(tmp_path, [waiting])[0] == 10 + 7 + 20
    # Node 3 is ready in the instant in which node 9 frees the GPU, for which node 12 waits.
    freed = [
        node(9, COMPUTE, us=10),
        node(12, COMPUTE, us=11, after=[1]),
        node(1, COMPUTE, us=2, is_cpu_op=1),
        node(3, COMPUTE, us=7, after=[9]),
        node(4, COMPUTE, us=20, after=[3], is_cpu_op=1),
    ]
    assert play(tmp_path, [freed])[0] == 10 + 7 + 20


def test_collectives_of_one_group_follow_one_another_and_groups_do_not_wait(tmp_path):
    alone = play(tmp_path, [one(ALL_REDUCE, MIB)] * 2)[0]
    both = [node(k, COLLECTIVE, comm_type=ALL_REDUCE, comm_size=MIB) for k in (1, 2)]
    assert play(tmp_path, [both] * 2)[0] == pytest.approx(2 * alone, rel=1e-6)
    groups = tmp_path / "g.json"
    groups.write_text('{"1": [0, 1], "2": [1, 0]}')
    for each, name in zip(both, "12", strict=True):
        each.attr.add(name="pg_name").string_val = name
    assert play(tmp_path, [both] * 2, groups=groups)[0] < 1.99 * alone


# 4 x 4 ranks: rings of the first dimension are 0-3, 4-7, ...
@pytest.mark.parametrize(
    ("kind", "dims", "each"),
    [
        (ALL_REDUCE, [True, False], 2 * 3 * MIB // 4),
        (ALL_REDUCE, [False, True], 2 * 3 * MIB // 4),
        (ALL_REDUCE, [True, True], 2 * 15 * MIB // 16),
        (REDUCE_SCATTER, [True, True], 15 * MIB // 16),
        (ALL_GATHER, [True, True], 15 * MIB),
        (ALL_GATHER, [False, True], 3 * MIB),
        (ALL_TO_ALL, [True, True], 2 * 3 * MIB // 4),  # through both dimensions
        (ALL_REDUCE, [False, False], 0),
    ],
)
def test_involved_dim_names_the_rings(tmp_path, kind, dims, each):
    ranks = [one(kind, MIB, involved_dim=dims)] * 16
    assert play(tmp_path, ranks, dims=[4, 4])[1] == [each] * 16


def test_a_broadcast_along_one_dimension_goes_to_its_ring_alone(tmp_path):
    ranks = [one(BROADCAST, 1000, involved_dim=[True, False], root=5)] * 16
    received = play(tmp_path, ranks, dims=[4, 4])[1]
    # Each ring has its own root: that of rank 5 is rank 5, of the others their first.
    assert received == [0, 1000, 1000, 1000, 1000, 0, *[1000] * 2, *[0, 1000, 1000, 1000] * 2]


def test_a_named_group_of_all_ranks_goes_along_all_dimensions(tmp_path):
    groups = tmp_path / "groups.json"
    for dims in ([4, 4], [2, 8]):
        groups.write_text(f'{{"1": {list(range(16))}}}')
        every = play(tmp_path, [one(ALL_REDUCE, MIB)] * 16, dims=dims)
        assert not every[2]
        for involved in ([True, False], [True, True], None):
            said = {} if involved is None else {"involved_dim": involved}
            named = play(
                tmp_path, [one(ALL_REDUCE, MIB, pg_name="1", **said)] * 16, dims=dims, groups=groups
            )
            assert named[:2] == every[:2]
            assert bool(named[2]) == (involved == [True, False])
            assert named[2] in ("", "involved_dim of named groups (16 nodes)")
    # Without dimensions it is one ring.
    named = play(
        tmp_path,
        [one(ALL_REDUCE, MIB, pg_name="1", involved_dim=[True, False])] * 16,
        groups=groups,
    )
    assert named[:2] == play(tmp_path, [one(ALL_REDUCE, MIB)] * 16)[:2]


def test_a_place_in_the_dimensions_is_the_ranks_number(tmp_path):
    def sent(**values):
        """Bytes that each rank sends of a broadcast from rank 1."""
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        ranks = [one(BROADCAST, 1000, root=1, pg_name="1")] * 4
        r = ln.run(
            ln.star(hosts=4, rate="100 Gb/s", delay="1 us"),
            ln.Trace(write(folder, ranks), **values),
            write=False,
        )
        return [r.data.totals[f"link h{k}->p0.leaf0"]["bytes"] // 1000 for k in range(4)]

    order, odd = tmp_path / "order.json", tmp_path / "odd.json"
    order.write_text('{"1": [0, 1, 2, 3]}')
    odd.write_text('{"1": [3, 0, 2, 1]}')
    assert sent(groups=odd, dims=[2, 2]) == sent(groups=order, dims=[2, 2])
    assert sent(groups=odd) != sent(groups=order)


def test_an_all_reduce_along_two_dimensions_takes_the_time_of_its_phases(tmp_path):
    flat = play(tmp_path, [one(ALL_REDUCE, MIB)] * 16)[0]
    steps = play(tmp_path, [one(ALL_REDUCE, MIB)] * 16, dims=[4, 4])[0]
    # The same bytes in 12 steps instead of 30, each of which waits for two links of 1 us.
    assert flat - steps > 18 * 2 * 0.9


def test_dimensions_that_are_not_stated_are_asked_for(tmp_path):
    some = [one(ALL_REDUCE, MIB, involved_dim=[True, False])] * 4
    with pytest.raises(UsageError, match=r"involved_dim has 2 entries; give .*Trace\(dims="):
        play(tmp_path, some)
    with pytest.raises(UsageError, match="has 2 entries; give the sizes of as many"):
        play(tmp_path, some, dims=[1, 2, 2])
    with pytest.raises(UsageError, match=r"Trace.dims: 2 x 3 is not the number of ranks of .*, 4"):
        play(tmp_path, some, dims=[2, 3])
    # All dimensions, of which nothing is said: one ring, as in a network of one dimension.
    every = play(tmp_path, [one(ALL_REDUCE, MIB, involved_dim=[True, True])] * 4)
    assert every == play(tmp_path, [one(ALL_REDUCE, MIB)] * 4)


def test_both_ends_may_send_before_they_receive(tmp_path):
    def ends(me):
        peer = 1 - me
        return [
            node(1, SEND, comm_dst=peer, comm_size=10_000),
            node(2, RECEIVE, after=[1], comm_src=peer, comm_size=10_000),
        ]

    assert play(tmp_path, [ends(0), ends(1)])[1] == [10_000, 10_000]


def test_one_forward_one_backward_runs(tmp_path):
    """Two stages, four microbatches. The first stage sends forward activations ahead of the
    gradients that it receives."""
    size, first, second, at = 100_000, [], [], 0

    def add(stage, kind, last, **attributes):
        nonlocal at
        at += 1
        stage.append(node(at, kind, after=[last] if last else [], **attributes))
        return at

    last = 0
    for step, batch in enumerate((0, 1, 0, 2, 1, 3, 2, 3)):
        forward = step in (0, 1, 3, 5)
        if forward:
            last = add(first, COMPUTE, last, us=10)
            last = add(first, SEND, last, comm_dst=1, comm_tag=batch, comm_size=size)
        else:
            last = add(first, RECEIVE, last, comm_src=1, comm_tag=10 + batch, comm_size=size)
            last = add(first, COMPUTE, last, us=20)
    last = 0
    for batch in range(4):
        last = add(second, RECEIVE, last, comm_src=0, comm_tag=batch, comm_size=size)
        last = add(second, COMPUTE, last, us=30)
        last = add(second, SEND, last, comm_dst=0, comm_tag=10 + batch, comm_size=size)
    length, received, _ = play(tmp_path, [first, second])
    assert received == [4 * size, 4 * size]
    assert 4 * 30 + 10 + 20 < length < 4 * 30 + 10 + 20 + 10 * 30  # a message takes 10.5 us alone


def test_a_ring_written_as_sends_and_receives_is_the_ring_all_reduce(tmp_path):
    """As ASTRA-sim's custom collectives are: each rank sends, then receives, then reduces."""
    ranks, chunk = 8, 131_072

    def ring(me):
        nodes = []
        for step in range(2 * (ranks - 1)):
            nodes.append(
                node(
                    3 * step,
                    SEND,
                    after=[3 * step - 1] if step else [],
                    comm_dst=(me + 1) % ranks,
                    comm_tag=0,
                    comm_size=chunk,
                )
            )
            nodes.append(
                node(
                    3 * step + 1,
                    RECEIVE,
                    after=[3 * step],
                    comm_tag=0,
                    comm_size=chunk,
                    comm_src=(me - 1) % ranks,
                )
            )
            nodes.append(node(3 * step + 2, COMPUTE, after=[3 * step + 1], us=0))
        return nodes

    custom = play(tmp_path, [ring(me) for me in range(ranks)])
    native = play(tmp_path, [one(ALL_REDUCE, ranks * chunk)] * ranks)
    assert custom[1] == native[1] == [14 * chunk] * ranks
    # The custom ring's send is over when it is acknowledged, a way back after each step.
    assert native[0] < custom[0] < native[0] + 14 * 2.1


def test_what_is_of_chakra_alone_is_refused_elsewhere(tmp_path):
    rows = tmp_path / "t.jsonl"
    rows.write_text('{"at": "0 s", "source": 0, "destination": 1, "size": "1 kB"}')
    roofline = {"peak_tflops": 1, "memory_bandwidth": "1 TB/s"}
    for name, values in (
        ("groups", {"groups": "g.json"}),
        ("dims", {"dims": [2]}),
        ("peak_tflops", roofline),
    ):
        with pytest.raises(UsageError, match=rf"Trace.{name}: .* is no Chakra trace"):
            ln.run(
                ln.star(hosts=2, rate="1 Gb/s", delay="1 us"), ln.Trace(rows, **values), write=False
            )
    with pytest.raises(UsageError, match="one roofline; give both"):
        ln.Trace(rows, peak_tflops=1)


# --- groups ---------------------------------------------------------------------------------------
def test_process_groups_of_the_trace_are_read(tmp_path):
    mine = one(ALL_REDUCE, MIB, pg_name="7")[0]
    mine.id = 2
    four, low, high = (
        process_groups(1, {"0": [0, 1, 2, 3], "7": ranks}) for ranks in ([], [0, 1], [2, 3])
    )
    assert play(tmp_path, [[four, mine]] * 4)[1] == [2 * 3 * MIB // 4] * 4
    # Ranks may give different groups the same name.
    pairs = [[low, mine], [low, mine], [high, mine], [high, mine]]
    assert play(tmp_path, pairs)[1] == [MIB] * 4
    with pytest.raises(UsageError, match="rank 0 node 2: rank 1 takes no part in it"):
        play(tmp_path, [[low, mine], [], [high, mine], [high, mine]])
    for name in ("", "0"):  # the default group
        assert play(tmp_path, [one(ALL_REDUCE, MIB, pg_name=name)] * 4)[1] == [2 * 3 * MIB // 4] * 4
    broken = process_groups(1, {})
    broken.inputs.values = "['[1, 2]']"
    assert "whose inputs are no process groups" in play(tmp_path, [[broken]])[2]


# --- refusals: for each line, inputs that are wrong in that way and in no other -------------------
def send(number=1, **facts):
    return node(number, SEND, **{"comm_dst": 1, "comm_size": 9, **facts})


def receive(number=1, **facts):
    return node(number, RECEIVE, **{"comm_src": 0, "comm_size": 9, **facts})


def gathered(**facts):
    return node(1, COLLECTIVE, **{"comm_type": ALL_REDUCE, "comm_size": 8, **facts})


REFUSALS = {
    "is no whole number from 0 to": (
        [[send(comm_size=-1)], [receive()]],
        [[gathered(comm_size="8")]] * 2,
        [[gathered(is_cpu_op=2)]] * 2,
        [[node(1, COMPUTE, num_ops=[True])]],
        [[node(1, COMPUTE, num_ops=2.0)]],
    ),
    "is missing from the trace": (
        [[send(comm_dst=2)], []],
        [[], [receive(comm_src=7)]],
        [[process_groups(2, {"5": [0, 2]}), gathered(pg_name="5")]],
    ),
    "receives it (tag": (
        [[send()], []],
        [[send(comm_tag=1)], [receive()]],
        [[send(), send(2)], [receive()]],
    ),
    "sends it (tag": (
        [[], [receive()]],
        [[send()], [receive(), receive(2)]],
        [[node(3, COMPUTE)], [receive(comm_tag=4)]],
    ),
    "takes no part in it": (
        [[gathered()], []],
        [[], [gathered()]],
        [[gathered()], [gathered(), node(2, COLLECTIVE, comm_type=ALL_REDUCE, comm_size=8)]],
    ),
    "but rank 0 node 1 is": (
        [[gathered()], [gathered(comm_size=9)]],
        [[gathered()], [gathered(comm_type=ALL_GATHER)]],
        [[gathered()], [gathered(involved_dim=[True])]],
        [[gathered(comm_type=BROADCAST, root=r)] for r in (0, 1)],
    ),
    "is no member of": (
        [[gathered(comm_type=BROADCAST, root=5)]] * 2,
        [[process_groups(2, {"5": [1]}), gathered(pg_name="5")], []],
    ),
    "unknown communicator group": (
        [[gathered(pg_name="9")]] * 2,
        [[gathered(comm_group=3)]] * 2,
        [[process_groups(2, {"8": [0]}), gathered(pg_name="9\n")]] * 2,
    ),
    "which is not there": (
        [[node(1, COMPUTE, after=[2])]],
        [[send(after=[3])], [receive()]],
        [[gathered(after=[4])]],
    ),
    "by its comm_": ([[send(comm_src=1)], [receive()]], [[send()], [receive(comm_dst=0)]]),
    "sends to itself": ([[send(comm_dst=0)], []], [[], [receive(comm_src=1)]]),
    "has no comm_": (
        [[node(1, SEND, comm_size=1)], []],
        [[node(1, COLLECTIVE, comm_size=1)]],
        [[node(1, COLLECTIVE, comm_type=ALL_REDUCE)]],
    ),
    "a cycle of dependencies": (
        [[node(1, COMPUTE, after=[1])]],
        [[node(1, COMPUTE, after=[2]), node(2, LOAD, after=[1])]],
        [[receive(comm_src=1), send(2, after=[1])], [receive(), send(2, after=[1], comm_dst=0)]],
    ),
    "involved_dim is no list": ([[gathered(involved_dim=1)]], [[gathered(involved_dim="1")]]),
    "us, which is more than": (
        [[node(1, COMPUTE, us=2**64 - 1)]],
        [[node(1, LOAD, us=2**64 - 1)]],
        [[node(1, COMPUTE, name="a\nb\x1b", us=2**64 - 1)]],
    ),
}


@pytest.mark.parametrize(
    ("line", "ranks"), [(line, ranks) for line, traces in REFUSALS.items() for ranks in traces]
)
def test_a_refusal_of_a_trace_says_what_is_wrong(tmp_path, line, ranks):
    with pytest.raises(UsageError) as error:
        play(tmp_path, ranks)
    assert line in str(error.value) and "\n" not in str(error.value)
    assert "rank " in str(error.value) and str(error.value).isprintable()


# --- every attribute that ASTRA-sim reads ---------------------------------------------------------
def talk(me):
    """Two nodes with every attribute of a message."""
    peer = 1 - me
    facts = {"comm_size": 50_000, "comm_tag": 3, "is_cpu_op": 0}
    return [
        (4, SEND, {**facts, "comm_src": me, "comm_dst": peer}),
        (5, RECEIVE, {**facts, "comm_src": peer, "comm_dst": me}),
    ]


# Per rank: (number, type, attributes) of each node; then other values by node.
WORK = [
    (1, COMPUTE, {"num_ops": 10**10, "tensor_size": 10**7, "is_cpu_op": 0, "us": 3}),
    (2, COMPUTE, {"us": 90, "is_cpu_op": 1}),
]
GATHERED = (
    3,
    COLLECTIVE,
    {
        "comm_type": ALL_REDUCE,
        "comm_size": MIB,
        "pg_name": "1",
        "comm_priority": 0,
        "is_cpu_op": 0,
        "involved_dim": [True],
    },
)
STORED = [
    (6, LOAD, {"us": 9, "tensor_size": 4096, "is_cpu_op": 0}),
    (7, COMPUTE, {"us": 8, "is_cpu_op": 1}),
]
CHANGES = [
    (ranks, number, name, value)
    for ranks, changes in (
        (
            [WORK] * 2,
            {
                1: {"num_ops": 4 * 10**10, "tensor_size": 10**9, "is_cpu_op": 1, "other": 1},
                2: {"us": 190, "is_cpu_op": 0},
            },
        ),
        (
            [[GATHERED]] * 2,
            {
                3: {
                    "comm_type": ALL_GATHER,
                    "comm_size": 2 * MIB,
                    "pg_name": "2",
                    "comm_priority": 5,
                    "is_cpu_op": 1,
                    "involved_dim": [False],
                    "root": 1,
                }
            },
        ),
        (
            [talk(0), talk(1)],
            {
                4: {
                    "comm_size": 60_000,
                    "comm_tag": 4,
                    "comm_dst": 0,
                    "comm_src": 5,
                    "is_cpu_op": 1,
                },
                5: {
                    "comm_size": 60_000,
                    "comm_tag": 4,
                    "comm_src": 5,
                    "comm_dst": 5,
                    "is_cpu_op": 1,
                },
            },
        ),
        ([STORED] * 2, {6: {"us": 0, "is_cpu_op": 1}}),
    )
    for number, values in changes.items()
    for name, value in values.items()
]


def outcome(tmp_path, ranks, number=0, name="", value=None):
    """What a run of them gives, with another value of one attribute: figures, or a refusal."""
    groups = tmp_path / "groups.json"
    groups.write_text('{"1": [0, 1]}')
    nodes = [
        [
            node(n, kind, **{**attributes, **({name: value} if n == number else {})})
            for n, kind, attributes in rank
        ]
        for rank in ranks
    ]
    try:
        return play(
            tmp_path, nodes, groups=groups, peak_tflops=100, memory_bandwidth="1000 GB/s", dims=[2]
        )
    except UsageError as error:
        return str(error).partition(": ")[2]


def test_another_value_of_any_attribute_is_another_result_or_a_word(tmp_path):
    before = {}
    for ranks, number, name, value in CHANGES:
        key = str(ranks)
        if key not in before:
            before[key] = outcome(tmp_path, ranks)
            assert isinstance(before[key], tuple), before[key]
        assert outcome(tmp_path, ranks, number, name, value) != before[key], (number, name)


def test_what_has_no_effect_is_counted(tmp_path):
    nodes = [
        node(1, 0),
        node(2, COMPUTE, us=1, num_ops=5, tensor_size=1, mood="good"),
        node(3, LOAD, tensor_size=10),
        node(4, METADATA),
        node(5, COMPUTE, us=2, mood="bad"),
        node(6, COLLECTIVE, is_cpu_op=1, us=3),
        node(7, COMPUTE),
    ]
    nodes[6].ctrl_deps.append(99)
    length, _, passed = play(tmp_path, [nodes])
    assert length == 3
    for text in (
        "nodes of no type, which take no time (1 node)",
        "attribute mood (2 nodes)",
        "num_ops, where the duration counts (1 node)",
        "tensor_size of loads and stores without a duration (1 node)",
        "collectives on the CPU without comm_type, taken as CPU operations (1 node)",
        "control dependencies on nodes that are not there (1 node)",
    ):
        assert text in passed


def test_each_of_several_jobs_says_what_it_passed_over(tmp_path):
    jobs = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        jobs.append(
            ln.Trace(write(tmp_path / name, [[node(1, COMPUTE, us=1, **{name: 1})]]), name=name)
        )
    r = ln.run(ln.star(hosts=2, rate="1 Gb/s", delay="1 us"), jobs, write=False)
    for name in ("a", "b"):
        assert r.data.fidelity.notes[f"passed over in t of {name}"] == f"attribute {name} (1 node)"


def test_control_dependencies_of_another_numbering_are_dropped(tmp_path):
    """As in traces of older converters, whose control dependencies and data dependencies together
    make cycles."""
    nodes = [node(1, COMPUTE, us=5), node(2, COMPUTE, us=6, after=[1], is_cpu_op=1)]
    nodes[0].ctrl_deps.append(2)
    length, _, passed = play(tmp_path, [nodes])
    assert length == 11 and "control dependencies that make a cycle (1 node)" in passed
    nodes[0].ctrl_deps[:] = []
    nodes[1].data_deps[:] = []
    nodes[1].ctrl_deps.append(1)  # one that can be kept counts
    assert play(tmp_path, [nodes])[0] == 11


def test_the_command_says_what_was_passed_over(tmp_path, monkeypatch, capsys):
    from loomnet.cli.entry import main

    write(tmp_path, [[node(1, COMPUTE, us=1, mood="good")]])
    (tmp_path / "s.py").write_text(
        "import loomnet as ln\n@ln.scenario\ndef s(lab: ln.Lab):\n    '''x'''\n"
        "    lab.run(ln.star(hosts=2, rate='1 Gb/s', delay='1 us'), ln.Trace('t'))\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["run", "s.py"]) == 0
    assert "passed over in t: attribute mood (1 node)" in capsys.readouterr().out


# --- traces drawn at random -----------------------------------------------------------------------
def drawn(draw):
    """Ranks with work, messages and collectives in random order and random dependencies."""
    count = draw.choice([1, 2, 3, 4])
    ranks = [[] for _ in range(count)]

    def add(rank, kind, **facts):
        number = len(ranks[rank]) + 1
        after = draw.sample(range(1, number), min(number - 1, draw.choice([0, 1, 1, 2])))
        ranks[rank].append(node(number, kind, after=after, **facts))
        if draw.random() < 0.1:
            ranks[rank][-1].ctrl_deps.append(draw.randrange(1, 12))

    for _ in range(draw.randrange(1, 9)):
        what = draw.random()
        if what < 0.3:
            counted = {"num_ops": draw.choice([0, 10**9]), "tensor_size": draw.choice([0, 10**6])}
            add(
                draw.randrange(count),
                draw.choice([0, METADATA, LOAD, 3, COMPUTE, COMPUTE, 8]),
                us=draw.choice([0, 1, 5]),
                is_cpu_op=draw.choice([0, 1]),
                **(counted if draw.random() < 0.4 else {}),
            )
        elif what < 0.55 and count > 1:
            source, destination = draw.sample(range(count), 2)
            facts = {"comm_tag": draw.randrange(2), "comm_size": draw.choice([0, 1, 5000])}
            add(source, SEND, comm_dst=destination, **facts)
            add(destination, RECEIVE, comm_src=source, **facts)
        else:
            facts, group = {"comm_type": draw.randrange(10)}, range(count)
            facts["comm_size"] = draw.choice([0, 1, 4000])
            if draw.random() < 0.3:
                facts["involved_dim"] = [draw.random() < 0.5 for _ in range(draw.randrange(1, 4))]
            if draw.random() < 0.3 and count > 1:
                facts["pg_name"], group = "7", [0, 1]
            for rank in group:
                add(rank, COLLECTIVE, **facts)
    return ranks


@pytest.mark.parametrize("worlds", [30, pytest.param(3000, marks=pytest.mark.soak)])
def test_a_trace_that_is_read_runs_to_its_end(tmp_path, worlds):
    ended = 0
    for seed in range(worlds):
        draw, folder = random.Random(seed), tmp_path / str(seed)
        ranks = drawn(draw)
        folder.mkdir()
        (folder / "g.json").write_text('{"7": [1, 0]}')
        values = {} if len(ranks) == 1 else {"groups": folder / "g.json"}
        if draw.random() < 0.6:
            values["dims"] = {1: [1], 2: [2], 3: [1, 3], 4: [2, 2]}[len(ranks)]
        if draw.random() < 0.7:
            values |= {"peak_tflops": 1, "memory_bandwidth": "1 TB/s"}
        job = ln.Trace(write(folder, ranks), transport=draw.choice(["mrc", "roce"]), **values)
        try:
            r = ln.run(ln.star(hosts=4, rate="100 Gb/s", delay="1 us"), job, write=False)
        except UsageError as error:
            assert "\n" not in str(error)
            continue
        assert r["errors"] == 0 and len(r.data.iterations) == 1, f"seed {seed}: {r.data.reason}"
        ended += 1
    assert ended > worlds // 2
