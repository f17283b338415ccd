"""Lines of rank 0's output that TorchJob.log matches, and the ends of the steps they speak of."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Sequence

from loomnet.jobs.model import TorchJob
from loomnet.measures.training import MARK
from loomnet.processes.rank_logs import RankLog

MOST_LOG_LINES = 500_000
_LOOKS_AT_END = 32  # 128 MiB of log that no look before has reached


class LogLines:
    """`lines`: the named groups of each line."""

    def __init__(self, job: TorchJob) -> None:
        self._pattern = re.compile(job.log) if job.log else None
        self._log_from = job.log_from
        self.lines: list[dict[str, str]] = []

    def read(self, log: RankLog, *, to_end: bool) -> None:
        """Takes in what was printed since, some megabytes at most; `to_end`: all of it, as far as a
        log is read at all."""
        if self._pattern is None:
            return
        for _ in range(_LOOKS_AT_END if to_end else 1):
            for line in log.lines():
                if len(self.lines) < MOST_LOG_LINES and (match := self._pattern.search(line)):
                    self.lines.append({k: v for k, v in match.groupdict().items() if v is not None})
            if log.at_end:
                return

    def timed(
        self, steps: Sequence[tuple[int, int]], origin_ps: int
    ) -> list[tuple[int, dict[str, str]]]:
        """The lines with the time of the step they speak of; a mark that speaks of none has that of
        the line before it. `steps`: number and end of each, on the clock on which the job's time 0
        is `origin_ps`."""
        ends, numbers = dict(steps), [number for number, _ in steps]
        shift = 1 - _log_from(self._log_from, self.lines)
        out: list[tuple[int, dict[str, str]]] = []
        for line in self.lines:
            step = _step_of(line)
            if step is None:
                out.append((out[-1][0] if out and MARK in line else 0, line))
                continue
            step += shift
            if step not in ends and numbers:
                step = numbers[min(bisect.bisect_left(numbers, step), len(numbers) - 1)]
            out.append((ends.get(step, origin_ps) - origin_ps, line))
        return out


def _step_of(line: dict[str, str]) -> int | None:
    return int(line["step"]) if line.get("step", "").isdecimal() else None


def _log_from(given: int | None, lines: Iterable[dict[str, str]]) -> int:
    """The number of a script's first step in its own log."""
    if given is not None:
        return given
    return min(next((step for line in lines if (step := _step_of(line)) is not None), 1), 1)
