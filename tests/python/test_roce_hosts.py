"""RoCE hosts with a congestion control: presets that share a bottleneck, TIMELY that ignores marks,
thresholds of a link's ECN, and whether the control of a run was at work."""

from __future__ import annotations

import pytest

import loomnet as ln
from loomnet.base.errors import FabricError, UsageError
from loomnet.fabrics.link_settings import LinkDefaults
from loomnet.measures.congestion_control import ControlActivity, if_controlled, why_idle
from loomnet.plans.make import make_plan
from loomnet.systems.roce import TRANSPORTS, host_parameters, presets

ROCE = TRANSPORTS[0]
RED = ln.Ecn("400 kB", "1600 kB", share=0.2)
STEP = ln.Ecn("150 kB")


def star(ecn, hosts=5, rate="100 Gb/s", **link):
    made = ln.clos.two_tier(
        planes=1, leaves=1, spines=1, hosts_per_leaf=hosts, rate=rate, delay="1 us"
    )
    return made.override("p0.*->*", ecn=ecn, **link)


def parameters(options, fabric):
    plan = make_plan(fabric)
    return host_parameters(ROCE.engine_options(options, plan, [plan.links[0].forward.rate_bps]))


def shares(result, begin_s, end_s):
    """Bits per second of each sender between two times, from what was acknowledged, of which a
    short packet counts as a full one."""
    table = result.series("acked")
    seen: dict[str, list[tuple[float, float]]] = {}
    for at, where, value in zip(
        *(table.column(name) for name in ("time", "where", "value")), strict=True
    ):
        if begin_s <= at <= end_s and not where.startswith("h4"):
            seen.setdefault(where, []).append((at, value))
    return [8 * (row[-1][1] - row[0][1]) / (row[-1][0] - row[0][0]) for row in seen.values()]


def jain(values):
    return sum(values) ** 2 / (len(values) * sum(v * v for v in values))


