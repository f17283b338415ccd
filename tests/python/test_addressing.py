"""Tables and templates, walked: every pair of hosts reaches each other on each plane over each
uplink, healthy and reconverged."""

import ipaddress
import itertools
import random

import pytest
from fabrics import main_job
from hypothesis import given, settings
from hypothesis import strategies as st
from walker import follow_ecmp, follow_usids, other_end

import loomnet as ln
from loomnet.base.errors import AddressError
from loomnet.fabrics.link_settings import LinkDefaults
from loomnet.fabrics.topology import Topology
from loomnet.plans.make import make_plan
from loomnet.plans.usid_plan import PlanePaths, UsidPlan, host_address, usid_address

LINK = {"rate": "1 Gb/s", "delay": "1 us"}


def clos(planes=2, leaves=3, spines=2, per_leaf=2):
    return ln.clos.two_tier(
        planes=planes, leaves=leaves, spines=spines, hosts_per_leaf=per_leaf, **LINK
    )


def line(switches):
    fabric = ln.Fabric("line")
    for i in range(switches):
        fabric.add_switch(f"s{i}")
        if i:
            fabric.add_link(f"s{i - 1}", f"s{i}", **LINK)
    for i in (0, switches - 1):
        fabric.add_link(fabric.add_host(), f"s{i}", **LINK)
    return fabric


FABRICS = {
    "clos": clos(),
    "wide": clos(1, 2, 8, 3),
    "one-leaf": clos(2, 1, 2, 3),
    "star": ln.star(hosts=4, planes=3, **LINK),
    "dumbbell": ln.dumbbell(left=2, right=2, **LINK),
    "line": line(5),
    "fat-tree": ln.clos.fat_tree(4, planes=2, **LINK),
    "three": ln.clos.three_tier(
        pods=2, leaves_per_pod=2, aggs_per_pod=3, cores_per_agg=2, hosts_per_leaf=1, **LINK
    ),
}


def test_golden_example():
    """Plane 3, T0 5 -> T1 0x11 -> T0 9, downlink 2 (RFC 9800)."""
    row = PlanePaths((0x2005, 0x1000, 0x2009, 0x4002), 1, (0x11,))
    assert row.address(3, 0x11) == ipaddress.IPv6Address("fc00:3:2005:1011:2009:4002::")
    assert row.address(3, 0x11).packed.hex() == "fc000003200510112009400200000000"


def test_golden_example_in_a_fabric_of_that_size():
    fabric = ln.clos.two_tier(planes=4, leaves=10, spines=18, hosts_per_leaf=3, **LINK)
    plan = make_plan(fabric)
    source, destination = 5, 9 + 2 * 10  # on leaf 5; third host on leaf 9
    row = plan.paths(source, destination)[3]
    assert str(row.address(3, 0x11)) == "fc00:3:2005:1011:2009:4002::"
    reached, links = follow_usids(plan, source, 3, row.address(3, 0x11))
    assert reached == destination
    assert [plan.links[link].name for link in links] == [
        "h5--p3.leaf5",
        "p3.leaf5--p3.spine17",
        "p3.leaf9--p3.spine17",
        "h29--p3.leaf9",
    ]


@pytest.mark.parametrize("style", ["uN", "uA"])
@pytest.mark.parametrize("name", FABRICS)
def test_every_pair_reaches_over_every_plane_and_uplink(name, style):
    if (name, style) == ("line", "uA"):
        with pytest.raises(
            AddressError, match="uSIDs"
        ):  # 4 hops, last hop, tenant are 6; 5 switches
            make_plan(line(6), style=style).paths(0, 1)
    plan = make_plan(FABRICS[name], style=style)
    walked = set()
    for source in range(len(plan.hosts)):
        for destination in range(len(plan.hosts)):
            if source == destination:
                continue
            for plane, row in enumerate(plan.paths(source, destination)):
                crossed = set()
                for uplink in row.uplinks:
                    reached, links = follow_usids(plan, source, plane, row.address(plane, uplink))
                    assert reached == destination, (plan.hosts[source], row)
                    assert {plan.links[link].plane for link in links} == {plane}
                    crossed.add(tuple(links))
                assert len(crossed) == len(row.uplinks), "an entropy value is exactly one path"
                walked |= crossed
    if name in ("clos", "wide", "fat-tree", "three"):
        assert {link for path in walked for link in path} == set(range(len(plan.links)))


