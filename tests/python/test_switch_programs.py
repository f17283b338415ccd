"""Switch programs by name at the compiled module: options, tables, reboot, snapshot, refusals."""

import pytest

from loomnet import _core


def network():
    return _core.Network(seed=1, meter_bin_ps=10**9)


def tables(generation, groups=()):
    return _core.table_batch(
        "forward",
        generation=generation,
        block=0xFC000000,
        own=[],
        adjacencies=[],
        fib=[],
        hosts=[[0xFD] + [0] * 14 + [host] for host in range(4)],
        host_groups=range(4),
        groups=[[port] for port in range(4)],
        replicate=list(groups),
    )


def test_the_programs_say_what_they_are_and_which_options_they_have():
    programs = _core.switch_programs()
    assert sorted(programs) == ["aggregate", "forward", "mirror", "sum", "symphony"]
    default, text = programs["mirror"]["options"]["sample"]
    assert default == 1 and "echo" in text
    assert "ECMP" in programs["forward"]["summary"]


def test_a_switch_runs_the_program_it_is_given():
    net = network()
    node = net.add_switch(4, program="sum", options={"check_addresses": False})
    net.set_tables(node, tables(1, groups=[[0, 1]]))
    assert net.switch_snapshot(node) == {"sums": []}
    assert {"summed", "absorbed", "forward_host"} <= set(net.switch_counters(node))
    net.reset_switch(node)
    net.set_tables(node, tables(1))  # after a reboot any generation is news
    assert net.switch_snapshot(net.add_switch(2)) == {}


def test_tables_are_bytes_with_a_generation():
    packed = tables(3, groups=[[2, 3]])
    again = _core.TableBatch(generation=3, bytes=packed.bytes, groups=packed.groups)
    net = network()
    node = net.add_switch(4, program="mirror")
    net.set_tables(node, again)
    with pytest.raises(ValueError, match=r"TableBatch\.generation: 3 does not follow 3"):
        net.set_tables(node, packed)


@pytest.mark.parametrize(
    ("program", "options", "line"),
    [
        (
            "mirrow",
            {},
            'no switch program "mirrow"; there are aggregate, forward, mirror, sum and symphony',
        ),
        (
            "sum",
            {"pool": "1 MB"},
            'switch program "sum" has no option "pool"; it has check_addresses '
            "and allow_stale_length",
        ),
        (
            "mirror",
            {"sample": -1},
            'switch program "mirror", option sample: must be 1 to 1000000000, not -1',
        ),
        (
            "mirror",
            {"sample": True},
            'switch program "mirror", option sample: must be a whole number, not True',
        ),
        (
            "mirror",
            {"sample": 2**70},
            f"switch program option sample: {2**70} is beyond 64 bits; give a smaller number",
        ),
        (
            "mirror",
            {"sample": None},
            "switch program option sample: must be true or false, a number or a text, not None",
        ),
    ],
)
@pytest.mark.parametrize("kernel", [False, True])
def test_a_wrong_program_or_option_is_refused_in_one_line(program, options, line, kernel):
    with pytest.raises(ValueError) as refused:
        network().add_switch(4, program=program, options=options, kernel=kernel)
    assert str(refused.value) == line
    with pytest.raises(ValueError) as refused:
        _core.check_switch_program(program, 4, options)
    assert str(refused.value) == line


def test_a_group_that_cannot_be_is_refused():
    net = network()
    node = net.add_switch(4, program="mirror")
    with pytest.raises(
        ValueError,
        match=r"groups\[1\]: no members; name one or more of the "
        r"switch's ports \(0 to 3\)",
    ):
        net.set_tables(node, tables(1, groups=[[1], []]))
    with pytest.raises(ValueError, match="port 4 of a switch whose ports are 0 to 3"):
        net.set_tables(node, tables(1, groups=[[4]]))


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ({"children": [(1 << 16, 1)]}, "children: 65536 is above 65535"),
        ({"hops": [(1 << 20, 1)]}, "hops: 1048576 is above 65535"),
        ({"window": 1 << 32}, "window: 4294967296 is above 4294967295"),
        ({"up": "p0"}, "up: a number"),
        ({"server": b"short"}, "an address has 16 bytes"),
    ],
)
def test_a_row_of_a_program_is_checked_field_by_field(wrong, line):
    row = {
        "job": 1,
        "scheme": 2,
        "root": 1,
        "window": 16,
        "base": 0,
        "up": 0,
        "server": bytes(16),
        "children": [(0, 1)],
        "hops": [],
    }
    with pytest.raises(ValueError, match=line):
        _core.table_batch(
            "aggregate",
            generation=1,
            block=0xFC000000,
            own=[],
            adjacencies=[],
            fib=[],
            hosts=[],
            host_groups=[],
            groups=[],
            rows={"jobs": [row | wrong]},
        )
    with pytest.raises(ValueError, match="job: a row must have it"):
        _core.table_batch(
            "aggregate",
            generation=1,
            block=0xFC000000,
            own=[],
            adjacencies=[],
            fib=[],
            hosts=[],
            host_groups=[],
            groups=[],
            rows={"jobs": [{}]},
        )
