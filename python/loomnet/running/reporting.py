"""Where a run stands, told while it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable

from loomnet.faults.timetable import Timetable
from loomnet.running.engine import Engine
from loomnet.running.play import Play
from loomnet.running.request import Progress

PROGRESS_S = 0.25
REST = 20  # times as long as it took, a report is followed by none


class Reports:
    """Tells `told` a few times per second at most."""

    def __init__(self, told: Callable[[Progress], None], engine: Engine, table: Timetable) -> None:
        self.told, self.engine, self.table = told, engine, table
        self._last = time.monotonic()

    def report(self, shown: Play | None, *, look: bool) -> None:
        """If it is time. `look`: the run's last look was not at this job."""
        wall = time.monotonic()
        if wall - self._last < PROGRESS_S or shown is None:
            return
        if look:
            shown.look()
        lines, waits = shown.steps()
        counters = shown.run_counters()
        # Not Play.sample(), which would note a step of the counters by the wall clock: two runs of
        # one seed would differ.
        self.told(
            Progress.of(
                shown.now(),
                shown.iterations,
                self.table,
                counters,
                lines,
                waits=waits,
                share=shown.share(counters),
                remark=self.engine.remark(shown.asked),
            )
        )
        # A look at tens of thousands of queue pairs takes its time.
        self._last = wall + REST * (time.monotonic() - wall)
