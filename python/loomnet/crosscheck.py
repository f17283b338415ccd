"""Live against virtual: the same scenario on both clocks must agree, with the live run's compute
gaps replayed on the virtual clock, and its faults where in an iteration they fell."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loomnet import measure
from loomnet.report import Report
from loomnet.result import Result
from loomnet.rundata import RunData
from loomnet.table import Table

RATE_TOLERANCE = 0.05  # relative, of goodput and completion times
# Not the mean: which sender of an incast gets more of the link is decided by microseconds, and
# moves it by 5 % from seed to seed on the virtual clock alone.
FLOW_FIGURES = ("fct_max_s",)
RTTS = 2  # a silence or a recovery may also differ by so many round trips


@dataclass(frozen=True)
class Agreement:
    """One figure on both clocks. `bound` is the difference allowed, in the figure's unit."""

    name: str
    live: float | None
    virtual: float | None
    bound: float

    @property
    def ok(self) -> bool:
        """Within the bound; a figure that only one clock has disagrees."""
        if self.live is None or self.virtual is None:
            return self.live is self.virtual
        return math.fabs(self.live - self.virtual) <= self.bound

    def row(self) -> dict[str, object]:
        difference = None
        if self.live is not None and self.virtual is not None:
            difference = self.virtual - self.live
        return {"figure": self.name, "live": self.live, "virtual": self.virtual,
                "difference": difference, "bound": self.bound, "ok": self.ok}  # fmt: skip


def compute_gaps(data: RunData) -> tuple[int, ...] | tuple[tuple[int, ...], ...]:
    """Picoseconds of computing, to be replayed. Of a traffic model: between the end of each
    iteration of rank 0 and the start of the next. Of a training job, whose iterations leave no room
    between them: per rank, the part of each iteration without work outstanding on its host; so a
    rank that the others had to wait for lets them wait again."""
    done = data.iterations
    between = tuple(max(b.start_ps - a.end_ps, 0) for a, b in itertools.pairwise(done))
    if any(between) or not data.log:
        return between
    return tuple(
        tuple(each.length_ps - measure.overlap(host.busy, each) for each in done)
        for host in data.hosts.values()
    )


def agreements(live: Result, virtual: Result) -> list[Agreement]:
    """Goodput and iteration per phase and the completion times within 5 %; blip and recovery within
    the larger of 5 % and two round trips."""
    label = f"{live.label}." if live.label else ""
    slack = RTTS * live.plan.base_rtt_ps / 1e12
    found = [_rate(f"{label}completion_s", _completion(live.data), _completion(virtual.data))]
    if live.flow_records and virtual.flow_records:
        flows = live.flow_figures(), virtual.flow_figures()
        found += [_rate(f"{label}{name}", *(figures[name][0] for figures in flows))
                  for name in FLOW_FIGURES]
    twins = {phase.name: phase for phase in virtual.phases}
    for phase in live.phases:
        name = f"{label}{phase.name}"
        twin = twins.get(phase.name)
        rates = [
            measure.goodput(result.data.hosts, at).value if at else None
            for result, at in ((live, phase), (virtual, twin))
        ]
        found.append(_rate(f"{name}.goodput", *rates))
        for figure in ("iteration_s", "blip_s", "recovery_s"):
            pair = [_value(result, f"{phase.name}.{figure}") for result in (live, virtual)]
            near = 0.0 if figure == "iteration_s" else slack
            found.append(_rate(f"{name}.{figure}", *pair, at_least=near))
    return found


def crosscheck(live: Report, virtual: Report) -> list[Agreement]:
    """Every run of a scenario against its twin of the same label. One without a twin disagrees."""
    found: list[Agreement] = []
    labels = dict.fromkeys([*live.results, *virtual.results])
    for label in labels:
        if label in live.results and label in virtual.results:
            found += agreements(live.results[label], virtual.results[label])
        else:
            only_live = label in live.results
            found.append(Agreement(f"{label or 'run'}.runs", float(only_live),
                                   float(not only_live), 0.0))  # fmt: skip
    return found


def table(found: list[Agreement]) -> Table:
    """The agreements as rows: figure, live, virtual, difference, bound, ok."""
    return Table(
        ("figure", "live", "virtual", "difference", "bound", "ok"), [a.row() for a in found]
    )


def fault_moments(data: RunData) -> dict[str, tuple[int, int]]:
    """Where each phase began: after which iteration's end (0: none), and how many ps after it. What
    a fault costs hangs on that by up to an iteration, so the twin's must find it at the same point,
    which a millisecond more or less per iteration would soon have moved."""
    found = {}
    for window in data.windows:
        done = [each for each in data.iterations if each.end_ps <= window.start_ps]
        number, end = (done[-1].number, done[-1].end_ps) if done else (0, 0)
        found.setdefault(window.phase, (number, window.start_ps - end))
    return found


def replay_of(live: Report) -> dict[str, Mapping[str | None, Any]]:
    """What of every live run its twin replays, as Scenario.run takes it."""
    return {"replay_gaps": {label: compute_gaps(run.data) for label, run in live.results.items()},
            "replay_faults": {label: fault_moments(run.data)
                              for label, run in live.results.items()}}


def _completion(data: RunData) -> float | None:
    return data.iterations[-1].end_ps / 1e12 if data.iterations else None


def _value(result: Result, name: str) -> float | None:
    known = {".".join(filter(None, (row.phase, row.name))): row.value for row in result.rows}
    return known.get(name)


def _rate(
    name: str, live: float | None, virtual: float | None, *, at_least: float = 0.0
) -> Agreement:
    return Agreement(name, live, virtual, max(RATE_TOLERANCE * math.fabs(live or 0.0), at_least))
