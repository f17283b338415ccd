"""Fabrics as arithmetic: the published topology table, a part that equals the whole, and three
tiers that carry every byte."""

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loomnet as ln
from loomnet.base.errors import AddressError, FabricError, UsageError
from loomnet.fabrics.clos_shape import Clos
from loomnet.fabrics.description import figures
from loomnet.labs import preparation
from loomnet.labs.lab import Lab
from loomnet.plans.make import make_plan

LINK = {"rate": "100 Gb/s", "delay": "1 us"}


def paper():
    return ln.clos.two_tier(planes=8, leaves=512, spines=256, hosts_per_leaf=256, radix=512, **LINK)


# --- the topology table ---------------------------------------------------------------------------
def test_every_cell_of_the_publication_s_table():
    """Araujo et al., arXiv 2605.04333: three tiers of radix 64, eight planes of radix 512."""
    three = figures(ln.clos.fat_tree(64, rate="800 Gb/s", delay="1 us"))
    two = figures(paper())

    def value(table, name):
        return table[name][0]

    assert (value(three, "NICs"), value(two, "NICs")) == (65_536, 131_072)
    assert (value(three, "NICs per T0"), value(two, "NICs per T0")) == (32, 256)
    assert value(three, "NICs per pod") == 1_024
    tiers = [value(three, f"T{t} per plane") for t in (0, 1, 2)]
    assert tiers == [2_048, 2_048, 1_024] and value(three, "switches") == 5_120
    assert value(two, "switches") == 8 * (512 + 256) == 6_144
    assert value(three, "switches per NIC") == pytest.approx(0.078, abs=5e-4)
    assert value(two, "switches per NIC") == pytest.approx(0.047, abs=5e-4)
    optics = value(two, "optics per NIC") / value(three, "optics per NIC")
    assert optics == pytest.approx(2 / 3)
    switches = value(two, "switches per NIC") / value(three, "switches per NIC")
    assert switches == pytest.approx(3 / 5)
    assert value(three, "switches on the longest path") in (5, 7)
    assert value(two, "switches on the longest path") == 3
    assert value(three, "NICs reachable through one switch") == 32
    assert value(two, "NICs reachable through one switch") == 256
    assert value(three, "lost with one T0-T1 link") == pytest.approx(100 / 32)
    assert value(two, "lost with one T0-T1 link") == pytest.approx(0.4, abs=0.01)
    assert value(three, "lost with one NIC-T0 link") == 100
    assert value(two, "lost with one NIC-T0 link") == pytest.approx(12.5)
    four = ln.clos.two_tier(planes=4, leaves=2, spines=2, hosts_per_leaf=2, **LINK)
    assert value(figures(four), "lost with one NIC-T0 link") == 25
    assert value(two, "entropy value bits") == 3 + 8
    assert value(two, "paths between two T0") == 2_048
    assert value(three, "NIC rate") == value(two, "NIC rate") == 800
    assert value(three, "bisection per NIC") == value(two, "bisection per NIC") == 1


@pytest.mark.parametrize("radix", [4, 16, 64, 256, 512])
def test_the_publication_s_formulas(radix):
    """NICs R²/2, T0 R and T1 R/2 per plane, switches P 3R/2, paths P R/2."""
    table = figures(
        ln.clos.two_tier(
            planes=8,
            leaves=radix,
            spines=radix // 2,
            hosts_per_leaf=radix // 2,
            radix=radix,
            **LINK,
        )
    )
    assert table["NICs"][0] == radix * radix // 2
    assert table["switches"][0] == 8 * 3 * radix // 2
    assert table["paths between two T0"][0] == 8 * radix // 2


def test_describe_is_a_table_and_lists_nothing():
    fabric = paper()
    rows = {row["number"]: row["value"] for row in fabric.describe()}
    assert rows["links"] == 2_097_152 and not fabric.listed
    assert repr(fabric).endswith("131072 hosts, 6144 switches, 2097152 links, 8 planes)")
    with pytest.raises(FabricError, match="too many to list"):
        _ = fabric.links
    assert fabric.match("p7.spine255->p7.leaf511")[0][1] == -1
    assert len(fabric.match("h7--p*")) == 8 and len(fabric.hosts) == 131_072
    with pytest.raises(UsageError, match=r'no link "h0--p9.leaf0"; no node "p9.leaf0"; nearest: '):
        fabric.match("h0--p9.leaf0")
    with pytest.raises(UsageError, match=r'no link "h0--p0.leaf1"$'):
        fabric.match("h0--p0.leaf1")


