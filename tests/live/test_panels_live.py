"""Optical panels on the live clock: circuits that move under real packets, dark times and carriers
as hosts' kernels see them, and jobs that go on over them."""

import itertools
import json
import re
import signal
import sys
import time

import numpy as np
import pytest
from command_line import TRAFFIC
from panel_probe import (
    FRAMES,
    LISTEN,
    SWARM,
    WATCH,
    Probe,
    answer,
    around,
    carriers_seen,
    started,
    swarm_seen,
)

import loomnet as ln
from loomnet.labs.lab import Lab

MS = 10**6  # nanoseconds


def star(hosts=4, *, circuits=(("h0", "h1"), ("h2", "h3")), rate="40 Mb/s", delay="50 us", **panel):
    fabric = ln.Fabric("star")
    fabric.add_panel("ocs0", **panel)
    for host in range(hosts):
        fabric.add_host()
        fabric.add_link(f"h{host}", "ocs0", rate=rate, delay=delay)
    fabric.panel("ocs0").circuits(circuits)
    return fabric


def network(lab):
    return lab._standing.network


def panel_of(lab):
    """The panel's node in the engine."""
    return network(lab).engine.node(lab._plan.panels[0].number)


def wall(lab, at_s):
    """Wall time, in nanoseconds, of an emulated time of the lab's clock."""
    zeros = []
    for _ in range(10):  # an interruption between the two makes a zero too late
        now_ps = network(lab).live.now_ps
        zeros.append(time.monotonic_ns() - now_ps * lab.dilation / 1000)
    return min(zeros) + at_s * 1e9 * lab.dilation


def events(lab):
    with network(lab).held():
        return network(lab).engine.panels.events()


def counters(lab):
    return lab.counters()["panel ocs0"]


def moments(lab, kind, value):
    """Wall times, by port, of the last event of that kind and value."""
    return {
        where: wall(lab, at / 1e12)
        for at, where, each, found in events(lab).rows
        if (each, found) == (kind, value)
    }


placed = pytest.mark.parametrize("placement", ["engine", "xdp", "tc"])


def check_untouched(probe):
    """Not one datagram is lost."""
    sent = probe.end()
    assert len(sent) > 2000 and all(arrived for _, arrived in sent)


def check_edge(probe, at, *, lit_after):
    """What is sent over 1 ms after that moment arrives, or is lost, and the other way round."""
    sent = probe.end()
    before = {arrived for sent_at, arrived in sent if sent_at < at - MS}
    after = {arrived for sent_at, arrived in sent if sent_at > at + MS}
    assert (before, after) == ({not lit_after}, {lit_after})


@pytest.mark.parametrize(
    ("dilation", "placement"),
    [
        (1, "engine"),
        (1, "xdp"),
        (1, "tc"),
        (4, "xdp"),
        *(pytest.param(4, each, marks=pytest.mark.soak) for each in ("engine", "tc")),
    ],
)
def test_dark_time_and_circuits_that_stay(uses_machine, dilation, placement):
    # Without carrier events the kernel sends on while it is dark: each packet is seen lost.
    with ln.lab(
        star(
            6,
            circuits=[("h0", "h1"), ("h2", "h3"), ("h4", "h5")],
            profile="sim25",
            carrier="none",
            placement=placement,
        ),
        clock="live",
        dilation=dilation,
    ) as lab:
        stays = Probe(lab, "h0", "h1", 1.2)
        leaves = Probe(lab, "h3", "h2", 1.2, every_s=0.0005)
        moves = Probe(lab, "h2", "h4", 1.2, every_s=0.0005)
        for probe in (stays, leaves, moves):
            probe.begin()
        time.sleep(0.4)
        lab.circuits("ocs0", [("h0", "h1"), ("h2", "h4"), ("h3", "h5")])
        check_untouched(stays)
        begin, end = (moments(lab, "status", value)["ocs0 3A"] for value in ("tuning", "tuned"))
        assert end - begin == pytest.approx(25 * MS * dilation, abs=200_000)
        check_edge(leaves, begin, lit_after=False)
        check_edge(moves, end, lit_after=True)
        found = counters(lab)
        assert 25 * dilation < found["drop_dark"] <= 2 * 25 * dilation / 0.5
        assert "drop_blocked" not in found and "drop_light" not in found


