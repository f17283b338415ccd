"""Which picture says most of a run: Result.plot()."""

from __future__ import annotations

from typing import Any

from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean, in_quotes
from loomnet.base.units import Time
from loomnet.results.circuit_plots import circuit_figure
from loomnet.results.distributions import (
    LINE_HEIGHT,
    OF,
    distribution_figure,
    draw_distribution,
)
from loomnet.results.drawing import Size, new_picture, title
from loomnet.results.drawn import Drawn
from loomnet.results.link_plots import link_figure
from loomnet.results.plots import (
    by_job,
    draw_goodput,
    draw_iterations,
    goodput_figure,
    iteration_figure,
)
from loomnet.results.speed_plots import speed_figure
from loomnet.results.time_span import TimeSpan

WHATS = ("overview", "goodput", "iterations", "speed", "flows", "links", "circuits", *OF)


def plot(
    result: Drawn, what: str | None, until: Time | str | None, size: Size | None = None
) -> Any:
    """See Result.plot."""
    if what is None:
        what = _fitting(result)
    if what not in WHATS:
        raise UsageError(f"plot: no picture {in_quotes(what)}{did_you_mean(what, WHATS)}")
    runs = {result.label or "": result}
    if what == "overview":
        return _overview(runs, until, size)
    if what == "goodput":
        return goodput_figure(runs, until=until, size=size)
    if what == "iterations":
        return iteration_figure(runs, until=until, size=size)
    if what == "circuits":
        return circuit_figure(result, until=until, size=size)
    if what == "speed":
        return speed_figure(runs, until=until, size=size)
    if what == "links":
        return link_figure(result, until=until, size=size)
    if what == "flows":
        return _flows(runs, size)
    return distribution_figure(runs, what, size=size)


def _fitting(result: Drawn) -> str:
    """Of flows their completion times; of rounds and training goodput and iterations over time."""
    parts = result.parts
    if any(len(part.data.iterations) > 1 for part in parts):
        return "overview"
    if any(flow.end_ps is not None for part in parts for flow in part.data.flows):
        return "flows"
    return "goodput"


def _overview(runs: dict[str, Drawn], until: Time | str | None, size: Size | None) -> Any:
    """Goodput, a panel per job, and below it the iterations of all, over the same time."""
    jobs = by_job(runs)
    span = TimeSpan.of(jobs, until)
    figure, panels = new_picture(len(jobs) + 1, size=size)
    draw_goodput(panels[:-1], jobs, span)
    draw_iterations(panels[-1], jobs, span, named=False)  # they stand above the first panel
    for axes in panels[:-1]:
        axes.set_xlabel("")
    first = next(iter(jobs.values()))
    title(panels[0], "Goodput, summed over all hosts of a job, and iteration time", first.phases)
    return figure


def _flows(runs: dict[str, Drawn], size: Size | None) -> Any:
    """Completion times and slowdowns of flows."""
    jobs = by_job(runs)
    figure, panels = new_picture(2, share_x=False, size=size, height=LINE_HEIGHT * len(jobs) + 2.4)
    for axes, of in zip(panels, ("fct", "slowdown"), strict=True):
        draw_distribution(axes, jobs, of)
    return figure
