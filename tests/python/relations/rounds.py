"""Figures of iterations, which follow from the table of iterations."""

from __future__ import annotations

import statistics
from typing import Any

from . import jobs
from .relation import Found, Trial, relation
from .worlds import Wants

SHOWN = ("slowest_iteration_s", "slowest_slowdown", "iteration_slowdown", "stood_still_s")


@relation(Wants(kinds=jobs.EVERY, more=1, least_faults=1, most_faults=3))
def figures_of_iterations_follow_from_them(trial: Trial) -> Found:
    """The slowest iteration is the longest that overlaps a fault's phase, or that lies in `before`
    or `after`; its slowdown is over the median of those before; a job that finished has one
    wherever an iteration overlapped; it stood still for two such medians at least, or not at
    all."""
    return [line for part in trial.base.parts for line in wrong_figures(part)]


def wrong_figures(part: Any) -> Found:
    rows = [(row["start_s"], row["end_s"], row["length_s"]) for row in part.iterations]
    before = part.phases[0]
    healthy = [length for begin, end, length in rows if end <= before.end_ps / 1e12]
    usual = statistics.median(healthy) if healthy else None
    lines = []
    for phase in part.phases:
        begin, end = phase.start_ps / 1e12, phase.end_ps / 1e12
        if phase.name in ("before", "after"):
            found = [row[2] for row in rows if begin <= row[0] and row[1] <= end]
        else:
            found = [row[2] for row in rows if row[0] < end and row[1] > begin]
        typical = [row[2] for row in rows if begin <= row[0] and row[1] <= end]
        shown = {
            name: part[f"{phase.name}.{name}"] for name in SHOWN if f"{phase.name}.{name}" in part
        }
        over = part.data.ended != "finished" and phase.end_ps >= part.data.end_ps
        if not shown or over or begin >= end:
            continue
        slowest = max(found, default=None)
        wanted = {
            "slowest_iteration_s": slowest,
            "slowest_slowdown": slowest / usual if usual and slowest is not None else None,
            "iteration_slowdown": statistics.median(typical) / usual
            if usual and len(typical) >= 5 and len(healthy) >= 5
            else None,
        }
        lines += [
            f"{phase.name}.{name}: {shown[name]}, not {value}"
            for name, value in wanted.items()
            if name in shown and not _close(shown[name], value)
        ]
        still = shown.get("stood_still_s")
        if usual is not None and still and still < 2 * usual * (1 - 1e-9):
            lines.append(f"{phase.name}.stood_still_s: {still}, where {usual} is usual")
    return lines


def _close(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) <= 1e-9 * abs(other)
