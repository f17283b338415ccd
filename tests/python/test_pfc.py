"""Priority-based Flow Control: RoCE's fair baseline on the virtual clock, its thresholds in a plan,
a deadlock that is named, and settings that are refused."""

import textwrap

import pytest

import loomnet as ln
from loomnet.base.errors import FabricError, UsageError
from loomnet.cli import main
from loomnet.fabrics.description import figures
from loomnet.fabrics.link_settings import LinkDefaults
from loomnet.faults.timetable import Timetable
from loomnet.live.run import LiveRunner
from loomnet.plans.job_request import JobRequest
from loomnet.plans.make import make_plan
from loomnet.running.request import RunRequest


def clos(**values):
    shape = {
        "planes": 1,
        "leaves": 4,
        "spines": 4,
        "hosts_per_leaf": 4,
        "rate": "400 Gb/s",
        "delay": "1 us",
    }
    return ln.clos.two_tier(**{**shape, **values})


def total(result, *names):
    return sum(row.get(name, 0) for row in result.data.totals.values() for name in names)


def dropped(result):
    links = (row for name, row in result.data.totals.items() if name.startswith("link "))
    return sum(n for row in links for name, n in row.items() if name.startswith("drop_"))


# --- what it is for -------------------------------------------------------------------------------
def test_a_colliding_all_reduce_of_roce_loses_nothing_and_never_times_out(tmp_path):
    """16 MiB at 400 Gb/s, ECMP collisions and all. Without PFC the same job goes back thousands of
    packets with queues of 5 BDP; with queues of one, it waits for timeouts of 4.3 s, many times."""
    job = ln.AllReduce("16 MiB", transport="roce")
    made = ln.Lab("pfc", directory=tmp_path, seed=1)
    fair = made.run(clos(), job, label="fair")
    assert fair.data.ended == "finished"
    assert dropped(fair) == total(fair, "timeouts", "retransmitted") == 0
    links = {name: row for name, row in fair.data.totals.items() if name.startswith("link")}
    assert sum(row.get("pfc_pauses", 0) for row in links.values()) > 100  # collisions there are
    assert sum(row.get("pfc_paused_ps", 0) for row in links.values()) > 100 * 10**6
    assert not any(row.get("pfc_pause_expiries") for row in links.values())
    lossy = made.run(clos(pfc=False), job, label="lossy")
    assert dropped(lossy) > 100 and total(lossy, "retransmitted") > dropped(lossy)
    assert lossy.data.end_ps > 1.2 * fair.data.end_ps
    bdp = min(link.forward.data_limit_bytes for link in lossy.plan.links) // 5
    shallow = clos(pfc=False).override("p*->p*", data_limit=f"{bdp} B")
    shallow = made.run(shallow, job, label="shallow")
    assert total(shallow, "timeouts") > 1 and shallow.data.end_ps > 1000 * fair.data.end_ps
    notes = {run.label: run.row()["notes"]["pfc"] for run in made.report.fidelity}
    assert notes == {
        "fair": "on: switch ports are lossless",
        "lossy": "off: go-back-N over lossy switches, queues of 5 BDP by default",
        "shallow": "off: go-back-N over lossy switches, queues of 5 BDP by default",
    }


def test_the_same_seed_gives_the_same_bytes_with_payload_or_without(tmp_path):
    job = ln.AllReduce("8 MiB", transport="roce")
    reports = []
    for number, payload in enumerate((False, False, True)):
        made = ln.Lab("pfc", directory=tmp_path / str(number), seed=7)
        assert made.run(clos(), job, payload=payload)["errors"] == 0
        reports.append(made.report.to_json())
    assert reports[0] == reports[1] == reports[2]


def test_the_twin_of_a_live_run_is_as_lossy_as_that(tmp_path):
    made = ln.Lab("pfc", directory=tmp_path, replay_gaps={None: ()})
    made.run(clos(), ln.AllReduce("1 MiB", transport="roce"))
    assert made.report.fidelity[0].row()["notes"]["pfc"].startswith("off")


