"""What a live run is held against: the machine's measured budget, its own counts, the bound on its
lateness."""

import contextlib
import json
import math
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

import loomnet as ln
from loomnet.base.errors import UsageError

pytest.importorskip("loomnet._core")
from loomnet.labs.auto_dilation import AutoDilation
from loomnet.live import dilation, lateness, machine_budget
from loomnet.live.lateness import RunQueues, blame, lateness_bound_ps, stolen_s
from loomnet.live.machine_budget import MachineBudget
from loomnet.live.pace import Pace
from loomnet.plans.make import make_plan

MS = 10**9


@pytest.fixture
def kept(tmp_path, monkeypatch):
    monkeypatch.setattr(machine_budget, "FILE", tmp_path / "budget.json")
    monkeypatch.setattr(machine_budget, "state_directory", lambda: tmp_path)
    found = MachineBudget(
        100_000, 50 * 10**6, 0.01, 1e9, machine_budget._boot(), machine_budget.version()
    )
    machine_budget._keep(found)
    return found


def test_a_measure_is_kept_as_it_was_and_holds(kept):
    assert machine_budget.kept() == kept
    assert kept.stale is None


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"boot": "another"}, "another boot"),
        ({"build": "0.0.0"}, "another version"),
        ({"busy": 0.26}, "others took 26%"),
        ({"contradicted": "a run was late at 31% of it"}, "31%"),
    ],
)
def test_a_measure_that_no_longer_holds_says_why(kept, change, why):
    assert why in replace(kept, **change).stale


def test_a_run_that_contradicts_the_measure_makes_the_next_take_another(kept):
    machine_budget.contradict("a run was late at 31% of it")
    assert machine_budget.kept().stale == "a run was late at 31% of it"
    machine_budget.contradict("another reason")  # the first stays: it is what is to be mended
    assert machine_budget.kept().contradicted == "a run was late at 31% of it"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "null",
        "[" * 100_000,
        '{"frames_per_s": "x"}',
        json.dumps({"frames_per_s": 1e400}),
    ],
)
def test_a_damaged_file_is_no_measure(kept, text):
    machine_budget.FILE.write_text(text)
    assert machine_budget.kept() is None


def test_a_measure_of_nothing_is_none(kept):
    machine_budget._keep(replace(kept, frames_per_s=0))
    assert machine_budget.kept() is None


class Counts:
    """What the engine would answer: (frames, packets, how many were late, p99 in ps), one answer a
    look."""

    def __init__(self, answers):
        self.answers = iter(answers)

    def pace(self, bound_ps):
        return next(self.answers)


def looks(monkeypatch, kept, answers, bound_ps=MS, dilation=1.0):
    """The pace after one look a second at these answers, and at which look it spoke first."""
    pace = Pace(Counts(answers), kept, bound_ps, dilation)
    for second in range(len(answers)):
        monkeypatch.setattr("loomnet.live.pace.time.monotonic", lambda at=second: 100.0 + 1.01 * at)
        if (text := pace.look()) is not None:
            return pace, second, text
    return pace, None, None


def test_a_run_that_falls_behind_ends_within_seconds_and_says_what_to_do(monkeypatch, kept):
    late = [(90_000 * second, 10_000 * second, 500 * second, 5 * MS) for second in range(30)]
    pace, second, text = looks(monkeypatch, kept, late)
    assert second is not None and 10 <= second <= 12
    assert "p99 lateness 5.00 ms" in text and "bound of 1.00 ms" in text
    assert "89 k frames/s were counted" in text and "carries 100 k" in text
    assert "dilation=" in text
    assert pace.against_the_budget() is None  # late near the budget: it held


