"""From raw series to the standard figures of a training job: pure functions, no I/O.

A figure that could not be measured is null with a reason; nothing is guessed."""

from __future__ import annotations

import bisect
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loomnet.base.names import how_many
from loomnet.measures.run_data import HostSeries, Interval, Iteration, RunData
from loomnet.measures.value import Value

FIGURES = (
    "iteration_s",
    "iteration_slowdown",
    "slowest_iteration_s",
    "slowest_slowdown",
    "stood_still_s",
    "goodput_ratio",
    "blip_s",
    "recovery_s",
    "lost",
    "retransmitted",
    "timeouts",
    "readmitted",
)
OF_TRAINING = {  # units
    "iteration_s": "s",
    "iteration_slowdown": "ratio",
    "slowest_iteration_s": "s",
    "slowest_slowdown": "ratio",
    "stood_still_s": "s",
    "blip_s": "s",
    "recovery_s": "s",
    "goodput_ratio": "ratio",
    "lost": "packets",
    "retransmitted": "packets",
    "timeouts": "timeouts",
    "readmitted": "paths",
    "errors": "errors",
    "final_loss": "loss",
}
MIN_ITERATIONS = 5  # a median of fewer says nothing
RECOVERED_ITERATIONS, RECOVERED_WITHIN = 3, 1.1
STOOD_STILL = 2  # a silence of so many healthy iterations and more
UNDISTURBED = ("before", "after")  # the phases without a fault
MARK = "mark"  # the group of TorchJob.log that annotates
# Why `before` and `after` have no recovery_s and no stood_still_s.
NO_FAULT = "there is no fault to recover from"


NO_TIME = Value(None, "iterations before the faults took no time")


@dataclass(frozen=True)
class Phase:
    name: str
    start_ps: int
    end_ps: int
    capacity: float = 1.0  # expected share of the healthy fabric
    # The same of the slowest of independent flows, with which a round of them ends; None: capacity.
    round_capacity: float | None = None


def phases_of(
    data: RunData,
    capacity: Mapping[str, float] | None = None,
    settle_ps: int = 0,
    planned: Iterable[str] = (),
    round_capacity: Mapping[str, float] | None = None,
) -> list[Phase]:
    """`before` (up to the first fault), every named window, `after` (from `settle_ps` behind the
    last one to the end). Without windows, `before` is the whole run. Phases of `planned` that never
    began are there too, empty, and move `after` only where no other began."""
    # Where other jobs go on, faults begin after this one's end. To it they never began.
    windows = sorted(
        (window for window in data.windows if window.start_ps < data.end_ps),
        key=lambda w: w.start_ps,
    )
    planned = [*planned, *(window.phase for window in data.windows)]
    first = windows[0].start_ps if windows else data.end_ps
    found = [Phase("before", 0, first)]
    for window in windows:
        end = data.end_ps if window.end_ps is None else min(window.end_ps, data.end_ps)
        found.append(
            Phase(
                window.phase,
                window.start_ps,
                end,
                (capacity or {}).get(window.phase, 1),
                (round_capacity or {}).get(window.phase),
            )
        )
    last = max((phase.end_ps for phase in found[1:]), default=data.end_ps)
    for name in dict.fromkeys(planned):
        if all(name != phase.name for phase in found):
            found.append(Phase(name, data.end_ps, data.end_ps))
    if len(found) > 1:
        found.append(Phase("after", min(last + settle_ps, data.end_ps), data.end_ps))
    return found


# --- one figure each ----------------------------------------------------------------------------
def whole_iterations(iterations: list[Iteration], phase: Phase) -> list[Iteration]:
    # One begins where the one before has ended: their times rise.
    first = bisect.bisect_left(iterations, phase.start_ps, key=lambda i: i.start_ps)
    last = bisect.bisect_right(iterations, phase.end_ps, lo=first, key=lambda i: i.end_ps)
    return iterations[first:last]