def test_mrc_trims_unless_the_fabric_is_made_lossless(tmp_path):
    # In any fabric twelve windows of MRC overrun the receiver's link.
    made = ln.Lab("pfc", directory=tmp_path)
    own, lossless = (
        made.run(clos(pfc=pfc), ln.Incast("1 MB"), label=str(pfc)) for pfc in (None, True)
    )
    assert total(own, "trimmed") > 0 and total(own, "pfc_pauses") == 0
    assert total(lossless, "trimmed") == dropped(lossless) == 0
    assert total(lossless, "pfc_pauses") > 0


def test_incast_with_a_victim_behind_paused_links(tmp_path):
    """7:1 across spines and a flow to another host of that rack. Under PFC alone that keeps 0.35 of
    its line or less, with DCQCN 0.6 to 0.9 (Araujo et al., arXiv 2605.04333)."""
    pairs = [(host, 0) for host in (1, 2, 3, 5, 6, 7, 9)] + [(11, 4)]  # hosts 0, 4 on leaf 0
    made = ln.Lab("d1", directory=tmp_path, seed=2)
    share = {}
    for name, options in (("pfc", {}), ("dcqcn", {"roce": {"dcqcn": True}})):
        job = ln.Flows("200 MB", count=8, pairs=pairs, transport="roce")
        r = made.run(clos(delay="0.7 us", payload="4096 B"), job, label=name, **options)
        assert r.data.ended == "finished" and dropped(r) == total(r, "timeouts") == 0
        victim = next(flow for flow in r.flow_records if flow.destination == 4)
        share[name] = 200e6 * 8e12 / victim.completion_ps / (400e9 * 4096 / (4096 + 78 + 24))
        assert total(r, "cnps_received") == total(r, "cnps_sent")
        assert (total(r, "cnps_sent") > 50) == (name == "dcqcn")
    assert share["pfc"] <= 0.35 and 0.6 <= share["dcqcn"] <= 0.9
    notes = {run.label: run.row()["notes"]["dcqcn"] for run in made.report.fidelity}
    assert notes == {"pfc": "off", "dcqcn": "on"}


def test_flows_between_two_racks_collide_as_published(tmp_path):
    """Eight flows over eight spines by ECMP: the line, a half, a third, and 0.59 on average
    (Araujo et al., arXiv 2605.04333); MRC shares all paths."""
    pairs = [(i, 8 + i) for i in range(8)]
    line = 400e9 * 4096 / (4096 + 78 + 24)
    shares = []
    for seed in range(8):
        fabric = clos(leaves=2, spines=8, hosts_per_leaf=8, order="block", payload="4096 B")
        job = ln.Flows("8 MB", count=8, pairs=pairs, transport="roce")
        r = ln.Lab("d2", directory=tmp_path / str(seed), seed=seed).run(fabric, job)
        shares += [8e6 * 8e12 / flow.completion_ps / line for flow in r.flow_records]
    near = [min(abs(share - at) for at in (1, 1 / 2, 1 / 3, 1 / 4)) for share in shares]
    assert max(near) < 0.06
    assert sum(shares) / len(shares) == pytest.approx(0.59, abs=0.06)


# --- numbers --------------------------------------------------------------------------------------
def test_thresholds_of_a_plan():
    plan = make_plan(clos(), defaults=LinkDefaults(pfc=True))
    bdp = plan.base_rtt_ps * 400 // 8_000
    half = {plan.half(i).name: plan.half(i) for i in range(2 * len(plan.links))}
    up = half["h0->p0.leaf0"]
    frame = plan.frame_bytes
    assert (up.pfc_xoff_bytes, up.pfc_xon_bytes) == (bdp, bdp - 2 * frame)
    # A round trip of 2 us at 400 Gb/s is 100 kB; the pause frame and two frames of 4,238 B, framed.
    assert 100_000 + 2 * 4262 + 4238 + 84 <= up.pfc_headroom_bytes <= 112_846 + 32
    assert half["p0.leaf0->h0"].pfc_xoff_bytes == 0, "a host pauses nobody"
    lossy = make_plan(clos())
    assert plan.pfc and not lossy.pfc
    leaf, plain = (next(iter(p.switches)) for p in (plan, lossy))
    ports = len(leaf.ports)
    assert leaf.buffer_bytes - plain.buffer_bytes == ports * up.reserved_bytes


def test_a_part_of_a_fabric_has_the_numbers_of_the_whole():
    lossless = LinkDefaults(pfc=True)
    whole = make_plan(clos(), defaults=lossless)
    part = make_plan(clos(), defaults=lossless, hosts=[0, 1, 5])
    assert part.pfc
    for link in part.links:
        assert link == whole.links[link.number]


