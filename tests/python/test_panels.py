"""Panels on the virtual clock: hosts that circuits join, and circuits that a controller
changes."""

import networkx
import pytest

import loomnet as ln
import loomnet._core as _core
from loomnet.base.errors import UsageError
from loomnet.fabrics.drawing import to_networkx
from loomnet.measures.drops import drops
from loomnet.plans.make import make_plan
from loomnet.plans.port_search import find_port
from loomnet.running.engine import Engine

US, MS = 10**6, 10**9
BIT = 10  # picoseconds at 100 Gb/s
FRAMING = 24
TRANSPORTS = ("mrc", "roce", "tcp")


@ln.plugin.controller("test_patcher")
class Patcher:
    """Patches ocs0: a list of circuits by time in microseconds."""

    def __init__(self, plan):
        self.plan = dict(plan)

    def next_time(self):
        return min(self.plan) * US if self.plan else None

    def advance(self, now, view):
        return [ln.change.circuits("ocs0", self.plan.pop(now // US))]


def patcher(plan):
    return [ln.controller("test_patcher", plan=plan)]


def star(circuits=(("h0", "h1"), ("h2", "h3")), links=1, hosts=4):
    fabric = ln.Fabric("star")
    fabric.add_panel("ocs0", ports=8)
    for host in range(hosts):
        fabric.add_host()
        for _ in range(links):
            fabric.add_link(f"h{host}", "ocs0", rate="100 Gb/s", delay="1 us")
    fabric.panel("ocs0").circuits(circuits)
    return fabric


def beside_planes(circuits, planes=1):
    """Hosts with a port in each plane and one at a panel."""
    fabric = ln.clos.two_tier(
        planes=planes, leaves=2, spines=2, hosts_per_leaf=2, rate="100 Gb/s", delay="1 us"
    )
    fabric.add_panel("ocs0")
    for host in range(4):
        fabric.add_link("ocs0", f"h{host}", rate="100 Gb/s", delay="1 us")
    fabric.panel("ocs0").circuits(circuits)
    return fabric


def ring(hosts=4):
    """Two ports of each host at one panel, and circuits from each to the next."""
    return star([(f"h{i}", f"h{(i + 1) % hosts}") for i in range(hosts)], links=2, hosts=hosts)


def go(fabric, job, directory, **options):
    result = ln.run(
        fabric,
        job,
        options.pop("faults", ()),
        seed=options.pop("seed", 1),
        directory=directory,
        **options,
    )
    assert result.data.ended == "finished", result.data.reason
    assert result.data.fidelity.unexplained == 0
    return result


def flows(pairs, size, transport, starts=None):
    return ln.Flows(
        pairs=pairs,
        sizes=size,
        count=len(pairs),
        transport=transport,
        starts=starts or ["0 s"] * len(pairs),
    )


def row(result, name):
    return result.data.totals.get(name, {})


def seconds(flow):
    return flow.end_ps - flow.start_ps


# --- star -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_flow_over_a_circuit_takes_its_serialisation_once_and_the_delays_of_both_fibres(
    tmp_path, transport
):
    result = go(star(), flows([(0, 1)], "1 MiB", transport), tmp_path)
    (flow,) = result.data.flows
    sent, answers = row(result, "link h0->ocs0"), row(result, "link h1->ocs0")
    on_wire = sent["bytes"] + sent["packets"] * FRAMING
    if transport == "roce":  # its packets are the flow's alone, and the last one's ACK ends it
        ack = answers["bytes"] // answers["packets"] + FRAMING
        assert flow.arrived_ps - flow.start_ps == on_wire * 8 * BIT + 2 * US
        assert seconds(flow) == (on_wire + ack) * 8 * BIT + 4 * US
    else:  # probes and handshakes went before it
        least = on_wire * 8 * BIT + 2 * US
        assert flow.arrived_ps - flow.start_ps == pytest.approx(least, rel=0.02)
    assert "max_queue" not in row(result, "link ocs0->h1")  # light does not wait
    assert row(result, "link ocs0->h1")["bytes"] == pytest.approx(sent["bytes"], rel=1e-3)
    assert result.flow_records[0].ideal_ps <= seconds(flow)
    assert result.flow_figures()["slowdown_max"][0] == pytest.approx(1, abs=0.12)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_queue_pairs_follow_the_circuits_that_a_controller_changes(tmp_path, transport):
    """h0 talks to h1, then to h2; the flows of the second circuits are asked for before these are
    there, and wait."""
    job = flows(
        [(0, 1), (2, 3), (0, 2), (1, 3)], "1 MiB", transport, ["0 s", "0 s", "300 us", "300 us"]
    )
    change = {500: [("h0", "h2"), ("h1", "h3")]}
    result = go(star(), job, tmp_path, controllers=patcher(change))
    first, second = result.data.flows[:2], result.data.flows[2:]
    for flow in second:
        assert flow.arrived_ps > 500 * US
        # At once with RoCE; MRC probes the path first, TCP's connection waits to be opened.
        late = flow.arrived_ps - 500 * US - (first[0].arrived_ps - first[0].start_ps)
        assert abs(late) < {"roce": 1, "mrc": 60 * US, "tcp": 1100 * MS}[transport]
    if transport != "tcp":  # of h0's two flows
        data = row(result, "link h0->ocs0")["bytes"]
        assert data == pytest.approx(2 * (1 << 20) * 1.06, rel=0.05)
    passed = row(result, "panel ocs0")
    assert set(passed) == {"forwarded", "forwarded_bytes"} and passed["forwarded"] > 0  # no drop


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_light_under_way_when_its_circuit_ends_is_lost_by_name_and_sent_again(tmp_path, transport):
    change = {300: [], 320: [("h0", "h1")]}
    job = flows([(0, 1)], "10 MiB", transport)
    options = {"payload": True}
    if transport == "roce":  # its preset waits for 4 s
        options["roce"] = {"timeout_exponent": 7}
    result = go(star(), job, tmp_path, controllers=patcher(change), **options)
    dark = row(result, "panel ocs0")["drop_unmapped"]
    # 1 us of fibre holds 5 full packets and a part of another, or as many of the answers.
    assert 1 <= dark <= 8
    assert result.data.wrong == 0
    assert (
        sum(
            each.get("retransmitted", 0) + each.get("data_retransmitted", 0)
            for each in result.data.totals.values()
        )
        >= 1
    )
    assert ("panel", "unmapped", dark) in [
        (drop.where, drop.reason, drop.packets) for drop in drops(result.data.totals)
    ]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_flow_waits_while_the_panel_switches(tmp_path, transport):
    """h0's second flow, to h2, begins when its circuit is asked for, and light is back 25 ms on."""
    fabric = star()
    fabric.panels["ocs0"].profile = "sim25"
    job = flows([(0, 1), (0, 2)], "1 MiB", transport, ["0 s", "500 us"])
    result = go(
        fabric,
        job,
        tmp_path,
        payload=True,
        controllers=patcher({500: [("h0", "h2"), ("h1", "h3")]}),
    )
    assert result.data.wrong == 0
    late = result.data.flows[1].arrived_ps
    assert 25 * MS + 500 * US <= late < 28 * MS + (1100 * MS if transport == "tcp" else 0)
    # Carrier is gone at once; 1 us of fibre holds 5 packets and a part of another.
    assert row(result, "panel ocs0").get("drop_dark", 0) <= 8


def test_without_carrier_rules_a_transport_sends_into_the_dark(tmp_path):
    fabric = star()
    fabric.panels["ocs0"].profile, fabric.panels["ocs0"].carrier = "lightmatter32", "none"
    job = flows([(0, 1), (2, 3)], "10 MiB", "mrc")
    result = go(
        fabric,
        job,
        tmp_path,
        payload=True,
        controllers=patcher({300: [("h2", "h3")], 320: [("h0", "h1"), ("h2", "h3")]}),
    )
    assert result.data.ended == "finished" and result.data.wrong == 0
    drops_ = row(result, "panel ocs0")
    assert drops_["drop_dark"] > 0 and drops_["drop_unmapped"] > 0
    assert row(result, "nic h2").get("retransmitted", 0) == 0  # its circuit was not touched


def test_a_run_over_circuits_is_the_same_for_the_same_seed(tmp_path):
    def text(folder):
        job = flows([(0, 1), (0, 2)], "4 MiB", "mrc")
        lab = ln.Lab("panels", directory=tmp_path / folder, seed=7)
        change = {200: [("h0", "h2"), ("h1", "h3")], 800: [("h0", "h1"), ("h2", "h3")]}
        lab.run(star(), job, controllers=patcher(change))
        return lab.write().read_bytes()

    assert text("a") == text("b")


def test_a_circuit_change_is_no_step_for_flows_that_it_leaves_alone(tmp_path):
    """h2 and h3 stay joined, and so at the ports that they had."""
    job = flows([(2, 3)], "4 MiB", "roce")
    alone = go(star(), job, tmp_path).data.flows
    change = {100: [("h3", "h2")], 200: [("h0", "h1"), ("h2", "h3")]}
    assert go(star(), job, tmp_path, controllers=patcher(change)).data.flows == alone


# --- ring -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_an_all_reduce_runs_round_a_ring_of_circuits(tmp_path, transport):
    size = 4 << 20
    result = go(ring(), ln.AllReduce("4 MiB", repeat=3, transport=transport), tmp_path)
    least = 2 * 3 / 4 * size * 8 * BIT
    assert len(result.data.iterations) == 3
    for iteration in result.data.iterations:
        assert least < iteration.length_ps < 1.25 * least
    # A chunk goes to the next host alone: by one of the two ports of each.
    for host in range(4):
        sent = sorted(row(result, f"link h{host}->ocs0{port}")["bytes"] for port in ("", ":1"))
        assert sent[1] == pytest.approx(3 * 1.5 * size, rel=0.12) and sent[0] < sent[1] / 10


def test_a_ring_of_two_panels_is_as_fast_as_of_one(tmp_path):
    fabric = ln.Fabric("two")
    for panel in ("ocs0", "ocs1"):
        fabric.add_panel(panel)
    for host in range(4):
        fabric.add_host()
        for panel in ("ocs0", "ocs1"):
            fabric.add_link(f"h{host}", panel, rate="100 Gb/s", delay="1 us")
    fabric.panel("ocs0").circuits([("h0", "h1"), ("h2", "h3")])
    fabric.panel("ocs1").circuits([("h1", "h2"), ("h3", "h0")])
    job = ln.AllReduce("1 MiB", repeat=2, transport="roce")
    assert go(fabric, job, tmp_path).data.end_ps == go(ring(), job, tmp_path).data.end_ps


def test_ranks_of_pytorch_train_round_a_ring_of_circuits(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "x = torch.full((100_000,), float(dist.get_rank()))\n"
        "for _ in range(3):\n"
        "    y = x.clone(); dist.all_reduce(y)\n"
        "    assert (y == 3.0).all(), y\n"
        "dist.destroy_process_group()\n"
    )
    job = ln.TorchJob(str(script), ranks=3, transport="mrc", compute="100 us")
    result = go(ring(3), job, tmp_path)
    assert result["errors"] == 0


# --- what a plan and the views say of it ----------------------------------------------------------
def test_a_plan_knows_panels_and_what_each_port_of_a_host_belongs_to():
    plan = make_plan(beside_planes([("h0", "h3")], planes=2))
    assert [(host.planes, host.panels) for host in plan.hosts] == [
        ((0, 1, None), (None, None, plan.panels[0].number))
    ] * 4
    (panel,) = plan.panels
    assert panel.name == "ocs0" and panel.circuits == (3, -1, -1, 0)
    halves = {half.name: half for link in plan.links for half in (link.forward, link.backward)}
    light = halves["ocs0->h2"]
    assert light.glass and light.last_hop and light.rate_bps == 100 * 10**9
    assert not halves["h2->ocs0"].glass and plan.links[light.number // 2].plane is None
    assert plan.to_dict()["panels"][0]["circuits"] == (3, -1, -1, 0)
    assert find_port(plan, "h1:2").name == "h1->ocs0" == find_port(plan, "h1:ocs0").name
    assert find_port(plan, "ocs0:1").name == "ocs0->h1"
    # Ports of planes come first whatever was linked first.
    fabric = ln.Fabric()
    fabric.add_panel("ocs0")
    for host in ("h0", "h1"):
        fabric.add_host(host)
        fabric.add_link(host, "ocs0", rate="1 Gb/s", delay="1 us")
    fabric.add_switch("p0.leaf0")
    for host in ("h0", "h1"):
        fabric.add_link(host, "p0.leaf0", rate="1 Gb/s", delay="1 us")
    assert [host.planes for host in make_plan(fabric).hosts] == [(0, None)] * 2


def test_the_views_show_panels():
    fabric = beside_planes([("h0", "h1")])
    assert "1 panel," in repr(fabric)
    figures = {each["number"]: each["value"] for each in fabric.describe()}
    assert figures["panels"] == 1 and figures["links to panels"] == 4
    assert figures["circuits when a run begins"] == 1
    assert "ocs0" in fabric._repr_svg_()
    graph = to_networkx(fabric)
    assert graph.nodes["ocs0"]["kind"] == "panel"
    assert {"link": "ocs0--h0", "plane": None}.items() <= next(
        each for each in fabric.links if each["link"] == "ocs0--h0"
    ).items()
    again = ln.from_networkx(networkx.Graph(graph))
    assert list(again.panels) == ["ocs0"] and again.counts == fabric.counts


# --- frames of 9,000 B ----------------------------------------------------------------------------
def test_frames_of_9000_bytes_keep_their_headroom_and_their_time(tmp_path):
    """Under PFC no port overflows although an incast of such frames is paused; over a circuit each
    is clocked once."""
    clos = ln.clos.two_tier(
        planes=1, leaves=2, spines=1, hosts_per_leaf=4, rate="100 Gb/s", delay="1 us", pfc=True
    )
    options = {"tcp": {"mtu": 9000}}
    result = go(clos, ln.Incast("2 MiB", transport="tcp"), tmp_path, **options)
    assert {link.forward.largest_frame_bytes for link in result.plan.links} == {9014}
    assert not any(name.startswith("drop") for each in result.data.totals.values() for name in each)
    assert sum(each.get("pfc_pauses", 0) for each in result.data.totals.values()) > 0
    result = go(star(), flows([(0, 1)], "9 MB", "tcp"), tmp_path, **options)
    sent = row(result, "link h0->ocs0")
    assert sent["bytes"] / sent["packets"] > 8000
    (flow,) = result.data.flows
    on_wire = sent["bytes"] + sent["packets"] * FRAMING
    assert flow.arrived_ps - flow.start_ps == pytest.approx(on_wire * 8 * BIT + 2 * US, rel=0.02)


def test_events_of_a_run_are_those_of_its_panels(tmp_path):
    fabric = ln.Fabric("star")
    fabric.add_panel("ocs0", ports=4, profile="infocus128")
    for host in range(3):
        fabric.add_host()
        fabric.add_link(f"h{host}", "ocs0", rate="100 Gb/s", delay="1 us")
    fabric.panel("ocs0").circuits([("h0", "h1")])
    job = flows([(0, 2)], "1 MiB", "mrc")
    tables = []
    for directory in "ab":
        result = go(
            fabric,
            job,
            tmp_path / directory,
            controllers=patcher({20: [("h0", "h2")], 200: [("h0", "h2")]}),
        )
        # Light is back in whole nanoseconds of the engine's clock, which began before the run.
        tables.append([(round(row["time"], 8), *list(row.values())[1:]) for row in result.events])
    assert tables[0] == tables[1]
    assert {row[0] for row in tables[0]} == {20e-6, 30e-6}
    begun = {row[1:] for row in tables[0] if row[0] == 20e-6}
    assert begun == {
        ("ocs0 1A", "status", "tuning"),
        ("ocs0 1B", "status", "tuning"),
        ("ocs0 2A", "status", "blocked"),
        ("ocs0 2B", "status", "blocked"),
        ("ocs0 3A", "status", "tuning"),
        ("ocs0 3B", "status", "tuning"),
        ("h0--ocs0", "carrier", "down"),
        ("h1--ocs0", "carrier", "down"),
    }
    ended = {row[1:] for row in tables[0] if row[0] == 30e-6}
    assert ended == {
        *((f"ocs0 {port}", "status", "tuned") for port in ("1A", "1B", "3A", "3B")),
        ("h0--ocs0", "carrier", "up"),
        ("h2--ocs0", "carrier", "up"),
    }
    assert result.data.events.left_out == 0


def test_a_run_without_panels_has_no_events(tmp_path):
    fabric = ln.clos.two_tier(
        planes=1, leaves=2, spines=1, hosts_per_leaf=1, rate="100 Gb/s", delay="1 us"
    )
    result = go(fabric, flows([(0, 1)], "1 MiB", "mrc"), tmp_path)
    with pytest.raises(UsageError, match="the fabric has no panel"):
        _ = result.events


def test_simplex_cross_connects_are_taken_over_as_circuits():
    plan = make_plan(star([("h0", "h1")]), seed=1)
    engine = Engine(plan)
    panel = engine.node(plan.panels[0].number)
    engine.network.change_panel(panel, remove=[(0, 1)], add=[(0, 2), (2, 0), (3, 3)])
    assert engine.network.cross_connects(panel) == [(0, 2), (2, 0), (3, 3)]
    engine.panels._circuits.adopt("ocs0", engine.network.cross_connects(panel))
    assert engine.panels.circuits("ocs0") == [("h0", "h2")] and engine.panels.ports_to(0, 2) == [0]
    assert engine.panels.ports_to(0, 1) == [] and engine.panels.ports_to(3, 3) == []
    with pytest.raises(ValueError, match='mode "force" is none of update, safe, overwrite'):
        engine.network.change_panel(panel, remove=[], add=[], mode="force")
    with pytest.raises(UsageError, match='no panel "ocs1"'):
        engine.panels.operate("ocs1", lambda device, now: None)
    if not hasattr(_core, "PanelDevice"):
        pytest.skip("the device itself is not bound to Python yet")
    assert engine.panels.operate("ocs0", lambda device, now: now)[0] == 0


def test_circuits_are_scripted_by_the_lab(tmp_path):
    fabric = ln.Fabric("star")
    fabric.add_panel("ocs0", ports=4)
    for i in range(4):
        fabric.add_host(f"h{i}")
        fabric.add_link(f"h{i}", "ocs0", rate="100 Gb/s", delay="1 us")
    fabric.panel("ocs0").circuits([("h0", "h1"), ("h2", "h3")])
    lab = ln.Lab("scripted", directory=tmp_path / "run")
    lab.circuits("ocs0", [("h0", "h2"), ("h1", "h3")], at="500 us")
    job = ln.Flows(pairs=[(0, 1), (0, 2)], sizes="1 MiB", count=2, starts=["0 s", "300 us"])
    r = lab.run(fabric, job)
    assert r["errors"] == 0 and r.flows[1]["fct_s"] >= 200e-6
    # A script is of one run.
    with pytest.raises(ln.UsageError, match=r'no panel "ocs1"; nearest: ocs0'):
        lab.circuits("ocs1", [("h0", "h2")], at="1 ms")
        lab.run(fabric, job, label="second")
    with pytest.raises(ln.UsageError, match=r"circuits: at: .* out of range"):
        lab.circuits("ocs0", [("h0", "h2")], at="-1 us")