# --- presets on the wire --------------------------------------------------------------------------
@pytest.mark.parametrize("preset", ["A", "B", "C", "D"])
def test_four_senders_of_a_preset_share_a_bottleneck(tmp_path, preset):
    """The last two begin 2 ms after the others. From 8 ms on no one has more than a fair share by
    much, the link is used, and marks did it: cuts there are, pauses of PFC there are few."""
    fabric = star(STEP if preset == "D" else RED, data_limit="32 MB")
    jobs = [
        ln.SendRecv(
            "60 MB",
            transport="roce",
            hosts=[f"h{n}", "h4"],
            name=f"s{n}",
            start="0 s" if n < 2 else "2 ms",
        )
        for n in range(4)
    ]
    r = ln.run(
        fabric,
        jobs,
        seed=1,
        directory=tmp_path,
        sample="0.1 ms",
        observe=["acked"],
        roce={"preset": preset, "payload_mtu": 4096},
    )
    first = r.parts[0]
    rates = shares(first, 0.008, 0.016)
    assert len(rates) == 4
    assert jain(rates) > 0.93
    assert 75e9 < sum(rates) < 105e9
    activity = ControlActivity.of(first.data.totals)
    assert activity.marks > 50 and activity.cuts > 50
    # A CNP per mark but for those that wait together; one per 50 us of a queue pair; none.
    most = {"A": activity.marks, "D": 0}.get(preset, 4 * 30_000 // 50)
    assert (preset == "D") == (activity.cnps_sent == 0) and activity.cnps_sent <= most
    if preset == "A":
        assert activity.cnps_sent > 0.9 * activity.marks
    assert why_idle(activity, parameters({"preset": preset}, fabric)) is None
    assert "roce congestion control" not in first.data.fidelity.notes


def test_a_report_states_every_parameter_of_its_hosts(tmp_path):
    made = ln.Lab("hosts", directory=tmp_path, seed=1)
    made.run(
        star(RED),
        ln.Incast("200 kB", transport="roce"),
        roce={"preset": "B", "rate_timer_ps": 77_000_000},
    )
    note = made.report.fidelity[0].row()["notes"]["roce hosts"]
    for stated in (
        "preset B",
        "cc dcqcn",
        "cnp_gap_ps 50000000",
        "decrease_interval_ps 50000000",
        "rate_timer_ps 77000000",
        "alpha_timer_ps 55000000",
        "fast_recovery 5",
        "dcqcn_g 0.00390625",
        "additive_rate_bps 50000000",
        "hyper_rate_bps 100000000",
        "minimum_rate_bps 100000000",
        "line_rate_bps 100000000000",
        "window_bdps 0",
    ):
        assert stated in note, stated
    made = ln.Lab("plain", directory=tmp_path, seed=1)
    made.run(star(RED), ln.Incast("200 kB", transport="roce"))
    assert "roce hosts" not in made.report.fidelity[0].row()["notes"]


def test_constants_are_scaled_by_nobody_but_the_user():
    """At 10 Gb/s and at 100 Gb/s a preset says the same; DCQCN without one has its least rate as
    before."""
    fast, slow = (
        parameters({"preset": "A"}, star(RED, rate=rate)) for rate in ("100 Gb/s", "10 Gb/s")
    )
    assert {name for name in fast if fast[name] != slow[name]} == {"line_rate_bps"}
    assert presets().keys() == {"A", "B", "C", "D", "astra-sim"}
    plain = parameters({"dcqcn": True}, star(RED, rate="1 Gb/s"))
    assert plain["minimum_rate_bps"] == 10**7 and plain["additive_rate_bps"] == 40_000_000
    assert plain["decrease_interval_ps"] == 0 and plain["byte_counter"] == 10_000_000


def test_presets_that_cannot_be_are_one_line(tmp_path):
    job = ln.Incast("200 kB", transport="roce")
    for options, said in (
        ({"preset": "E"}, "no preset 'E'; there are A, B, C, D"),
        ({"preset": 3}, "no preset 3; there are A, B, C, D"),
        ({"preset": "A", "cc": "timely"}, "preset A is of another congestion control than cc"),
        ({"cc": "timely", "timely_low_ps": 10**9}, "timely.low: T_low must be below T_high"),
        ({"window_bdps": -1}, "window_bdps"),
    ):
        with pytest.raises(UsageError, match=said):
            ln.run(star(RED), job, directory=tmp_path, roce=options)


def test_a_window_in_bandwidth_delay_products_keeps_the_queue_below_the_thresholds(tmp_path):
    job = ln.Incast("4 MB", transport="roce")
    free, capped = (
        ln.run(
            star(RED, data_limit="32 MB"),
            job,
            seed=1,
            directory=tmp_path,
            roce={"preset": "B", "payload_mtu": 4096, "ack_interval": 1, **more},
        )
        for more in ({}, {"window_bdps": 1})
    )
    assert ControlActivity.of(free.data.totals).marks > 0
    assert ControlActivity.of(capped.data.totals).marks == 0
    assert capped.data.end_ps < free.data.end_ps


# --- TIMELY ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_timely_runs_the_same_with_marks_and_without(tmp_path, seed):
    """Delay alone slows 7 senders at 100 Gb/s; there are marks, and nothing follows of them."""
    job = ln.Incast("4 MB", transport="roce")
    marked, plain = (
        ln.run(
            ln.clos.two_tier(
                planes=1,
                leaves=2,
                spines=2,
                hosts_per_leaf=4,
                rate="100 Gb/s",
                delay="1 us",
                pfc=ln.Pfc(xoff="1600 kB"),
            ).override("p0.*->*", ecn=ecn, data_limit="32 MB"),
            job,
            seed=seed,
            directory=tmp_path,
            roce={"cc": "timely"},
        )
        for ecn in (RED, False)
    )
    activity = ControlActivity.of(marked.data.totals)
    assert activity.marks > 100 and activity.cuts > 10
    assert activity.cnps_sent == 0
    assert ControlActivity.of(plain.data.totals).marks == 0
    assert marked.data.end_ps == plain.data.end_ps
    assert [flow.end_ps for flow in marked.flow_records] == [
        flow.end_ps for flow in plain.flow_records
    ]


def test_round_trips_that_timely_sees_hold_the_queue(tmp_path):
    """A sender alone sees the path; seven see their queue, up to the thresholds."""

    def longest(job):
        r = ln.run(
            star(RED, hosts=8, data_limit="32 MB"),
            job,
            seed=1,
            directory=tmp_path,
            roce={"cc": "timely"},
            sample="20 us",
            observe=["rtt_us"],
        )
        return max(r.series("rtt_us").column("value"))

    base = make_plan(star(RED, hosts=8)).base_rtt_ps / 1e6
    alone = longest(ln.SendRecv("2 MB", transport="roce"))
    assert 0.5 * base < alone < 1.5 * base
    assert longest(ln.Incast("2 MB", transport="roce")) > 50  # T_low


# --- thresholds of ECN ----------------------------------------------------------------------------
def test_a_link_states_its_thresholds():
    half = {link.forward.name: link.forward for link in make_plan(star(RED)).links}
    half |= {link.backward.name: link.backward for link in make_plan(star(RED)).links}
    down, up = half["p0.leaf0->h0"], half["h0->p0.leaf0"]
    assert (down.ecn_low_bytes, down.ecn_high_bytes, down.ecn_share) == (400_000, 1_600_000, 0.2)
    assert down.data_limit_bytes == 4 * 1_600_000
    assert up.ecn_high_bytes == 0, "a NIC marks nothing"
    step = make_plan(star(STEP, data_limit="1 MB")).links[0].backward
    assert (step.ecn_low_bytes, step.ecn_high_bytes) == (150_000, 150_000)
    assert step.data_limit_bytes == 1_000_000
    paused = make_plan(star(RED), defaults=LinkDefaults(pfc=True)).links[0].forward
    assert paused.pfc_xoff_bytes == 1_600_000, "marks come before pauses"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ln.Ecn("2 MB", "1 MB"), "high: 1 MB must not be below low, 2 MB"),
        (lambda: ln.Ecn("0 B"), "low: 0 B must be above 0 B"),
        (lambda: ln.Ecn("1 MB", share=1.5), "share: 1.5 is not a share"),
        (lambda: ln.Ecn(150_000), "low"),
        (lambda: star("on"), "ecn: 'on' is not True, False or ln.Ecn"),
    ],
)
def test_thresholds_that_cannot_be_are_one_line(make, said):
    with pytest.raises((UsageError, FabricError), match=said):
        make()


