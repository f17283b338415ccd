"""One quantity of a run over time, and its line in a picture."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from loomnet.base.names import how_many
from loomnet.base.notebook import new_axes, picture_and_rows, since_text
from loomnet.base.table import Table
from loomnet.measures.training import Phase
from loomnet.results.drawing import (
    MARKERS,
    STALL,
    Scale,
    draw_bins,
    grid,
    line_style,
    mark_phases,
    style,
)

NAMES = {"iteration_s": "iteration time"}


@dataclass(repr=False)
class Series:
    """A quantity over time: `times` in seconds (the start of each bin), `values` in `unit`.

    `label` names the run in a legend; `hosts`: over how many a value is summed, where it is;
    `phases` are the run's, of which the faults are shaded. Of one of several jobs of a run times
    count from the job's own time 0, and pictures of it from that of the run's first job, which
    `first_job` names: `zero_s` lies between the two."""

    name: str
    unit: str
    times: list[float]
    values: list[float]
    label: str = ""
    hosts: int | None = None
    phases: Sequence[Phase] = field(default_factory=list, repr=False)
    zero_s: float = 0.0
    first_job: str | None = None

    @property
    def binned(self) -> bool:
        """Whether a value holds for the time up to the next, as of goodput; an iteration's holds
        for the iteration that ended then."""
        return self.name == "goodput"

    @property
    def ends_at(self) -> float:
        """Seconds at which the last bin ends."""
        if not self.times:
            return 0.0
        step = self.times[-1] - self.times[-2] if len(self.times) > 1 else 1e-6
        return self.times[-1] + step

    @property
    def table(self) -> Table:
        """Its rows: time in seconds, value."""
        return Table(
            ("time", "value"),
            (
                {"time": at, "value": value}
                for at, value in zip(self.times, self.values, strict=True)
            ),
        )

    def to_polars(self) -> Any:
        """The same as a polars.DataFrame."""
        return self.table.to_polars()

    def to_pandas(self) -> Any:
        """The same as a pandas.DataFrame."""
        return self.table.to_pandas()

    def __repr__(self) -> str:
        whose = f" of {self.label}" if self.label else ""
        return (
            f"Series({self.name}{whose} in {self.unit}, {how_many(len(self.times), 'value')}; "
            ".plot() draws it, .table has its rows)"
        )

    def _repr_html_(self) -> str:
        return picture_and_rows(self, self.table)

    def plot(self, axes: Any = None, *, label: str | None = None) -> Any:
        """Draws itself on matplotlib axes (made if not given) and returns them, with the run's
        faults shaded; several series on the same axes have a legend, by their `label`, which is the
        run's label or transport by default. In a notebook the figure is shown below the cell."""
        return _plot(self, axes, self.label if label is None else label)


def _plot(series: Series, axes: Any, label: str) -> Any:
    """See Series.plot."""
    axes = new_axes() if axes is None else axes
    zero, by = series.zero_s, round(series.zero_s * 1e12)
    phases = [
        replace(each, start_ps=each.start_ps + by, end_ps=each.end_ps + by)
        for each in series.phases
    ]
    times, ends_at = [zero + at for at in series.times], zero + series.ends_at
    # The first series chooses the axes' units; the colours go on from series to series.
    drawn = getattr(axes, "loomnet_series", None)
    if drawn is None:
        unit, factor = ("b/s", 1e9) if series.unit == "Gb/s" else (series.unit, 1.0)
        scale = Scale.of(max(series.values, default=0.0) * factor, unit)
        drawn = axes.loomnet_series = {
            "time": Scale.of(ends_at, "s"),
            "scale": scale,
            "factor": factor,
            "count": 0,
            "phases": set(),
            "left": 0.0,
        }
    time, scale = drawn["time"], drawn["scale"]
    values = scale(value * drawn["factor"] for value in series.values)
    if series.binned:
        draw_bins(
            axes,
            time(times),
            values,
            ends_at / time.factor,
            baseline=None,
            label=label,
            linewidth=1.1,
            **line_style(drawn["count"]),
        )
    else:
        usual = statistics.median(values) if values else 0.0
        joined = [value if value <= STALL * usual else math.nan for value in values]
        look = style(drawn["count"])
        axes.plot(
            time(times),
            joined,
            linewidth=1.1,
            markersize=3.5,
            label=label,
            markevery=max(len(values) // MARKERS, 1),
            **look,
        )
        alone = [
            (at, value)
            for at, value in zip(time(times), values, strict=True)
            if value > STALL * usual
        ]
        axes.plot(
            [at for at, _ in alone],
            [value for _, value in alone],
            linestyle="none",
            marker=look["marker"],
            markersize=6,
            color=look["color"],
        )
    drawn["count"] += 1
    new = [
        phase
        for phase in phases
        if (phase.name, phase.start_ps, phase.end_ps) not in drawn["phases"]
    ]
    mark_phases(axes, new, time, named=not drawn["phases"])
    drawn["phases"] |= {(phase.name, phase.start_ps, phase.end_ps) for phase in new}
    drawn["left"] = min(drawn["left"], zero)
    _label(axes, series, time, scale, drawn["count"], drawn["left"])
    return axes


def _label(axes: Any, series: Series, time: Scale, scale: Scale, count: int, left: float) -> None:
    name = NAMES.get(series.name, series.name)
    of = "" if series.hosts is None else f", sum of {series.hosts} hosts"
    axes.set_xlabel(f"emulated time{since_text(series.first_job)} ({time.unit})")
    axes.set_ylabel(f"{name}{of}\n({scale.unit})" if of else f"{name} ({scale.unit})")
    # The far ends stay free (auto=None), for the series that is drawn on these axes next.
    axes.set_xlim(left=left / time.factor, auto=None)
    axes.set_ylim(bottom=0, auto=None)
    grid(axes)
    if count > 1:
        axes.legend(fontsize="small")