def iteration_s(iterations: list[Iteration], phase: Phase, why_none: str | None = None) -> Value:
    """Median length of the iterations wholly inside the phase. `why_none`: why the job has no
    iteration at all, where that is known."""
    whole = whole_iterations(iterations, phase)
    if not whole and why_none is not None:
        return Value(None, why_none)
    if len(whole) < MIN_ITERATIONS:
        return Value(
            None, f"{how_many(len(whole), 'whole iteration')} in the phase, {MIN_ITERATIONS} needed"
        )
    return Value(statistics.median(i.length_ps for i in whole) / 1e12)


def healthy_iteration_ps(iterations: list[Iteration], before: Phase) -> float | None:
    """Median length of the iterations wholly before the first fault, however few; None of none."""
    whole = whole_iterations(iterations, before)
    return statistics.median(each.length_ps for each in whole) if whole else None


def iteration_slowdown(
    iterations: list[Iteration], phase: Phase, before: Phase, why_none: str | None = None
) -> Value:
    """iteration_s of the phase over that of `before`."""
    here, healthy = (iteration_s(iterations, each, why_none) for each in (phase, before))
    if here.value is None:
        return here
    if healthy.value is None:
        return Value(None, f"before the faults: {healthy.reason}")
    return Value(here.value / healthy.value) if healthy.value else NO_TIME


def slowest_iteration_s(
    iterations: list[Iteration], phase: Phase, why_none: str | None = None
) -> Value:
    """Longest iteration that overlaps a fault's phase. Of `before` and `after`, longest one that
    lies wholly inside: one that crosses their edge was disturbed by a fault."""
    if phase.name in UNDISTURBED:
        found, where = whole_iterations(iterations, phase), "in"
    else:
        first = bisect.bisect_right(iterations, phase.start_ps, key=lambda i: i.end_ps)
        last = bisect.bisect_left(iterations, phase.end_ps, lo=first, key=lambda i: i.start_ps)
        found, where = iterations[first:last], "overlaps"
    if not found:
        return Value(None, why_none or f"no iteration that ended {where} the phase")
    return Value(max(each.length_ps for each in found) / 1e12)


def slowest_slowdown(
    iterations: list[Iteration], phase: Phase, before: Phase, why_none: str | None = None
) -> Value:
    """slowest_iteration_s over the median of the iterations wholly before the first fault."""
    slowest = slowest_iteration_s(iterations, phase, why_none)
    if slowest.value is None:
        return slowest
    healthy = healthy_iteration_ps(iterations, before)
    if healthy is None:
        return Value(None, "no whole iteration before the faults")
    return Value(slowest.value * 1e12 / healthy) if healthy else NO_TIME


def stood_still(data: RunData, phases: Sequence[Phase], index: int) -> Interval | None:
    """Begin and end of the longest silence from a fault to the next one that lasts for two healthy
    iterations and more; None of none. A stall outlives its phase, and one that was there when the
    fault began is an earlier fault's."""
    phase, healthy = phases[index], healthy_iteration_ps(data.iterations, phases[0])
    if not healthy:
        return None
    silence = longest_silence(data.hosts, phase.start_ps, next_fault_ps(phases, index, data.end_ps))
    if silence is None or silence[1] - silence[0] < STOOD_STILL * healthy:
        return None
    earlier = (each for each in phases if each.start_ps < phase.start_ps and each.name != "before")
    if silence[0] < phase.start_ps and any(
        each.start_ps <= silence[0] < each.end_ps for each in earlier
    ):
        return None
    return silence


def stood_still_s(data: RunData, phases: Sequence[Phase], index: int) -> Value:
    """Length of that silence; 0 where there is none."""
    healthy = healthy_iteration_ps(data.iterations, phases[0])
    if healthy is None:
        return Value(None, data.no_iterations or "no whole iteration before the faults")
    if not healthy:
        return NO_TIME
    silence = stood_still(data, phases, index)
    if silence is None:  # it is as certain as the phase is long, live too
        return Value(0.0, span_ps=phases[index].end_ps - phases[index].start_ps)
    return Value((silence[1] - silence[0]) / 1e12)


