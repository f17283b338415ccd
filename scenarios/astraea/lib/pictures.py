"""Pictures as the publication draws them: throughput over time, efficiency against delay. Each
function returns a matplotlib figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from loomnet.learning.scores import BIN, STEP_S

from .rig import Played

_COLOURS = ("#2b6cb0", "#b83232", "#4c8c4a", "#dd8a33", "#7b5ea7", "#8c6d4a")


def over_time(runs: Mapping[str, Played]) -> Any:
    """Throughput of each flow in bins of 0.5 s, a panel for each scheme."""
    from matplotlib.figure import Figure

    columns = min(len(runs), 3)
    rows = -(-len(runs) // columns)
    figure = Figure(figsize=(3.4 * columns + 0.6, 1.9 * rows + 0.6), layout="constrained")
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for panel, (name, played) in zip(grid.flat, runs.items(), strict=False):
        bins = len(played.rates) // BIN
        mean = played.rates[: bins * BIN].reshape(bins, BIN, -1).mean(1) / 1e6
        at = (np.arange(bins) + 0.5) * BIN * STEP_S
        for flow in range(mean.shape[1]):
            sends = played.series.there[: bins * BIN : BIN, flow]
            panel.plot(
                at,
                np.where(sends, mean[:, flow], np.nan),
                linewidth=1,
                color=_COLOURS[flow % len(_COLOURS)],
            )
        panel.set_title(name, fontsize=9)
        panel.grid(alpha=0.25)
    for panel in list(grid.flat)[len(runs) :]:
        panel.set_visible(False)
    figure.supxlabel("seconds", fontsize=9)
    figure.supylabel("Mb/s of payload", fontsize=9)
    return figure


def efficiency(runs: Mapping[str, Sequence[Played]]) -> Any:
    """Use of the link against round trips over their least, a point for each scheme with the spread
    of its draws."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.6), layout="constrained")
    axes = figure.subplots()
    for number, (name, played) in enumerate(runs.items()):
        x = np.array([each.scores.stretch for each in played])
        y = np.array([each.scores.utilisation for each in played])
        axes.errorbar(
            x.mean(),
            y.mean(),
            xerr=[[x.mean() - x.min()], [x.max() - x.mean()]],
            yerr=[[y.mean() - y.min()], [y.max() - y.mean()]],
            fmt="o",
            color=_COLOURS[number % len(_COLOURS)],
            markersize=5,
        )
        axes.annotate(name, (x.mean(), y.mean()), xytext=(5, 4), textcoords="offset points")
    axes.invert_xaxis()
    axes.set_xlabel("round trips, over the least that the path allows")
    axes.set_ylabel("use of the link")
    axes.grid(alpha=0.25)
    return figure


def cumulative(samples: Mapping[str, Sequence[float]], what: str) -> Any:
    """Share of values up to each, a line for each name."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.4), layout="constrained")
    axes = figure.subplots()
    for number, (name, values) in enumerate(samples.items()):
        ordered = np.sort(np.asarray(values, float))
        axes.step(
            ordered,
            np.arange(1, len(ordered) + 1) / len(ordered),
            where="post",
            label=name,
            color=_COLOURS[number % len(_COLOURS)],
            linestyle=("-", "--", ":")[number // len(_COLOURS) % 3],
            linewidth=1.2,
        )
    axes.set_xlabel(what)
    axes.set_ylabel("share of runs")
    axes.legend(fontsize=8)
    axes.grid(alpha=0.25)
    return figure
