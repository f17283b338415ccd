"""RoCE hosts on the live clock: the round trip that TIMELY reacts to is measured there, on real
packets, in emulated time; marks draw notifications that cut a rate."""

import loomnet as ln
from loomnet.labs.lab import Lab
from loomnet.measures.congestion_control import ControlActivity, why_idle
from loomnet.plans.make import make_plan
from loomnet.systems.roce import TRANSPORTS, host_parameters

DILATION = 250  # 10 Gb/s of emulated time is 40 Mb/s of wall time


def fabric(hosts_per_leaf=1, delay="2 us"):
    return ln.clos.two_tier(
        planes=1, leaves=2, spines=1, hosts_per_leaf=hosts_per_leaf, rate="10 Gb/s", delay=delay
    )


def round_trips(directory, delay):
    """Of one sender on an idle path, in microseconds of emulated time."""
    r = Lab("timely", clock="live", directory=directory).run(
        fabric(delay=delay),
        ln.SendRecv("2 MB", transport="roce"),
        dilation=DILATION,
        roce={"cc": "timely"},
        sample="40 us",
        observe=["min_rtt_ps"],
    )
    assert r["errors"] == 0 and r.data.fidelity.unexplained == 0
    found = [
        value / 1e6 for value in r.series("min_rtt_ps", where="h0->h1*").column("value") if value
    ]
    assert found
    return found[-1]


def test_timely_measures_the_round_trip_of_a_live_path(uses_machine, tmp_path):
    short = round_trips(tmp_path / "short", "2 us")
    long = round_trips(tmp_path / "long", "22 us")
    base = make_plan(fabric()).base_rtt_ps / 1e6
    assert 8 * 2 <= short < 3 * base + 20
    # Eight crossings of 20 us more, give or take what the engine was late.
    assert abs(long - short - 8 * 20) < 25


def test_marks_of_a_live_run_cut_rates_and_no_constant_is_scaled(uses_machine, tmp_path):
    made = fabric(hosts_per_leaf=2).override("p0.*->*", ecn=ln.Ecn("20 kB"), data_limit="4 MB")
    r = Lab("incast", clock="live", directory=tmp_path).run(
        made, ln.Incast("1 MB", transport="roce"), dilation=DILATION, roce={"preset": "B"}
    )
    assert r["errors"] == 0 and r.data.fidelity.unexplained == 0
    plan = make_plan(made)
    host = host_parameters(TRANSPORTS[0].engine_options({"preset": "B"}, plan, [10**10]))
    activity = ControlActivity.of(r.data.totals)
    assert activity.cnps_received and activity.cuts
    assert why_idle(activity, host) is None
    assert host["minimum_rate_bps"] == 10**8 and host["cnp_gap_ps"] == 50_000_000