def test_three_tiers_name_the_whole_up_path():
    """The plan of clos.py: core u = a C + c, aggregation switches of index a at both ends."""
    plan = make_plan(FABRICS["three"])
    row = plan.paths(0, 3)[0]  # leaf 0 of pod 0 to leaf 3 of pod 1
    assert row.usids == (0x2000, 0x1000, 0x3000, 0x1003, 0x2003, 0x4000)
    assert (row.uplink_slot, row.agg_slots, row.cores_per_agg) == (2, 0b1010, 2)
    assert row.uplinks == tuple(range(6))
    assert str(row.address(0, 5)) == "fc00:0:2000:1002:3005:1005:2003:4000"
    assert plan.paths(0, 1)[0].usids == (0x2000, 0x1000, 0x2001, 0x4000)
    assert plan.paths(2, 3)[0].usids == (0x2002, 0x1003, 0x2003, 0x4000)
    uA = make_plan(FABRICS["three"], style="uA").paths(0, 3)[0]
    assert uA.usids == (0xF000, 0xF000, 0xF003, 0xE003, 0xE800, 0xD000)


def test_local_pairs_have_one_path_and_others_one_per_spine():
    plan = make_plan(clos(2, 3, 4, 2))
    local, remote = plan.paths(0, 3)[1], plan.paths(0, 1)[1]
    assert (local.usids, local.uplink_slot, local.uplinks) == ((0x2000, 0x4001), -1, (0,))
    assert (remote.usids, remote.uplink_slot) == ((0x2000, 0x1000, 0x2001, 0x4000), 1)
    assert remote.uplinks == (0, 1, 2, 3)
    with pytest.raises(AddressError, match="uplink 4 is no path"):
        remote.address(1, 4)


def test_a_missing_leaf_spine_link_is_in_no_template():
    fabric = ln.Fabric("holes")
    for leaf in range(2):
        fabric.add_switch(f"leaf{leaf}")
        fabric.add_link(fabric.add_host(), f"leaf{leaf}", **LINK)
    for spine in range(3):
        fabric.add_switch(f"spine{spine}")
        fabric.add_link("leaf0", f"spine{spine}", **LINK)
        if spine != 1:
            fabric.add_link("leaf1", f"spine{spine}", **LINK)
    assert make_plan(fabric).paths(0, 1)[0].uplinks == (0, 2)


def test_addresses():
    assert str(host_address(2)) == "fd00::2"
    assert str(usid_address(3, (0x2005, 0x4002))) == "fc00:3:2005:4002::"
    with pytest.raises(AddressError, match="do not fit"):
        usid_address(0, (1,) * 7)


def test_usid_space_exhausted(tmp_path):
    fabric = ln.Fabric("many")
    fabric.add_switch("leaf")
    for _ in range(2):
        fabric.add_link(fabric.add_host(), "leaf", **LINK)
    for i in range(257):
        fabric.add_switch(f"spine{i}")
        fabric.add_link("leaf", f"spine{i}", **LINK)
    full = UsidPlan(Topology(fabric))
    for ask in (lambda: full.check([0, 1]), lambda: full.paths(0, 1, 0)):
        with pytest.raises(AddressError, match="exhausted: more than 256 spines in plane 0"):
            ask()
    r = ln.run(fabric, ln.SendRecv("10 kB", transport="roce"), directory=tmp_path)
    assert r.data.ended == "finished"  # by switches' routes


def test_ecmp_groups_of_a_healthy_clos():
    plan = make_plan(clos(1, 2, 3, 2))
    leaf = next(iter(plan.switches))
    assert leaf.routes.ports(0) == (0,) and leaf.routes.ports(2) == (1,)
    assert leaf.routes.ports(1) == leaf.routes.ports(3) == (2, 3, 4)
    assert plan.host_planes(0, 1) == (0,)


