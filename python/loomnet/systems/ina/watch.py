"""Looks at the slots of the switches that sum, for the series that a run is asked for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from loomnet.base.errors import UsageError
from loomnet.base.units import Time
from loomnet.measures.pools import PoolSeries
from loomnet.measures.samples import LEAST_STEP
from loomnet.plans.entries import SwitchPlan
from loomnet.plans.job_request import ONLY_JOB, JobRequest
from loomnet.systems.given import PartClock

SUMMING, DONE = 1, 2  # states of a slot: enum aggregate_state


class PoolWatch:
    """Fills `series`. Times are those of the first job."""

    def __init__(
        self,
        every_ps: int,
        jobs: Sequence[JobRequest],
        owners: Mapping[int, int],
        switches: Sequence[SwitchPlan],
        slots: dict[str, int],
        clock: PartClock,
    ) -> None:
        """`owners`: of each number on the wire the job's."""
        self._clock, self._switches = clock, switches
        self._numbers = [asked.number for asked in jobs]
        # A slot names its owner by the number on the wire plus one.
        self._rows = np.full(max(owners) + 2, len(jobs))  # of the jobs here; the last: of none
        for group, number in owners.items():
            self._rows[group + 1] = self._numbers.index(number)
        self.series = PoolSeries(every_ps, tuple(asked.name or ONLY_JOB for asked in jobs), slots)
        self.due_ps = 0  # of the next look

    def found(self) -> dict[str, PoolSeries]:
        return {"pools": self.series}

    def take(self, at_ps: int, playing: Collection[int]) -> None:
        at_work = np.array([number in playing for number in self._numbers])
        jobs = len(self._numbers)
        for switch in self._switches:
            states, owners = self._clock.switch_columns(switch, ("state", "job"))
            summing, done = (
                np.bincount(self._rows[owners[states == state]], minlength=jobs + 1)[:jobs]
                for state in (SUMMING, DONE)
            )
            self.series.add(switch.name, at_ps, summing, done, at_work)
        self.series.thin()
        self.due_ps = (at_ps // self.series.every_ps + 1) * self.series.every_ps


def pools_step(options: Mapping[str, Any]) -> Time | None:
    """The step that a run's `pools=` gives. Raises UsageError."""
    asked = options.get("pools")
    if asked is None:
        return None
    every = Time.given("run: pools", asked)
    if every < LEAST_STEP:
        raise UsageError(f"run: pools={every} must be {LEAST_STEP} or more")
    return every
