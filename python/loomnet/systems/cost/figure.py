"""The figure of performance per dollar over rate, a panel for each model. matplotlib is loaded when
it is drawn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from loomnet.base.arguments import checked_call
from loomnet.base.errors import UsageError
from loomnet.base.names import quoted
from loomnet.results.plots import STYLES
from loomnet.systems.cost.parts import FABRICS
from loomnet.systems.cost.price_table import rate_name, rate_of

BASE_COLOUR, BAR_COLOUR = "#333333", "#e69f00"


@checked_call
def performance_figure(rows: Iterable[Mapping[str, Any]], *, base: str = "fat-tree") -> Any:
    """Performance per dollar by rate, relative to `base`, as a matplotlib Figure.

    A row has `model`, `rate`, `fabric`, and where they are known `published` and `ours` (both
    performance per dollar) and `blocking`: the share of an iteration, 0 to 1, that waits for
    circuits and is not hidden. Published values are hollow markers, ours solid ones, blocking is a
    bar on the right axis. Raises UsageError.
    """
    from matplotlib.figure import Figure

    drawn = [_row(each) for each in rows]
    if not drawn:
        raise UsageError("performance_figure: no rows")
    models = list(dict.fromkeys(row["model"] for row in drawn))
    rates = sorted({row["rate"] for row in drawn})
    fabrics = sorted({row["fabric"] for row in drawn}, key=_order)
    columns = min(2, len(models))
    lines = -(-len(models) // columns)
    figure = Figure(figsize=(0.8 + 4.6 * columns, 1.1 + 2.9 * lines), layout="constrained")
    panels = figure.subplots(lines, columns, sharey=True, squeeze=False).flat
    blocked = max((row["blocking"] or 0 for row in drawn), default=0)
    for axes, model in zip(panels, models, strict=False):
        _panel(axes, [row for row in drawn if row["model"] == model], rates, fabrics, blocked)
        axes.set_title(model, fontsize=10)
    for axes in list(panels)[len(models) :]:
        axes.set_visible(False)
    for row in range(lines):
        figure.axes[row * columns].set_ylabel(f"performance per dollar, {base} = 1")
    figure.axes[0].set_ylim(bottom=0)
    figure.legend(
        *_legend(drawn, fabrics), loc="outside lower center", ncols=6, fontsize=8, frameon=False
    )
    return figure


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(row, Mapping) or not {"model", "rate", "fabric"} <= row.keys():
        raise UsageError(f"performance_figure: {quoted(row)} needs model, rate and fabric")
    found = {
        "model": str(row["model"]),
        "fabric": str(row["fabric"]),
        "rate": rate_of(row["rate"], "performance_figure: rate"),
    }
    for name, most in (("published", None), ("ours", None), ("blocking", 1)):
        value = row.get(name)
        good = value is None or (
            isinstance(value, (int, float))
            and not isinstance(value, bool)
            and 0 <= value < float("inf")
            and (most is None or value <= most)
        )
        if not good:
            bound = "a number from 0" if most is None else f"a share from 0 to {most}"
            raise UsageError(f"performance_figure: {name}={quoted(value)} is not {bound}")
        found[name] = value
    return found


def _order(fabric: str) -> tuple[int, str]:
    return (list(FABRICS).index(fabric) if fabric in FABRICS else len(FABRICS), fabric)


def _panel(
    axes: Any, rows: list[dict[str, Any]], rates: list[Any], fabrics: list[str], blocked: float
) -> None:
    axes.axhline(1, color=BASE_COLOUR, linewidth=0.8)
    axes.set_xticks(range(len(rates)), [rate_name(rate) for rate in rates])
    axes.set_xlim(-0.5, len(rates) - 0.5)
    axes.grid(True, axis="y", linewidth=0.3)
    bars = axes.twinx() if blocked else None
    width = 0.5 / len(fabrics)
    for i, fabric in enumerate(fabrics):
        colour, marker = STYLES[i % len(STYLES)]
        own = sorted((row for row in rows if row["fabric"] == fabric), key=lambda row: row["rate"])
        # Fabrics stand side by side: markers of equal height would hide each other.
        aside = (i - (len(fabrics) - 1) / 2) * width
        for name, solid in (("published", False), ("ours", True)):
            points = [
                (rates.index(row["rate"]) + aside, row[name])
                for row in own
                if row[name] is not None
            ]
            if points:
                axes.plot(
                    *zip(*points, strict=True),
                    color=colour,
                    marker=marker,
                    markersize=6,
                    markerfacecolor=colour if solid else "none",
                    markeredgewidth=1.2,
                    linewidth=1.0 if solid else 0.5,
                    linestyle="-" if solid else ":",
                )
        waits = [
            (rates.index(row["rate"]) + aside, 100 * row["blocking"])
            for row in own
            if row["blocking"]
        ]
        if bars is not None and waits:
            bars.bar(*zip(*waits, strict=True), width=width, color=BAR_COLOUR, alpha=0.5)
    if bars is not None:
        # Four times the highest: bars stay below the markers, which are drawn in front.
        bars.set_ylim(0, 400 * blocked)
        bars.set_ylabel("exposed blocking, % of iteration", fontsize=8)
        bars.tick_params(labelsize=8)
        axes.set_zorder(bars.get_zorder() + 1)
        axes.patch.set_visible(False)


def _legend(rows: list[dict[str, Any]], fabrics: list[str]) -> tuple[list[Any], list[str]]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    found: list[tuple[Any, str]] = []
    for i, fabric in enumerate(fabrics):
        colour, marker = STYLES[i % len(STYLES)]
        found.append((Line2D([], [], color=colour, marker=marker, linewidth=1), fabric))
    for name, face in (("published", "none"), ("ours", "#525252")):
        if any(row[name] is not None for row in rows):
            found.append(
                (
                    Line2D([], [], color="#525252", marker="o", markerfacecolor=face, linewidth=0),
                    name,
                )
            )
    if any(row["blocking"] for row in rows):
        found.append((Patch(color=BAR_COLOUR, alpha=0.5), "exposed blocking"))
    return [handle for handle, _ in found], [name for _, name in found]
