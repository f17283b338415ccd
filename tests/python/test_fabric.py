"""Fabrics: names, globs, overrides, and everything that does not add up refused before a run."""

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loomnet as ln
from loomnet.base.errors import FabricError, UsageError
from loomnet.plans.make import make_plan

CLOS = {
    "planes": 4,
    "leaves": 2,
    "spines": 2,
    "hosts_per_leaf": 2,
    "rate": "40 Mb/s",
    "delay": "0.5 ms",
}


def small() -> ln.Fabric:
    return ln.clos.two_tier(**CLOS, uplink_rate="80 Mb/s")


def test_two_tier_has_the_names_and_rates_of_the_main_job():
    fabric = small()
    assert list(fabric.hosts) == ["h0", "h1", "h2", "h3"]
    assert len(fabric.switches) == 16 and len(fabric.all_links()) == 4 * (4 + 4)
    rates = {row["link"]: str(row["rate"]) for row in fabric.links}
    assert rates["h0--p0.leaf0"] == "40 Mb/s" and rates["p3.leaf1--p3.spine1"] == "80 Mb/s"
    # Rank r on leaf r mod 2, so that every ring edge crosses the spines.
    assert {"h0--p0.leaf0", "h1--p0.leaf1", "h2--p0.leaf0", "h3--p0.leaf1"} <= rates.keys()


def test_links_are_matched_by_name_direction_and_glob():
    fabric = small()
    assert [(link.name, way) for link, way in fabric.match("h0--p0.leaf0")] == [("h0--p0.leaf0", 0)]
    assert fabric.match("p0.leaf0--h0")[0][1] == 0
    assert fabric.match("p0.leaf0->h0")[0][1] == -1
    assert fabric.match("h0->p0.leaf0")[0][1] == 1
    assert len(fabric.match("h0--*")) == 4
    assert len(fabric.match("p1.leaf*--p1.spine*")) == 4
    assert all(way == 1 for _, way in fabric.match("p*.leaf0->p*.spine0"))
    assert fabric.match_switches("p*.spine1") == [f"p{p}.spine1" for p in range(4)]


@pytest.mark.parametrize("name", ["h0--p9.leaf0", "h9->p0.leaf0", "h0-p0.leaf0"])
def test_an_unknown_link_names_the_three_nearest(name):
    with pytest.raises(UsageError, match=r"nearest: .*h0.*, .*, .*"):
        small().match(name)


def test_overrides_change_one_direction_or_both():
    fabric = small()
    fabric.override("p0.leaf0->p0.spine0", rate="10 Mb/s").override("h0--*", delay="2 ms")
    link = fabric.match("p0.leaf0--p0.spine0")[0][0]
    assert (str(link.forward.rate), str(link.backward.rate)) == ("10 Mb/s", "80 Mb/s")
    assert str(fabric.match("h0--p2.leaf0")[0][0].backward.delay) == "2 ms"
    with pytest.raises(FabricError, match='unknown setting "rat"; nearest: rate'):
        fabric.override("h0--*", rat="1 Gb/s")


def irregular() -> ln.Fabric:
    fabric = ln.Fabric("two")
    fabric.add_switch("s", ports=2)
    for name in ("h0", "h1"):
        fabric.add_link(fabric.add_host(name), "s", rate="1 Gb/s", delay="1 us")
    return fabric


def test_a_fabric_by_hand():
    assert irregular().check().planes == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda f: f.add_link(f.add_host(), "s", rate="1 Gb/s", delay="1 us"),
            "s has 2 ports but 3 links",
        ),
        (lambda f: f.add_host(), "h2 has no link"),
        (
            lambda f: (f.add_switch("p1.x"), f.add_link("h0", "p1.x", rate="1 Gb/s", delay="1 us")),
            "h1 has no port in plane 1",
        ),
        (
            lambda f: (f.add_switch("t"), f.add_link("h0", "t", rate="1 Gb/s", delay="1 us")),
            "h0 has two links in plane 0",
        ),
        (
            lambda f: (f.add_switch("p1.x"), f.add_link("s", "p1.x", rate="1 Gb/s", delay="1 us")),
            "planes are disjoint",
        ),
        (
            lambda f: (
                f.add_switch("t"),
                f.add_link(f.add_host(), "t", rate="1 Gb/s", delay="1 us"),
            ),
            "no path between h0 and h2",
        ),
    ],
)
def test_what_does_not_add_up_is_named(change, message):
    fabric = irregular()
    change(fabric)
    with pytest.raises(FabricError, match=message):
        fabric.check()


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (
            lambda: irregular().add_link("h0", "sw", rate="1 Gb/s", delay="1 us"),
            'no node "sw"; nearest: s',
        ),
        (
            lambda: irregular().add_link("h0", "h1", rate="1 Gb/s", delay="1 us"),
            "two hosts; put a switch between",
        ),
        (lambda: irregular().add_link("s", "h1", rate="1 Gb/s", delay="1 us"), "exists already"),
        (lambda: irregular().add_host("h0"), "exists already"),
        (lambda: irregular().add_host("h 7"), "is not a node name"),
        (lambda: irregular().add_switch("p8.leaf0"), "plane 8 is not within"),
        (lambda: irregular().add_host(role="king"), '"king" is not one of rank'),
        (lambda: ln.Fabric(payload="3000 B"), "payload 3 kB must be"),
        (lambda: ln.clos.two_tier(**{**CLOS, "leaves": 0}), "leaves: 0 must be a whole number"),
        (lambda: ln.clos.two_tier(**{**CLOS, "planes": 9}), "9 is more than the 8"),
        (lambda: ln.clos.two_tier(**{**CLOS, "rate": 40}), "40 has no unit"),
        (lambda: ln.clos.two_tier(**CLOS, radix=3), "has 3 ports but 4 links"),
    ],
)
def test_construction_refuses_with_the_field_and_the_fix(act, message):
    with pytest.raises(UsageError, match=message):
        act()


