"""Which picture says most of a run: Result.plot()."""

from __future__ import annotations

from typing import Any

from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean, in_quotes
from loomnet.base.units import Time
from loomnet.results.distributions import OF, distribution_figure, draw_distribution
from loomnet.results.drawing import new_picture, title
from loomnet.results.drawn import Drawn
from loomnet.results.link_plots import link_figure
from loomnet.results.plots import (
    by_job,
    draw_goodput,
    draw_iterations,
    goodput_figure,
    iteration_figure,
    shown_until,
)

WHATS = ("overview", "goodput", "iterations", "flows", "links", *OF)


def plot(result: Drawn, what: str | None, until: Time | str | None) -> Any:
    """See Result.plot."""
    if what is None:
        what = _fitting(result)
    if what not in WHATS:
        raise UsageError(f"plot: no picture {in_quotes(what)}{did_you_mean(what, WHATS)}")
    runs = {result.label or "": result}
    if what == "overview":
        return _overview(runs, until)
    if what == "goodput":
        return goodput_figure(runs, until=until)
    if what == "iterations":
        return iteration_figure(runs, until=until)
    if what == "links":
        return link_figure(result, until=until)
    if what == "flows":
        return _flows(runs)
    return distribution_figure(runs, what)


def _fitting(result: Drawn) -> str:
    """Of flows their completion times; of rounds and training goodput and iterations over time."""
    parts = result.parts
    if any(len(part.data.iterations) > 1 for part in parts):
        return "overview"
    if any(flow.end_ps is not None for part in parts for flow in part.data.flows):
        return "flows"
    return "goodput"


def _overview(runs: dict[str, Drawn], until: Time | str | None) -> Any:
    """Goodput, a panel per job, and below it the iterations of all, over the same time."""
    jobs = by_job(runs)
    end = shown_until(jobs, until)
    figure, panels = new_picture(len(jobs) + 1)
    draw_goodput(panels[:-1], jobs, end)
    draw_iterations(panels[-1], jobs, end)
    for axes in panels[:-1]:
        axes.set_xlabel("")
    for text in list(panels[-1].texts):  # the faults' names stand above the first panel
        text.remove()
    first = next(iter(jobs.values()))
    title(panels[0], "Goodput, summed over all hosts of a job, and iteration time", first.phases)
    return figure


def _flows(runs: dict[str, Drawn]) -> Any:
    """Completion times and slowdowns of flows."""
    figure, panels = new_picture(2, share_x=False)
    for axes, of in zip(panels, ("fct", "slowdown"), strict=True):
        draw_distribution(axes, by_job(runs), of)
    return figure