# --- was it at work? ------------------------------------------------------------------------------
def test_a_figure_of_a_run_without_notifications_is_null(tmp_path):
    fabric = star(RED)
    r = ln.run(
        fabric,
        ln.SendRecv("1 MB", transport="roce"),
        seed=1,
        directory=tmp_path,
        roce={"preset": "B"},
    )
    activity = ControlActivity.of(r.data.totals)
    value, reason = if_controlled(1.5, activity, parameters({"preset": "B"}, fabric))
    assert value is None and reason is not None and reason.startswith("no CNP occurred")
    assert "no CNP occurred" in (
        why_idle(ControlActivity(marks=9, cnps_sent=9), {"cc": "dcqcn", "line_rate_bps": 9}) or ""
    )


@pytest.mark.parametrize("rate", ["100 Mb/s", "40 Mb/s"])
def test_a_figure_of_a_run_whose_floor_is_the_line_rate_or_more_is_null(tmp_path, rate):
    fabric = star(ln.Ecn("20 kB"), rate=rate)
    made = ln.Lab("floor", directory=tmp_path, seed=1)
    r = made.run(fabric, ln.Incast("1 MB", transport="roce"), roce={"preset": "B"})
    activity = ControlActivity.of(r.data.totals)
    assert activity.cnps_received > 0, "CNPs there are, which can do nothing"
    value, reason = if_controlled(1.5, activity, parameters({"preset": "B"}, fabric))
    assert value is None
    assert reason == (
        "the rate floor of the hosts, 100 Mb/s, is at or above the line rate, "
        f"{rate}: no flow can be slowed"
    )
    assert made.report.fidelity[0].row()["notes"]["roce congestion control"] == reason


def test_reasons_of_hosts_that_do_nothing():
    work = ControlActivity(marks=5, cnps_received=5, cuts=3)
    line = {"line_rate_bps": 10**10, "minimum_rate_bps": 10**8}
    assert why_idle(work, {}) == "the hosts have no congestion control"
    assert why_idle(work, {"cc": "dcqcn", **line}) is None
    assert if_controlled(2.0, work, {"cc": "dcqcn", **line}) == (2.0, None)
    assert "timely never lowered a rate" in (
        why_idle(ControlActivity(), {"cc": "timely", **line}) or ""
    )
    assert "rate floor" in (
        why_idle(work, {"cc": "timely", "line_rate_bps": 10**7, "timely_minimum_rate_bps": 10**7})
        or ""
    )


# --- MRC ------------------------------------------------------------------------------------------
def test_marks_of_mrc_move_paths_and_are_counted(tmp_path):
    """Eight senders over two spines: with marks paths pass their turns, without none does."""

    def activity(ecn):
        fabric = ln.clos.two_tier(
            planes=1, leaves=2, spines=4, hosts_per_leaf=8, rate="100 Gb/s", delay="1 us"
        ).override("p0.*->*", ecn=ecn)
        fabric.override("p0.leaf*--p0.spine0", rate="25 Gb/s")
        r = ln.run(fabric, ln.Permutation("4 MB", transport="mrc"), seed=1, directory=tmp_path)
        return ControlActivity.of(r.data.totals)

    marked, plain = activity(ln.Ecn("20 kB", "80 kB")), activity(False)
    assert marked.marks > 100 and marked.path_skips > 50
    assert marked.path_skips <= marked.marks
    assert plain.marks == plain.path_skips == 0
    assert marked.cuts > 0, "its window, by delay and marks"