def test_describe_on_the_command_line():
    words = [
        "describe",
        "two_tier",
        "--set",
        "planes=8",
        "--set",
        "leaves=512",
        "--set",
        "spines=256",
        "--set",
        "hosts_per_leaf=256",
    ]
    done = subprocess.run([sys.executable, "-m", "loomnet", *words], capture_output=True, text=True)
    assert done.returncode == 0 and "131,072" in done.stdout and "12.5 %" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("T0: a leaf; T1: a spine")
    for bad, line in (
        (["fat_tree"], "add --set k=…"),
        (["fat_tree", "--set", "k=5"], "even number"),
        (["fat_tree", "--set", "k=92"], "uSID space exhausted: 4232 leaves"),
        (["fat_tree", "--set", "q=4"], 'no parameter "q"'),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "loomnet", "describe", *bad], capture_output=True, text=True
        )
        assert done.returncode == 2 and line in done.stderr and done.stderr.count("\n") == 1


def test_impossible_fabrics_are_refused():
    with pytest.raises(AddressError, match="entropy value space exhausted: 2500 cores"):
        ln.clos.three_tier(
            pods=2, leaves_per_pod=2, aggs_per_pod=50, cores_per_agg=50, hosts_per_leaf=2, **LINK
        )
    with pytest.raises(FabricError, match=r"p0\.leaf0 has 4 ports but 6 links"):
        ln.clos.three_tier(
            pods=2,
            leaves_per_pod=2,
            aggs_per_pod=4,
            cores_per_agg=1,
            hosts_per_leaf=2,
            radix=4,
            **LINK,
        )
    with pytest.raises(FabricError, match="needs no cores"):
        ln.clos.three_tier(
            pods=1, leaves_per_pod=2, aggs_per_pod=2, cores_per_agg=1, hosts_per_leaf=2, **LINK
        )
    with pytest.raises(AddressError, match="more than 2048 leaves in plane 0"):
        big = ln.clos.fat_tree(66, **LINK)
        make_plan(big, style="uA", hosts=[0, 1]).addresses.check([0, 1])


# --- numbers --------------------------------------------------------------------------------------
SHAPES = st.builds(
    lambda planes, pods, low, aggs, per, cores, order: Clos(
        planes, pods * low, aggs, per, pods, cores if pods > 1 else 0, order
    ),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from(["spread", "block"]),
)


@settings(max_examples=80, deadline=None)
@given(shape=SHAPES)
def test_ends_ports_and_names_are_each_other_s_inverse(shape):
    met = set()
    for link in range(shape.links):
        for node, port in shape.ends(link):
            assert shape.link_at(node, port) == link and port < shape.ports(node)
            met.add((node, port))
        (a, _), (b, _) = shape.ends(link)
        assert shape.link_between(a, b) == shape.link_between(b, a) == link
    assert len(met) == 2 * shape.links == sum(shape.ports(node) for node in range(shape.nodes))
    assert [shape.node(shape.name(node)) for node in range(shape.nodes)] == list(range(shape.nodes))
    assert shape.node("h999") is shape.node("p0.none1") is shape.node("p0.core99") is None


@settings(max_examples=40, deadline=None)
@given(shape=SHAPES, data=st.data())
def test_a_part_has_the_entries_of_the_whole(shape, data):
    from loomnet.fabrics.clos_fabric import ClosFabric
    from loomnet.fabrics.links import HalfLink

    def fabric():
        specs = tuple(
            HalfLink(ln.Rate(rate), ln.Time("1 us"))
            for rate in ("100 Gb/s", "200 Gb/s", "400 Gb/s")
        )
        return ClosFabric("some", shape, specs)

    hosts = data.draw(st.sets(st.sampled_from(range(shape.hosts)), min_size=1))
    full, part = make_plan(fabric(), seed=9), make_plan(fabric(), seed=9, hosts=hosts)
    assert part.base_rtt_ps == full.base_rtt_ps and part.counts == full.counts
    assert [host.number for host in part.hosts] == sorted(hosts)
    for host in part.hosts:
        assert host == full.hosts[host.number]
    for link in part.links:
        assert link == full.links[link.number]
    whole = {switch.number: switch for switch in full.switches}
    for switch in part.switches:
        other = whole[switch.number]
        assert (switch.name, switch.plane, switch.buffer_bytes) == (
            other.name,
            other.plane,
            other.buffer_bytes,
        )
        assert switch.ports == other.ports and switch.usids.own == other.usids.own
        assert set(switch.usids.fib) <= set(other.usids.fib)
        assert set(switch.usids.adjacencies) <= set(other.usids.adjacencies)
        for host in hosts:
            if shape.place(switch.number)[0] != "core" or len(part.topology.part.pods) > 1:
                assert switch.routes.ports(host) == other.routes.ports(host)
    for a in hosts:
        for b in hosts - {a}:
            assert part.paths(a, b) == full.paths(a, b)
            assert part.host_planes(a, b) == full.host_planes(a, b)