def goodput(hosts: Mapping[int, HostSeries], phase: Phase) -> Value:
    """Payload bytes completed over the union of intervals with work outstanding, mean over hosts,
    in bytes per second. An operation that straddles the phase's edge counts by its share inside."""
    rates, span = [], 0
    for series in hosts.values():
        busy = overlap(series.busy, phase)
        if busy == 0:
            continue
        span = max(span, busy)
        rates.append(_done_inside(series, phase) / (busy / 1e12))
    if not rates:
        return Value(None, "no work was outstanding in the phase")
    return Value(statistics.fmean(rates), span_ps=span)


def goodput_ratio(hosts: Mapping[int, HostSeries], phase: Phase, before: Phase) -> Value:
    """The phase's goodput relative to that of `before`."""
    base, here = goodput(hosts, before), goodput(hosts, phase)
    if not base.value:
        return Value(None, f"no goodput before the faults: {base.reason or 'nothing completed'}")
    if here.value is None:
        return here
    return Value(here.value / base.value, span_ps=here.span_ps)


def blip_s(hosts: Mapping[int, HostSeries], phase: Phase) -> Value:
    """Longest payload silence at any receiver with work outstanding, clipped to the phase."""
    if not any(overlap(series.busy, phase) for series in hosts.values()):
        return Value(None, "no work was outstanding in the phase")
    longest = max((longest_inside(series.silences, phase) for series in hosts.values()), default=0)
    floor = max(series.silence_floor_ps for series in hosts.values())
    return Value(max(longest, floor, 0) / 1e12)


def longest_silence(hosts: Mapping[int, HostSeries], start_ps: int, end_ps: int) -> Interval | None:
    """The longest payload silence at any receiver with work outstanding that lasts from some time
    between these two on, begin and end, whole; None of none."""
    import numpy as np

    longest: Interval | None = None
    for series in hosts.values():
        found = np.asarray(series.silences, dtype=np.int64).reshape(-1, 2)
        found = found[(found[:, 1] > start_ps) & (found[:, 0] < end_ps)]
        if len(found):
            begin, end = found[np.argmax(found[:, 1] - found[:, 0])].tolist()
            if longest is None or end - begin > longest[1] - longest[0]:
                longest = begin, end
    return longest


def expected_iteration_ps(data: RunData, before: Phase, capacity: float) -> float | None:
    """compute + communication / expected capacity, both medians of `before`; None without them.
    Communication is the time with work outstanding at the busiest host within the iteration."""
    whole = whole_iterations(data.iterations, before)
    if len(whole) < MIN_ITERATIONS or not capacity > 0:
        return None
    talk = statistics.median(
        max((overlap(series.busy, i) for series in data.hosts.values()), default=0) for i in whole
    )
    length = statistics.median(i.length_ps for i in whole)
    return length - talk + talk / capacity


def recovery_s(
    data: RunData, phase: Phase, before: Phase, until_ps: int, within: float = RECOVERED_WITHIN
) -> Value:
    """From the fault to the end of the first of three consecutive iterations within 1.1 times the
    expected length, looked for up to `until_ps` (the next fault). An iteration ends with the
    slowest of its flows, so a round of independent flows is expected to last as long as that one
    does, and not as the mean of all flows does, which is the phase's capacity. Where the slowest
    has no way at all, no round ends before the fault does, and those after it are healthy ones."""
    capacity = phase.capacity if phase.round_capacity is None else phase.round_capacity or 1.0
    expected = expected_iteration_ps(data, before, capacity)
    if expected is None and data.no_iterations is not None:
        return Value(None, data.no_iterations)
    if expected is None:
        return Value(
            None,
            f"no expected iteration: fewer than {MIN_ITERATIONS} before the faults"
            if capacity > 0
            else "no expected capacity is known, or none is left on the shortest paths",
        )
    later = [i for i in data.iterations if i.end_ps > phase.start_ps and i.end_ps <= until_ps]
    for i in range(len(later) - RECOVERED_ITERATIONS + 1):
        if all(it.length_ps <= within * expected for it in later[i : i + RECOVERED_ITERATIONS]):
            return Value((later[i].end_ps - phase.start_ps) / 1e12)
    return Value(
        None,
        f"never {RECOVERED_ITERATIONS} iterations within {within} x {expected / 1e12:.3g} s",
    )


