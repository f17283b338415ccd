"""htsim's connection matrices and topologies: read, refused in one line, and run."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loomnet as ln
from loomnet.base.errors import UsageError
from loomnet.jobs.htsim_matrix import read_matrix
from loomnet.labs.lab import Lab

LINK = {"rate": "100 Gb/s", "delay": "1 us"}
CHAIN = """# three flows, the last two held by triggers
Nodes 4
Connections 3
Triggers 2
0->1 id 1 start 2000000 size 100000 send_done_trigger 1
2->3 id 2 trigger 1 size 50000 recv_done_trigger 2
1->0 id 3 trigger 2 size 4096 prio 3
trigger id 1 oneshot
trigger id 2 barrier count 1
"""
TOPOLOGY = """Nodes 16
Tiers 3
Podsize 4

Tier 0
Downlink_speed_Gbps 200
Radix_Down 2
Radix_Up 2
Downlink_Latency_ns 1000
Switch_Latency_ns 400
Tier 1
Downlink_speed_Gbps 200
Radix_Down 2
Radix_Up 1
Bundle 1
Downlink_Latency_ns 1500   # to the leaves
Switch_Latency_ns 200
Tier 2
Downlink_speed_Gbps 400
Radix_Down 4
Downlink_Latency_ns 2000
"""


def written(tmp_path, text, name="m.cm"):
    (tmp_path / name).write_text(text)
    return tmp_path / name


def test_a_matrix_is_read(tmp_path):
    matrix = read_matrix(written(tmp_path, CHAIN))
    assert matrix.nodes == 4 and matrix.triggers == {1: ("oneshot", 0), 2: ("barrier", 1)}
    flows = [(c.source, c.destination, c.size, c.start_ps) for c in matrix.connections]
    assert flows == [(0, 1, 100_000, 2_000_000), (2, 3, 50_000, None), (1, 0, 4096, None)]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("0->1 id", "0->7 id", "m.cm:5: no node 7; Nodes says 4"),
        ("0->1 id", "0->0 id", "m.cm:5: 0->0 sends to itself"),
        ("size 100000", "size 0", "m.cm:5: an endless flow"),
        ("size 100000", "size x", 'm.cm:5: size "x" is not a number'),
        ("size 100000", "siz 1", 'm.cm:5: unknown word "siz"; nearest: size'),
        ("size 100000", "size inf", 'm.cm:5: size "inf" is not a number'),
        ("start 2000000 ", "", "m.cm:5: neither start nor trigger"),
        ("trigger 1 size", "trigger 1 start 5 size", "m.cm:6: both start and trigger"),
        ("Connections 3", "Connections 4", "Connections says 4, the file holds 3"),
        ("Triggers 2", "Triggers 1", "Triggers says 1, the file holds 2"),
        ("trigger id 2 barrier", "trigger id 1 barrier", "m.cm:9: trigger 1 is defined twice"),
        (
            "trigger id 2 barrier count 1",
            "trigger id 3 barrier count 1",
            "trigger 2 is not defined",
        ),
        ("count 1", "count 2", "trigger 2 (barrier) is fired by 1 connections; 2 are needed"),
        ("count 1", "", "m.cm:9: a barrier needs a count"),
        ("barrier count", "barier count", 'unknown word "barier"; nearest: barrier'),
        ("# three", "three", 'm.cm:1: unknown word "three"'),
        ("Nodes 4", "Nodes 1", "m.cm:2: Nodes 1 must be 2"),
        ("send_done_trigger 1", "send_done_trigger", "m.cm:5: send_done_trigger has no value"),
        (
            "start 2000000 size 100000 send_done_trigger 1",
            "trigger 2 size 9 send_done_trigger 1",
            "a cycle of dependencies",
        ),
    ],
)
def test_a_bad_matrix_is_one_clear_line(tmp_path, old, new, line):
    assert old in CHAIN
    with pytest.raises(UsageError) as error:
        ln.Flows.from_htsim(written(tmp_path, CHAIN.replace(old, new, 1)))
    assert line in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("id 2 ", "", "m.cm:6: no id; in a matrix with msg each connection has one"),
        ("0->1 id 2", "0->2 id 1", "m.cm:6: id 1 is 0->1 in line 4; one connection has the same"),
        ("id 2", "id 1", "m.cm:6: id 1 is that of line 4; write msg for a further message"),
        ("msg 7", "mgs 7", 'm.cm:5: unknown word "mgs"; nearest: msg'),
    ],
)
def test_a_bad_message_is_one_clear_line(tmp_path, old, new, line):
    with pytest.raises(UsageError) as error:
        ln.Flows.from_htsim(written(tmp_path, MESSAGES.replace(old, new, 1)))
    assert line in str(error.value) and "\n" not in str(error.value)


HEAD = "Nodes 4\nConnections 1\n"
REFUSALS = {  # for each line, inputs that are wrong in that way and in no other
    "is no connection: write 0->1": (
        "0->1id 1 start 0 size 5",
        "0->-1 start 0 size 5",
        "a->b start 0 size 5",
        "0-> 1 start 0 size 5",
    ),
    "an endless flow": ("0->1 start 0", "0->1 start 0 size 0", "0->1 id 1 trigger 5"),
    "a trigger needs an id above 0 and one of": (
        "trigger id 0 oneshot",
        "trigger oneshot",
        "trigger id 3",
        "trigger",
    ),
    "says 1, the file holds": (
        "",
        "0->1 start 0 size 5\n0->2 start 0 size 5",
        "trigger id 1 oneshot",
    ),
    "no node": ("0->4 start 0 size 5", "9->0 start 0 size 5", "0->99999999 start 0 size 5"),
    "has no value": ("0->1 start 0 size", "0->1 start", "trigger id", "trigger id 1 barrier count"),
    "a trigger is oneshot or barrier, not both": ("trigger id 1 oneshot barrier count 2",),
}


@pytest.mark.parametrize(
    ("line", "text"), [(line, text) for line, texts in REFUSALS.items() for text in texts]
)
def test_a_refusal_of_a_matrix_says_what_is_wrong(tmp_path, line, text):
    with pytest.raises(UsageError) as error:
        ln.Flows.from_htsim(written(tmp_path, HEAD + text))
    assert line in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("0->1 start 0 size 5", "m.cm:1: a connection before Nodes"),
        ("Connections 1\n0->1 start 0 size 5\nNodes 4", "m.cm:2: a connection before Nodes"),
        ("Nodes 4\n0->1 start 0 size 5", "Connections is missing, the file holds 1"),
        (
            "Nodes 4\nConnections 1\n0->1 start 0 size 5\ntrigger id 1 oneshot",
            "Triggers is missing, the file holds 1",
        ),
    ],
)
def test_a_header_that_is_not_there_is_said(tmp_path, text, line):
    with pytest.raises(UsageError) as error:
        ln.Flows.from_htsim(written(tmp_path, text))
    assert line in str(error.value)


@pytest.mark.parametrize("transport", ["mrc", "roce"])
def test_a_matrix_runs_and_triggers_hold(tmp_path, transport):
    pytest.importorskip("loomnet._core")
    job = ln.Flows.from_htsim(written(tmp_path, CHAIN), transport=transport)
    r = Lab("cm", directory=tmp_path / "run").run(ln.star(hosts=6, **LINK), job)
    assert r["errors"] == 0
    first, second, third = r.flow_records
    assert first.start_ps == 2_000_000 and first.bytes == 100_000
    # A sender is done with the last acknowledgement, a receiver with the last byte.
    assert second.start_ps == first.end_ps
    ack_ps = 2 * 10**6 + 2 * (154 + 24) * 8 * 10  # two links of 1 us and 100 Gb/s
    assert second.end_ps - third.start_ps == pytest.approx(ack_ps, rel=0.01)
    assert all(flow.completion_ps >= flow.ideal_ps for flow in r.flow_records)
    assert (third.source, third.destination) == (1, 0)
    with pytest.raises(UsageError, match="4 ranks but 2 hosts"):
        job.place([0, 1])


def test_starts_may_be_in_microseconds(tmp_path):
    pytest.importorskip("loomnet._core")
    path = written(tmp_path, CHAIN.replace("start 2000000", "start 7"))
    job = ln.Flows.from_htsim(path, start_unit="1 us")
    r = Lab("cm", directory=tmp_path / "run").run(ln.star(hosts=6, **LINK), job)
    assert r.flow_records[0].start_ps == 7_000_000


# The form of uet-htsim's matrices with `msg`: a word with a number of its own or without.
MESSAGES = """Nodes 4
Connections 4
Triggers 1
0->1 id 1 msg start 0 size 400000
0->1 id 1 msg 7 start 3 size 400000 send_done_trigger 1
0->1 id 2 start 5 size 4096 prio 9
2->3 id 3 msg trigger 1 size 4096
trigger id 1 oneshot
"""


def test_messages_of_one_id_go_one_after_another_over_one_connection(tmp_path):
    def ended(name, text):
        r = Lab(name, directory=tmp_path / name).run(
            ln.star(hosts=4, **LINK), ln.Flows.from_htsim(written(tmp_path, text, f"{name}.cm"))
        )
        return [(f.start_ps, f.end_ps - f.start_ps) for f in r.flow_records], r

    flows, r = ended("msg", MESSAGES)
    assert [start for start, _ in flows[:3]] == [0, 3_000_000, 5_000_000]  # microseconds
    assert r.data.fidelity.notes["passed over in msg.cm"] == "prio (1 connection)"
    # The second waits behind the first, the third has a connection of its own and shares the link.
    one = flows[0][1]
    assert flows[1][1] > 1.7 * one and flows[2][1] < one
    apart, _ = ended("apart", MESSAGES.replace("id 1 msg 7", "id 4 msg 7"))
    assert apart[0][1] > 1.2 * one  # two connections share the link from the second's start on


def test_what_nobody_fires_never_starts_and_is_said(tmp_path):
    pytest.importorskip("loomnet._core")
    text = CHAIN.replace("recv_done_trigger 2", "").replace("barrier count 1", "oneshot")
    job = ln.Flows.from_htsim(written(tmp_path, text))
    assert "1 connection never start" in job.describe()
    r = Lab("cm", directory=tmp_path / "run").run(ln.star(hosts=6, **LINK), job)
    assert [(flow.source, flow.destination) for flow in r.flow_records] == [(0, 1), (2, 3)]
    assert r.data.fidelity.notes["never started"] == "1: 1->0 (line 7)"


def test_a_trigger_fired_twice_counts_the_first_time(tmp_path):
    pytest.importorskip("loomnet._core")
    text = CHAIN.replace("barrier count 1", "multishot").replace(
        "send_done_trigger 1", "send_done_trigger 1 recv_done_trigger 2"
    )
    r = Lab("cm", directory=tmp_path / "run").run(
        ln.star(hosts=6, **LINK), ln.Flows.from_htsim(written(tmp_path, text))
    )
    first, second, third = r.flow_records
    assert first.start_ps < third.start_ps < first.end_ps == second.start_ps


# Each rank sends to the next, one after another: every step is a whole way there and back.
@pytest.mark.parametrize("kind", ["send", "recv"])
def test_a_serial_chain_takes_the_sum_of_its_steps(tmp_path, kind):
    pytest.importorskip("loomnet._core")
    hosts, size = 6, 40_960
    lines = [f"Nodes {hosts}", f"Connections {hosts}", f"Triggers {hosts - 1}"]
    for i in range(hosts):
        begin = "start 0" if i == 0 else f"trigger {i}"
        fire = f" {kind}_done_trigger {i + 1}" if i + 1 < hosts else ""
        lines.append(f"{i}->{(i + 1) % hosts} {begin} size {size}{fire}")
    lines += [f"trigger id {i} oneshot" for i in range(1, hosts)]
    r = Lab("cm", directory=tmp_path / "run").run(
        ln.star(hosts=hosts, payload="4096 B", **LINK),
        ln.Flows.from_htsim(written(tmp_path, "\n".join(lines))),
    )
    frame = 4096 + 142 + 24
    there_ps = 2 * 10**6 + (10 + 1) * frame * 8 * 10
    back_ps = 2 * 10**6 + 2 * (154 + 24) * 8 * 10
    steps = hosts * there_ps + (hosts if kind == "send" else 1) * back_ps
    ended = max(flow.end_ps for flow in r.flow_records)
    assert ended == pytest.approx(steps, rel=0.01)


def test_a_topology_becomes_a_three_tier_fabric(tmp_path):
    fabric = ln.from_htsim_topology(written(tmp_path, TOPOLOGY, "ft.topo"))
    # Uplinks of 400 Gb/s: half as many as the downlinks of 200 Gb/s.
    assert fabric.name == "ft" and fabric.counts == (16, 8 + 8 + 2, 16 + 16 + 8)
    shape = fabric.shape
    assert (shape.pods, shape.leaves_per_pod, shape.aggs_per_pod, shape.cores) == (4, 2, 2, 2)
    assert [shape.leaf_index(host) for host in range(4)] == [0, 0, 1, 1]
    assert [str(spec.rate) for spec in fabric.specs] == ["200 Gb/s", "200 Gb/s", "400 Gb/s"]
    # Link delay and half of each switch at its ends: a path across pods adds up to htsim's.
    delays = [spec.delay.count for spec in fabric.specs]
    assert 2 * sum(delays) == 2 * (1000 + 1500 + 2000) * 1000 + (2 * 400 + 2 * 200) * 1000


def test_a_topology_of_two_tiers_runs(tmp_path):
    pytest.importorskip("loomnet._core")
    text = (
        "nodes 8\ntiers 2\npodsize 8\ntier 0\ndownlink_speed_gbps 100\nradix_down 4\n"
        "radix_up 4\ndownlink_latency_ns 1000\nswitch_latency_ns 0\ntier 1\n"
        "downlink_speed_gbps 100\nradix_down 2\ndownlink_latency_ns 1000\n"
    )
    fabric = ln.from_htsim_topology(written(tmp_path, text, "leaf.topo"))
    r = Lab("topo", directory=tmp_path / "run").run(fabric, ln.Permutation("100 kB", shift=4))
    assert r["errors"] == 0 and fabric.counts == (8, 2 + 4, 8 + 8)


def test_what_waits_for_a_connection_that_never_starts_never_starts(tmp_path):
    text = (
        "Nodes 4\nConnections 4\nTriggers 3\n0->1 start 0 size 4096 send_done_trigger 3\n"
        "1->2 trigger 1 size 4096 send_done_trigger 2\n2->3 trigger 2 size 4096 "
        "recv_done_trigger 3\n3->0 trigger 3 size 4096\ntrigger id 1 oneshot\n"
        "trigger id 2 oneshot\ntrigger id 3 barrier count 2\n"
    )
    job = ln.Flows.from_htsim(written(tmp_path, text))
    assert "3 connections never start" in job.describe()
    r = Lab("never", directory=tmp_path / "run").run(
        ln.star(hosts=4, rate="1 Gb/s", delay="1 us"), job
    )
    assert [(flow.source, flow.destination) for flow in r.flow_records] == [(0, 1)]


def test_connections_that_start_together_are_moved_apart_unless_asked(tmp_path):
    text = "Nodes 9\nConnections 8\n" + "".join(
        f"{i}->0 start 2.5 size 4096\n" for i in range(1, 9)
    )
    starts = []
    for jitter in ({}, {"jitter": "0 s"}):
        r = Lab("apart", directory=tmp_path / str(len(jitter))).run(
            ln.star(hosts=9, rate="100 Gb/s", delay="1 us"),
            ln.Flows.from_htsim(written(tmp_path, text), start_unit="1 us"),
            **jitter,
        )
        starts.append([flow.start_ps for flow in r.flow_records])
        assert ("start jitter" in r.data.fidelity.notes) == (jitter == {})
    assert len(set(starts[0])) == 8 and all(0 <= at - 2_500_000 < 10**6 for at in starts[0])
    assert set(starts[1]) == {2_500_000}


# The form and the numbers of htsim's test.topo, which ASTRA-sim has as 8nodes.topo.
BUNDLES = """Nodes 8
Tiers 3
Podsize 4