def test_reconvergence_after_each_of_the_main_jobs_faults():
    plan = make_plan(clos(4, 2, 2, 2))
    link = {entry.name: entry.number for entry in plan.links}
    node = {entry.name: entry.number for entry in plan.switches}
    nic = plan.reconverged({link["h0--p0.leaf0"]})
    assert nic.host_planes(0, 1) == nic.host_planes(1, 0) == (1, 2, 3)
    assert nic.host_planes(1, 2) == (0, 1, 2, 3)
    assert nic.switch(node["p0.spine0"]).ports(0) == ()
    uplink = plan.reconverged({link["p1.leaf0--p1.spine1"]})
    assert uplink.switch(node["p1.leaf0"]).ports(1) == (2,)
    assert uplink.switch(node["p1.leaf1"]).ports(0) == (2,)
    spine = plan.reconverged(set(), {node["p3.spine0"]})
    assert spine.switch(node["p3.leaf0"]).ports(1) == (3,)
    assert spine.switch(node["p3.spine0"]).groups == ()
    leaf = plan.reconverged(set(), {node["p2.leaf0"]})
    assert leaf.host_planes(0, 1) == leaf.host_planes(1, 2) == (0, 1, 3)
    assert leaf.host_planes(1, 3) == (0, 1, 2, 3)


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    planes=st.integers(1, 3),
    leaves=st.integers(1, 4),
    spines=st.integers(1, 3),
    seed=st.integers(0, 2**32),
)
def test_reconverged_tables_deliver_wherever_a_host_says_it_can(data, planes, leaves, spines, seed):
    plan = make_plan(clos(planes, leaves, spines, 2))
    down = data.draw(st.sets(st.sampled_from(range(len(plan.links))), max_size=6))
    dead = data.draw(st.sets(st.sampled_from([s.number for s in plan.switches]), max_size=2))
    tables, draw = plan.reconverged(down, dead), random.Random(seed)
    for source in range(len(plan.hosts)):
        for destination in range(len(plan.hosts)):
            if source == destination:
                continue
            usable = tables.host_planes(source, destination)
            assert usable == tuple(
                p for p in range(planes) if connected(plan, source, destination, p, down, dead)
            )
            for plane in usable:
                reached, links = follow_ecmp(plan, tables, source, destination, draw.choice, plane)
                assert reached == destination and not down & set(links)


def connected(plan, source, destination, plane, down, dead):
    """Flood fill over what is up, hosts not forwarding: the independent answer."""
    seen, todo = {source}, [source]
    while todo:
        node = todo.pop()
        if node == destination:
            return True
        if node < len(plan.hosts) and node != source:
            continue
        for link in plan.links:
            ends = (link.forward.source, link.forward.target)
            if link.plane == plane and node in ends and link.number not in down:
                far = other_end(plan, link.number, node)
                if far not in seen and far not in dead:
                    seen.add(far)
                    todo.append(far)
    return False


