"""Pictures of rings: completed steps of the ranks over time, marks by switch, and the gain by
condition beside what it is compared with. Each function returns a matplotlib figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loomnet.base.errors import UsageError
from loomnet.measures.ring_steps import RingSteps

PUBLISHED = 0.54  # best completion time saved, by the abstract (Symphony, arXiv 2604.16880)
_FIRST, _LAST, _OTHERS = "#2b6cb0", "#b83232", "#9aa5b1"


def steps_figure(runs: Mapping[str, RingSteps], *, names: Mapping[int, str] | None = None) -> Any:
    """Completed steps of each rank over time, a panel for each run, and under it the step gap: the
    most minus the fewest completed steps. `names`: of ranks, where they are to be told apart.
    Raises UsageError without runs."""
    from matplotlib.figure import Figure

    if not isinstance(runs, Mapping) or not runs:
        raise UsageError('steps_figure: give runs by name, as {"extra marks": result.ring_steps}')
    figure = Figure(figsize=(1.2 + 3.6 * len(runs), 4.6), layout="constrained")
    grid = figure.subplots(
        2, len(runs), sharex=True, sharey="row", squeeze=False, height_ratios=[3, 1]
    )
    scale, unit = _time_unit(max(float(each.laggard()[-1]) for each in runs.values()))
    for column, (title, steps) in enumerate(runs.items()):
        above, below = grid[0][column], grid[1][column]
        for rank, times in steps.completions().items():
            label = None if names is None else names.get(rank, f"rank {rank}")
            colour = _OTHERS if names is None else (_FIRST, _LAST, "#4c8c4a", "#dd8a33")[rank % 4]
            above.step(
                times * scale,
                np.arange(1, len(times) + 1),
                where="post",
                color=colour,
                linewidth=0.7 if names is None else 1.5,
                label=label,
                linestyle="-" if names is None else ("-", "--", ":", "-.")[rank % 4],
            )
        if names is None:
            for label, times, colour, style in (
                ("first rank", steps.leader(), _FIRST, "-"),
                ("last rank", steps.laggard(), _LAST, "--"),
            ):
                above.step(
                    times * scale,
                    np.arange(1, len(times) + 1),
                    where="post",
                    color=colour,
                    linestyle=style,
                    linewidth=1.8,
                    label=label,
                )
        when, gap = steps.gap_series()
        below.step(when * scale, gap, where="post", color="black", linewidth=0.9)
        below.axhline(steps.gap(), color="black", linestyle=":", linewidth=0.9)
        above.set_title(
            f"{title}: {scale * float(steps.laggard()[-1]):.3g} {unit}, mean gap "
            f"{steps.gap():.2f} steps",
            fontsize=9,
        )
        below.set_xlabel(f"time ({unit})")
        above.grid(alpha=0.3)
        below.grid(alpha=0.3)
    grid[0][0].set_ylabel("completed steps")
    grid[1][0].set_ylabel("step gap")
    grid[0][0].set_ylim(bottom=0)
    grid[1][0].set_ylim(bottom=0)
    grid[0][0].legend(fontsize=8, loc="upper left")
    return figure


def _time_unit(longest_s: float) -> tuple[float, str]:
    return (1e3, "ms") if longest_s < 1 else (1.0, "s")


@dataclass(frozen=True)
class GainRow:
    """Of one condition. `gains`: of each seed, as shares of the time without extra marks. The
    others are means; None: not there. `fluid`: gain of the fluid model, `room`: what is left to it,
    `no_marks`: saved without any marks, `oracle`: by the laggard-first queue."""

    name: str
    gains: Sequence[float]
    fluid: float | None = None
    room: float | None = None
    no_marks: float | None = None
    oracle: float | None = None


# Of the means beside the gain: marker, size, colour, words.
_BESIDE = {
    "fluid": ("|", 14, "black", "fluid gain"),
    "room": ("4", 11, "black", "room"),
    "no_marks": ("s", 5, "#dd8a33", "no marks at all"),
    "oracle": ("x", 7, "#4c8c4a", "oracle queue"),
}


def gain_figure(rows: Sequence[GainRow], *, title: str = "") -> Any:
    """The paired gain of each seed by condition, beside what no marks at all save, the fluid gain,
    the room, the oracle queue and the published ceiling; where extra marks cost time is shaded."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 1.8 + 0.45 * len(rows)), layout="constrained")
    axis = figure.subplots()
    least = min([0.0, *(gain for row in rows for gain in (*row.gains, row.no_marks or 0.0))])
    axis.axvspan(100 * least - 5, 0, color="#b83232", alpha=0.10, label="where it loses")
    axis.axvline(0, color="black", linewidth=0.8)
    axis.axvline(
        100 * PUBLISHED, color=_LAST, linestyle="--", linewidth=1.2, label="published, at most"
    )
    for place, row in enumerate(rows):
        spread = np.linspace(-0.18, 0.18, len(row.gains)) if len(row.gains) > 1 else [0.0]
        axis.plot(
            100 * np.asarray(row.gains),
            place + np.asarray(spread),
            "o",
            markersize=3,
            color=_OTHERS,
            label="one seed" if place == 0 else None,
        )
        axis.plot(
            100 * float(np.mean(row.gains)),
            place,
            "D",
            markersize=6,
            color=_FIRST,
            label="mean" if place == 0 else None,
        )
        for field, (marker, size, colour, label) in _BESIDE.items():
            value = getattr(row, field)
            if value is not None:
                axis.plot(
                    100 * value,
                    place,
                    marker,
                    markersize=size,
                    markeredgewidth=2,
                    color=colour,
                    label=label if place == 0 else None,
                )
    axis.set_yticks(range(len(rows)), [row.name for row in rows], fontsize=8)
    axis.invert_yaxis()
    axis.set_xlim(100 * least - 5, 100 * PUBLISHED + 5)
    axis.set_xlabel("completion time saved (%)")
    axis.set_title(title, fontsize=9)
    axis.grid(axis="x", alpha=0.3)
    figure.legend(fontsize=7, loc="outside lower center", ncols=4)
    return figure


def marks_figure(marks: Mapping[str, tuple[int, int]]) -> Any:
    """Marks by switch: (base marks, extra marks) of each."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.5 + 0.7 * max(len(marks), 3), 3.2), layout="constrained")
    axis = figure.subplots()
    places = np.arange(len(marks))
    base, extra = (np.array([each[i] for each in marks.values()]) for i in (0, 1))
    axis.bar(places, base, color=_OTHERS, label="by the port's own rule")
    axis.bar(
        places, extra, bottom=base, color=_FIRST, hatch="//", edgecolor="white", label="extra marks"
    )
    axis.set_xticks(places, list(marks), rotation=45, ha="right", fontsize=8)
    axis.set_ylabel("marked packets of rings")
    axis.legend(fontsize=8)
    return figure
