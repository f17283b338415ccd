"""What happened in a run, in one sentence made from its figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from loomnet.base.names import how_many
from loomnet.base.number_text import number_text
from loomnet.measures.kind import Kind
from loomnet.measures.rows import Measured, Metric
from loomnet.measures.run_data import RunData
from loomnet.measures.timeouts import in_words, waiting_of
from loomnet.measures.training import (
    UNDISTURBED,
    Phase,
    healthy_iteration_ps,
    stood_still,
)
from loomnet.plans.model import Plan

SAME = 0.01  # what differs by less is told as the same


class Summarised(Protocol):
    """What is needed of a Result."""

    @property
    def jobs(self) -> Mapping[str, Summarised]: ...
    @property
    def data(self) -> RunData: ...
    @property
    def phases(self) -> Sequence[Phase]: ...
    @property
    def kind(self) -> Kind: ...
    @property
    def plan(self) -> Plan: ...
    def metric(self, name: str) -> Metric: ...
    def __getitem__(self, name: str) -> Measured | None: ...
    def __contains__(self, name: object) -> bool: ...


def summary_of(result: Summarised) -> str:
    """Of a run; of several jobs a clause for each, with its name."""
    if result.jobs:
        said = "; ".join(
            f"{name}: {_of_job(part)}{_timeouts(part)}" for name, part in result.jobs.items()
        )
    else:
        said = f"{_of_job(result)}{_timeouts(result)}"
    return f"{said}{_to_come(result)}{_trimmed(result.data)}."


def _to_come(result: Summarised) -> str:
    """Faults that a run's end came before: all of its figures are of a run without them."""
    data = result.data
    if not data.never_came:
        return ""
    ended = f"the job ended after {number_text(data.end_ps / 1e12, 's')}"
    if result.jobs:
        ended = "the run ended before"
    elif data.iterations:
        ended += f" and {how_many(len(data.iterations), 'iteration')}"
    more = len(data.never_came) - 1
    others = f" and {how_many(more, 'other fault')}" if more else ""
    return f"; fault {data.never_came[0]}{others} never came: {ended}"


def _trimmed(data: RunData) -> str:
    """Why packets were sent again of which none was lost."""
    if data.fidelity.fell_behind is not None:
        return ""
    count = sum(counters.get("trimmed", 0) for counters in data.totals.values())
    return (
        (
            f"; {how_many(count, 'packet')} met a full queue, where switches cut "
            f"{'it to its header; it was' if count == 1 else 'them to their headers; they were'} "
            "sent again"
        )
        if count
        else ""
    )


def _timeouts(result: Summarised) -> str:
    """The flows of a job whose time was for the most part the wait for a timeout: a percentile of
    many flows does not show a few of them."""
    data = result.data
    waiting = waiting_of(data.flows, data.timeout_waits, data.end_ps)
    return f"; {in_words(waiting, result.plan.topology.names)}" if waiting else ""


def _of_job(result: Summarised) -> str:
    data = result.data
    if data.fidelity.fell_behind is not None:
        return f"no result, {data.fidelity.fell_behind}"
    if data.ended != "finished":
        said = f"{data.ended} after {number_text(data.end_ps / 1e12, 's')}"
        return said if data.reason in (None, data.ended) else f"{said}, {data.reason}"
    faults = [
        phase
        for phase in result.phases
        if phase.name not in UNDISTURBED and phase.end_ps > phase.start_ps
    ]
    if faults:
        return "; ".join(_of_fault(result, phase) for phase in faults)
    return _undisturbed(result)


def _undisturbed(result: Summarised) -> str:
    def text(name: str, unit: str) -> str:
        return number_text(result[name], unit)

    measured_as, data = result.kind.measured_as, result.data
    if measured_as == "flows":
        count = int(result["flows"] or 0)
        if result.metric("slowdown_p99").value is None:
            return f"{how_many(count, 'flow')}, {result.metric('slowdown_p99').reason}"
        if count == 1:
            return (
                f"1 flow ended within {text('fct_max_s', 's')}, "
                f"{text('slowdown_max', 'ratio')} times what it takes alone"
            )
        times, slowdowns = (
            [text(f"{of}_{share}{end}", unit) for share in ("p50", "p99")]
            for of, end, unit in (("fct", "_s", "s"), ("slowdown", "", "ratio"))
        )
        # The flow in the middle of the times need not be the one in the middle of the slowdowns.
        return (
            f"{how_many(count, 'flow')}: half ended within {times[0]}, 99 % within {times[1]}; "
            f"slowdowns are up to {slowdowns[0]} for half and {slowdowns[1]} for 99 %"
        )
    count = len(data.iterations)
    if not count:
        return f"no iteration, {data.no_iterations or 'nothing was counted'}"
    mean = sum(each.length_ps for each in data.iterations) / count / 1e12
    said = f"{how_many(count, 'iteration')} of {number_text(mean, 's')} on average"
    if measured_as == "collective":
        said += f", {text('before.busbw', 'GB/s')} of bus bandwidth"
    return said + _lost(result)


