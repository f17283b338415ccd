"""A builder's shape is a way to compute, and nothing more: a fabric of the same links built by hand
runs to the same figures on each transport, and a host, switch or link that nothing uses changes
none. Whatever the graph, senders that name their packets' ways have every shortest one."""

import itertools
import random
import re

import networkx
import pytest
from walker import follow_usids

import loomnet as ln
from loomnet.base.errors import AddressError
from loomnet.plans.make import make_plan
from loomnet.plans.path_sets import MOST_WAYS, PathSets

pytest.importorskip("loomnet._core")
LINK = {"rate": "100 Gb/s", "delay": "1 us"}
TRANSPORTS = ("mrc", "roce", "tcp")
BUILT = {
    "two_tier": lambda: ln.clos.two_tier(planes=2, leaves=2, spines=4, hosts_per_leaf=2, **LINK),
    "three_tier": lambda: ln.clos.three_tier(
        pods=3, leaves_per_pod=2, aggs_per_pod=2, cores_per_agg=2, hosts_per_leaf=1, **LINK
    ),
    "fat_tree": lambda: ln.clos.fat_tree(4, **LINK),
    "star": lambda: ln.star(hosts=4, planes=2, **LINK),
    "dumbbell": lambda: ln.dumbbell(left=2, right=2, **LINK),
}


def by_hand(built):
    fabric = ln.Fabric(built.name, payload=str(built.payload))
    for host in built.hosts:
        fabric.add_host(host)
    for switch in built.switches.values():
        fabric.add_switch(switch.name, plane=switch.plane)
    for link in built.all_links():
        fabric.add_link(link.a, link.b, rate=link.forward.rate, delay=link.forward.delay)
    return fabric


def figures(tmp_path, fabric, transport, ranks, job=ln.AllToAll):
    r = ln.run(
        fabric,
        job("400 kB", repeat=3, ranks=ranks, transport=transport),
        seed=3,
        directory=tmp_path,
    )
    assert r.data.ended == "finished" and r["errors"] == 0
    return [each.length_ps for each in r.data.iterations]


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("name", BUILT)
def test_a_builders_fabric_by_hand_has_the_same_figures(tmp_path, name, transport):
    built = BUILT[name]()
    ranks = min(len(built.ranks), 8)
    own = figures(tmp_path / "built", built, transport, ranks)
    assert len(own) == 3
    assert figures(tmp_path / "hand", by_hand(built), transport, ranks) == own


def idle_host(fabric):
    fabric.add_link(fabric.add_host("idle"), "p0.leaf0", **LINK)


def idle_host_at_a_core(fabric):
    above = [name for name in fabric.switches if "leaf" not in name]
    fabric.add_link(fabric.add_host("idle"), above[-1], **LINK)


def idle_switch(fabric):
    fabric.add_link(fabric.add_switch("p0.idle"), "p0.leaf0", **LINK)


def idle_link(fabric):
    """Between two leaves of other pods than those of the ranks: no shortest way takes it."""
    fabric.add_link("p0.leaf4", "p0.leaf5", **LINK)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("add", [idle_host, idle_host_at_a_core, idle_switch, idle_link])
def test_what_nothing_uses_changes_no_figure(tmp_path, add, transport):
    """Switches' hashes and links' random numbers follow from how many nodes come before them, so
    figures agree as those of two seeds do, and routed transports may collide otherwise."""
    own = BUILT["three_tier"]()
    more = BUILT["three_tier"]()
    add(more)
    took = [
        sum(figures(tmp_path / str(number), fabric, transport, 4))
        for number, fabric in enumerate((own, more))
    ]
    assert took[1] == pytest.approx(took[0], rel=0.03 if transport == "mrc" else 0.3)


def test_mrc_uses_every_core_beside_an_idle_host(tmp_path):
    fabric = ln.clos.three_tier(
        pods=4, leaves_per_pod=2, aggs_per_pod=2, cores_per_agg=2, hosts_per_leaf=2, **LINK
    )
    idle_host(fabric)
    r = ln.run(fabric, ln.AllToAll("200 kB", repeat=2, ranks=16), seed=1, directory=tmp_path)
    carried = {}
    for name, row in r.data.totals.items():
        if found := re.search(r"->(p0\.core\d+)$", name):
            carried[found[1]] = carried.get(found[1], 0) + row["packets"]
    assert len(carried) == 4 and max(carried.values()) < 1.2 * min(carried.values())


