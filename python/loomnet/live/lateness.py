"""What was late in a live run: lateness by phase and stage, and waits for a processor by what held
it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from loomnet.faults.timetable import Change, PhaseChange
from loomnet.measures.run_data import ProcessorWait, StageLateness
from loomnet.plans.model import Plan

# Transports scale their timers and the targets of their controls by the longest base round trip.
# Where 1 % of the packets are late by a fifth of it, iterations of the main job take 1.1 % longer
# at most (scenarios/lateness.py, late by 2 ms); a sixth is below that.
_OF_ROUND_TRIP = 6
_MOST_WALL_PS = 2 * 10**9


def lateness_bound_ps(plan: Plan, dilation: float) -> int:
    """The p99 lateness up to which a run has kept up, in emulated picoseconds: half the shortest
    delay of a link or, if that is more, a sixth of the longest base round trip, this at most 2 ms
    of wall time. Each figure is besides held against its own resolution."""
    shortest = int(plan.links.column("delay_ps").min())
    of_transports = min(plan.base_rtt_ps // _OF_ROUND_TRIP, round(_MOST_WALL_PS / dilation))
    return max(shortest // 2, of_transports)


class LatenessLog:
    """Takes the engine's histograms at each change of phase, so that every phase has its own.

    Args:
        live: the engine's LiveRun, from the loop's start to LiveRun.close().
    """

    def __init__(self, live: Any) -> None:
        self.live = live
        self.rows: list[StageLateness] = []
        self._phase = "before"

    def look(self, changes: Iterable[Change]) -> None:
        """Called with changes before they are made: a phase ends with the window that it had."""
        for change in changes:
            if isinstance(change, PhaseChange):
                self.close()
                begins = change.kind == "begin"
                self._phase = change.phase if begins else f"after {change.phase}"

    def close(self) -> None:
        """The window ends here; a new one begins."""
        self.rows += [
            StageLateness(self._phase, stage, **figures)
            for stage, figures in self.live.take_window().items()
        ]


class RunQueues:
    """How long the engine's loop and the kernel's softirq threads have waited for a processor, as
    the kernel sums it for each thread: for machines that do not show events of the scheduler,
    which say behind which program.

    Args:
        engine: the loop's thread id.
    """

    def __init__(self, engine: int) -> None:
        self._threads = {"engine": [engine], "softirq": _softirq_threads()}
        self._before = self._now()

    def _now(self) -> dict[str, tuple[int, int]]:
        return {who: _summed(threads) for who, threads in self._threads.items()}

    def waits(self) -> list[ProcessorWait]:
        """Since this object was made. `longest_ns` is not known: 0."""
        found = []
        for who, (waited, turns) in self._now().items():
            before_ns, before_turns = self._before[who]
            if waited > before_ns and turns > before_turns:
                found.append(
                    ProcessorWait(who, "other", "?", turns - before_turns, waited - before_ns, 0)
                )
        return found


def _softirq_threads() -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            if path.read_text().startswith("ksoftirqd/"):
                found.append(int(path.parent.name))
    return found


def _summed(threads: Iterable[int]) -> tuple[int, int]:
    """Nanoseconds in run queues and turns on a processor, of these threads together."""
    waited = turns = 0
    for thread in threads:
        with contextlib.suppress(OSError, ValueError):
            _, queued, slices = Path(f"/proc/{thread}/schedstat").read_text().split()
            waited, turns = waited + int(queued), turns + int(slices)
    return waited, turns


def waits(raw: dict[str, Any]) -> list[ProcessorWait]:
    """Waits of the engine and of the kernel's softirq threads, the longest in total first."""
    return [ProcessorWait(*row) for row in raw["waits"]]


def stolen_s() -> float:
    """Processor seconds since boot in which the host of this virtual machine ran others instead, of
    all processors. No event of the scheduler tells of them. 0 where the host does not say."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        line = Path("/proc/stat").read_text().split("\n", 1)[0]
        return int(line.split()[8]) / os.sysconf("SC_CLK_TCK")
    return 0.0


def blame(found: list[ProcessorWait], lasted_s: float, stolen: float = 0.0) -> str | None:
    """One line: what held the processor while the engine or the kernel's frames waited for it.

    Args:
        stolen: of these seconds, what :func:`stolen_s` grew by.
    """
    if not (found or stolen) or lasted_s <= 0:
        return None
    texts = [
        f"{wait.who} {wait.total_ns / 1e9:.3g} s behind {wait.behind} ({wait.count} times"
        + (f", longest {wait.longest_ns / 1e6:.2g} ms)" if wait.longest_ns else ")")
        for wait in found[:3]
    ]
    if stolen:
        texts.append(f"this virtual machine {stolen:.3g} s behind others of its host")
    return f"waits for a processor in {lasted_s:.0f} s: " + "; ".join(texts)
