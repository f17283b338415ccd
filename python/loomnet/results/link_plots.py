"""Queues and use of links over time, where a run was asked to look at them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from loomnet.base.errors import UsageError
from loomnet.base.units import Time
from loomnet.measures.observed import Observed, ObservedTable
from loomnet.results.drawing import WIDTH, Scale, Size, inches, mark_phases, title
from loomnet.results.drawn import Drawn
from loomnet.results.time_span import TimeSpan, time_axis

NAMES = ("queue", "link_use")
MOST_STRIPS = 24  # of a panel: those with the largest values
HEIGHT, LEAST_STRIP, STRIP = 4.2, 0.12, 0.24  # inches of a panel of many strips, and of a strip
MOST_COLUMNS = 2000  # of a strip: more are not told apart on paper
COLOURS = {"link_use": "YlGnBu", "queue": "YlOrRd"}  # from nearly white: an idle link is pale
ASK = 'give the run sample="10 us", links=["p0.leaf0->*"]'


def link_series(result: Drawn, name: str, where: str | None, every: Time | None) -> ObservedTable:
    """ "queue": bytes waiting in the port of a direction; "link_use": share of its rate that was in
    use up to each sample. Raises UsageError where the run was not asked for them."""
    samples = result.data.samples
    looks = None if samples is None else samples.queues if name == "queue" else samples.sent
    if samples is None or not looks:
        raise UsageError(f"series: the run did not sample {name}; {ASK}")
    links = result.plan.links
    numbers = links.half_numbers()
    found = Observed(samples.every_ps, (name,))
    for direction, rows in looks.items():
        at, size = rows.T
        values = size.astype(float)
        if name == "link_use":
            lasted = np.diff(at)
            later = lasted > 0
            at = at[1:][later]
            rate = links.setting(numbers[direction], "rate_bps")
            # A frame that was cut off as it came out has carried nothing: the bytes fall by it.
            grown = np.maximum(np.diff(size)[later], 0)
            values = grown * 8e12 / (lasted[later] * float(rate))
        found.take(at, found.key(direction, name), values)
    return ObservedTable.of(found, name, where, every)


def link_figure(
    result: Drawn,
    where: str | None = None,
    *,
    until: Time | str | None = None,
    size: Size | None = None,
) -> Any:
    """Two panels, one below the other, with a strip for each direction: how much of its rate is in
    use, and how many bytes wait in its port. Lines of links in full use would lie on one another.
    """
    from loomnet.results.picture import Picture

    result = result.on_run_clock
    span = TimeSpan.of({"": result}, until)
    tables = {name: link_series(result, name, where, None) for name in NAMES[::-1]}
    shown, known = _busiest(tables.values())
    strip = min(max(HEIGHT / len(shown), LEAST_STRIP), STRIP) if shown else STRIP
    usual = WIDTH, 1.3 + 2 * max(strip * len(shown), 0.5)
    figure = Picture(figsize=inches(size) or usual, layout="constrained")
    panels = figure.subplots(2, 1, sharex=True, sharey=True)
    for axes, (name, table) in zip(panels, tables.items(), strict=True):
        _draw(axes, table, name, span, shown, font=9 if strip >= 0.2 else 8)
        mark_phases(
            axes, result.phases, time_axis(axes, span), named=axes is panels[0], until=span.until
        )
    panels[0].set_xlabel("")
    some = f"; the {len(shown)} busiest of {known} directions" if known > len(shown) else ""
    title(panels[0], f"Use of links and their queues{some}", result.phases)
    return figure


def _busiest(tables: Iterable[ObservedTable]) -> tuple[list[str], int]:
    """Directions to draw, in order of their names, and how many there are: by turns the next in use
    and the next by its queue. Each has its strip in the same place of both panels."""
    ranked = []
    for table in tables:
        sums: dict[str, float] = {}
        for where, value in zip(table.column("where"), table.column("value"), strict=True):
            sums[where] = sums.get(where, 0.0) + value
        ranked.append(sorted(sums, key=lambda where: -sums[where]))
    turns = itertools.chain.from_iterable(itertools.zip_longest(*ranked))
    found = list(dict.fromkeys(where for where in turns if where is not None))
    return sorted(found[:MOST_STRIPS], key=in_order), len(found)


def in_order(name: str) -> list[tuple[int, str]]:
    """Sorts leaf2 before leaf10."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", name)]


def _draw(
    axes: Any, table: ObservedTable, name: str, span: TimeSpan, shown: list[str], font: int
) -> None:
    series: dict[str, tuple[list[float], list[float]]] = {}
    for at, where, value in zip(*map(table.column, ("time", "where", "value")), strict=True):
        times, values = series.setdefault(where, ([], []))
        times.append(at)
        values.append(value)
    most = max((max(series[where][1]) for where in shown if where in series), default=0.0)
    scale = Scale.of(most, "B") if name == "queue" else Scale("share of rate", 1.0)
    top = 1.0 if name == "link_use" else most / scale.factor or 1.0
    time, mesh = time_axis(axes, span), None
    for row, where in enumerate(shown):
        edges, values = _columns(*series.get(where, ([], [])), name, span)
        if len(values):
            mesh = axes.pcolormesh(
                time(edges),
                [row - 0.42, row + 0.42],
                [scale(values)],
                cmap=COLOURS[name],
                vmin=0,
                vmax=top,
                zorder=-1,
            )
    axes.set_yticks(range(len(shown)), shown, fontsize=font)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    if mesh is not None:
        axes.figure.colorbar(
            mesh,
            ax=axes,
            pad=0.01,
            aspect=12,
            label=(
                "link use (share of rate)"
                if name == "link_use"
                else f"bytes waiting ({scale.unit})"
            ),
        )


def _columns(times: list[float], values: list[float], name: str, span: TimeSpan) -> tuple[Any, Any]:
    """Edges of a strip's columns and the value of each. A share of use is of the time before its
    sample, a queue is what waited from its sample on. Where samples lie closer than paper shows,
    a column has their mean use, and their longest queue."""
    at, found = np.asarray(times), np.asarray(values)
    found = found[at <= span.until]
    at = at[at <= span.until]
    if len(at) < 2:
        return at, found[:0]
    if name == "link_use":
        edges = np.concatenate([[max(2 * at[0] - at[1], span.begin)], at])
    else:
        edges = np.concatenate([at, [min(2 * at[-1] - at[-2], span.until)]])
    place, _ = span.on_paper()
    on_paper = np.asarray(place(edges[:-1]))
    width = (float(place(edges[-1])) - on_paper[0]) / MOST_COLUMNS
    first = np.flatnonzero(np.diff((on_paper - on_paper[0]) // (width or 1), prepend=-1))
    if len(first) < len(found):
        lasted = np.diff(edges)
        found = (
            np.add.reduceat(found * lasted, first) / np.add.reduceat(lasted, first)
            if name == "link_use"
            else np.maximum.reduceat(found, first)
        )
        edges = np.concatenate([edges[first], edges[-1:]])
    return edges, found