def test_settings_of_links_and_builders_win_over_the_transport():
    own = ln.Pfc(xoff="200 kB", xon="50 kB", headroom="1 MB")
    plan = make_plan(clos(pfc=own))
    assert plan.links[0].forward.pfc_xoff_bytes == 200_000
    assert plan.links[0].forward.pfc_xon_bytes == 50_000
    assert plan.links[0].forward.pfc_headroom_bytes == 1_000_000
    fabric = clos().override("p0.leaf0->p0.spine*", pfc="off")
    plan = make_plan(fabric, defaults=LinkDefaults(pfc=True))
    lossy = [
        h.name
        for i in range(2 * len(plan.links))
        if not (h := plan.half(i)).pfc_xoff_bytes and not h.last_hop
    ]
    assert lossy == [f"p0.leaf0->p0.spine{i}" for i in range(4)]
    for fabric in (
        ln.star(hosts=2, rate="1 Gb/s", delay="1 us", pfc=True),
        ln.dumbbell(left=1, right=1, rate="1 Gb/s", delay="1 us", pfc=True),
        ln.clos.fat_tree(4, rate="1 Gb/s", delay="1 us", pfc=True),
    ):
        assert make_plan(fabric).pfc


def test_dcqcn_marks_by_its_own_thresholds_at_every_hop():
    """5 KB, 200 KB and 1 % at 40 Gb/s, bytes by the rate; a few packets at least."""
    plan = make_plan(clos(), defaults=LinkDefaults(pfc=True, dcqcn=True))
    half = {plan.half(i).name: plan.half(i) for i in range(2 * len(plan.links))}
    for name in ("p0.leaf0->p0.spine0", "p0.leaf0->h0"):
        found = half[name]
        assert (found.ecn_low_bytes, found.ecn_high_bytes) == (50_000, 2_000_000)
        assert found.ecn_share == 0.01
    assert half["h0->p0.leaf0"].ecn_high_bytes == 0
    slow = (
        make_plan(clos(rate="1 Mb/s", delay="1 ms"), defaults=LinkDefaults(dcqcn=True))
        .links[0]
        .backward
    )
    assert (slow.ecn_low_bytes, slow.ecn_high_bytes) == (2 * 2190, 8 * 2190)
    assert make_plan(clos()).links[0].backward.ecn_share == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dcqcn": True, "minimum_rate_bps": 0}, "RoceOptions.dcqcn.minimum_rate"),
        ({"dcqcn": True, "dcqcn_g": 2.0}, "RoceOptions.dcqcn.g"),
        ({"dcqn": True}, "no option dcqn; nearest: dcqcn.*; there are"),
    ],
)
def test_options_of_dcqcn_that_do_not_fit_are_one_clear_line(tmp_path, options, message):
    made = ln.Lab("bad", directory=tmp_path)
    with pytest.raises(UsageError, match=message) as caught:
        made.run(clos(), ln.AllReduce("1 MB", transport="roce"), roce=options)
    assert "\n" not in str(caught.value)


def test_describe_says_what_is_lossless():
    rows = figures(clos())
    assert rows["lossless switch ports"] == (16 + 2 * 16, "with RoCE")
    assert rows["PFC headroom, NIC-T0 link"][1] == "kB"
    assert figures(clos(pfc=True))["lossless switch ports"] == (48, "")
    assert figures(clos(pfc=False))["lossless switch ports"] == (0, "")


# --- deadlock -------------------------------------------------------------------------------------
def test_a_deadlock_is_counted_and_the_stall_names_it(tmp_path):
    """Five switches in a ring, every host sending two switches on: each link waits for the next."""
    n = 5
    fabric = ln.Fabric("ring")
    for _ in range(n):
        fabric.add_host()
    for i in range(n):
        fabric.add_switch(f"p0.s{i}")
        fabric.add_link(f"h{i}", f"p0.s{i}", rate="100 Gb/s", delay="1 us")
    for i in range(n):
        fabric.add_link(f"p0.s{i}", f"p0.s{(i + 1) % n}", rate="100 Gb/s", delay="1 us")
    pairs = [(i, (i + 2) % n) for i in range(n)]
    job = ln.Flows("8 MB", count=n, pairs=pairs, transport="roce", stall_timeout="100 ms")
    r = ln.Lab("pfc", directory=tmp_path).run(fabric, job)
    assert r.data.ended == "stalled" and dropped(r) == 0
    assert r.data.totals["fabric"] == {"pfc_deadlocks": 1}
    circle = ", ".join(f"p0.s{i}->p0.s{(i + 1) % n}" for i in range(n))
    assert r.data.reason == (
        "no operation finished for 100 ms (stall_timeout); the network delivers nothing; "
        f"PFC deadlock: {circle} wait for one another"
    )