def test_networkx_there_and_back():
    fabric = small()
    again = ln.from_networkx(fabric.to_networkx())
    assert sorted(again.link_names()) == sorted(fabric.link_names()) and again.planes == 4
    with pytest.raises(FabricError, match="has no rate"):
        ln.from_networkx(networkx.Graph([("h0", "s"), ("h1", "s")]))
    assert ln.from_networkx(
        networkx.Graph([("h0", "s"), ("h1", "s")]), rate="1 Gb/s", delay="1 us"
    ).check()


def test_an_edge_that_says_its_rate_by_another_name_is_told_so():
    graph = networkx.Graph()
    graph.add_edge("h0", "s", capacity=10)
    with pytest.raises(FabricError, match="attribute 'capacity' is not read; name it rate"):
        ln.from_networkx(graph)  # not that it has no rate


def test_a_fabric_draws_itself():
    text = small()._repr_svg_()
    assert "<svg" in text and "p3.spine1" in text
    large = ln.clos.two_tier(**{**CLOS, "leaves": 16, "spines": 16, "hosts_per_leaf": 32})
    assert "512 hosts" in large._repr_svg_()


def test_links_are_a_table():
    table = small().links
    assert table.columns[0] == "link" and len(table) == 32
    assert table.column("plane").count(3) == 8
    assert "<table>" in table._repr_html_() and "h0--p0.leaf0" in repr(table)


@settings(max_examples=30, deadline=None)
@given(
    planes=st.integers(1, 8),
    leaves=st.integers(1, 4),
    spines=st.integers(1, 4),
    per_leaf=st.integers(1, 4),
)
def test_every_regular_fabric_checks(planes, leaves, spines, per_leaf):
    fabric = ln.clos.two_tier(
        planes=planes,
        leaves=leaves,
        spines=spines,
        hosts_per_leaf=per_leaf,
        rate="1 Gb/s",
        delay="1 us",
    )
    assert len(fabric.ranks) == leaves * per_leaf and fabric.planes == planes


def test_star_and_dumbbell():
    assert len(ln.star(hosts=5, rate="1 Gb/s", delay="1 us", planes=2).switches) == 2
    bell = ln.dumbbell(left=2, right=3, rate="1 Gb/s", delay="1 us", bottleneck="100 Mb/s")
    assert str(bell.match("p0.leaf0--p0.leaf1")[0][0].forward.rate) == "100 Mb/s"
    assert len(bell.match("h*--p0.leaf1")) == 3


def test_switches_are_placed_by_name_or_glob():
    fabric = ln.clos.two_tier(
        planes=2, leaves=2, spines=2, hosts_per_leaf=1, rate="1 Gb/s", delay="1 us"
    ).place("p*.spine*", "engine")
    fabric.place("p1.spine0", "xdp")
    placed = {switch.name: switch.in_kernel for switch in make_plan(fabric).switches}
    assert [name for name, kernel in placed.items() if not kernel] == [
        "p0.spine0",
        "p0.spine1",
        "p1.spine1",
    ]
    with pytest.raises(UsageError, match='placement "ovs" is not one of xdp, engine'):
        fabric.place("p0.leaf0", "ovs")
    with pytest.raises(UsageError, match='no switch "p7'):
        fabric.place("p7.leaf0", "engine")
    with pytest.raises(UsageError, match='placement "asic" is not one of'):
        ln.Fabric().add_switch("s", placement="asic")
