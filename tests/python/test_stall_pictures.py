"""Pictures of runs that stall or go on for longer: quiet stretches are drawn narrow, and say so."""

import math
import re
from types import SimpleNamespace

import numpy as np
import pytest
from test_pictures import texts

import loomnet as ln
from loomnet.measures.run_data import HostSeries, Iteration
from loomnet.results.plots import goodput_figure, iteration_figure
from loomnet.results.time_span import CUT_RATIO, GAP_SHARE, QUIET_SHARE, TimeSpan, quiet_gaps


def made_run(*, iterations=(), payload=(), end, bin_s=1e-3):
    """A run of so many seconds; `iterations` and `payload`: seconds of begin and end."""
    bins = np.zeros(math.ceil(end / bin_s) + 1, dtype=np.int64)
    for begin, until in payload:
        bins[int(begin / bin_s) : max(int(until / bin_s), int(begin / bin_s) + 1)] = 1000
    host = HostSeries(payload=bins, bin_ps=round(bin_s * 1e12))
    done = [
        Iteration(n + 1, round(a * 1e12), round(b * 1e12)) for n, (a, b) in enumerate(iterations)
    ]
    data = SimpleNamespace(hosts={0: host}, iterations=done, flows=[], end_ps=round(end * 1e12))
    return SimpleNamespace(data=data, phases=[])


def test_what_is_quiet_by_its_nature_is_no_gap():
    # Iterations of 2 s that compute for all but 1 ms: quiet for most of the time.
    ends = [2.0 * n for n in range(1, 4)]
    computing = made_run(
        iterations=[(at - 2, at) for at in ends], end=6.0, payload=[(at - 1e-3, at) for at in ends]
    )
    assert quiet_gaps([computing], 6.0) == ()
    # A stall of half of the time is seen at full width, one of nearly all of it is not.
    for stall, broken in ((1.0, False), (50.0, True)):
        busy = [(0.0, 0.5), (0.5 + stall, 1.0 + stall)]
        run = made_run(payload=busy, end=1.0 + stall)
        assert (quiet_gaps([run], 1.0 + stall) != ()) == broken
        assert broken == (stall / (1 + stall) >= QUIET_SHARE)
    # Beside a run that is busy all the time there is no gap.
    assert quiet_gaps([run, made_run(payload=[(0, 51)], end=51.0)], 51.0) == ()
    # Two stalls are two gaps.
    twice = made_run(payload=[(0, 0.5), (40, 40.5), (90, 90.5)], end=90.5)
    assert [round(end - begin) for begin, end in quiet_gaps([twice], 90.5)] == [40, 50]


def test_places_on_a_broken_axis_rise_and_lead_back():
    span = TimeSpan(91.0, ((0.5, 40.0), (40.5, 90.0)))
    place, time_at = span.on_paper()
    at = np.array([-1, 0, 0.25, 0.5, 20, 40, 40.25, 40.5, 60, 90, 91, 95.0])
    places = place(at)
    assert np.all(np.diff(places) > 0) and time_at(places) == pytest.approx(at)
    assert span.shown == pytest.approx(2.0) and span.quiet == pytest.approx(89.0)
    assert place(40.0) - place(0.5) == pytest.approx(GAP_SHARE * span.shown)
    assert place(91.0) - place(90.0) == pytest.approx(1.0)


def test_a_run_that_goes_on_for_longer_is_cut_and_says_so(tmp_path):
    """Longer because it is slow, with no stall: there is nothing to leave out."""
    found = {}
    for name, rate in (("fast", "400 Gb/s"), ("slow", "10 Gb/s")):
        fabric = ln.star(hosts=2, rate=rate, delay="1 us")
        found[name] = ln.run(fabric, ln.AllReduce("1 MiB", 6, "mrc"), directory=tmp_path / name)
    panels = goodput_figure(found).axes
    short, long = (found[name].data.end_ps for name in ("fast", "slow"))
    assert long > 4 * short
    factor = {"µs": 1e6, "ms": 1e9}[re.search(r"\((.s)\)", panels[1].get_xlabel())[1]]
    assert panels[0].get_xlim()[1] * factor == pytest.approx(CUT_RATIO * short)
    assert [text for text in texts(panels[1]) if "goes on to" in text]
    (axes,) = iteration_figure(found).axes
    assert [
        line.get_label() for line in axes.lines if "which ends outside" in line.get_label()
    ] == [] and "broken" not in axes.get_xlabel()
