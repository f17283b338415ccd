"""A rank that wants a processor and gets none does not count as one that stands still."""

import os
import subprocess
import sys
import time

import pytest

from loomnet.processes import rank_watch
from loomnet.processes.rank_watch import Movement, load_text, queued_seconds


class Machine:
    """Time, CPU time and waits of one rank, second by second."""

    def __init__(self, monkeypatch):
        self.now, self.used, self.queued, self.wants = 0.0, 0.0, 0.0, False
        monkeypatch.setattr(rank_watch.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(rank_watch, "cpu_seconds", lambda pids: dict.fromkeys(pids, self.used))
        monkeypatch.setattr(rank_watch, "queued_seconds", lambda pid: (self.wants, self.queued))
        self.movement = Movement(moved=0.0, _looked=0.0, worked=0.0)

    def passes(self, seconds, *, used=0.0, queued=0.0, wants=False):
        self.wants = wants
        for _ in range(seconds):
            self.now += 1.1
            self.used += used
            self.queued += queued
            self.movement.look("same", {0: 17})
        return self.movement.dead_s()


def test_a_rank_that_waits_for_a_processor_does_not_stand(monkeypatch):
    machine = Machine(monkeypatch)
    assert machine.passes(60, used=0.01, queued=1.05, wants=True) < 2
    # Then it sleeps: from there on it stands.
    assert machine.passes(60) == pytest.approx(66, abs=3)


def test_a_rank_that_had_no_turn_at_all_does_not_stand(monkeypatch):
    assert Machine(monkeypatch).passes(60, wants=True) < 2


@pytest.mark.parametrize(
    "given", [{}, {"used": 0.02}, {"used": 0.02, "queued": 0.3}, {"used": 0.02, "wants": True}]
)
def test_a_rank_that_sleeps_or_looks_now_and_then_stands(monkeypatch, given):
    assert Machine(monkeypatch).passes(60, **given) > 60


def test_waits_for_a_processor_are_read_of_the_kernel():
    if not os.path.exists("/proc/self/schedstat"):
        pytest.skip("this kernel counts no waits")
    only = {min(os.sched_getaffinity(0))}
    spin = "import time\nend = time.monotonic() + 20\nwhile time.monotonic() < end: pass"
    spinning = [subprocess.Popen([sys.executable, "-I", "-S", "-c", spin]) for _ in range(2)]
    try:
        for each in spinning:
            os.sched_setaffinity(each.pid, only)
        end = time.monotonic() + 10
        while time.monotonic() < end and not all(
            queued_seconds(each.pid)[1] > 0.05 for each in spinning
        ):
            time.sleep(0.05)
        assert all(queued_seconds(each.pid) > (True, 0.05) for each in spinning)
    finally:
        for each in spinning:
            each.kill()
            each.wait()
    assert queued_seconds(spinning[0].pid) == (False, 0.0)


def test_the_load_is_named_where_it_is_more_than_the_processors(monkeypatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (4690.0, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert "the machine's load is 4690 on 2 processors" in load_text()
    monkeypatch.setattr(os, "getloadavg", lambda: (1.5, 0.0, 0.0))
    assert load_text() == ""