def test_a_run_that_was_late_at_first_may_come_below_the_bound(monkeypatch, kept):
    """Of the first seconds three in a hundred packets are late: p99 is above the bound for three
    times as long."""

    def answers(seconds):
        return [(90_000 * s, 10_000 * s, 300 * min(s, seconds), 3 * MS // 2) for s in range(60)]

    assert looks(monkeypatch, kept, answers(6))[1] is None
    assert looks(monkeypatch, kept, answers(7))[1] == 11  # of ten seconds of traffic


def test_the_remedy_of_a_small_load_is_the_machine(monkeypatch, kept):
    late = [(20_000 * second, 10_000 * second, 200 * second, 2 * MS) for second in range(30)]
    pace, _, text = looks(monkeypatch, kept, late)
    assert "other work" in text
    assert pace.against_the_budget() == "a run was late at 20% of it"


def test_a_run_in_time_goes_on_and_may_show_that_the_budget_is_larger(monkeypatch, kept):
    pace, second, _ = looks(
        monkeypatch, kept, [(130_000 * s, 10_000 * s, 0, MS // 10) for s in range(60)]
    )
    assert second is None
    assert pace.against_the_budget() == "a run was in time at 129% of it"


def test_a_late_burst_long_after_the_start_ends_a_run_only_where_it_weighs_much(monkeypatch, kept):
    def answers(late):
        return [
            (50_000 * s, 10_000 * s, late * (s >= 40), 2 * MS if s >= 40 else MS // 2)
            for s in range(60)
        ]

    assert looks(monkeypatch, kept, answers(15_000))[1] is None
    assert looks(monkeypatch, kept, answers(20_000))[1] == 40


def test_few_packets_are_no_verdict(monkeypatch, kept):
    late = [(10 * s, 10 * s, 10 * s, 9 * MS) for s in range(60)]
    assert looks(monkeypatch, kept, late)[1] is None


def plan(delay, rate="20 Mb/s"):
    fabric = ln.clos.two_tier(
        planes=1, leaves=2, spines=1, hosts_per_leaf=1, rate=rate, delay=delay
    )
    return make_plan(fabric, seed=0)


def test_the_bound_is_half_of_a_delay_or_a_sixth_of_the_round_trip_up_to_2_ms_of_wall_time():
    long = plan("8 ms")
    assert lateness_bound_ps(long, 1.0) == 4 * MS
    short = plan("1 us", "10 Gb/s")
    assert lateness_bound_ps(short, 1.0) == max(500_000, short.base_rtt_ps // 6) < MS
    middle = plan("0.5 ms")
    assert middle.base_rtt_ps // 6 > MS // 4
    assert lateness_bound_ps(middle, 1.0) == min(middle.base_rtt_ps // 6, 2 * MS)
    assert lateness_bound_ps(middle, 1000.0) == MS // 4  # 2 ms of wall time are 2 us: half a delay


def request(rate, transport="roce", tmp_path=None):
    lab = ln.Lab("auto", directory=tmp_path, clock="live")
    fabric = ln.clos.two_tier(
        planes=1, leaves=2, spines=1, hosts_per_leaf=1, rate=rate, delay="1 ms"
    )
    job = ln.Flows("1 MB", pairs=[(0, 1)], transport=transport)
    return lab._request(fabric, [job], [], None, None, "1 s", 1.0, {}, [], recorded=False)


@pytest.fixture
def affordable(monkeypatch, kept):
    monkeypatch.setattr(dilation, "budget", lambda: kept)
    monkeypatch.setattr("loomnet.live.network.require_live", lambda: None)


def test_auto_is_the_least_whole_dilation_that_fits_and_one_for_all_runs(tmp_path, affordable):
    said, auto = [], AutoDilation()
    first = request("1 Gb/s", tmp_path=tmp_path / "a")
    chosen = auto.fit(first, "live", said.append).dilation
    least = math.ceil(dilation.offered_by(first) / 100_000)
    assert chosen == least > 1
    assert said == [f'dilation="auto": D = {least}, for all runs of this lab']
    small = request("10 Mb/s", tmp_path=tmp_path / "b")
    assert auto.fit(small, "live", said.append).dilation == least
    with pytest.raises(UsageError, match=r"needs D = \d+, and the lab's first run took"):
        auto.fit(request("10 Gb/s", tmp_path=tmp_path / "c"), "live", said.append)


def test_auto_is_refused_with_kernel_tcp_and_is_nothing_on_the_virtual_clock(tmp_path, affordable):
    kernel = request("1 Gb/s", "tcp", tmp_path / "a")
    with pytest.raises(UsageError, match="D = 1 is the only dilation"):
        AutoDilation().fit(kernel, "live", print)
    assert AutoDilation().fit(kernel, "virtual", print).dilation == 1.0


def test_without_events_of_the_scheduler_waits_are_summed_by_thread():
    """This thread has company on each core, so it waits."""
    queues = RunQueues(threading.get_native_id())
    cores = len(os.sched_getaffinity(0))
    with contextlib.ExitStack() as stack:
        for _ in range(3 * cores):
            busy = subprocess.Popen([sys.executable, "-I", "-S", "-c", "while True: pass"])
            stack.callback(busy.wait)
            stack.callback(busy.kill)
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            pass
    found = {wait.who: wait for wait in queues.waits()}
    assert 10**7 < found["engine"].total_ns < 10**9
    assert "programs that this kernel does not name" in blame([found["engine"]], 1.0)


def test_what_the_host_took_is_said(tmp_path, monkeypatch):
    stat = tmp_path / "stat"
    monkeypatch.setattr(lateness, "Path", lambda _: stat)
    assert stolen_s() == 0
    stat.write_text("cpu  11 12 13 14 15 16 17 250 19 20\ncpu0 1 2 3 4 5 6 7 8 9 10\n")
    assert stolen_s() == 250 / os.sysconf("SC_CLK_TCK")
    assert blame([], 2.0, 0.25).endswith(": this virtual machine 0.25 s behind others of its host")
    assert blame([], 2.0) is None
