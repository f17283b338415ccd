"""Chakra traces: the reader against the protobuf library, each refusal in one line, and runs whose
times follow from the graph."""

import gzip
import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("google.protobuf")

from chakra_writer import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BARRIER,
    BROADCAST,
    COLLECTIVE,
    COMPUTE,
    MESSAGES,
    RECEIVE,
    SEND,
    encode,
    node,
    process_groups,
    write,
)

import loomnet as ln
from loomnet.base.errors import UsageError
from loomnet.jobs.chakra import WireError, parse_node, read_rank
from loomnet.jobs.chakra_graph import Reading, read_graph
from loomnet.labs.lab import Lab

LINK = {"rate": "100 Gb/s", "delay": "1 us"}


def star(hosts=4):
    return ln.star(hosts=hosts, payload="4096 B", **LINK)


# --- the reader -----------------------------------------------------------------------------------
U64 = st.integers(0, 2**64 - 1)
KINDS = {
    "int32_val": st.integers(-(2**31), 2**31 - 1),
    "int64_val": st.integers(-(2**63), 2**63 - 1),
    "uint32_val": st.integers(0, 2**32 - 1),
    "uint64_val": U64,
    "sint64_val": st.integers(-(2**63), 2**63 - 1),
    "fixed64_val": U64,
    "sfixed32_val": st.integers(-(2**31), 2**31 - 1),
    "bool_val": st.booleans(),
    "string_val": st.text(min_size=1),
    "double_val": st.floats(allow_nan=False),
}
ATTRIBUTES = st.lists(
    st.sampled_from(sorted(KINDS)).flatmap(lambda kind: st.tuples(st.just(kind), KINDS[kind])),
    max_size=4,
)


@settings(max_examples=300, deadline=None)
@given(
    number=U64,
    name=st.text(),
    kind=st.integers(0, 12),
    ctrl=st.lists(U64, max_size=3),
    data=st.lists(U64, max_size=3),
    us=U64,
    attributes=ATTRIBUTES,
    inputs=st.text(),
)
def test_what_the_library_writes_we_read(number, name, kind, ctrl, data, us, attributes, inputs):
    made = MESSAGES["Node"](
        id=number,
        name=name,
        type=kind,
        ctrl_deps=ctrl,
        data_deps=data,
        duration_micros=us,
        start_time_micros=7,
    )
    made.inputs.values = inputs
    expected = {}
    for i, (field, value) in enumerate(attributes):
        entry = made.attr.add(name=f"a{i}")
        setattr(entry, field, value)
        expected[f"a{i}"] = value
    read = parse_node(made.SerializeToString())
    assert (read.id, read.name, read.type, read.duration_us) == (number, name, kind, us)
    assert (read.control, read.after, read.attributes) == (ctrl, data, expected)


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=200))
def test_any_bytes_are_a_node_or_refused(data):
    try:
        parse_node(data)
    except WireError:
        pass


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


GATHERED = {"comm_type": ALL_GATHER, "comm_size": 99, "pg_name": "p", "involved_dim": [True, True]}
VALID = [
    [
        node(1, COMPUTE, us=3),
        node(2, COLLECTIVE, after=[1], comm_type=ALL_REDUCE, comm_size=4096),
        node(3, SEND, after=[2], comm_dst=1, comm_tag=5, comm_size=100),
        node(4, COLLECTIVE, **GATHERED),
        process_groups(5, {"p": [0, 1]}),
        node(6, COMPUTE, num_ops=9, tensor_size=8, is_cpu_op=0),
    ],
    [
        node(1, COLLECTIVE, comm_type=ALL_REDUCE, comm_size=4096),
        node(9, RECEIVE, after=[1], comm_src=0, comm_tag=5, comm_size=100),
        node(10, COLLECTIVE, **GATHERED),
        process_groups(11, {"p": [0, 1]}),
    ],
]
MACHINE = Reading(peak=1e12, memory=1e12, dimensions=(2, 1))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_damaged_trace_is_read_or_refused(folder, data):
    for rank, nodes in enumerate(VALID):
        raw = bytearray(encode(nodes))
        for _ in range(data.draw(st.integers(0, 3))):
            at = data.draw(st.integers(0, len(raw) - 1))
            raw[at] = data.draw(st.integers(0, 255))
        cut = data.draw(st.integers(0, len(raw)) | st.just(len(raw)))
        (folder / f"x.{rank}.et").write_bytes(raw[:cut])
    try:
        read_graph(folder / "x", None, MACHINE)
    except UsageError as error:
        assert "\n" not in str(error)


@settings(max_examples=100, deadline=None)
@given(
    text=st.text(max_size=40)
    | st.recursive(
        st.none() | st.integers(-1, 3) | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        ),
    ).map(json.dumps)
)
def test_any_groups_file_is_read_or_refused(folder, text):
    write(folder, VALID, "g")
    (folder / "groups.json").write_text(text, errors="replace")
    try:
        read_graph(folder / "g", folder / "groups.json")
    except UsageError as error:
        assert "\n" not in str(error)