# --- any graph ------------------------------------------------------------------------------------
def drawn(seed):
    draw = random.Random(f"graph {seed}")
    fabric = ln.Fabric("graph")
    nodes = [fabric.add_switch(f"p0.s{i}") for i in range(draw.randint(2, 9))]
    for i, node in enumerate(nodes[1:], 1):
        for other in draw.sample(nodes[:i], draw.randint(1, min(i, 3))):
            fabric.add_link(node, other, **LINK)
    for _ in range(draw.randint(2, 5)):
        fabric.add_link(fabric.add_host(), draw.choice(nodes), **LINK)
    return fabric


@pytest.mark.parametrize("style", ["uN", "uA"])
def test_a_pair_of_hosts_has_every_shortest_way(style):
    """As networkx finds them; each has an address of its own that leads there, and the same number
    in both directions."""
    for seed in range(40):
        plan = make_plan(drawn(seed), style=style)
        topology = plan.topology
        graph = networkx.Graph([(a.node, b.node) for a, b in topology.ends])
        for source, destination in itertools.permutations(range(len(plan.hosts)), 2):
            ways = {
                tuple(way)
                for way in networkx.all_shortest_paths(graph, source, destination)
                if not any(node < len(plan.hosts) for node in way[1:-1])
            }
            if max(map(len, ways)) > 7:
                with pytest.raises(AddressError, match=r"switches and needs \d uSIDs"):
                    plan.paths(source, destination)
                continue
            (there,), (back,) = (
                plan.paths(*ends) for ends in ((source, destination), (destination, source))
            )
            assert there.uplinks == back.uplinks and len(there.uplinks) == len(ways)
            crossed = set()
            for number in there.uplinks:
                reached, links = follow_usids(plan, source, 0, there.address(0, number))
                _, home = follow_usids(plan, destination, 0, back.address(0, number))
                assert reached == destination and links == home[::-1]
                crossed.add(tuple(links))
            assert len(crossed) == len(ways)


def test_ways_are_kept_once_for_leaves_that_are_alike():
    """A fabric of many leaves keeps ways between its pods, however many leaves and hosts a pod
    has."""
    built = ln.clos.three_tier(
        pods=3, leaves_per_pod=12, aggs_per_pod=4, cores_per_agg=4, hosts_per_leaf=1, **LINK
    )
    built.add_host("idle")
    built.add_link("idle", "p0.leaf0", **LINK)
    plan = make_plan(built)
    for source, destination in itertools.permutations(range(36), 2):
        plan.paths(source, destination)
    kept = plan.addresses.path_sets
    assert len({id(ways) for ways in kept._between.values()}) <= 3 * 3
    assert len(kept._hops) <= 3
    rows = {id(plan.paths(a, b)[0].ways) for a in range(36) for b in range(36) if a % 36 != b}
    assert len(rows) <= 3 * 3


def test_more_ways_than_an_entropy_value_numbers_are_refused_before_the_run(tmp_path):
    fabric = ln.Fabric("wide")
    for name in ("p0.a", "p0.b"):
        fabric.add_switch(name)
        fabric.add_link(fabric.add_host(), name, **LINK)
    left = [fabric.add_switch(f"p0.x{i}") for i in range(46)]
    right = [fabric.add_switch(f"p0.y{i}") for i in range(46)]
    for x in left:
        fabric.add_link("p0.a", x, **LINK)
        for y in right:
            fabric.add_link(x, y, **LINK)
    for y in right:
        fabric.add_link(y, "p0.b", **LINK)
    assert 46 * 46 > MOST_WAYS
    line = rf"^2116 shortest ways lead from p0\.a to p0\.b, .* {MOST_WAYS}"
    with pytest.raises(AddressError, match=line):
        ln.run(fabric, ln.SendRecv("1 MB", 2), directory=tmp_path / "mrc")
    r = ln.run(fabric, ln.SendRecv("1 MB", 2, transport="roce"), directory=tmp_path / "roce")
    assert r.data.ended == "finished"