# --- what is refused ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ln.Pfc(xoff="10 kB", xon="20 kB"), "Pfc: xon: 20 kB must be below xoff, 10 kB"),
        (lambda: ln.Pfc(xof="10 kB"), 'Pfc: unknown name "xof"; nearest: xoff'),
        (lambda: ln.Pfc(xoff=10_000), "Pfc.xoff: 10000 "),
        (lambda: ln.Pfc(xoff="0 B"), "Pfc: xoff: 0 B must be above 0 B"),
        (lambda: ln.Pfc(headroom="2 PB"), "Pfc: headroom: 2000 TB must be above 0 B"),
        (lambda: clos(pfc="yes"), "pfc: 'yes' is not True, False"),
        (lambda: clos(pfc=1), "pfc: 1 is not True, False"),
        (lambda: clos().override("h0--p0.leaf0", pfc=0.5), "pfc: 0.5 is not True, False"),
        (
            lambda: make_plan(clos(pfc=ln.Pfc(xoff="4 kB"))),
            "h0->p0.leaf0: pfc: xoff 4 kB leaves no room for xon, two frames of 2190 B below",
        ),
        (lambda: make_plan(clos(pfc=ln.Pfc(xon="90 MB"))), "leaves no room for xon 90 MB"),
        (
            lambda: make_plan(clos(pfc=ln.Pfc(headroom="50 kB"))),
            "h0->p0.leaf0: pfc: headroom 50 kB is less than the 1128",
        ),
        (
            lambda: make_plan(clos(pfc=ln.Pfc(headroom="50 kB")), hosts=[0, 1]),
            "host–leaf links: pfc: headroom 50 kB is less than the 1128",
        ),
    ],
)
def test_bad_values_are_one_line_that_names_the_field(make, message):
    with pytest.raises((UsageError, FabricError)) as caught:
        make()
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_live_run_refuses_it(tmp_path):
    fabric = clos(rate="1 Mb/s", pfc=True)
    plan = make_plan(fabric)
    request = RunRequest(
        plan=plan,
        jobs=(JobRequest(ln.AllReduce("1 kB", transport="roce"), tuple(range(16))),),
        timetable=Timetable(plan, [], reroute_delay=None),
        faults=(),
        label="",
        seed=0,
        directory=tmp_path,
    )
    with pytest.raises(UsageError, match="pfc: live switches send no pause frames"):
        LiveRunner().check(request)


def test_on_the_command_line_it_is_exit_2_and_nothing_left_behind(tmp_path, monkeypatch, capsys):
    (tmp_path / "bad.py").write_text(
        textwrap.dedent("""
        import loomnet as ln

        @ln.scenario
        def bad(lab: ln.Lab, headroom: ln.Size = "1 kB"):
            fabric = ln.star(hosts=2, rate="1 Gb/s", delay="1 us", pfc=ln.Pfc(headroom=headroom))
            lab.run(fabric, ln.AllReduce("1 MB", transport="roce"))
        """)
    )
    monkeypatch.chdir(tmp_path)
    assert main(["run", "bad.py"]) == 2
    said = capsys.readouterr()
    lines = [line for line in (said.out + said.err).splitlines() if line.strip()]
    assert len(lines) == 1 and "headroom 1 kB is less than" in lines[0]
    assert not (tmp_path / "runs").exists()
    assert (
        main(
            [
                "describe",
                "two_tier",
                "--set",
                "planes=1",
                "--set",
                "leaves=2",
                "--set",
                "spines=2",
                "--set",
                "hosts_per_leaf=2",
                "--set",
                "pfc=maybe",
            ]
        )
        == 2
    )
    assert "pfc: 'maybe' is not True" in "".join(capsys.readouterr())