def test_a_node_of_the_first_schema_is_refused():
    """Version 0.0.1 has num_ops as field 12 and comm_type as field 13."""
    for more in (b"\x60\x05", b"\x68\x01", b"\x58\x10"):  # fields 12, 13, 11
        with pytest.raises(WireError, match=r"Chakra's schema from 0\.0\.4 on does not have"):
            parse_node(node(1, COMPUTE).SerializeToString() + more)
    assert parse_node(node(1, 8).SerializeToString() + b"\x5a\x02\x08\x01").type == 8  # storage


def test_files_are_found_by_folder_prefix_or_name(tmp_path):
    write(tmp_path, VALID)
    for path in (tmp_path, tmp_path / "t", tmp_path / "t.1.et"):
        assert read_graph(path, None, MACHINE).ranks == 2
    packed = tmp_path / "z"
    packed.mkdir()
    for rank, nodes in enumerate(VALID):
        (packed / f"t.{rank}.et.gz").write_bytes(gzip.compress(encode(nodes)))
    unpacked = read_graph(tmp_path, None, MACHINE)
    assert len(read_graph(packed, None, MACHINE).tasks) == len(unpacked.tasks)
    write(tmp_path, VALID, "other")
    with pytest.raises(UsageError, match=r"several traces \(other, t\)"):
        read_graph(tmp_path)


# --- refusals -------------------------------------------------------------------------------------
REDUCE = {"comm_type": ALL_REDUCE, "comm_size": 64}


@pytest.mark.parametrize(
    ("ranks", "line"),
    [
        (
            [[node(1, COMPUTE, after=[2]), node(2, COMPUTE, name="b", after=[1])], []],
            'a cycle of dependencies: rank 0 node 2 "b" -> rank 0 node 1 -> rank 0 node 2 "b"',
        ),
        ([[node(1, 11)], []], "rank 0 node 1: unknown node type 11"),
        ([[node(1, SEND, comm_src=1, comm_dst=1, comm_size=1)], []], "is rank 1's by its comm_src"),
        (
            [[node(1, SEND, comm_dst=1, comm_size=1)], [node(4, RECEIVE, comm_src=0, comm_size=2)]],
            "rank 1 node 4: receives 2 B, but rank 0 node 1 sends 1 B",
        ),
        ([[node(1, COMPUTE, num_ops=9, tensor_size=1)], []], "has 9 num_ops and no duration; give"),
        ([[node(1, COMPUTE, after=[7])], []], "waits for node 7, which is not there"),
        ([[node(1, COMPUTE), node(1, COMPUTE)], []], "node 1 is there twice"),
        ([[node(1, SEND, comm_dst=5, comm_size=1)], []], "rank 5 is missing from the trace"),
        ([[node(1, SEND, comm_dst=1, comm_size=1)], []], "no rank 1 receives it (tag 0)"),
        ([[], [node(1, RECEIVE, comm_src=0, comm_size=1)]], "no rank 0 sends it (tag 0)"),
        ([[node(1, SEND, comm_dst=0, comm_size=1)], []], "sends to itself"),
        ([[node(1, SEND, comm_size=1)], []], "has no comm_dst"),
        ([[node(1, COLLECTIVE, **REDUCE)], []], "rank 1 takes no part in it"),
        (
            [[node(1, COLLECTIVE, **REDUCE)], [node(1, COLLECTIVE, comm_type=0, comm_size=65)]],
            "is all_reduce of 65 B, but rank 0 node 1 is all_reduce of 64 B",
        ),
        ([[node(1, COLLECTIVE, comm_type=77, comm_size=1)]] * 2, "unknown collective 77"),
        ([[node(1, COLLECTIVE, pg_name="tp", **REDUCE)]] * 2, 'unknown communicator group "tp"'),
        ([[node(1, COLLECTIVE, comm_type=0, comm_size=-1)]] * 2, "comm_size -1 is no whole number"),
        # Each waits for the other's message: a cycle through two ranks.
        (
            [
                [
                    node(1, RECEIVE, comm_src=1, comm_size=1),
                    node(2, SEND, after=[1], comm_dst=1, comm_size=1),
                ],
                [
                    node(1, RECEIVE, comm_src=0, comm_size=1),
                    node(2, SEND, after=[1], comm_dst=0, comm_size=1),
                ],
            ],
            "a cycle of dependencies: rank ",
        ),
    ],
)
def test_a_bad_trace_is_one_clear_line(tmp_path, ranks, line):
    with pytest.raises(UsageError) as error:
        read_graph(write(tmp_path, ranks))
    assert line in str(error.value) and "\n" not in str(error.value)