# --- long paths -----------------------------------------------------------------------------------
def row(length, closed=False):
    fabric = ln.Fabric("row")
    nodes = [fabric.add_switch(f"s{i}") for i in range(length)]
    for a, b in itertools.pairwise([*nodes, nodes[0]] if closed else nodes):
        fabric.add_link(a, b, **LINK)
    for end in (nodes[0], nodes[length // 2 if closed else -1]):
        fabric.add_link(fabric.add_host(), end, **LINK)
    return fabric


def torus(side):
    fabric = ln.Fabric("torus")
    for x, y in itertools.product(range(side), repeat=2):
        fabric.add_switch(f"s{x}_{y}")
        fabric.add_link(fabric.add_host(), f"s{x}_{y}", **LINK)
    for x, y in itertools.product(range(side), repeat=2):
        fabric.add_link(f"s{x}_{y}", f"s{(x + 1) % side}_{y}", **LINK)
        fabric.add_link(f"s{x}_{y}", f"s{x}_{(y + 1) % side}", **LINK)
    return fabric


@pytest.mark.parametrize(
    "fabric",
    [row(6), row(12), row(14, closed=True), torus(6)],
    ids=["row-6", "row-12", "ring-14", "torus-6"],
)
def test_routed_transports_cross_any_number_of_switches(tmp_path, fabric):
    fault = ln.degrade("s0*--s1*", 0.5, at="20 us", phase="slow") if fabric.name == "row" else None
    faults = [fault] if fault else []
    for transport in ("roce", "tcp"):
        r = ln.run(
            fabric,
            ln.SendRecv("1 MB", 4, transport=transport),
            faults,
            directory=tmp_path / transport,
        )
        assert r.data.ended == "finished" and r["errors"] == 0
    flows = ln.run(fabric, ln.Permutation("1 MB", transport="roce"), directory=tmp_path / "flows")
    assert all(row["slowdown"] >= 1 for row in flows.flows)
    fluid = ln.run(
        fabric,
        ln.SendRecv("1 MB", 4, transport="roce"),
        model="fluid",
        directory=tmp_path / "fluid",
    )
    assert fluid.data.ended == "finished"
    line = r"crosses \d+ switches and needs \d+ uSIDs; one address holds 6, .* give transport="
    with pytest.raises(AddressError, match=line):
        ln.run(fabric, ln.SendRecv("1 MB", 4), directory=tmp_path / "mrc")
    assert not (tmp_path / "mrc").exists()


def test_mrc_runs_between_hosts_that_are_near_in_a_fabric_that_is_long(tmp_path):
    fabric = row(9)
    fabric.add_link(fabric.add_host("near"), "s4", **LINK)
    job = ln.Flows("100 kB", count=2, pairs=[(0, 2)], transport="mrc")
    r = ln.run(fabric, job, directory=tmp_path)
    assert r.data.ended == "finished"


def test_path_sets_count_switches():
    plan = make_plan(row(9))
    leaf = [plan.topology.leaf_of(host, 0).node for host in (0, 1)]
    sets = PathSets(plan.topology)
    assert sets.switches(*leaf) == 9 and sets.switches(leaf[0], leaf[0]) == 1
    assert len(sets.between(*leaf)) == 1 and len(sets.between(*leaf)[0]) == 7


# --- the order in which links are listed ----------------------------------------------------------
def test_a_fault_at_a_step_finds_the_same_packets_whichever_link_was_listed_first(tmp_path):
    """In a symmetric fabric packets of four planes arrive at the very time at which a step ends."""
    ends = []
    for turned in (False, True):
        fabric = ln.Fabric(payload="256 B")
        for host in ("h0", "h1"):
            fabric.add_host(host)
        for plane in range(4):
            fabric.add_switch(f"p{plane}.s0", plane=plane)
        links = [(host, f"p{plane}.s0") for host in ("h0", "h1") for plane in range(4)]
        for a, b in links if turned else sorted(links, key=lambda each: each[1]):
            fabric.add_link(a, b, rate="25 Gb/s", delay="278 ns")
        job = ln.ModelJob(
            size="6.38 kB",
            compute="32.9 us",
            buckets=3,
            iterations=2,
            jitter=0.0,
            ranks=2,
            transport="roce",
        )
        kill = ln.kill("p0.s0", at=ln.step(1), duration=ln.iterations(2))
        r = ln.run(fabric, job, [kill], seed=1, directory=tmp_path / str(turned))
        ends.append([each.end_ps for each in r.data.iterations])
    assert ends[0] == ends[1]
