"""Pictures of runs over time: iterations, goodput, and the changes between two reports."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loomnet.base.units import Time
from loomnet.measures.training import Phase
from loomnet.processes.invoking_user import rights_of, writer_of
from loomnet.results.drawing import (
    MARKERS,
    STALL,
    UNDISTURBED,
    WIDTH,
    Scale,
    Size,
    draw_bins,
    draw_marks,
    grid,
    legend_below,
    line_style,
    mark_phases,
    new_picture,
    style,
    title,
)
from loomnet.results.drawing import STYLES as STYLES
from loomnet.results.drawn import Drawn
from loomnet.results.time_span import TimeSpan, short_time, time_axis

BINS = 250  # of what is shown, where no step is given
MOST_BINS = 1_000_000  # of a run, quiet stretches included
ENDS_EARLY = 0.8  # of the axis: a run that ends before says so
LOG_ABOVE = 15  # times the median that the longest iteration has on a logarithmic axis


def by_job(results: Mapping[str, Drawn]) -> dict[str, Drawn]:
    """Each job of a run of several by the run's label and its own name, all on the run's clock."""
    found: dict[str, Drawn] = {}
    for label, result in results.items():
        jobs = {f"{label} {name}".strip(): each for name, each in result.jobs.items()}
        found |= jobs or {label: result}
    return {label: result.on_run_clock for label, result in found.items()}


def _longest(results: Mapping[str, Drawn]) -> list[Phase]:
    """The phases of the run whose faults ended last; a fault counted in iterations is longer on a
    slower transport."""

    def faults_end(phases: list[Phase]) -> int:
        return max((each.end_ps for each in phases if each.name not in UNDISTURBED), default=-1)

    return max((result.phases for result in results.values()), key=faults_end, default=[])


def iteration_figure(
    results: Mapping[str, Drawn], *, until: Time | str | None = None, size: Size | None = None
) -> Any:
    """Iteration time over emulated time, a line per job of each run. An iteration in which the job
    stalled is a bar over the time it took, apart from the line; a job that ended early ends in a
    cross. `until`: emulated time that is shown, without a break; `size`: inches, as (9, 4)."""
    results = by_job(results)
    figure, (axes,) = new_picture(height=3.0, size=size)
    draw_iterations(axes, results, TimeSpan.of(results, until))
    title(
        axes, "Iteration time", [each for faults, *_ in _whose_faults(results) for each in faults]
    )
    return figure


def _faults(phases: Sequence[Phase]) -> list[Phase]:
    return [each for each in phases if each.name not in UNDISTURBED]


def _whose_faults(results: Mapping[str, Drawn]) -> list[tuple[list[Phase], int, str]]:
    """The faults of the runs, once where several runs have them at the same times; with the place
    and the name of the first run that has them. A fault counted in iterations lasts longer in a
    slower run."""
    found: dict[tuple[Any, ...], tuple[list[Phase], int, str]] = {}
    for number, (label, result) in enumerate(results.items()):
        if faults := _faults(result.phases):
            times = tuple((each.name, each.start_ps, each.end_ps) for each in faults)
            found.setdefault(times, (faults, number, label or result.transport or "job"))
    return list(found.values())


def _shade_faults(
    axes: Any, results: Mapping[str, Drawn], time: Scale, until: float, *, named: bool
) -> None:
    """Of each run, in its line's colour where the runs' faults are at different times."""
    groups = _whose_faults(results)
    if len(groups) <= 1:
        for faults, *_ in groups:
            mark_phases(axes, faults, time, until=until, named=named)
        return
    spans: dict[str, list[float]] = {}  # of all runs, by the fault's name
    for faults, number, _ in groups:
        colour = style(number)["color"]
        for phase in faults:
            start, end = time((phase.start_ps / 1e12, min(phase.end_ps / 1e12, until)))
            if not start < end:
                continue
            axes.axvspan(start, end, facecolor=colour, alpha=0.12, linewidth=0, zorder=0)
            for edge in (start, end):
                axes.axvline(edge, color=colour, linewidth=0.7, linestyle=":", zorder=0)
            spans.setdefault(phase.name, []).extend((start, end))
    for row, (name, edges) in enumerate(spans.items() if named else ()):
        axes.annotate(
            f"fault: {name.replace('_', ' ')}, of each line in its colour",
            ((min(edges) + max(edges)) / 2, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 2 + 10 * (row % 2)),
            textcoords="offset points",
            fontsize=8,
            ha="center",
            va="bottom",
            annotation_clip=False,
        )


def draw_iterations(
    axes: Any, results: Mapping[str, Drawn], span: TimeSpan, *, named: bool = True
) -> None:
    """On axes of a picture, with a legend below it. `named`: faults have their names above."""
    until = span.until
    lengths = [
        i.length_ps / 1e12
        for result in results.values()
        for i in result.data.iterations
        if i.end_ps / 1e12 <= until
    ]
    usual = statistics.median(lengths) if lengths else 1.0
    longest = max(lengths, default=1.0)
    log = longest > LOG_ABOVE * usual > 0
    time = time_axis(axes, span)
    scale = Scale("s", 1.0) if log else Scale.of(longest, "s")
    taken: list[tuple[float, str]] = []
    for number, (label, result) in enumerate(results.items()):
        look = style(number)
        _one_line(axes, result, label, look, time, scale, until)
        draw_marks(
            axes, result.marks, time, look["color"] if len(results) > 1 else "#333333", taken
        )
    _shade_faults(axes, results, time, until, named=named)
    if log:
        from matplotlib.ticker import EngFormatter

        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(EngFormatter(unit="s"))
        axes.set_ylabel("iteration time (log scale)")
    else:
        axes.set_ylim(bottom=0, top=1.2 * longest / scale.factor)
        axes.set_ylabel(f"iteration time ({scale.unit})")
    grid(axes)
    if results:
        legend_below(axes)


def _one_line(
    axes: Any,
    result: Drawn,
    label: str,
    look: dict[str, Any],
    time: Scale,
    scale: Scale,
    until: float,
) -> None:
    done = result.data.iterations
    usual = statistics.median(i.length_ps for i in done) if done else 0
    xs: list[float] = []
    ys: list[float] = []
    stalls = []
    for each in done:
        if each.length_ps > STALL * usual:
            stalls.append(each)
            xs.append(math.nan)
            ys.append(math.nan)
        else:
            xs.append(each.end_ps / 1e12)
            ys.append(each.length_ps / 1e12)
    every = max(len(xs) // MARKERS, 1)
    name = label or result.transport or "job"
    axes.plot(
        time(xs), scale(ys), **look, markersize=3.5, markevery=every, linewidth=1.1, label=name
    )
    inside = [each for each in stalls if each.end_ps / 1e12 <= until]
    for at, each in enumerate(inside):
        # The marker at its end says whose it is where colours do not print.
        axes.plot(
            time((each.start_ps / 1e12, each.end_ps / 1e12)),
            scale((each.length_ps / 1e12,) * 2),
            color=look["color"],
            linewidth=2.5,
            marker=look["marker"],
            markersize=6,
            markerfacecolor="white",
            markevery=[1],
            label=f"{name}: stalled iteration" if at == 0 else None,
        )
    for each in stalls:
        if each.start_ps / 1e12 < until < each.end_ps / 1e12:  # it ends outside: along the top
            axes.plot(
                time((each.start_ps / 1e12, until)),
                (0.97, 0.97),
                color=look["color"],
                linewidth=2.5,
                transform=axes.get_xaxis_transform(),
                marker=look["marker"],
                markerfacecolor="white",
                markevery=[0],
                label=f"{name}: an iteration of "
                f"{short_time(each.length_ps / 1e12)}, which ends outside",
            )
    ended = result.data.end_ps / 1e12
    if result.data.ended != "finished" and done and ended <= until:
        axes.plot(
            time([ended]),
            scale([done[-1].length_ps / 1e12]),
            color=look["color"],
            marker="x",
            markersize=9,
            markeredgewidth=2,
            linestyle="none",
            label=f"{name}: {result.data.ended}",
        )


def goodput_figure(
    results: Mapping[str, Drawn],
    *,
    every: Time | str | None = None,
    until: Time | str | None = None,
    size: Size | None = None,
) -> Any:
    """Payload received by all hosts of a job together over emulated time, one panel per job of each
    run, all with the same axes. `every`: the step, by default a 250th of what is shown; `until`:
    emulated time that is shown, without a break, by default all of it but what a run takes beyond
    four times the shortest; `size`: inches, as (9, 4)."""
    results = by_job(results)
    figure, panels = new_picture(max(len(results), 1), height=1.9, share_y=True, size=size)
    draw_goodput(panels, results, TimeSpan.of(results, until), every)
    title(panels[0], "Goodput, summed over all hosts of a job", _longest(results))
    return figure


def draw_goodput(
    panels: Sequence[Any],
    results: Mapping[str, Drawn],
    span: TimeSpan,
    every: Time | str | None = None,
) -> None:
    """A job in each panel."""
    until = span.until
    least = max(span.shown / BINS, until / MOST_BINS)
    step = Time(every) if every is not None else Time.of(max(round(least * 1e12), 1))
    series = {label: result.goodput(step, until) for label, result in results.items()}
    largest = max((1e9 * value for each in series.values() for value in each.values), default=0.0)
    scale = Scale.of(largest, "b/s")
    for number, (axes, (label, each)) in enumerate(zip(panels, series.items(), strict=False)):
        result, time = results[label], time_axis(axes, span)
        look = line_style(number)
        bins = (
            time(each.times),
            scale(1e9 * value for value in each.values),
            each.ends_at / time.factor,
        )
        draw_bins(axes, *bins, baseline=None, color=look["color"], linewidth=1.1)
        draw_bins(axes, *bins, color=look["color"], fill=True, alpha=0.15)
        hosts = len(result.data.hosts)
        axes.set_ylabel(
            f"{label or result.transport or 'job'}\nsum of {hosts} hosts\n({scale.unit})",
            fontsize=9,
        )
        axes.set_ylim(0, 1.1 * largest / scale.factor or 1)
        mark_phases(axes, result.phases, time, named=axes is panels[0], until=until)
        grid(axes)
        if axes is not panels[-1]:
            axes.set_xlabel("")
        ended = result.data.end_ps / 1e12
        if ended > until:
            axes.annotate(
                f"goes on to {short_time(ended)} →",
                (0.995, 0.93),
                xycoords="axes fraction",
                ha="right",
                va="top",
                fontsize=8,
            )
        elif span.on_paper()[0](ended) < ENDS_EARLY * span.on_paper()[0](until):
            axes.annotate(
                f" {result.data.ended} at {short_time(ended)}",
                (ended / time.factor, 0.9),
                xycoords=("data", "axes fraction"),
                va="center",
                fontsize=8,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0},
            )


def change_figure(changes: Sequence[tuple[str, float, str]], a: str = "A", b: str = "B") -> Any:
    """(figure, relative change, verdict) as bars: what became worse stands out by its hatching, at
    most 40."""
    from loomnet.results.picture import Picture

    shown = sorted(changes, key=lambda row: -abs(row[1]))[:40][::-1]
    figure = Picture(figsize=(WIDTH, 1.2 + 0.26 * len(shown)), layout="constrained")
    axes = figure.subplots()
    looks = {
        "worse": ("#d55e00", "////"),
        "changed": ("#e69f00", ".."),
        "better": ("#009e73", ""),
        "same": ("#bbbbbb", ""),
    }
    seen: dict[str, None] = dict.fromkeys(
        verdict if verdict in looks else "same" for _, _, verdict in shown
    )
    for verdict in looks:
        if verdict not in seen:
            continue
        colour, hatch = looks[verdict]
        rows = [
            (i, change)
            for i, (_, change, each) in enumerate(shown)
            if (each if each in looks else "same") == verdict
        ]
        axes.barh(
            [i for i, _ in rows],
            [100 * change for _, change in rows],
            color=colour,
            hatch=hatch,
            edgecolor="#333333",
            linewidth=0.4,
            label=verdict,
        )
    axes.set_yticks(range(len(shown)), [name for name, _, _ in shown], fontsize=7)
    axes.axvline(0, color="#333333", linewidth=0.8)
    axes.set_xlabel(f"change from {a} to {b} (%)")
    axes.set_title(f"{b} against {a}", fontsize=10, loc="left")
    if shown:
        axes.legend(fontsize=8)
    return figure


def save(figure: Any, path: Path | str) -> list[Path]:
    """Writes a figure as .png (150 dpi) and .svg beside each other; no date inside, so that equal
    figures are equal files."""
    from matplotlib import rc_context

    written, path = [], Path(path)
    with rc_context({"svg.hashsalt": "loomnet"}):
        for suffix, notes in ((".png", {"Software": None}), (".svg", {"Date": None})):
            target = path.with_suffix(suffix)
            with rights_of(writer_of(target)):
                figure.savefig(target, dpi=150, metadata=notes)
            written.append(target)
    return written