@placed
def test_carriers_follow_the_light(uses_machine, placement):
    hosts, changes = [f"h{host}" for host in range(4)], 20
    pairs = [("h0", "h1"), ("h2", "h3")], [("h0", "h2"), ("h1", "h3")]
    with ln.lab(star(profile="sim25", placement=placement), clock="live") as lab:
        watch = around(lab, hosts, WATCH, changes * 0.08 + 1, "p0")
        for number in range(changes):
            time.sleep(0.08)
            lab.circuits("ocs0", pairs[(number + 1) % 2])
        seen = carriers_seen(watch)
        late = {False: [], True: []}
        for number, host in enumerate(hosts):
            told = [
                (wall(lab, at / 1e12), value == "up")
                for at, where, _, value in events(lab).rows
                if where == f"{host}--ocs0"
            ]
            assert [up for _, up in told] == [up for _, up in seen[number]]
            assert len(told) == 2 * changes
            for (due, up), (at, _) in zip(told, seen[number], strict=True):
                late[up].append(at - due)
    for up, each in late.items():
        # The slowest of the four hosts, of each change.
        slowest = sorted(max(each[change::changes]) / MS for change in range(changes))
        print(
            placement,
            "up" if up else "down",
            "ms after the light:",
            *(f"{ms:.2f}" for ms in slowest),
        )
        assert min(each) > -0.1 * MS
        # All, on an idle machine; what else it does holds up threads of the kernel.
        assert slowest[3 * changes // 4] < 2


def test_hosts_kernels_go_where_the_light_goes(uses_machine):
    with ln.lab(star(profile="sim25"), clock="live") as lab:
        lab.circuits("ocs0", [("h0", "h2"), ("h1", "h3")])
        time.sleep(0.1)
        # Routes and permanent neighbours are there again: new pairs talk, old ones do not.
        assert lab.exec("h0", f"ping -6 -c 3 -i 0.05 -W 1 {lab.address('h2')}").returncode == 0
        assert lab.exec("h0", f"ping -6 -c 1 -W 0.3 {lab.address('h1')}").returncode != 0
        lab.down("h2--ocs0")  # seen at the circuit's far end
        time.sleep(0.05)
        assert lab.exec("h0", "cat /sys/class/net/p0/carrier").stdout.strip() == "0"
        assert lab.exec("h1", "cat /sys/class/net/p0/carrier").stdout.strip() == "1"
        lab.restore()
        assert lab.exec("h0", f"ping -6 -c 3 -i 0.05 -W 1 {lab.address('h2')}").returncode == 0
        lab.circuits("ocs0", [])
        time.sleep(0.05)
        carriers = [
            lab.exec(f"h{host}", "cat /sys/class/net/p0/carrier").stdout.strip()
            for host in range(4)
        ]
        assert carriers == ["0"] * 4


def frame(size, ethertype, seed):
    """To an address of nobody, from one of nobody."""
    body = bytes((seed * 31 + i * 7) % 256 for i in range(size - 14))
    return bytes.fromhex("02beefbeef0102beefbeef02") + ethertype.to_bytes(2, "big") + body


@placed
def test_frames_of_any_kind_come_out_as_they_went_in(uses_machine, placement):
    # Not 0x8100: the listener's kernel takes VLAN tags off.
    kinds = (0x0800, 0x86DD, 0x0806, 0x88B5, 0x8847, 0x9100, 0x0000, 0xFFFF)
    frames = [
        frame(size, kind, i)
        for i, (size, kind) in enumerate(
            itertools.product((60, 64, 65, 128, 191, 192, 193, 576, 1500, 3000, 3400), kinds)
        )
    ]
    with ln.lab(star(rate="1 Gb/s", placement=placement), clock="live") as lab:
        listener = started(lab, "h1", LISTEN, "p0", 1.0)
        lab.exec(
            "h0",
            [sys.executable, "-I", "-S", "-c", FRAMES, "p0"],
            input=json.dumps([each.hex() for each in frames]),
            check=True,
        )
        assert answer(listener) == [each.hex() for each in frames]
        assert counters(lab)["forwarded"] == len(frames)


@placed
def test_half_circuits_and_loops(uses_machine, placement):
    with ln.lab(star(circuits=[], placement=placement), clock="live") as lab:
        node, engine = panel_of(lab), network(lab).engine.network
        with network(lab).held():  # light from h0 to h1 alone, and of h2 to itself
            engine.change_panel(node, remove=[], add=[(0, 1), (2, 2)])
            assert engine.cross_connects(node) == [(0, 1), (2, 2)]
            with pytest.raises(ValueError, match="named twice"):
                engine.change_panel(node, remove=[], add=[(0, 3), (1, 3)])
        carriers = [
            lab.exec(f"h{host}", "cat /sys/class/net/p0/carrier").stdout.strip()
            for host in range(4)
        ]
        # Both directions must have light, which half a circuit does not have.
        assert carriers == ["0", "0", "1", "0"]
        sent = [frame(200, 0x88B5, 3)]
        listener = started(lab, "h2", LISTEN, "p0", 0.5)
        lab.exec(
            "h2",
            [sys.executable, "-I", "-S", "-c", FRAMES, "p0"],
            input=json.dumps([each.hex() for each in sent]),
            check=True,
        )
        assert answer(listener) == [each.hex() for each in sent]


def matchings(hosts, stay, count):
    """Circuits of all hosts: the first `stay` keep their peers, each other one has a new peer in
    each. As pairs, and as the peer of each host."""
    random, maps = np.random.default_rng(7), []
    while len(maps) < count:
        moving = random.permutation(np.arange(stay, hosts))
        pairs = [*((i, i + 1) for i in range(0, stay, 2)), *moving.reshape(-1, 2).tolist()]
        peers = dict([*pairs, *((b, a) for a, b in pairs)])
        if not maps or all(peers[i] != maps[-1][i] for i in range(stay, hosts)):
            maps.append(peers)
    return [[(f"h{a}", f"h{b}") for a, b in peers.items() if a < b] for peers in maps], maps


@placed
def test_permutations_of_48_ports_with_probes_on_all(uses_machine, placement):
    hosts, stay, changes = 48, 16, 4
    patched, maps = matchings(hosts, stay, changes + 1)
    with ln.lab(
        star(
            hosts,
            circuits=patched[0],
            profile="sim25",
            carrier="none",
            delay="5 us",
            placement=placement,
        ),
        clock="live",
    ) as lab:
        swarm = around(lab, [f"h{i}" for i in range(hosts)], SWARM, 0.3 * (changes + 1), 0.003)
        for each in patched[1:]:
            time.sleep(0.25)
            lab.circuits("ocs0", each)
        sent, came = swarm_seen(swarm)
        # All ports of a change go dark at one moment, and all have light again at one moment.
        dark, lit = (
            [
                wall(lab, at / 1e12)
                for at in sorted({at for at, _, _, found in events(lab).rows if found == value})
            ]
            for value in ("tuning", "tuned")
        )
        # How late a table was in force at most: until then the one before is rightly followed.
        late = network(lab).live.take_window().get("table", {"max_ps": 0})["max_ps"] / 1000
        assert (late > 0) == (placement != "engine")
    assert len(dark) == len(lit) == changes
    # The map with this number is that of all ports that move, since and until.
    since, until = [-np.inf, *lit], [*dark, np.inf]
    slack = MS + late  # E2

    arrived = {(each.source, each.number): each for each in came}
    assert len(arrived) == len(came), "a frame came twice"
    counted = {"stayed": 0, "moved": 0, "dark": 0}
    for host, number, at in sent:
        found, what = arrived.get((host, number)), f"h{host}'s frame {number}"
        if host < stay:
            assert found and found.receiver == maps[0][host], f"{what}: {found}"
            counted["stayed"] += 1
        elif found:
            # It followed a map that was in force while it was under way.
            assert any(
                peers[host] == found.receiver
                and found.received >= since[k] - slack
                and found.sent <= until[k] + slack
                for k, peers in enumerate(maps)
            ), found
            counted["moved"] += 1
        else:
            assert any(
                begin - 5 * MS < at < end + slack for begin, end in zip(dark, lit, strict=True)
            ), f"{what} is lost"
            counted["dark"] += 1
    print(placement, "frames:", counted)
    assert counted["stayed"] > 1000 and counted["moved"] > 2000
    assert counted["dark"] > 80  # 1,000 if the machine sends 48 frames in 3 ms
    # By each map each host has reached its peer.
    assert {(a, b) for peers in maps for a, b in peers.items()} == {
        (each.source, each.receiver) for each in came
    }


@ln.plugin.controller("live_patcher")
class Patcher:
    """Circuits by time in milliseconds."""

    def __init__(self, plan):
        self.plan = dict(plan)

    def next_time(self):
        return min(self.plan) * 10**9 if self.plan else None

    def advance(self, now, view):
        return [ln.change.circuits("ocs0", self.plan.pop(min(self.plan)))]


def run(tmp_path, fabric, job, plan, **options):
    lab = Lab("panels", clock="live", directory=tmp_path / "lab")
    return lab.run(fabric, job, controllers=[ln.controller("live_patcher", plan=plan)], **options)


@pytest.mark.parametrize(
    ("transport", "placement", "told"),
    [
        ("mrc", "engine", "1 panel in the engine"),
        ("roce", "engine", "1 panel in the engine"),
        ("mrc", "xdp", "1 panel by XDP"),
    ],
)
def test_a_job_waits_for_its_circuit(uses_machine, tmp_path, transport, placement, told):
    job = ln.Flows(
        pairs=[(0, 1), (0, 2)],
        sizes="100 kB",
        count=2,
        starts=["0 s", "100 ms"],
        transport=transport,
    )
    r = run(
        tmp_path,
        star(profile="sim25", placement=placement),
        job,
        {200: [("h0", "h2"), ("h1", "h3")]},
    )
    assert r.data.ended == "finished" and not r.data.errors and r.data.fidelity.unexplained == 0
    first, second = r.data.flows
    assert first.end_ps < 50 * 10**9
    assert 225 * 10**9 < second.end_ps < 400 * 10**9
    assert r.data.fidelity.notes["placement"] == told
    rows = [row for row in r.data.events.rows if row[1] == "ocs0 1A"]
    assert [row[3] for row in rows] == ["tuning", "tuned"]
    assert rows[1][0] - rows[0][0] == 25 * 10**9
    assert 200 * 10**9 <= rows[0][0] < 230 * 10**9
    assert re.search(r"h0--ocs0 +carrier +down", str(r.events))


def test_kernel_tcp_goes_on_when_its_circuit_is_back(uses_machine, tmp_path):
    job = ln.Flows(pairs=[(0, 1)], sizes="3 MB", count=1, starts=["0 s"], transport="tcp")
    both = [("h0", "h1"), ("h2", "h3")]
    r = run(tmp_path, star(profile="sim25"), job, {200: [("h0", "h2"), ("h1", "h3")], 300: both})
    assert r.data.ended == "finished" and not r.data.errors
    (flow,) = r.data.flows
    assert 0.7 * 10**12 < flow.end_ps < 3 * 10**12  # 0.6 s of sending, and what was dark


def test_hosts_at_planes_and_panels(uses_machine, tmp_path):
    fabric = ln.clos.two_tier(
        planes=1, leaves=2, spines=1, hosts_per_leaf=2, rate="40 Mb/s", delay="50 us"
    )
    fabric.add_panel("ocs0", profile="sim25")
    for host in range(4):
        fabric.add_link(f"h{host}", "ocs0", rate="40 Mb/s", delay="50 us")
    with ln.lab(fabric, clock="live") as lab:
        assert lab.exec("h0", f"ping -6 -c 2 -i 0.05 -W 1 {lab.address('h2')}").returncode == 0
        assert "panel ocs0" not in lab.counters()
        lab.circuits("ocs0", [("h0", "h2")])
        time.sleep(0.1)
        assert lab.exec("h0", f"ping -6 -c 2 -i 0.05 -W 1 {lab.address('h2')}").returncode == 0
        assert counters(lab)["forwarded"] == 4
        lab.circuits("ocs0", [])
        time.sleep(0.1)
        assert lab.exec("h0", f"ping -6 -c 2 -i 0.05 -W 1 {lab.address('h2')}").returncode == 0
        assert counters(lab)["forwarded"] == 4
    job = ln.Flows(pairs=[(0, 1)], sizes="100 kB", count=1, starts=["0 s"], transport="mrc")
    r = run(tmp_path, fabric, job, {1: [("h0", "h1")]})
    assert r.data.ended == "finished" and r.data.fidelity.unexplained == 0


def test_what_an_open_lab_refuses(uses_machine):
    with ln.lab(star(), clock="live") as lab:
        for panel, pairs, message in (
            ("ocs1", [], 'no panel "ocs1"'),
            ("ocs0", [("h0", "h9")], '"h9" has no link'),
            ("ocs0", [("h0", "h1"), ("h0", "h2")], "other circuits have them all"),
        ):
            with pytest.raises(ln.LoomnetError, match=message):
                lab.circuits(panel, pairs)
        assert lab.exec("h0", f"ping -6 -c 1 -W 1 {lab.address('h1')}").returncode == 0
    with ln.lab(star()) as lab, pytest.raises(ln.UsageError, match="virtual clock"):
        lab.circuits("ocs0", [])


SCENARIO = """
import loomnet as ln

@ln.scenario
def lit(lab: ln.Lab, placement: str = "xdp"):
    fabric = ln.Fabric("pair")
    fabric.add_panel("ocs0", placement=placement)
    for host in range(2):
        fabric.add_host()
        fabric.add_link(f"h{host}", "ocs0", rate="40 Mb/s", delay="50 us")
    fabric.panel("ocs0").circuits([("h0", "h1")])
    transport = "tcp" if placement == "tc" else "mrc"
    lab.run(fabric, ln.Flows(pairs=[(0, 1)], sizes="1 TB", count=1, starts=["0 s"],
                             transport=transport))
"""


@placed
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_ended_leaves_nothing(loomnet, tmp_path, placement, number):
    (tmp_path / "lit.py").write_text(SCENARIO)
    run = loomnet.start("run", "lit.py", "--clock", "live", "--set", f"placement={placement}")
    run.until(TRAFFIC)
    run.process.send_signal(number)
    run.wait(30)
    if number == signal.SIGKILL:
        assert loomnet.start("clean").wait(30) == 0