@settings(max_examples=40, deadline=None)
@given(shape=SHAPES, data=st.data())
def test_arithmetic_gives_what_a_list_of_nodes_and_links_gives(shape, data):
    """The same fabric, also with links of their own, numbered by its shape and by its lists."""
    from loomnet.fabrics.clos_fabric import ClosFabric
    from loomnet.fabrics.link_settings import LinkDefaults, base_rtt
    from loomnet.fabrics.links import HalfLink
    from loomnet.fabrics.topology import Topology, topology_of
    from loomnet.plans.ecmp import EcmpTables
    from loomnet.plans.half_kinds import HalfKinds, links_of
    from loomnet.plans.usid_plan import UsidPlan

    specs = tuple(
        HalfLink(ln.Rate(rate), ln.Time("1 us"))
        for rate in ("100 Gb/s", "200 Gb/s", "400 Gb/s")[: shape.tiers]
    )
    fabric = ClosFabric("some", shape, specs)
    for number in data.draw(st.sets(st.sampled_from(range(shape.links)), max_size=3)):
        (a, _), (b, _) = shape.ends(number)
        mark = data.draw(st.sampled_from(["--", "->"]))
        fabric.override(f"{shape.name(a)}{mark}{shape.name(b)}", rate="40 Gb/s", delay="3 us")
    computed, listed = topology_of(fabric), Topology(fabric)
    frame = 2190
    assert base_rtt(computed, frame) == base_rtt(listed, frame)
    assert [computed.neighbours(node) for node in range(shape.nodes)] == [
        listed.neighbours(node) for node in range(shape.nodes)
    ]
    rtt = base_rtt(listed, frame)
    found = [
        list(links_of(each, HalfKinds(rtt, frame, LinkDefaults(pfc=True))))
        for each in (computed, listed)
    ]
    assert found[0] == found[1]
    for style in ("uN", "uA"):
        tables, others = UsidPlan(computed, style), UsidPlan(listed, style)
        assert all(tables.tables(node) == others.tables(node) for node in computed.switch_numbers)
    routes, others = EcmpTables(computed), EcmpTables(listed)
    for node in computed.switch_numbers:
        for host in range(shape.hosts):
            assert routes.switch(node).ports(host) == others.switch(node).ports(host)


# --- runs -----------------------------------------------------------------------------------------
FABRICS = {
    "two": lambda: ln.clos.two_tier(planes=4, leaves=6, spines=4, hosts_per_leaf=3, **LINK),
    "fat": lambda: ln.clos.fat_tree(4, planes=2, **LINK),
}


@pytest.mark.parametrize("transport", ["mrc", "roce"])
@pytest.mark.parametrize("name", FABRICS)
def test_a_run_on_the_part_ends_as_on_the_whole(tmp_path, monkeypatch, name, transport):
    pytest.importorskip("loomnet._core")
    jobs = (
        (ln.Incast("300 kB", ranks=5, transport=transport), []),
        (
            ln.AllReduce("200 kB", ranks=4, transport=transport, repeat=3),
            [ln.loss("h0->p0.leaf0", 0.02, at="5 us", duration="10 us", phase="loss")],
        ),
    )
    for number, (job, faults) in enumerate(jobs):
        seen = []
        for built in (10**9, 0):
            monkeypatch.setattr(preparation, "BUILT_WHOLE", built)
            monkeypatch.setattr(preparation, "BUILT_WHOLE_FOR_FAULTS", built)
            lab = Lab("part", seed=5, directory=tmp_path / f"{number}-{built}")
            r = lab.run(FABRICS[name](), job, faults)
            report = lab.write().read_bytes()
            assert r["errors"] == 0 and r.plan.partial == (built == 0)
            seen.append((report, r.data.totals, r.data.fidelity.notes))
        assert seen[0] == seen[1]


