"""When a PyTorch job on the live clock no longer gets on."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from loomnet.base.units import Time
from loomnet.processes.rank_watch import Movement

# Wall time that ranks have for their first operation where the job names no stall_timeout: imports
# from a cold disk neither communicate nor compute for seconds.
START_S = 60
# Of a processor: what a rank that imports still gets on a busy machine, far above what one uses
# that sleeps between two looks at a file.
WORKS_SHARE = 0.02


class RanksStall:
    """Since when a job's ranks have not got on, from their start. Times are the engine's.

    Getting on is an operation that begins or ends, payload that arrives and, up to rank 0's first
    step, processor time of a rank: what a job imports, builds and compiles before it takes as long
    as the machine needs. A rank that computes without communicating after its first step stalls
    the others, as on a cluster.

    Args:
        limit: the job's stall timeout; None: it waits for ever.
        named: whether the job names the timeout itself.
    """

    def __init__(self, limit: Time | None, *, named: bool, dilation: float) -> None:
        self._stall, self._dilation = limit, dilation
        at_start = Time.of(round(START_S / dilation * 1e12))
        self._first = limit if limit is None or named else max(limit, at_start)
        self._progress_ps = 0
        self._works = self._payload = 0
        self._movement = Movement(WORKS_SHARE)

    def begin(self, now_ps: int) -> None:
        """The ranks are started now."""
        self._progress_ps, self._movement = now_ps, Movement(WORKS_SHARE)

    def look(self, now_ps: int, works: int, *, stepped: bool, pids: Mapping[int, int]) -> None:
        """`works`: a number that every operation's begin and end makes larger; `stepped`: rank 0
        has ended a step; `pids`: of the ranks that run."""
        if works > self._works:
            self._works, self._progress_ps = works, now_ps
        if not stepped:
            self._movement.look(works, dict(pids))
            worked_s = self._movement.dead_s() / self._dilation
            self._progress_ps = max(self._progress_ps, now_ps - round(worked_s * 1e12))

    @property
    def _limit(self) -> Time | None:
        return self._stall if self._works else self._first

    def over(self, now_ps: int, payload: Callable[[], int]) -> bool:
        """Whether the timeout has passed. `payload`: counts the bytes that have arrived; it is
        called when little time is left."""
        limit = self._limit
        if not limit:
            return False
        if now_ps - self._progress_ps > limit.count // 4 and (found := payload()) > self._payload:
            self._payload, self._progress_ps = found, now_ps
        return now_ps - self._progress_ps > limit.count

    @property
    def reason(self) -> str:
        what = (
            "no operation finished and no payload arrived"
            if self._works
            else "no rank began an operation"
        )
        return f"{what} for {self._limit} (stall_timeout)"
