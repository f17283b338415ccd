"""How fast jobs train while parts of a network fail, for a reader who has seen no such picture: a
panel per job, full height is the job's own speed without faults, white is time that was lost."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from loomnet.base.errors import UsageError
from loomnet.base.names import quoted
from loomnet.base.units import Time
from loomnet.measures.training import Phase, whole_iterations
from loomnet.results.drawing import (
    STALL,
    UNDISTURBED,
    Scale,
    Size,
    draw_marks,
    line_style,
    new_picture,
)
from loomnet.results.drawn import Drawn
from loomnet.results.plots import by_job
from loomnet.results.time_span import TimeSpan, short_time, time_axis

HIGHEST = 125  # percent: of an iteration that was faster than the usual one
WORDS_FIT, TIME_FITS = 0.10, 0.05  # of the axis: the width of the words beside a stall
STOOD = "#b3261e"  # the colour of a stall


def speed_figure(
    results: Mapping[str, Drawn],
    *,
    until: Time | str | None = None,
    faults: Mapping[str, str] | None = None,
    title: str | None = None,
    size: Size | None = None,
    common: bool = False,
) -> Any:
    """Training speed over emulated time, a panel per job of each run, in percent of the job's own
    speed before the first fault; an iteration of more than three usual ones says how long it took.
    `common`: 100 % is the same in all panels, the speed before the first fault of the job that was
    fastest then, for jobs that do the same work. `faults`: words for phases, in place of their
    names; `title`: above all; `size`: inches, as (9, 4). Raises UsageError where no job has ended
    an iteration."""
    jobs = {label: result for label, result in by_job(results).items() if result.data.iterations}
    if not jobs:
        raise UsageError("no speed: it needs a job that ended an iteration; flows have none")
    if not isinstance(common, bool):
        raise UsageError(f"speed: common={quoted(common)} must be True or False")
    usual = {label: usual_ps(result) for label, result in jobs.items()}
    fastest = min(usual, key=usual.__getitem__)
    if common:
        usual = dict.fromkeys(usual, usual[fastest])
    span = TimeSpan.of(jobs, until)
    figure, panels = new_picture(len(jobs), height=1.15, share_y=True, size=size)
    for number, (axes, (label, result)) in enumerate(zip(panels, jobs.items(), strict=True)):
        time = time_axis(axes, span)
        _draw(axes, result, time, line_style(number)["color"], span, usual[label])
        axes.set_ylabel(
            label or result.transport or "job",
            rotation=0,
            ha="right",
            va="center",
            fontsize=11,
            fontweight="bold",
        )
        _shade(axes, result.phases, time, span.until, faults or {}, named=number == 0)
        draw_marks(axes, result.marks, time)
        if axes is not panels[-1]:
            axes.set_xlabel("")
    named = [
        _words(phase, faults or {})
        for result in jobs.values()
        for phase in result.phases
        if phase.name not in UNDISTURBED
    ]
    lines = max((text.count("\n") + 1 for text in named), default=0)
    whole = (
        f"{fastest or 'the job'} before the first fault, in all rows"
        if common
        else "the same job before the first fault"
    )
    panels[0].set_title(
        title or f"Training speed; 100 % is {whole}", fontsize=11, loc="left", pad=6 + 12 * lines
    )
    return figure


def _words(phase: Phase, words: Mapping[str, str]) -> str:
    return words.get(phase.name, f"fault: {phase.name.replace('_', ' ')}")


def usual_ps(result: Drawn) -> float:
    """The median iteration before the first fault, or, where none ended there, of all."""
    before = next((phase for phase in result.phases if phase.name == "before"), None)
    done = whole_iterations(result.data.iterations, before) if before else []
    return statistics.median(i.length_ps for i in done or result.data.iterations)


def _stall_text(seconds: float, share: float) -> str:
    """What stands in the gap of a stall, which is this share of the axis: as much as it holds."""
    took = short_time(seconds)
    if share >= WORDS_FIT:
        return f"one step\ntook {took}"
    return took if share >= TIME_FITS else ""


def _draw(axes: Any, result: Drawn, time: Scale, colour: Any, span: TimeSpan, usual: float) -> None:
    done, until, shown = result.data.iterations, span.until, span.shown
    own = usual_ps(result)  # by which a stall is told
    gaps = list(axes.texts)  # where the axis is broken: how long a time is left out
    edges = [done[0].start_ps / 1e12, *(each.end_ps / 1e12 for each in done)]
    speeds = [min(100 * usual / max(each.length_ps, 1), HIGHEST) for each in done]
    axes.stairs(speeds, time(edges), color=colour, fill=True, alpha=0.35)
    axes.stairs(speeds, time(edges), color=colour, linewidth=1.2, baseline=None)
    axes.axhline(100, color="#666666", linewidth=0.6, linestyle=":", zorder=0.9)
    for each in done:
        start, end = each.start_ps / 1e12, min(each.end_ps / 1e12, until)
        if each.length_ps > STALL * own and start < until:
            axes.plot(time((start, end)), (8, 8), color=STOOD, linewidth=3, solid_capstyle="butt")
            for text in gaps:
                if time((start,))[0] <= text.get_position()[0] <= time((end,))[0]:
                    text.set_visible(False)  # the step's own time stands there
            axes.annotate(
                _stall_text(each.length_ps / 1e12, (end - start) / shown),
                (sum(time((start, end))) / 2, 20),
                fontsize=9,
                color=STOOD,
                ha="center",
                fontweight="bold",
                va="bottom",
                annotation_clip=True,
            )
    lasted = (done[-1].end_ps - done[0].start_ps) / usual
    axes.annotate(
        f"average\n{100 * len(done) / lasted:.0f} %",
        (1.008, 0.5),
        xycoords="axes fraction",
        va="center",
        fontsize=10,
        annotation_clip=False,
    )
    axes.set_ylim(0, HIGHEST)
    axes.set_yticks((0, 50, 100), ("0", "50 %", "100 %"), fontsize=8)


def _shade(
    axes: Any,
    phases: list[Phase],
    time: Scale,
    until: float,
    words: Mapping[str, str],
    *,
    named: bool,
) -> None:
    """The time of each fault, and above the first panel its name."""
    for phase in phases:
        start, end = phase.start_ps / 1e12, min(phase.end_ps / 1e12, until)
        if phase.name in UNDISTURBED or not start < end:
            continue
        axes.axvspan(*time((start, end)), facecolor="#000000", alpha=0.10, linewidth=0, zorder=0)
        if named:
            axes.annotate(
                _words(phase, words),
                (sum(time((start, end))) / 2, 1),
                fontsize=9,
                xycoords=("data", "axes fraction"),
                xytext=(0, 3),
                ha="center",
                va="bottom",
                textcoords="offset points",
                annotation_clip=False,
            )
