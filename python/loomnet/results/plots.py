"""Figures of a run: iteration time over time for several transports with the faults marked, and
goodput. matplotlib is loaded when the first one is drawn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from loomnet.base.units import Time
from loomnet.measures.training import Phase
from loomnet.processes.invoking_user import rights_of, writer_of
from loomnet.results.result import Result

# Okabe and Ito's palette: told apart by colour-blind readers; markers say it a second time.
STYLES = (("#0072b2", "o"), ("#d55e00", "s"), ("#009e73", "^"), ("#cc79a7", "D"), ("#525252", "v"))


def _figure(rows: int) -> tuple[Any, list[Any]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1.2 + 2.6 * rows), layout="constrained")
    axes = figure.subplots(rows, 1, sharex=True, squeeze=False)
    return figure, [row[0] for row in axes]


def mark_phases(axes: Any, phases: Iterable[Phase], *, named: bool = True) -> None:
    """Shades every fault's phase and writes its name above."""
    for phase in phases:
        if phase.name in ("before", "after") or phase.start_ps >= phase.end_ps:
            continue
        start, end = phase.start_ps / 1e12, phase.end_ps / 1e12
        axes.axvspan(start, end, color="#000000", alpha=0.08, linewidth=0)
        if named:
            axes.annotate(
                phase.name.replace("_", " "),
                ((start + end) / 2, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(0, 2),
                fontsize=8,
                textcoords="offset points",
                ha="center",
                va="bottom",
            )


def _by_job(results: Mapping[str, Result]) -> dict[str, Result]:
    """Each job of a run of several by the run's label and its own name."""
    found = {}
    for label, result in results.items():
        jobs = {f"{label} {name}": each for name, each in result.jobs.items()}
        found |= jobs or {label: result}
    return found


def iteration_figure(results: Mapping[str, Result]) -> Any:
    """Iteration time over emulated time, a line per job of each run; one that ended early ends in a
    cross."""
    results = _by_job(results)
    figure, (axes,) = _figure(1)
    longest: list[Phase] = []
    for (label, result), (colour, marker) in zip(
        results.items(), _styles(len(results)), strict=True
    ):
        done = result.data.iterations
        times = [i.end_ps / 1e12 for i in done]
        axes.plot(
            times,
            [i.length_ps / 1e12 for i in done],
            color=colour,
            marker=marker,
            markersize=2.5,
            linewidth=0.9,
            label=label,
        )
        if result.data.ended != "finished" and done:
            axes.plot(
                [result.data.end_ps / 1e12],
                [done[-1].length_ps / 1e12],
                color=colour,
                marker="x",
                markersize=9,
                markeredgewidth=2,
                linestyle="none",
                label=f"{label}: {result.data.ended}",
            )
        if not longest or result.phases[-1].end_ps > longest[-1].end_ps:
            longest = result.phases
    mark_phases(axes, longest)
    axes.set_yscale("log")
    axes.set_xlabel("emulated time, s")
    axes.set_ylabel("iteration, s")
    axes.grid(True, axis="y", which="both", linewidth=0.3)
    if results:
        axes.legend(fontsize=8, loc="upper right")
    return figure


def goodput_figure(
    results: Mapping[str, Result], *, every: Time | str = "100 ms", until: Time | str | None = None
) -> Any:
    """Payload received by all hosts of a job over emulated time, one panel per job of each run; up
    to `until`."""
    results = _by_job(results)
    figure, panels = _figure(max(len(results), 1))
    for axes, (label, result), (colour, _) in zip(
        panels, results.items(), _styles(len(results)), strict=False
    ):
        series = result.series("goodput", every=every)
        axes.step(series.times, series.values, where="post", color=colour, linewidth=0.9)
        axes.set_ylabel(f"{label}\n{series.unit}", fontsize=8)
        mark_phases(axes, result.phases, named=axes is panels[0])
        axes.set_ylim(bottom=0)
    panels[-1].set_xlabel("emulated time, s")
    if until is not None:
        panels[-1].set_xlim(0, Time(until).seconds)
    return figure


def change_figure(changes: Sequence[tuple[str, float, str]]) -> Any:
    """(figure, relative change, verdict) as bars: what became worse stands out, at most 40."""
    from matplotlib.figure import Figure

    shown = sorted(changes, key=lambda row: -abs(row[1]))[:40][::-1]
    figure = Figure(figsize=(9, 1 + 0.24 * len(shown)), layout="constrained")
    axes = figure.subplots()
    colours = {"worse": "#d55e00", "changed": "#e69f00", "better": "#009e73"}
    axes.barh(
        [name for name, _, _ in shown],
        [100 * change for _, change, _ in shown],
        color=[colours.get(verdict, "#999999") for _, _, verdict in shown],
    )
    axes.axvline(0, color="#333333", linewidth=0.8)
    axes.set_xlabel("change, %")
    axes.tick_params(axis="y", labelsize=7)
    return figure


def save(figure: Any, path: Path) -> list[Path]:
    """Writes a figure as .png and .svg beside each other; no date inside, so that equal figures
    are equal files."""
    from matplotlib import rc_context

    written = []
    with rc_context({"svg.hashsalt": "loomnet"}):
        for suffix, notes in ((".png", {"Software": None}), (".svg", {"Date": None})):
            target = path.with_suffix(suffix)
            with rights_of(writer_of(target)):
                figure.savefig(target, dpi=150, metadata=notes)
            written.append(target)
    return written


def _styles(count: int) -> list[tuple[str, str]]:
    return [STYLES[i % len(STYLES)] for i in range(count)]
