"""What a result has over time: goodput, iterations, queues, what was observed of senders, and the
slots of switches."""

from __future__ import annotations

from typing import Protocol, TypeVar

from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean, in_quotes
from loomnet.base.units import Time
from loomnet.measures.observed import ObservedTable
from loomnet.measures.pools import PoolTable
from loomnet.measures.switch_state import switch_named
from loomnet.results.drawn import Drawn
from loomnet.results.link_plots import link_series
from loomnet.results.run_clock import goodput_bins
from loomnet.results.series import Series

Sampled = TypeVar("Sampled", ObservedTable, PoolTable)


class WithSeries(Drawn, Protocol):
    """The part of a Result that its series need beside what pictures read."""

    @property
    def legend(self) -> str: ...
    def _of_one_job(self, what: str) -> None:
        """Raises UsageError where the run had several."""
        ...


def series_of(
    result: WithSeries, name: str, where: str | None, every: Time | str | None
) -> Series | ObservedTable:
    """See Result.series."""
    step = _step("series", every)
    observed = result.data.observed
    if observed is not None and name in observed.names:
        return _on_clock(result, ObservedTable.of(observed, name, where, step))
    if where is not None and name in ("goodput", "iteration_s"):
        raise UsageError(f"series: {name} is of all hosts together; leave where= out")
    if name in ("goodput", "iteration_s"):
        result._of_one_job("series")
    if name == "iteration_s":
        done = result.data.iterations
        return Series(
            name,
            "s",
            [i.end_ps / 1e12 for i in done],
            [i.length_ps / 1e12 for i in done],
            result.legend,
            None,
            result.phases,
            *_clock(result),
        )
    if name in ("queue", "link_use"):
        return _on_clock(result, link_series(result, name, where, step))
    if name != "goodput":
        known = [
            "goodput",
            "iteration_s",
            "queue",
            "link_use",
            *([] if observed is None else observed.names),
        ]
        fix = (
            ""
            if observed is not None
            else (
                f'; what senders hold is kept where the run is asked: sample="1 ms", '
                f"observe=[{in_quotes(name)}]"
            )
        )
        raise UsageError(f"no series {in_quotes(name)}{did_you_mean(name, known)}{fix}")
    return result.goodput(step)


def goodput(result: WithSeries, step: Time | None, until: float | None) -> Series:
    """See Result.goodput."""
    result._of_one_job("series")
    times, values = goodput_bins(list(result.data.hosts.values()), step, until)
    return Series(
        "goodput",
        "Gb/s",
        times,
        values,
        result.legend,
        len(result.data.hosts),
        result.phases,
        *_clock(result),
    )


def pool(result: WithSeries, switch: str, every: Time | str | None) -> PoolTable:
    """See Result.pool."""
    step = _step("pool", every)
    found = switch_named(result.plan, switch)
    series = result.data.pools
    if series is None:
        raise UsageError('pool: the run did not sample the slots; give it pools="100 us"')
    if isinstance(found, str) or found.name not in series.slots:
        have = ", ".join(series.slots) or "none"
        raise UsageError(f"pool: {switch} has no slots; there are {have}")
    return _on_clock(
        result,
        PoolTable.of(series, found.name, step, result.data.totals.get(f"switch {found.name}")),
    )


def _step(what: str, every: Time | str | None) -> Time | None:
    step = None if every is None else Time.given(f"{what}: every", every)
    if step is not None and step.count < 1:
        raise UsageError(f"{what}: every={step} must be above 0")
    return step


def _clock(result: WithSeries) -> tuple[float, str | None]:
    return result.data.zero_ps / 1e12, result.first_job


def _on_clock(result: WithSeries, table: Sampled) -> Sampled:
    """Samples count from the first job's time 0."""
    table.first_job = result.first_job
    return table
