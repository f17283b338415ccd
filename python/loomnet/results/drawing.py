"""What all pictures of a run have in common: units of axes, line styles that differ in greyscale,
the bands of faults. matplotlib is loaded when a picture is made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loomnet.base.errors import UsageError
from loomnet.base.line_styles import LINES as LINES
from loomnet.base.line_styles import STYLES as STYLES
from loomnet.base.line_styles import line_style as line_style
from loomnet.base.line_styles import style as style
from loomnet.base.names import quoted
from loomnet.measures.training import Phase

UNDISTURBED = ("before", "after")
STALL = 3  # an iteration so many times as long as the median is drawn apart from the line
MARKERS = 40  # on one line at most
WIDTH = 9.0  # inches
MOST_LEGEND = 100  # characters of names in one row
MOST_LABELS, LONGEST_MARK = 6, 24  # of marks: more are counted, longer ones are cut
# Shares of the axes: texts of marks that are nearer stand in rows, and the same words stand once.
MARK_APART, MARK_REPEATED, MARK_ROWS, MARK_ROW = 0.016, 0.06, 2, 0.46


Size = tuple[float, float]  # of a picture: width and height in inches
LEAST_INCHES, MOST_INCHES = 1.0, 100.0


def inches(size: Size | None) -> Size | None:
    """Raises UsageError for what is no size of a picture."""
    if size is None:
        return None
    if not (
        isinstance(size, Sequence)
        and len(size) == 2
        and all(
            isinstance(each, (int, float)) and LEAST_INCHES <= each <= MOST_INCHES for each in size
        )
    ):
        raise UsageError(
            f"size={quoted(size)} must be (width, height) in inches, each from "
            f"{LEAST_INCHES:g} to {MOST_INCHES:g}, as (9, 3.8)"
        )
    return float(size[0]), float(size[1])


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
            steps = tuple(
                (10.0**power, prefix + unit)
                for power, prefix in ((12, "T"), (9, "G"), (6, "M"), (3, "k"), (0, ""))
            )
        else:
            return cls(unit, 1.0)
        factor, name = next((step for step in steps if abs(largest) >= step[0]), steps[-1])
        return cls(name, factor)

    def __call__(self, values: Iterable[float]) -> list[float]:
        return [value / self.factor for value in values]


def new_picture(
    rows: int = 1,
    *,
    height: float = 2.4,
    share_x: bool = True,
    share_y: bool = False,
    size: Size | None = None,
) -> tuple[Any, Any]:
    """(matplotlib Figure that a notebook shows, list of its panels, one below the other). `size`:
    width and height in inches, by default WIDTH and `height` a panel."""
    from loomnet.results.picture import Picture

    figure = Picture(figsize=inches(size) or (WIDTH, 1.0 + height * rows), layout="constrained")
    axes = figure.subplots(rows, 1, sharex=share_x, sharey=share_y, squeeze=False)
    return figure, [row[0] for row in axes]


def legend_below(axes: Any, **look: Any) -> None:
    """The legend of these axes under the whole picture, where it hides no line."""
    shown, names = axes.get_legend_handles_labels()
    if names:
        columns = min(len(names), max(1, MOST_LEGEND // max(map(len, names))))
        axes.figure.legend(
            shown,
            names,
            loc="outside lower center",
            ncols=columns,
            fontsize=8,
            frameon=False,
            **look,
        )


def mark_phases(
    axes: Any,
    phases: Iterable[Phase],
    scale: Scale,
    *,
    named: bool = True,
    until: float | None = None,
) -> None:
    """Shades the time of every fault and writes its name above; `until`: seconds, where the axis
    ends. Names of faults that follow one another closely stand in two rows."""
    shown = [
        phase
        for phase in phases
        if phase.name not in UNDISTURBED
        and phase.start_ps < phase.end_ps
        and (until is None or phase.start_ps / 1e12 < until)
    ]
    for number, phase in enumerate(shown):
        start, end = scale((phase.start_ps / 1e12, phase.end_ps / 1e12))
        if until is not None:
            end = min(end, until / scale.factor)
        axes.axvspan(start, end, facecolor="#000000", alpha=0.10, linewidth=0, zorder=0)
        for edge in (start, end):
            axes.axvline(edge, color="#000000", linewidth=0.5, linestyle=":", zorder=0)
        if named:
            axes.annotate(
                f"fault: {phase.name.replace('_', ' ')}",
                ((start + end) / 2, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(0, 2 + 10 * (number % 2)),
                textcoords="offset points",
                fontsize=8,
                ha="center",
                va="bottom",
                annotation_clip=False,
            )


def draw_marks(
    axes: Any,
    marks: Iterable[Mapping[str, Any]],
    scale: Scale,
    colour: Any = "#333333",
    taken: list[tuple[float, str]] | None = None,
) -> None:
    """A tick at the bottom for each row of Result.marks, with its text; where there are many, the
    first of each text says how many there are. `taken`: places and texts of runs that the same
    axes show: a text that would lie on another stands above it or, of the same words, once."""
    taken = [] if taken is None else taken
    rows = list(marks)
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["mark"]] = counts.get(row["mark"], 0) + 1
    many, seen = len(rows) > MOST_LABELS, set[str]()
    for row in rows:
        at, text = row["time_s"] / scale.factor, row["mark"]
        axes.plot(
            [at, at],
            [0.0, 0.05],
            transform=axes.get_xaxis_transform(),
            color=colour,
            linewidth=1.2,
            solid_capstyle="butt",
            zorder=3,
        )
        if many and (text in seen or len(seen) >= MOST_LABELS):
            continue
        seen.add(text)
        times = f" (x {counts[text]})" if many and counts[text] > 1 else ""
        place = float((axes.transData + axes.transAxes.inverted()).transform((at, 1.0))[0])
        near = [other for where, other in taken if abs(where - place) < MARK_APART]
        if len(near) >= MARK_ROWS or any(
            text == other and abs(where - place) < MARK_REPEATED for where, other in taken
        ):
            continue
        taken.append((place, text))
        axes.text(
            at,
            0.06 + MARK_ROW * len(near),
            f"{text[:LONGEST_MARK]}{times}",
            rotation=90,
            fontsize=7,
            ha="center",
            va="bottom",
            transform=axes.get_xaxis_transform(),
            color=colour,
            clip_on=True,
        )


def title(axes: Any, text: str, phases: Sequence[Phase] = ()) -> None:
    """Above the names of faults, which stand directly above the axes."""
    faults = sum(phase.name not in UNDISTURBED for phase in phases)
    axes.set_title(text, fontsize=10, loc="left", pad=6 + 11 * min(faults, 2))


def draw_bins(
    axes: Any, times: Sequence[float], values: Sequence[float], end: float, **look: Any
) -> None:
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
