"""What all pictures of a run have in common: units of axes, line styles that differ in greyscale,
the bands of faults. matplotlib is loaded when a picture is made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from loomnet.measures.training import Phase

# Okabe and Ito's palette: told apart by colour-blind readers; markers say it a second time.
STYLES = (("#0072b2", "o"), ("#d55e00", "s"), ("#009e73", "^"), ("#cc79a7", "D"), ("#525252", "v"))
LINES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (6, 1.5, 1, 1.5)),
                          (0, (3, 1, 1, 1, 1, 1)))
UNDISTURBED = ("before", "after")
STALL = 3  # an iteration so many times as long as the median is drawn apart from the line
MARKERS = 40  # on one line at most
WIDTH = 9.0  # inches


def style(number: int) -> dict[str, Any]:
    """Colour, marker and line of the `number`th thing in a picture."""
    colour, marker = STYLES[number % len(STYLES)]
    return {"color": colour, "marker": marker, "linestyle": LINES[number % len(LINES)]}


def line_style(number: int) -> dict[str, Any]:
    """The same without a marker, for curves of many points."""
    return {key: value for key, value in style(number).items() if key != "marker"}


@dataclass(frozen=True)
class Scale:
    """A unit with its prefix, in which an axis shows values: `factor` of them are one."""

    unit: str
    factor: float

    @classmethod
    def of(cls, largest: float, unit: str) -> Scale:
        """That in which the largest value of an axis is 1 or more. Of units that take no prefix
        ("ratio", "packets") themselves."""
        if unit == "s":
            steps = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
        elif unit in ("b/s", "B/s", "B"):
            steps = tuple((10.0**power, prefix + unit) for power, prefix in
                          ((12, "T"), (9, "G"), (6, "M"), (3, "k"), (0, "")))
        else:
            return cls(unit, 1.0)
        factor, name = next((step for step in steps if abs(largest) >= step[0]), steps[-1])
        return cls(name, factor)

    def __call__(self, values: Iterable[float]) -> list[float]:
        return [value / self.factor for value in values]


def new_picture(rows: int = 1, *, height: float = 2.4, share_x: bool = True,
                share_y: bool = False) -> tuple[Any, Any]:
    """(matplotlib Figure that a notebook shows, list of its panels, one below the other)."""
    from loomnet.results.picture import Picture

    figure = Picture(figsize=(WIDTH, 1.0 + height * rows), layout="constrained")
    axes = figure.subplots(rows, 1, sharex=share_x, sharey=share_y, squeeze=False)
    return figure, [row[0] for row in axes]


def mark_phases(axes: Any, phases: Iterable[Phase], scale: Scale, *, named: bool = True,
                until: float | None = None) -> None:
    """Shades the time of every fault and writes its name above; `until`: seconds, where the axis
    ends. Names of faults that follow one another closely stand in two rows."""
    shown = [phase for phase in phases
             if phase.name not in UNDISTURBED and phase.start_ps < phase.end_ps
             and (until is None or phase.start_ps / 1e12 < until)]
    for number, phase in enumerate(shown):
        start, end = scale((phase.start_ps / 1e12, phase.end_ps / 1e12))
        if until is not None:
            end = min(end, until / scale.factor)
        axes.axvspan(start, end, facecolor="#000000", alpha=0.10, linewidth=0, zorder=0)
        for edge in (start, end):
            axes.axvline(edge, color="#000000", linewidth=0.5, linestyle=":", zorder=0)
        if named:
            axes.annotate(
                f"fault: {phase.name.replace('_', ' ')}", ((start + end) / 2, 1.0),
                xycoords=("data", "axes fraction"), xytext=(0, 2 + 10 * (number % 2)),
                textcoords="offset points", fontsize=8, ha="center", va="bottom",
                annotation_clip=False)


def time_axis(axes: Any, until: float) -> Scale:
    """Labels the horizontal axis with emulated time from 0 to `until` seconds; its scale."""
    scale = Scale.of(until, "s")
    axes.set_xlabel(f"emulated time ({scale.unit})")
    axes.set_xlim(0, until / scale.factor or 1)
    return scale


def title(axes: Any, text: str, phases: Sequence[Phase] = ()) -> None:
    """Above the names of faults, which stand directly above the axes."""
    faults = sum(phase.name not in UNDISTURBED for phase in phases)
    axes.set_title(text, fontsize=10, loc="left", pad=6 + 11 * min(faults, 2))


def draw_bins(axes: Any, times: Sequence[float], values: Sequence[float], end: float,
              **look: Any) -> None:
    """Steps of bins that begin at `times`, the last of which ends at `end`. Bins of one value that
    follow one another are drawn as one: a stall of seconds has a million of them."""
    edges, kept = [], []
    for at, value in zip(times, values, strict=True):
        if not kept or value != kept[-1]:
            edges.append(at)
            kept.append(value)
    axes.stairs(kept, [*edges, end], **look)


def grid(axes: Any) -> None:
    """Horizontal lines behind the curves."""
    axes.grid(True, axis="y", which="major", linewidth=0.3, color="#888888")
    axes.set_axisbelow(True)