def _lost(result: Summarised) -> str:
    """Packets lost over all phases, where they are counted."""
    lost = [
        result.metric(f"{phase.name}.lost").value
        for phase in result.phases
        if phase.start_ps < phase.end_ps
    ]
    if any(each is None for each in lost):
        return ""
    count = int(sum(each or 0 for each in lost))
    return f", {how_many(count, 'packet')} lost" if count else ", no packet lost"


def _of_fault(result: Summarised, phase: Phase) -> str:
    """What the fault was and what it did to the job: how long it stood still, else to the lengths
    of training's iterations, to flows' slowdowns, or to the rate of anything else."""
    data = result.data
    what = next((window.what for window in data.windows if window.phase == phase.name), "")
    begins = f"{what or phase.name}: "
    silence = stood_still(data, result.phases, result.phases.index(phase))
    if silence is not None:
        return begins + _standing(result, *silence)
    if result.kind.measured_as == "training" and (said := _iterations(result, phase)) is not None:
        return begins + said
    if result.kind.measured_as == "flows" and f"{phase.name}.fct_p99_s" in result:
        here, base = (result[f"{each}.slowdown_p99"] for each in (phase.name, "before"))
        if here is not None and base is not None:
            return (
                f"{begins}99 % of the flows had slowdowns up to {number_text(here)}, where it "
                f"was {number_text(base)} before"
            )
    kept = result[f"{phase.name}.goodput_ratio"]
    if kept is None:
        return begins + (result.metric(f"{phase.name}.goodput_ratio").reason or "nothing measured")
    kept_text = "all of" if kept >= 1 - SAME else f"{number_text(kept)} of"
    blip = result[f"{phase.name}.blip_s"]
    quiet = "" if blip is None else f"; no silence above {number_text(blip, 's')}"
    return f"{begins}the job kept {kept_text} its rate{quiet}"


def _standing(result: Summarised, begin_ps: int, end_ps: int) -> str:
    """A job's silence; of training first what it made of the iteration."""
    still = f"the job stood still for {number_text((end_ps - begin_ps) / 1e12, 's')}"
    # A silence may begin as one iteration ends: it belongs to the one that it made longest.
    hit = max(
        (
            each
            for each in result.data.iterations
            if each.start_ps < end_ps and begin_ps < each.end_ps
        ),
        key=lambda each: each.length_ps,
        default=None,
    )
    if hit is None:
        return still
    if result.kind.measured_as != "training":
        return f"{still} in iteration {hit.number}"
    length, healthy = hit.length_ps / 1e12, _healthy_s(result)
    usual = (
        ""
        if healthy is None
        else (f" in place of {number_text(healthy, 's')}{_factor(length, healthy)}")
    )
    return f"iteration {hit.number} took {number_text(length, 's')}{usual}; {still}"


def _iterations(result: Summarised, phase: Phase) -> str | None:
    """Iterations of a phase beside those before any fault; None where there are none of either."""
    healthy, slowest = _healthy_s(result), result[f"{phase.name}.slowest_iteration_s"]
    if healthy is None or slowest is None:
        return None
    usual = number_text(healthy, "s")
    longest = f"{number_text(slowest, 's')}{_factor(slowest, healthy)}"
    typical = result[f"{phase.name}.iteration_s"]
    if typical is None:  # too few for a median
        return f"the slowest iteration took {longest}, where {usual} was usual"
    if abs(typical / healthy - 1) < SAME:
        said = f"iterations of {number_text(typical, 's')} as before"
    else:
        said = (
            f"iterations of {number_text(typical, 's')} in place of {usual}"
            f"{_factor(typical, healthy)}"
        )
    return f"{said}, the slowest {longest}"


def _factor(length_s: float, healthy_s: float) -> str:
    """ " (1.10x)" or " (1762x)"; nothing where an iteration took no time."""
    if not healthy_s:
        return ""
    factor = length_s / healthy_s
    return f" ({factor:.2f}x)" if factor < 100 else f" ({factor:.0f}x)"


def _healthy_s(result: Summarised) -> float | None:
    """Median length of an iteration before any fault."""
    median = healthy_iteration_ps(list(result.data.iterations), result.phases[0])
    return None if median is None else median / 1e12
