"""The line of one series on axes that may hold others."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Any

from loomnet.base.notebook import new_axes
from loomnet.results.drawing import Scale, draw_bins, grid, line_style, mark_phases, style
from loomnet.results.plots import MARKERS, STALL

if TYPE_CHECKING:
    from loomnet.results.series import Series

NAMES = {"iteration_s": "iteration time"}


def plot_series(series: Series, axes: Any, label: str) -> Any:
    """See Series.plot."""
    axes = new_axes() if axes is None else axes
    # The first series chooses the axes' units; the colours go on from series to series.
    drawn = getattr(axes, "loomnet_series", None)
    if drawn is None:
        unit, factor = ("b/s", 1e9) if series.unit == "Gb/s" else (series.unit, 1.0)
        scale = Scale.of(max(series.values, default=0.0) * factor, unit)
        drawn = axes.loomnet_series = {
            "time": Scale.of(series.ends_at, "s"), "scale": scale, "factor": factor, "count": 0,
            "phases": set()}
    time, scale = drawn["time"], drawn["scale"]
    values = scale(value * drawn["factor"] for value in series.values)
    if series.binned:
        draw_bins(axes, time(series.times), values, series.ends_at / time.factor, baseline=None,
                  label=label, linewidth=1.1, **line_style(drawn["count"]))
    else:
        usual = statistics.median(values) if values else 0.0
        joined = [value if value <= STALL * usual else math.nan for value in values]
        look = style(drawn["count"])
        axes.plot(time(series.times), joined, linewidth=1.1, markersize=3.5, label=label,
                  markevery=max(len(values) // MARKERS, 1), **look)
        alone = [(at, value) for at, value in zip(time(series.times), values, strict=True)
                 if value > STALL * usual]
        axes.plot([at for at, _ in alone], [value for _, value in alone], linestyle="none",
                  marker=look["marker"], markersize=6, color=look["color"])
    drawn["count"] += 1
    new = [phase for phase in series.phases
           if (phase.name, phase.start_ps, phase.end_ps) not in drawn["phases"]]
    mark_phases(axes, new, time, named=not drawn["phases"])
    drawn["phases"] |= {(phase.name, phase.start_ps, phase.end_ps) for phase in new}
    _label(axes, series, time, scale, drawn["count"])
    return axes


def _label(axes: Any, series: Series, time: Scale, scale: Scale, count: int) -> None:
    name = NAMES.get(series.name, series.name)
    of = "" if series.hosts is None else f", sum of {series.hosts} hosts"
    axes.set_xlabel(f"emulated time ({time.unit})")
    axes.set_ylabel(f"{name}{of}\n({scale.unit})" if of else f"{name} ({scale.unit})")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    grid(axes)
    if count > 1:
        axes.legend(fontsize="small")
