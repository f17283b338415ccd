"""Whether a live run keeps up while it goes: frames are counted and held against what the machine
was measured to carry, and a run that falls behind ends early with the remedy."""

from __future__ import annotations

import collections
import time
from typing import Any

from loomnet.live.machine_budget import MachineBudget

_EVERY_S = 1.0
_LEAST_PACKETS = 1000  # below it a p99 is a few packets
_MOST_LATE = 0.01  # share of packets above the bound: p99 is above it
# A run ends early where its p99 is above the bound, of all packets so far and of the packets of
# most of the last seconds each. A machine that stops once, or ranks that load their modules, may
# weigh much in the p99 of few seconds, and the run comes back below the bound.
_SECONDS, _LATE_SECONDS = 10, 6
# Or where it would have to last four times as long, and be late no more, to come back: seconds of
# traffic, and the share of packets above the bound.
_TOO_LATE = (20.0, 4 * _MOST_LATE)
# A measure is doubted where a run was late at less than this share of it, or in time at more.
_DOUBT_BELOW, _DOUBT_ABOVE = 0.7, 1.2


class Pace:
    """Watches one run, a look a second.

    Args:
        live: the engine's LiveRun, while its loop runs.
        budget: of this machine.
        bound_ps: p99 lateness up to which the run keeps up, emulated picoseconds.
        dilation: wall time per emulated time.
    """

    def __init__(self, live: Any, budget: MachineBudget, bound_ps: int, dilation: float) -> None:
        self.live, self.budget, self.bound_ps, self.dilation = live, budget, bound_ps, dilation
        self.most_per_s = 0.0  # frames, in the busiest second
        self._p99_ps = 0
        self._began: float | None = None
        self._last: tuple[float, int, int, int] | None = None  # wall time, then as counted
        self._late_seconds: collections.deque[bool] = collections.deque(maxlen=_SECONDS)

    def look(self) -> str | None:
        """Why the run will not keep up, with the remedy; None: it does, or is not judged yet."""
        wall = time.monotonic()
        if self._last is not None and wall - self._last[0] < _EVERY_S:
            return None
        frames, packets, late, self._p99_ps = self.live.pace(self.bound_ps)
        if self._last is not None:
            before, frames_then, packets_then, late_then = self._last
            rate = (frames - frames_then) / (wall - before)
            self.most_per_s = max(self.most_per_s, rate)
            self._late_seconds.append(late - late_then > _MOST_LATE * (packets - packets_then))
        self._last = (wall, frames, packets, late)
        if packets < _LEAST_PACKETS:
            return None
        if self._began is None:
            self._began = wall
        lasted = wall - self._began
        since, most = _TOO_LATE
        goes_on = late > _MOST_LATE * packets and self._late_seconds.count(True) >= _LATE_SECONDS
        hopeless = late > most * packets
        if not (lasted >= _SECONDS and goes_on) and not (lasted >= since and hopeless):
            return None
        return (
            f"ended after {lasted:.0f} s of traffic: p99 lateness {self._p99_ps / 1e9:.2f} ms "
            f"is above the bound of {self.bound_ps / 1e9:.2f} ms; {self.counted}; "
            f"{self.remedy}"
        )

    @property
    def counted(self) -> str:
        return (
            f"{self.most_per_s / 1000:.0f} k frames/s were counted, this machine carries "
            f"{self.budget.frames_per_s / 1000:.0f} k in time"
        )

    @property
    def remedy(self) -> str:
        """What the user can change. Where the load was small, the machine had other work."""
        over = self.most_per_s / self.budget.frames_per_s
        if over < _DOUBT_BELOW:
            return (
                "end the machine's other work (the report's waits name what held its "
                "processors), or let emulated time pass more slowly: dilation="
                f"{max(2, round(2 * self.dilation))}"
            )
        slower = max(2, round(self.dilation * over / _DOUBT_BELOW + 0.5))
        return (
            "lower the links' rate=, or let emulated time pass more slowly: "
            f"lab.run(…, dilation={slower})"
        )

    def against_the_budget(self) -> str | None:
        """What the run has shown against the measure; None: nothing. After the run."""
        share = self.most_per_s / self.budget.frames_per_s
        if self._p99_ps > self.bound_ps and share < _DOUBT_BELOW:
            return f"a run was late at {share:.0%} of it"
        if 0 < self._p99_ps <= self.bound_ps / 3 and share > _DOUBT_ABOVE:
            return f"a run was in time at {share:.0%} of it"
        return None