Tier 0
Downlink_speed_Gbps 200
Radix_Down 2
Radix_Up 2
Downlink_Latency_ns 1000

Tier 1
Downlink_speed_Gbps 200
Radix_Down 2
Radix_Up 4
Downlink_Latency_ns 1000
Bundle 1

Tier 2
Downlink_speed_Gbps 100
Radix_Down 4
Downlink_Latency_ns 1000
Bundle 2
"""
LEAF_SPINE = """nodes 16
tiers 2
podsize 16
tier 0
downlink_speed_gbps 100
radix_down 4
radix_up 4
downlink_latency_ns 1000
tier 1
downlink_speed_gbps 100
radix_down 8
bundle 2
downlink_latency_ns 1000
"""


def test_a_radix_counts_ports_of_which_a_bundle_takes_as_many_as_it_has_links(tmp_path):
    fabric = ln.from_htsim_topology(written(tmp_path, BUNDLES, "test.topo"))
    shape = fabric.shape
    # An aggregation switch has four ports upwards: two to each of two cores, of four in all.
    assert (shape.pods, shape.leaves_per_pod, shape.aggs_per_pod, shape.cores) == (2, 2, 2, 4)
    assert fabric.counts == (8, 4 + 4 + 4, 8 + 8 + 8)
    assert [str(spec.rate) for spec in fabric.specs] == ["200 Gb/s"] * 3  # the last: 2 x 100
    said = {row["number"]: row["value"] for row in fabric.describe().rows}
    assert said["links per T1-T2 bundle"] == 2 and "links per T0-T1 bundle" not in said
    fabric = ln.from_htsim_topology(written(tmp_path, LEAF_SPINE, "leaf.topo"))
    assert fabric.counts == (16, 4 + 2, 16 + 8)
    assert [str(spec.rate) for spec in fabric.specs] == ["100 Gb/s", "200 Gb/s"]
    with pytest.raises(UsageError, match="Tier 0: Radix_Up 4 is not what the speeds"):
        ln.from_htsim_topology(written(tmp_path, LEAF_SPINE.replace("16", "32"), "wrong.topo"))


def built_by_htsim(top, tiers):
    """Switches per tier that htsim's loader makes of these numbers; None where it ends. Stated from
    its sanity checks, in their order, with its whole-number divisions."""
    nodes, pod, count = top["nodes"], top["podsize"], len(tiers)
    bundle = [tier.get("bundle", 1) for tier in tiers]
    over = [tier.get("oversubscribed", 1) for tier in tiers]
    speed = [tier["downlink_speed_gbps"] for tier in tiers]
    down = [tier["radix_down"] for tier in tiers]
    up = [tier["radix_up"] for tier in tiers[:-1]]
    fits = all(down[i] % bundle[i] == 0 for i in range(count)) and all(
        up[i] % bundle[i + 1] == 0 for i in range(count - 1)
    )
    if not fits or nodes % pod or bundle[0] != 1 or pod % down[0]:
        return None
    pods = nodes // pod
    if (nodes * speed[0]) % (speed[1] * over[0]) or down[0] // up[0] != over[0]:
        return None
    uplinks = nodes * speed[0] // (speed[1] * over[0])
    aggs = uplinks // (pods * down[1])
    if uplinks % (pods * down[1]) or aggs * bundle[1] != up[0]:
        return None
    if count == 2:
        return pods * (pod // down[0]), pods * aggs
    if (uplinks * speed[1]) % (speed[2] * over[1]):
        return None
    above = uplinks * speed[1] // (speed[2] * over[1])
    cores = above // down[2]
    if above % down[2] or cores % aggs or cores * bundle[2] // aggs != up[1]:
        return None
    return pods * (pod // down[0]), pods * aggs, cores


def stated(top, tiers):
    lines = [f"Nodes {top['nodes']}", f"Tiers {len(tiers)}", f"Podsize {top['podsize']}"]
    for number, tier in enumerate(tiers):
        lines += [
            f"Tier {number}",
            *(f"{name} {value}" for name, value in tier.items()),
            "Downlink_Latency_ns 1000",
        ]
    return "\n".join(lines)


SMALL = st.sampled_from([1, 2, 2, 3, 4, 4, 8])


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_a_topology_is_read_where_htsim_reads_it_and_as_it_does(folder, data):
    count = data.draw(st.sampled_from([2, 3]))
    # Numbers that fit together, of which then some are changed: few that are drawn apart would.
    leaf, leaves, pods = data.draw(SMALL), data.draw(SMALL), data.draw(SMALL) if count == 3 else 1
    bundle = [1, data.draw(st.sampled_from([1, 2])), data.draw(st.sampled_from([1, 2]))]
    tiers = [
        {"downlink_speed_gbps": 200, "radix_down": leaf, "radix_up": leaf},
        {
            "downlink_speed_gbps": 200,
            "radix_down": leaves * bundle[1],
            "radix_up": leaves * bundle[1],
            "bundle": bundle[1],
        },
        {"downlink_speed_gbps": 200, "radix_down": pods * bundle[2], "bundle": bundle[2]},
    ]
    top = {"nodes": leaf * leaves * pods, "podsize": leaf * leaves}
    tiers = tiers[:count]
    if count == 2:
        tiers[1].pop("radix_up")
    for _ in range(data.draw(st.integers(0, 3))):
        where = data.draw(st.sampled_from([top, *tiers]))
        name = data.draw(
            st.sampled_from(sorted([*where, "oversubscribed"] if where is not top else where))
        )
        where[name] = data.draw(
            st.sampled_from([50, 100, 400]) if name == "downlink_speed_gbps" else SMALL
        )
    expected = built_by_htsim(top, tiers)
    path = folder / "drawn.topo"
    path.write_text(stated(top, tiers))
    if (count == 2) != (top["nodes"] == top["podsize"]):
        expected = None  # htsim joins leaves to spines of other pods, or one pod's to idle cores
    try:
        fabric = ln.from_htsim_topology(path)
    except UsageError as error:
        assert expected is None or "hosts" in str(error), (str(error), stated(top, tiers))
        return
    shape = fabric.shape
    found = (shape.pods * shape.leaves_per_pod, shape.pods * shape.aggs_per_pod, shape.cores)
    assert expected == found[:count], stated(top, tiers)


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("Nodes 16", "Nodes 17", "Podsize 4 does not divide Nodes 17"),
        ("Podsize 4", "Podsize 8", "Radix_Up 2 is not what the speeds of tiers 0 and 1 ask for"),
        ("Podsize 4", "Podsize 1", "Podsize 1 is no multiple of Radix_Down 2 of tier 0"),
        ("Podsize 4", "Podsize 16", "Podsize 16 is all of Nodes, so that nothing goes by tier 2"),
        ("Podsize 4", "", "Podsize is missing"),
        ("Radix_Up 2", "Radix_Up 4", "Oversubscribed 1 is not Radix_Down 2 / Radix_Up 4, rounded"),
        ("Radix_Up 1", "Radix_Up 2", "Radix_Up 2 is not what the speeds of tiers 1 and 2 ask for"),
        ("Radix_Up 1", "Radix_Up 1\nRadix_Up 1", "x.topo:15: Radix_Up is there twice"),
        ("Radix_Down 4", "Radix_Down 4\nRadix_Up 1", "Tier 2: Radix_Up: nothing is above it"),
        ("Radix_Up 2", "Radix_Up 2\nBundle 2", "Tier 0: Bundle 2: a host has one link"),
        ("Downlink_Latency_ns 2000", "", "Tier 2 has no Downlink_Latency_Ns above 0"),
        ("Tiers 3", "Tiers 4", "Tiers 4 must be 2 or 3"),
        ("Bundle 1", "Bundle 1.5", 'x.topo:15: Bundle "1.5" is not whole'),
        ("Bundle 1", "Bundle 0", "x.topo:15: Bundle 0 must be 1 to 256 links"),
        ("Bundle 1", "Bundle 3", "Radix_Down 2 is no multiple of Bundle 3 of tier 1"),
        ("Radix_Up 2\nDownlink", "Downlink", "Tier 0 has no Radix_Up"),
        ("Podsize 4", "Podsiz 4", 'x.topo:3: unknown word "Podsiz"; nearest: podsize'),
        ("Downlink_speed_Gbps 200", "Downlink_speed_Gbps 0", "Downlink_speed_Gbps must be given"),
        ("Downlink_Latency_ns 1000", "Downlink_Latency_ns -1", "is not a number from 0"),
        ("Switch_Latency_ns 400", "Queue_Up 100", "Queue_Up is not carried over"),
        ("Tier 1", "Tier 0", "x.topo:11: Tier 0: tiers are 0, 1, 2, each once"),
        ("Radix_Down 2", "Radix_Down", "Radix_Down has no value"),
    ],
)
def test_a_bad_topology_is_one_clear_line(tmp_path, old, new, line):
    assert old in TOPOLOGY
    with pytest.raises(UsageError) as error:
        ln.from_htsim_topology(written(tmp_path, TOPOLOGY.replace(old, new, 1), "x.topo"))
    assert line in str(error.value) and "\n" not in str(error.value)


def topology(old="", new="", base=None):
    text = TOPOLOGY if base is None else base
    assert old in text
    return text.replace(old, new, 1)


TOPOLOGY_REFUSALS = {  # for each line, files that are wrong in that way and in no other
    "is missing or 0": (
        topology("Nodes 16\n"),
        topology("Podsize 4", "Podsize 0"),
        topology("Tiers 3\n"),
    ),
    "above 0": (
        topology("Radix_Up 2\n"),
        topology("Radix_Down 4", "Radix_Down 0"),
        topology("Downlink_Latency_ns 2000\n"),
    ),
    "must be given, from above 0 to 1,000,000": (
        topology("Downlink_speed_Gbps 400", "Downlink_speed_Gbps 0"),
        topology("Downlink_speed_Gbps 400\n"),
        topology("Downlink_speed_Gbps 400", "Downlink_speed_Gbps 2000000"),
    ),
    "is no multiple of Bundle": (
        topology("Bundle 1", "Bundle 3"),
        topology("Radix_Up 4", "Radix_Up 3", BUNDLES),
        topology("Radix_Down 4", "Radix_Down 3", BUNDLES),
    ),
    "rounded down": (
        topology("Radix_Up 2", "Radix_Up 4"),
        topology("Radix_Up 2", "Radix_Up 2\nOversubscribed 2"),
        topology("Radix_Up 2", "Radix_Up 1"),
    ),
    "of tiers 0 and 1 ask for": (
        topology("Nodes 16", "Nodes 12").replace("Podsize 4", "Podsize 6"),
        topology("Radix_Down 2\nRadix_Up 1", "Radix_Down 4\nRadix_Up 1"),
        topology("radix_down 8", "radix_down 4", LEAF_SPINE),
    ),
    "of tiers 1 and 2 ask for": (
        topology("Radix_Up 1", "Radix_Up 2"),
        topology("Radix_Down 4", "Radix_Down 8"),
        topology("Downlink_speed_Gbps 400", "Downlink_speed_Gbps 200"),
    ),
    "is there twice": (
        topology("Nodes 16", "Nodes 16\nNodes 16"),
        topology("Bundle 1", "Bundle 1\nBundle 1"),
        topology("Switch_Latency_ns 400", "Switch_Latency_ns 400\nswitch_latency_ns 0"),
    ),
    "tiers are 0, 1, 2, each once": (
        topology("Tier 1", "Tier 0"),
        topology("Tier 2", "Tier 3"),
        topology("Tier 2", "Tier 1"),
    ),
    "must be 2 or 3, each with its section": (
        topology("Tiers 3", "Tiers 2"),
        topology("Tiers 3", "Tiers 4"),
        topology("tiers 2", "tiers 3", LEAF_SPINE),
    ),
}


@pytest.mark.parametrize(
    ("line", "text"), [(line, text) for line, texts in TOPOLOGY_REFUSALS.items() for text in texts]
)
def test_a_refusal_of_a_topology_says_what_is_wrong(tmp_path, line, text):
    with pytest.raises(UsageError) as error:
        ln.from_htsim_topology(written(tmp_path, text, "x.topo"))
    assert line in str(error.value) and "\n" not in str(error.value)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("htsim")


def damaged(draw, text):
    """Words swapped, dropped, doubled or replaced; lines cut anywhere."""
    words = text.replace("\n", " \n ").split(" ")
    strange = [
        "-1",
        "0",
        "1e99",
        "nan",
        "4->5",
        "->",
        "99999999999999999999",
        "trigger",
        "start",
        "\x00",
        "½",
        "0x10",
        "1_000",
        "id",
        "msg",
        "Tier",
        "",
        "2.5",
    ]
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(words) - 1))
        words[at] = draw(st.sampled_from(strange) | st.sampled_from(words))
    return " ".join(words)[: draw(st.integers(0, len(text)) | st.just(10**6))]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_matrix_is_read_or_refused(folder, data):
    whole = data.draw(st.sampled_from([CHAIN, MESSAGES]))
    text = data.draw(st.just(damaged(data.draw, whole)) | st.text(max_size=80))
    path = folder / "x.cm"
    path.write_text(text, errors="replace")
    try:
        ln.Flows.from_htsim(path).edges(list(range(64)))
    except UsageError as error:
        assert "\n" not in str(error)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_topology_is_read_or_refused(folder, data):
    text = data.draw(st.just(damaged(data.draw, TOPOLOGY)) | st.text(max_size=80))
    path = folder / "x.topo"
    path.write_text(text, errors="replace")
    try:
        ln.from_htsim_topology(path).describe()
    except UsageError as error:
        assert "\n" not in str(error)


@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(folder, data):
    path = folder / "b.cm"
    path.write_bytes(data)
    for read in (ln.Flows.from_htsim, ln.from_htsim_topology):
        try:
            read(path)
        except UsageError:
            pass
