"""When each rank of a ring had received each step: the step gap, and how the leading rank and the
laggard come along."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from loomnet.base.errors import UsageError
from loomnet.base.table import Table

COLUMNS = ("rank", "channel", "step", "time")


@dataclass(frozen=True)
class RingSteps:
    """`rows`: int64[n, 4] of rank, channel, ring step (modulo 2^32) and the time at which the rank
    had received the step, in picoseconds since the job's begin, in the order of time. A rank has
    completed as many steps of a channel as it has rows there, over all repetitions. `unnoted`:
    steps beyond the million that are kept.
    """

    rows: Any
    unnoted: int = 0

    @classmethod
    def of(cls, rows: Any, origin_ps: int, unnoted: int = 0) -> RingSteps | None:
        """From rows in the engine's time; None where there are none."""
        if len(rows) == 0:
            return None
        moved = rows.copy()
        moved[:, 3] -= origin_ps
        return cls(moved, unnoted)

    @classmethod
    def joined(cls, parts: Sequence[Any], origin_ps: int, unnoted: int = 0) -> RingSteps | None:
        """From rows of each rank, in the engine's time, with communicators as channels: these are
        numbered anew, in the order of their own numbers. None where there are no rows."""
        rows = numpy.concatenate(parts) if parts else numpy.empty((0, 4), dtype=numpy.int64)
        rows = rows[numpy.lexsort((rows[:, 2], rows[:, 0], rows[:, 3]))]
        if len(rows):
            rows[:, 1] = numpy.unique(rows[:, 1], return_inverse=True)[1].reshape(-1)
        return cls.of(rows, origin_ps, unnoted)

    @property
    def ranks(self) -> list[int]:
        return numpy.unique(self.rows[:, 0]).tolist()

    @property
    def channels(self) -> list[int]:
        return numpy.unique(self.rows[:, 1]).tolist()

    def table(self) -> Table:
        """One row per step that a rank has received: `rank`, `channel`, `step`, `time` in
        seconds."""
        return Table(
            COLUMNS,
            (
                dict(zip(COLUMNS, (rank, channel, step, at / 1e12), strict=True))
                for rank, channel, step, at in self.rows.tolist()
            ),
        )

    def completions(self, channel: int = 0) -> dict[int, Any]:
        """By rank: float64 times in seconds at which it had completed 1, 2, … steps of a channel.
        Raises UsageError for a channel that is not there."""
        return {rank: times / 1e12 for rank, times in self._times(channel).items()}

    def leader(self, channel: int = 0) -> Any:
        """Seconds at which the first rank had completed 1, 2, … steps of a channel."""
        return self._fronts(channel)[0] / 1e12

    def laggard(self, channel: int = 0) -> Any:
        """Seconds at which every rank had completed 1, 2, … steps of a channel; a step that some
        rank never completed is left out."""
        return self._fronts(channel)[1][: self._least(channel)] / 1e12

    def gap_series(self, channel: int = 0) -> tuple[Any, Any]:
        """(seconds, steps): the most minus the fewest steps that ranks have completed, from each
        time on to the next."""
        first, last = self._fronts(channel)
        times = numpy.unique(numpy.concatenate([first, last]))
        ahead = numpy.searchsorted(first, times, side="right")
        behind = numpy.searchsorted(last[: self._least(channel)], times, side="right")
        return times / 1e12, ahead - behind

    def gap(self, channel: int | None = None, *, begin_s: float = 0.0) -> float:
        """Mean over time of the most minus the fewest steps that ranks have completed, from
        `begin_s` of the job to the last step of any rank. None: the mean over all channels."""
        if channel is None:
            return sum(self.gap(each, begin_s=begin_s) for each in self.channels) / len(
                self.channels
            )
        if not 0 <= begin_s < math.inf:
            raise UsageError(f"ring_steps.gap: begin_s={begin_s} must be 0 seconds or more")
        begin = begin_s * 1e12
        first, last = self._fronts(channel)
        end = float(last[-1])
        if end <= begin:
            raise UsageError(
                f"ring_steps.gap: begin_s={begin_s} is after the last step, at {end / 1e12:g} s"
            )
        # Some rank is step k ahead of another from when the first has completed k to when all have.
        apart = numpy.clip(last, begin, None) - numpy.clip(first, begin, None)
        return float(apart.sum() / (end - begin))

    def largest_gap(self, channel: int = 0) -> int:
        """The most steps that ranks were apart at any time."""
        return int(self.gap_series(channel)[1].max())

    def _times(self, channel: int) -> dict[int, Any]:
        own = self.rows[self.rows[:, 1] == channel]
        if len(own) == 0:
            raise UsageError(
                f"ring_steps: no channel {channel}; there are {', '.join(map(str, self.channels))}"
            )
        return {rank: own[own[:, 0] == rank, 3] for rank in numpy.unique(own[:, 0]).tolist()}

    def _least(self, channel: int) -> int:
        return min(len(times) for times in self._times(channel).values())

    def _fronts(self, channel: int) -> tuple[Any, Any]:
        """Of steps 1, 2, …: when the first rank had completed as many, and when the last had; a
        step that some rank never completed ends with the run's last step."""
        times = self._times(channel)
        most = max(map(len, times.values()))
        end = int(self.rows[self.rows[:, 1] == channel, 3].max())
        first = numpy.full(most, end, dtype=numpy.int64)
        last = numpy.full(most, 0, dtype=numpy.int64)
        for each in times.values():
            first[: len(each)] = numpy.minimum(first[: len(each)], each)
            last[: len(each)] = numpy.maximum(last[: len(each)], each)
            last[len(each) :] = end
        return first, last
