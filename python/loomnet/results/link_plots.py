"""Queues and use of links over time, where a run was asked to look at them."""

from __future__ import annotations

from typing import Any

import numpy as np

from loomnet.base.errors import UsageError
from loomnet.base.units import Time
from loomnet.measures.observed import Observed, ObservedTable
from loomnet.results.drawing import (
    Scale,
    grid,
    line_style,
    mark_phases,
    new_picture,
    time_axis,
    title,
)
from loomnet.results.drawn import Drawn
from loomnet.results.plots import shown_until

NAMES = ("queue", "link_use")
MOST_LINES = 8  # of a picture: those with the largest values
ASK = 'give the run sample="10 us", links=["p0.leaf0->*"]'


def link_series(result: Drawn, name: str, where: str | None, every: Time | None
                ) -> ObservedTable:
    """"queue": bytes waiting in the port of a direction; "link_use": share of its rate that was in
    use up to each sample. Raises UsageError where the run was not asked for them."""
    samples = result.data.samples
    looks = None if samples is None else samples.queues if name == "queue" else samples.sent
    if samples is None or not looks:
        raise UsageError(f"series: the run did not sample {name}; {ASK}")
    rates = {half.name: half.rate_bps for link in result.plan.links
             for half in (link.forward, link.backward)}
    found = Observed(samples.every_ps, (name,))
    for direction, rows in looks.items():
        at, size = rows.T
        values = size.astype(float)
        if name == "link_use":
            lasted = np.diff(at)
            later = lasted > 0
            at = at[1:][later]
            values = np.diff(size)[later] * 8e12 / (lasted[later] * float(rates[direction]))
        found.take(at, found.key(direction, name), values)
    return ObservedTable.of(found, name, where, every)


def link_figure(result: Drawn, where: str | None = None, *, until: Time | str | None = None
                ) -> Any:
    """Two panels, one below the other: use of links, and bytes that wait in their ports."""
    end = Time(until).seconds if until is not None else shown_until({"": result})
    figure, panels = new_picture(2)
    for axes, name in zip(panels, ("link_use", "queue"), strict=True):
        _draw(axes, link_series(result, name, where, None), name, end)
        mark_phases(axes, result.phases, time_axis(axes, end), named=axes is panels[0], until=end)
    panels[0].set_xlabel("")
    title(panels[0], "Use of links and their queues", result.phases)
    return figure


def _draw(axes: Any, table: ObservedTable, name: str, until: float) -> None:
    lines: dict[str, tuple[list[float], list[float]]] = {}
    for at, where, value in zip(*map(table.column, ("time", "where", "value")), strict=True):
        times, values = lines.setdefault(where, ([], []))
        times.append(at)
        values.append(value)
    shown = sorted(lines, key=lambda where: -sum(lines[where][1]))[:MOST_LINES]
    most = max((max(lines[where][1]) for where in shown), default=0.0)
    scale = Scale.of(most, "B") if name == "queue" else Scale("share of rate", 1.0)
    time = time_axis(axes, until)
    for number, where in enumerate(sorted(shown)):
        times, values = lines[where]
        # A share of use is of the time before its sample, a queue is what waited at the sample.
        axes.step(time(times), scale(values), where="pre" if name == "link_use" else "post",
                  linewidth=1.1, label=where, **line_style(number))
    axes.set_ylim(0, 1.35 * most / scale.factor or 1)
    axes.set_ylabel("link use (share of rate)" if name == "link_use" else
                    f"bytes waiting ({scale.unit})")
    grid(axes)
    left = len(lines) - len(shown)
    axes.legend(fontsize=7, loc="upper right", ncols=2, framealpha=0.9,
                title=f"the {len(shown)} most used of {len(lines)}" if left else None,
                title_fontsize=7)
