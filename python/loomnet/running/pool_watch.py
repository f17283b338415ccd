"""Looks at the slots of the switches that sum, for the series that a run is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from loomnet.base.errors import UsageError
from loomnet.base.units import Time
from loomnet.measures.pools import PoolSeries
from loomnet.measures.samples import LEAST_STEP
from loomnet.plans.model import SwitchPlan
from loomnet.running.job_request import JobRequest
from loomnet.running.play import Play
from loomnet.running.request import RunRequest
from loomnet.running.run_view import ONLY_JOB

SUMMING, DONE = 1, 2  # states of a slot: enum aggregate_state


class PooledClock(Protocol):
    """What a watch asks of the clock."""

    def switch_columns(self, switch: SwitchPlan, names: Sequence[str]) -> list[Any]:
        """Of each field its values in all rows of the state of a switch's program."""
        ...


class PoolWatch:
    """Fills `series`. Times are those of the first job."""

    def __init__(self, every_ps: int, jobs: Sequence[JobRequest], switches: Sequence[SwitchPlan],
                 slots: dict[str, int], clock: PooledClock) -> None:
        self._clock, self._switches = clock, switches
        self._numbers = [asked.number for asked in jobs]
        # A slot names its owner by the job's number on the wire plus one.
        self._owners = np.array([number + 2 for number in self._numbers])
        self.series = PoolSeries(every_ps, tuple(asked.name or ONLY_JOB for asked in jobs), slots)
        self.due_ps = 0  # of the next look

    @classmethod
    def of(cls, request: RunRequest, clock: PooledClock) -> PoolWatch | None:
        """What `lab.run(…, pools="100 us")` asks for; None: nothing. Raises UsageError."""
        every = pools_step(request)
        if every is None:
            return None
        assert request.sums is not None and request.sums.pool is not None
        held = request.sums.pool.slots
        switches = [each for each in request.plan.switches if held.get(each.number)]
        jobs = [each for each in request.jobs if each.number in request.sums.jobs]
        return cls(every.count, jobs, switches,
                   {each.name: held[each.number] for each in switches}, clock)

    def take(self, at_ps: int, playing: Sequence[Play]) -> None:
        """One look at every switch; `playing`: the jobs that have begun and not ended."""
        now = {play.asked.number for play in playing}
        at_work = np.array([number in now for number in self._numbers])
        bins = int(self._owners.max()) + 1
        for switch in self._switches:
            states, owners = self._clock.switch_columns(switch, ("state", "job"))
            summing, done = (
                np.bincount(owners[states == state], minlength=bins)[self._owners]
                for state in (SUMMING, DONE))
            self.series.add(switch.name, at_ps, summing, done, at_work)
        self.series.thin()
        self.due_ps = (at_ps // self.series.every_ps + 1) * self.series.every_ps


def pools_step(request: RunRequest) -> Time | None:
    """The step that a run's `pools=` gives. Raises UsageError."""
    asked = request.options.get("pools")
    if asked is None:
        return None
    every = Time.given("run: pools", asked)
    if every < LEAST_STEP:
        raise UsageError(f"run: pools={every} must be {LEAST_STEP} or more")
    if request.sums is None:
        raise UsageError('run: pools: no switch sums for a job of this run; give one '
                         'allreduce="ina", or leave pools out')
    return every
