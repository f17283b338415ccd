"""Figures of a job whose circuits are patched: the circuit maps over time, and one strip of
gate counts, circuits, dark time and loss."""

from __future__ import annotations

from typing import Any

import numpy as np

from loomnet.base.errors import UsageError
from loomnet.measures.expert_rounds import CircuitMap, ExpertRounds

_BLUE, _ORANGE, _RED = "#2b6cb0", "#dd8a33", "#b83232"


def circuits_figure(experts: ExpertRounds, *, most: int = 12) -> Any:
    """Which servers circuits join over time, in the first region: its circuit maps as matrices of
    servers, `most` of them evenly spread over the job. Returns a matplotlib figure. Raises
    UsageError where no map was kept."""
    from matplotlib.figure import Figure

    kept = _kept(experts)
    if type(most) is not int or most < 1:
        raise UsageError(f"circuits_figure: most={most!r} must be a whole number above 0")
    chosen = [
        kept[i]
        for i in sorted(
            {*np.linspace(0, len(kept) - 1, min(most, len(kept))).round().astype(int).tolist()}
        )
    ]
    columns = min(len(chosen), 6)
    rows = -(-len(chosen) // columns)
    figure = Figure(figsize=(1.9 * columns + 0.9, 2.2 * rows + 0.4), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    top = max(np.max(each.circuits) for each in chosen)
    image: Any = None
    for axis, each in zip(axes, chosen, strict=False):
        circuits = np.array(each.circuits)
        image = axis.imshow(circuits, cmap="Blues", vmin=0, vmax=max(top, 1))
        for i, j in np.argwhere(circuits > 1):
            axis.text(
                j,
                i,
                str(circuits[i, j]),
                ha="center",
                va="center",
                fontsize=6,
                color="white" if circuits[i, j] > top / 2 else "black",
            )
        dark = (each.lit_ps - each.at_ps) / 1e9
        axis.set_title(
            f"{_moment(each.at_ps)}" + (f"\ndark {dark:.3g} ms" if dark else ""), fontsize=8
        )
        axis.set_xticks(range(len(circuits)))
        axis.set_yticks(range(len(circuits)))
        axis.tick_params(labelsize=6, length=0)
    for axis in axes[len(chosen) :]:
        axis.set_axis_off()
    bar = figure.colorbar(image, ax=axes.tolist(), ticks=range(int(top) + 1), shrink=0.6)
    bar.set_label("circuits of two servers")
    figure.suptitle(f"circuits between servers: {len(chosen)} of {len(kept)} maps", fontsize=10)
    return figure


def strip_figure(experts: ExpertRounds, loads: Any, *, losses: Any = (), lost: int = 0) -> Any:
    """One strip over time: tokens by expert, pairs of servers with circuits, dark time and what the
    first region waits; and the training loss, where there is one. Returns a matplotlib figure.

    Args:
        experts: of the run.
        loads: tokens of each expert by dispatch of the first region, (dispatches, experts), in
            the order of time.
        losses: (time in s, training loss), in the order of time.
        lost: packets that the panel dropped in the run, which the title says.

    Raises:
        UsageError: no map was kept, or there are fewer loads than dispatches.
    """
    from matplotlib.figure import Figure

    kept, shown = _kept(experts), np.asarray(loads, dtype=float)
    sent = [span for span in experts.spans if span.step == "dispatch" and not span.backward]
    if shown.ndim != 2 or len(shown) < len(sent) or not sent:
        raise UsageError(
            f"strip_figure: loads are of {len(shown)} dispatches, and the first "
            f"region had {len(sent)}"
        )
    shown = shown[: len(sent)]
    ends = [span.begin_ps for span in sent] + [max(span.end_ps for span in experts.spans)]
    curve = np.asarray(list(losses), dtype=float).reshape(-1, 2)
    lanes = (2, 3, 1.3, 1.5) if len(curve) else (2, 3, 1.3)
    figure = Figure(figsize=(9, sum(lanes)), layout="constrained")
    gates, pairs, dark, *more = figure.subplots(len(lanes), 1, sharex=True, height_ratios=lanes)
    mesh = gates.pcolormesh(
        np.array(ends) / 1e12,
        np.arange(shown.shape[1] + 1) - 0.5,
        (shown / shown.mean(axis=1, keepdims=True)).T,
        cmap="magma_r",
        vmin=0,
    )
    figure.colorbar(mesh, ax=gates).set_label("tokens / mean")
    gates.set_ylabel("expert")
    servers = len(kept[0].circuits)
    names = [(i, j) for i in range(servers) for j in range(i + 1, servers)]
    counts = np.array([[each.circuits[i][j] for i, j in names] for each in kept])
    edges = [each.at_ps / 1e12 for each in kept] + [ends[-1] / 1e12]
    mesh = pairs.pcolormesh(
        np.maximum.accumulate(edges),
        np.arange(len(names) + 1) - 0.5,
        counts.T,
        cmap="Blues",
        vmin=0,
    )
    figure.colorbar(mesh, ax=pairs, ticks=range(int(counts.max()) + 1)).set_label("circuits")
    step = max(len(names) // 14, 1)
    pairs.set_yticks(range(0, len(names), step), [f"{i}-{j}" for i, j in names[::step]], fontsize=6)
    pairs.set_ylabel("servers")
    for each in kept:
        if each.lit_ps > each.at_ps:
            dark.axvspan(each.at_ps / 1e12, each.lit_ps / 1e12, 0.5, 1, color=_ORANGE, linewidth=0)
    for span in experts.spans:
        if span.step == "blocked":
            dark.axvspan(span.begin_ps / 1e12, span.end_ps / 1e12, 0, 0.5, color=_RED, linewidth=0)
    dark.set_yticks([0.25, 0.75], ["waits", "dark"])
    dark.set_ylim(0, 1)
    dark.set_xlim(0, ends[-1] / 1e12)
    for axis in more:
        axis.plot(curve[:, 0], curve[:, 1], color=_BLUE, marker=".", linewidth=1)
        axis.set_ylabel("loss")
        axis.set_ylim(bottom=0)
    (more or [dark])[-1].set_xlabel("time (s)")
    shows = ["gate counts", "circuits", "dark time", *(["training loss"] if more else [])]
    figure.suptitle(
        f"{', '.join(shows[:-1])} and {shows[-1]} of one region; the panel dropped {lost} packets",
        fontsize=10,
    )
    return figure


def _kept(experts: ExpertRounds) -> list[CircuitMap]:
    if not experts.kept:
        raise UsageError("no circuit map was kept: no controller patches the first region's panel")
    return experts.kept


def _moment(at_ps: int) -> str:
    return "before" if at_ps <= 0 else f"{at_ps / 1e12:.3g} s"