def test_a_few_flows_at_131072_nics(tmp_path):
    pytest.importorskip("loomnet._core")
    lab = Lab("large", directory=tmp_path)
    r = lab.run(paper(), ln.Permutation("200 kB", ranks=8, shift=3, transport="mrc"), payload=True)
    assert r["errors"] == 0 and r.data.fidelity.unexplained == 0
    # 8 leaves' links, not the fabric's two million.
    assert len(r.plan.links) == 8 * (8 + 8 * 256)


@pytest.mark.parametrize("transport", ["mrc", "roce", "tcp"])
def test_flows_of_given_pairs_need_their_hosts_alone(tmp_path, transport):
    """A rank on every NIC: the same run as with ranks on the hosts of the pairs alone."""
    pytest.importorskip("loomnet._core")
    pairs = ((0, 70_000), (70_000, 5), (5, 131_071))
    hosts = sorted({host for pair in pairs for host in pair})
    few = [(hosts.index(a), hosts.index(b)) for a, b in pairs]
    fault = ln.down("p3.leaf273--p3.spine7", at="2 us")
    seen = []
    for name, job in (
        ("all", ln.Flows("200 kB", pairs=pairs, transport=transport)),
        (
            "few",
            ln.Flows(
                "200 kB", pairs=few, transport=transport, hosts=[f"h{host}" for host in hosts]
            ),
        ),
    ):
        r = Lab(name, directory=tmp_path / name).run(paper(), job, [fault], payload=True)
        flows = r.data.flows.columns.tolist()
        assert len(flows[0]) == 3 and r["errors"] == 0
        seen.append((flows, r.data.totals, len(r.plan.links), {*r.data.hosts}))
    assert seen[0] == seen[1] and seen[0][3] == {*hosts}


@pytest.mark.parametrize("transport", ["mrc", "roce"])
@pytest.mark.parametrize("k", [4, 8])
def test_a_permutation_on_a_fat_tree_arrives_whole(tmp_path, k, transport):
    pytest.importorskip("loomnet._core")
    fabric = ln.clos.fat_tree(k, payload="4096 B", **LINK)
    hosts = fabric.counts[0]
    assert hosts == k**3 // 4
    job = ln.Permutation("100 kB", shift=k // 2 + 1, transport=transport)
    r = Lab("fat", directory=tmp_path).run(fabric, job, payload=True)
    assert r["errors"] == 0 and r.data.ended == "finished"
    received = {host: sum(n for _, _, n in series.work) for host, series in r.data.hosts.items()}
    assert received == dict.fromkeys(range(hosts), 100_000)
    cores = [name for name in r.data.totals if name.startswith("switch p0.core")]
    assert cores, "no packet went by a core"


def test_a_recorded_run_is_built_whole(tmp_path):
    """A recording names hosts and links by the engine's own numbers."""
    pytest.importorskip("loomnet._core")
    fabric = ln.clos.two_tier(planes=4, leaves=8, spines=16, hosts_per_leaf=4, **LINK)
    job = ln.Flows("20 kB", pairs=[(1, 9)], ranks=10)
    files = {"h9:0": tmp_path / "h9.pcapng"}
    plain = Lab("plain", directory=tmp_path / "plain").run(fabric, job)
    taped = Lab("taped", directory=tmp_path / "taped").run(
        fabric, job, trace=tmp_path / "t.pftrace", pcap=files
    )
    assert plain.plan.partial and not taped.plan.partial
    assert plain.data.totals == taped.data.totals
    assert (tmp_path / "h9.pcapng").stat().st_size > 500


def test_what_no_machine_holds_is_refused_at_once_with_the_bound(tmp_path):
    with pytest.raises(UsageError, match="16,777,216 hosts are more than the 1,048,576 of one"):
        ln.clos.two_tier(planes=1, leaves=4096, spines=2, hosts_per_leaf=4096, **LINK)
    big = ln.clos.two_tier(planes=1, leaves=4096, spines=2, hosts_per_leaf=256, **LINK)
    with pytest.raises(UsageError, match="1,048,576 ranks are more than the 131,072 of one job"):
        ln.run(big, ln.Flows("1 kB", count=3), directory=tmp_path)
    with pytest.raises(UsageError, match="ranks are more than the 4096 that one collective joins"):
        ln.run(big, ln.AllReduce("1 MB", ranks=5000), directory=tmp_path)
    r = ln.run(big, ln.Flows("1 kB", count=3, ranks=1000), directory=tmp_path)
    assert r.data.ended == "finished" and r["errors"] == 0