def test_a_missing_rank_ends_the_command_with_exit_2(tmp_path):
    write(tmp_path, VALID)
    (tmp_path / "t.1.et").rename(tmp_path / "t.2.et")
    scenario = tmp_path / "s.py"
    scenario.write_text(
        "import loomnet as ln\n@ln.scenario\ndef s(lab: ln.Lab):\n    '''x'''\n"
        "    lab.run(ln.star(hosts=4, rate='1 Gb/s', delay='1 us'), "
        f"ln.Trace({str(tmp_path / 't')!r}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "loomnet", "run", str(scenario)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "rank 1 is missing: no file t.1.et" in done.stderr
    with pytest.raises(UsageError, match="no trace files"):
        ln.Trace(tmp_path / "none.0.et").place([0, 1])
    (tmp_path / "empty.0.et").write_bytes(b"")
    with pytest.raises(UsageError, match=r"empty.0.et: empty"):
        read_rank(tmp_path / "empty.0.et")


def test_groups_name_ranks_that_are_there(tmp_path):
    prefix = write(tmp_path, [[node(1, COLLECTIVE, pg_name="dp", **REDUCE)], []])
    groups = tmp_path / "groups.json"
    for text, line in (
        ('{"dp": [0, 5]}', 'group "dp": rank 5 is missing from the trace'),
        *[
            (f'{{"dp": {ranks}}}', "must be a list of ranks, one or more, each once: whole numbers")
            for ranks in ("[0, 0]", "[]", "[-1]", "[true]", "[0.0]", "3", '"01"', "null")
        ],
        ("[1]", "communicator groups are"),
        ("{", "groups.json: "),
        ('{"dp": [1]}', 'is no member of group "dp"'),
    ):
        groups.write_text(text)
        with pytest.raises(UsageError, match=line.replace("[", r"\[")):
            read_graph(prefix, groups)


# --- runs -----------------------------------------------------------------------------------------
def run(tmp_path, ranks, fabric=None, transport="mrc", **values):
    pytest.importorskip("loomnet._core")
    job = ln.Trace(write(tmp_path, ranks), transport=transport, **values)
    r = Lab("trace", directory=tmp_path / "run").run(fabric or star(), job)
    assert r["errors"] == 0 and r.data.fidelity.unexplained == 0
    (iteration,) = r.data.iterations
    return iteration.length_ps, r


def test_compute_of_one_rank_is_serial_and_of_two_parallel(tmp_path):
    serial, _ = run(
        tmp_path, [[node(1, COMPUTE, us=5), node(2, COMPUTE, us=7)], [node(1, COMPUTE, us=4)]]
    )
    assert serial == 12 * 10**6


def test_a_message_waits_for_its_sender_alone(tmp_path):
    """Rank 0 computes 3 us and sends one packet over two links; rank 1 asks for it at 9 us, when it
    has been there for a while, and computes 2 us with it."""
    ranks = lambda late: [  # noqa: E731
        [node(1, COMPUTE, us=3), node(2, SEND, after=[1], comm_dst=1, comm_size=4096)],
        [
            node(1, COMPUTE, us=late),
            node(2, RECEIVE, after=[1], comm_src=0, comm_size=4096),
            node(3, COMPUTE, after=[2], us=2),
        ],
    ]
    # 4,238 B of write-with-immediate, 4 B more than a plain write, and 24 B of framing.
    crossing = 2 * ((4238 + 4 + 24) * 80 + 10**6)
    early, _ = run(tmp_path, ranks(1))
    assert early == 3 * 10**6 + crossing + max(2 * 10**6, 2 * ((154 + 24) * 80 + 10**6))
    (tmp_path / "late").mkdir()
    late, _ = run(tmp_path / "late", ranks(9))
    assert late == 11 * 10**6


@pytest.mark.parametrize("transport", ["mrc", "roce"])
def test_collectives_move_their_bytes(tmp_path, transport):
    size, ranks = 400_000, 4
    kinds = (ALL_REDUCE, ALL_GATHER, ALL_TO_ALL, BROADCAST, BARRIER)
    nodes = [
        node(
            i,
            COLLECTIVE,
            after=[i - 1] if i else [],
            comm_type=kind,
            comm_size=0 if kind == BARRIER else size,
        )
        for i, kind in enumerate(kinds)
    ]
    _, r = run(tmp_path, [nodes] * ranks, transport=transport)
    received = sum(n for series in r.data.hosts.values() for _, _, n in series.work)
    # Of all ranks together. An all-gather hands round what each rank puts in.
    ring = 2 * (ranks - 1) * size + (ranks - 1) * ranks * size  # all-reduce, all-gather
    assert received == ring + (ranks - 1) * size + (ranks - 1) * size  # all-to-all, broadcast


def test_groups_run_side_by_side(tmp_path):
    groups = tmp_path / "g.json"
    groups.write_text('{"a": [0, 1], "b": [2, 3]}')
    nodes = [
        [node(1, COLLECTIVE, comm_type=ALL_REDUCE, comm_size=10**6, pg_name=name)]
        for name in "aabb"
    ]
    both, _ = run(tmp_path, nodes, groups=groups)
    (tmp_path / "one").mkdir()
    groups.write_text('{"a": [0, 1]}')
    alone, _ = run(tmp_path / "one", [*nodes[:2], [], []], groups=groups)
    assert both == alone


def test_the_same_trace_ends_at_the_same_picosecond(tmp_path):
    ends = set()
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        ends.add(run(tmp_path / str(number), VALID, peak_tflops=1, memory_bandwidth="1 TB/s")[0])
    assert len(ends) == 1