def test_plan_of_the_main_job():
    plan = make_plan(main_job())
    # Out: 4 x 0.5 ms + 2214 B twice at 40 and twice at 80 Mb/s; back: a SACK of 178 B.
    assert plan.base_rtt_ps == (
        2 * 442_800_000 + 2 * 221_400_000 + 2 * 35_600_000 + 2 * 17_800_000 + 8 * 500_000_000
    )
    half = {plan.half(i).name: plan.half(i) for i in range(2 * len(plan.links))}
    bdp = plan.base_rtt_ps * 40 // 8_000_000
    assert half["p0.leaf0->h0"].data_limit_bytes == bdp * 3 // 2
    assert half["p0.leaf0->h0"].ecn_high_bytes == 0 and half["p0.leaf0->h0"].last_hop
    up = half["p0.leaf0->p0.spine0"]
    assert up.data_limit_bytes == 2 * bdp and up.trim_bytes == 128
    assert (up.ecn_low_bytes, up.ecn_high_bytes) == (2 * bdp // 5, 2 * bdp * 4 // 5)
    assert up.control_limit_bytes == 8 * up.data_limit_bytes  # at 2,048 B; 4 at 4,096 B
    assert half["h0->p0.leaf0"].trim_bytes == 0
    for number in range(2 * len(plan.links)):
        assert plan.half(number).number == number
        assert plan.half(number).data_limit_bytes >= 8 * 2190


def test_queues_hold_five_bdp_where_packets_are_dropped_not_trimmed():
    fabric = ln.clos.two_tier(
        planes=1, leaves=2, spines=1, hosts_per_leaf=2, rate="100 Gb/s", delay="1 us"
    )
    fabric.override("p0.leaf0->p0.spine0", trim=False).override("p0.leaf1->p0.spine0", pfc=False)

    def bdps(**defaults):
        plan = make_plan(fabric, defaults=LinkDefaults(**defaults))
        bdp = ln.Rate("100 Gb/s").bytes_in(ln.Time.of(plan.base_rtt_ps))
        halves = {half.name: half for link in plan.links for half in (link.forward, link.backward)}
        return [
            round(halves[name].data_limit_bytes / bdp, 3)
            for name in (
                "p0.leaf0->p0.spine0",
                "p0.leaf1->p0.spine0",
                "p0.spine0->p0.leaf0",
                "p0.leaf0->h0",
            )
        ]

    assert bdps() == [5, 1, 1, 1.5]  # of what may be trimmed
    assert bdps(trims=False) == [5, 5, 5, 5]  # RoCE over lossy switches
    assert bdps(trims=False, pfc=True) == [1, 5, 1, 1.5]  # RoCE over lossless ones, but one link


def test_describe_says_where_a_queue_holds_more_than_its_bdp():
    def said(rate):
        fabric = ln.clos.two_tier(
            planes=1, leaves=2, spines=1, hosts_per_leaf=2, rate=rate, delay="1 us"
        )
        return {
            row["number"]: (round(row["value"], 1), row["unit"])
            for row in fabric.describe()
            if "queue" in row["number"]
        }

    assert said("40 Mb/s") == {
        "data queue, NIC-T0 link": (
            12,
            "packets, with its BDP of 4.4 taken as 8 of the run's largest",
        ),
        "data queue, T0-T1 link": (
            8,
            "packets, with its BDP of 4.4 taken as 8 of the run's largest",
        ),
    }
    assert {unit for _, unit in said("100 Gb/s").values()} == {"packets"}
    joined = ln.Fabric("two")
    for host in ("a", "b"):
        joined.add_host(host)
    joined.add_switch("s")
    joined.add_link("a", "s", rate="40 Mb/s", delay="1 us")
    joined.add_link("s", "b", rate="100 Gb/s", delay="1 us")
    (short,) = (row for row in joined.describe() if "queue" in row["number"])
    assert short["value"] == 2


def test_a_slow_link_still_queues_eight_packets_and_overrides_win():
    fabric = ln.star(hosts=2, rate="1 Mb/s", delay="1 us")
    fabric.override("p0.leaf0->h0", data_limit="64 kB", ecn=True, trim=False)
    plan = make_plan(fabric)
    changed, other = plan.links[0].backward, plan.links[1].backward
    assert (changed.data_limit_bytes, changed.trim_bytes) == (64_000, 0) and changed.ecn_high_bytes
    assert other.data_limit_bytes >= 8 * 2190


def test_plan_is_the_same_from_the_same_fabric_and_is_json():
    import json

    assert make_plan(clos(), seed=3) == make_plan(clos(), seed=3) != make_plan(clos(), seed=4)
    assert json.loads(json.dumps(make_plan(clos()).to_dict()))["hosts"][1]["address"] == "fd00::1"


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("transport", ["mrc", "roce", "tcp"])
def test_hosts_anywhere_on_a_row_of_switches_reach_each_other(tmp_path, length, transport):
    """Every placement of two hosts on a row of switches runs, or names what its addresses lack. Two
    hosts on the last switch leave a row of switches above one leaf, some of them next to a spine
    and to a core at once."""
    for first in range(length):
        for second in range(first, length):
            fabric = ln.Fabric()
            row = [fabric.add_switch(f"p0.s{i}") for i in range(length)]
            for a, b in itertools.pairwise(row):
                fabric.add_link(a, b, rate="10 Gb/s", delay="1 us")
            for place in (first, second):
                fabric.add_link(fabric.add_host(), row[place], rate="10 Gb/s", delay="1 us")
            job = ln.SendRecv("100 kB", transport=transport)
            try:
                r = ln.run(fabric, job, directory=tmp_path / f"{first}-{second}")
            except AddressError as error:
                assert "uSIDs; one address holds 6" in str(error) and second - first >= 5
                assert transport == "mrc"
                continue
            assert transport != "mrc" or second - first < 5
            assert r.data.ended == "finished" and r["errors"] == 0


def test_no_two_neighbours_of_a_switch_share_a_usid():
    """In a graph of switches of every degree, at the head of every adjacency and own table."""
    draw = random.Random(7)
    for _ in range(30):
        fabric, size = ln.Fabric(), draw.randint(2, 12)
        switches = [fabric.add_switch(f"p0.s{i}") for i in range(size)]
        for i in range(1, size):
            for j in draw.sample(range(i), draw.randint(1, min(i, 4))):
                fabric.add_link(switches[i], switches[j], rate="1 Gb/s", delay="1 us")
        for _ in range(2):
            fabric.add_link(fabric.add_host(), draw.choice(switches), rate="1 Gb/s", delay="1 us")
        plan = make_plan(fabric)
        for switch in plan.switches:
            keys = [key for key, _ in switch.usids.adjacencies] + [switch.usids.own]
            assert len(set(keys)) == len(keys)


def test_a_port_sends_at_the_rate_of_the_direction_that_leaves_it():
    """Also where the link was named from the switch to the host, and its directions differ."""
    fabric = ln.Fabric("unlike")
    fabric.add_switch("p0.s0")
    for name in ("h0", "h1"):
        fabric.add_host(name)
    fabric.add_link("p0.s0", "h0", rate="40 Gb/s", delay="1 us")
    fabric.add_link("h1", "p0.s0", rate="40 Gb/s", delay="1 us")
    fabric.override("h0->p0.s0", rate="10 Gb/s").override("p0.s0->h1", rate="5 Gb/s")
    plan = make_plan(fabric)
    assert [plan.port_rates(host) for host in plan.hosts] == [(10 * 10**9,), (40 * 10**9,)]