def next_fault_ps(phases: Sequence[Phase], index: int, end_ps: int) -> int:
    """Up to where the recovery from a phase's fault is looked for: the next fault, or the end.
    Faults that begin at one instant have the same next one."""
    began = phases[index].start_ps
    following = [
        phase.start_ps
        for phase in phases[index + 1 :]
        if phase.name != "after" and phase.start_ps > began
    ]
    return min(following, default=end_ps)


def why_not_counted(data: RunData) -> str:
    """Of a counter that a job has not."""
    if data.fluid:
        return 'model="fluid" has no packets'
    if data.shares_hosts:
        return "NICs of this job's hosts count it for another job too"
    return "this transport does not count it"


def counted(data: RunData, name: str, phase: Phase) -> Value:
    """Growth of a cumulative counter over the phase."""
    steps = data.counters.get(name)
    if steps is None:
        return Value(None, why_not_counted(data))

    def value_at(at: int) -> float:
        index = bisect.bisect_right(steps, at, key=lambda step: step[0]) - 1
        return steps[index][1] if index >= 0 else 0

    return Value(value_at(phase.end_ps) - value_at(phase.start_ps))


def losses(data: RunData) -> list[tuple[int, float]]:
    """(step, loss) from rank 0's output; lines whose numbers do not parse are left out."""
    found = []
    for _, groups in data.log:
        try:
            found.append((int(groups["step"]), float(groups["loss"])))
        except (KeyError, ValueError):
            continue
    return found


def marks(data: RunData) -> list[tuple[int | None, int, str]]:
    """(step, picoseconds at which that step ended, text) of every line of rank 0 that marks one;
    without a step of its own a line has that of the line before it."""
    found, last = [], None
    for at, groups in data.log:
        step = groups.get("step", "")
        last = int(step) if step.isdecimal() else last
        if text := groups.get(MARK, "").strip():
            found.append((last, at, text))
    return found


def final_loss(data: RunData) -> Value:
    curve = losses(data)
    return Value(curve[-1][1]) if curve else Value(None, "no loss was read from rank 0's output")


def why_empty(data: RunData, phase: Phase) -> str:
    """Times are the job's own: what lies before 0 was over when it began."""
    if data.end_ps <= 0:
        return data.no_iterations or "the job began no iteration"
    if phase.end_ps <= 0:
        return "the job began after this phase"
    return "the job finished before this phase"


def overlap(intervals: Sequence[Interval] | Any, span: Phase | Iteration) -> int:
    """Picoseconds of sorted disjoint intervals inside a span."""
    # A sum of lengths fits 64 bits: they are disjoint, and times do.
    return int(_lengths_inside(intervals, span).sum())


def longest_inside(intervals: Sequence[Interval] | Any, span: Phase) -> int:
    """Picoseconds of the longest of sorted disjoint intervals, each cut off where it leaves the
    span: of none, 0."""
    return int(_lengths_inside(intervals, span).max(initial=0))


def _lengths_inside(intervals: Sequence[Interval] | Any, span: Phase | Iteration) -> Any:
    import numpy as np  # there are as many as packets where the fabric is slow

    found = np.asarray(intervals, dtype=np.int64).reshape(-1, 2)
    first = int(np.searchsorted(found[:, 1], span.start_ps, side="right"))
    last = int(np.searchsorted(found[:, 0], span.end_ps, side="left"))
    begins, ends = found[first : max(first, last)].T
    return np.minimum(ends, span.end_ps) - np.maximum(begins, span.start_ps)


def _done_inside(series: HostSeries, phase: Phase) -> float:
    """Payload bytes of a host's operations, each by its share of time inside the phase."""
    if len(series.work) == 0:
        return 0.0
    import numpy as np

    begins, ends, sizes = np.asarray(series.work, dtype=np.int64).T
    inside = np.maximum(np.minimum(ends, phase.end_ps) - np.maximum(begins, phase.start_ps), 0)
    at_once = ends <= begins
    share = np.where(
        at_once,
        (phase.start_ps < ends) & (ends <= phase.end_ps),
        inside / np.maximum(ends - begins, 1),
    )
    return float(np.cumsum(sizes * share)[-1])  # in order, so that the last digit stays as it is
