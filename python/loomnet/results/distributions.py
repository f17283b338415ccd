"""How a quantity is distributed: completion times of flows, latencies of operations, iterations,
queues, as cumulative distributions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean, how_many, in_quotes
from loomnet.measures.columns import as_rows
from loomnet.results.drawing import Scale, Size, grid, line_style, new_picture
from loomnet.results.drawn import Drawn
from loomnet.results.plots import by_job

LOG_ABOVE = 30  # of the largest value over the smallest
SHARES = (0.5, 0.99)  # that the legend tells
NEAR = 0.3  # of the largest value: where all are above, an axis does not begin at 0
LINE_HEIGHT = 0.172  # inches, of a legend


def _fct(result: Drawn) -> list[float]:
    return [
        flow.completion_ps / 1e12 for flow in result.flow_records if flow.completion_ps is not None
    ]


def _slowdown(result: Drawn) -> list[float]:
    return [
        flow.completion_ps / max(flow.ideal_ps, 1)
        for flow in result.flow_records
        if flow.completion_ps is not None
    ]


def _latency(result: Drawn) -> list[float]:
    return [
        (end - begin) / 1e12
        for host in result.data.hosts.values()
        for begin, end, _ in as_rows(host.work)
    ]


def _iteration(result: Drawn) -> list[float]:
    return [each.length_ps / 1e12 for each in result.data.iterations]


def _queue(result: Drawn) -> list[float]:
    samples = result.data.samples
    return (
        []
        if samples is None
        else [float(size) for looks in samples.queues.values() for size in looks[:, 1].tolist()]
    )


# Name -> (what the axis says, unit, values of a result, what a run needs to have them).
OF: dict[str, tuple[str, str, Callable[[Drawn], list[float]], str]] = {
    "fct": ("flow completion time", "s", _fct, "a job of flows, of which one has ended"),
    "slowdown": (
        "slowdown against an empty fabric",
        "ratio",
        _slowdown,
        "a job of flows, of which one has ended",
    ),
    "latency": (
        "latency of an operation at a host",
        "s",
        _latency,
        "a finished operation: a collective or a message",
    ),
    "iteration_s": ("iteration time", "s", _iteration, "a finished iteration"),
    "queue": (
        "bytes waiting in a port, at each sample",
        "B",
        _queue,
        'lab.run(…, sample="10 us", links=["p0.leaf0->*"])',
    ),
}


def distribution_figure(
    results: Mapping[str, Drawn], of: str = "fct", *, size: Size | None = None
) -> Any:
    """Cumulative distributions of "fct" (flow completion times), "slowdown", "latency" (of each
    host's operations: a collective or a message), "iteration_s" or "queue", a line per job of each
    run. `size`: width and height in inches, as (9, 3.8). Raises UsageError where no run has any."""
    runs = by_job(results)
    figure, (axes,) = new_picture(height=LINE_HEIGHT * len(runs) + 2.6, size=size)
    draw_distribution(axes, runs, of)
    return figure


def draw_distribution(axes: Any, results: Mapping[str, Drawn], of: str) -> None:
    """On axes of a picture, with a legend above them, where no curve is."""
    if of not in OF:
        raise UsageError(f"no distribution of {in_quotes(of)}{did_you_mean(of, OF)}")
    name, unit, read, need = OF[of]
    found = {
        label or result.transport or "job": sorted(read(result))
        for label, result in results.items()
    }
    found = {label: values for label, values in found.items() if values}
    if not found:
        raise UsageError(f"no distribution of {of}: it needs {need}")
    every = [value for values in found.values() for value in values]
    least, most = min(every), max(every)
    log = least > 0 and most > LOG_ABOVE * least
    scale = Scale(unit, 1.0) if log else Scale.of(most, unit)
    places = {
        label or result.transport or "job": number  # a job is drawn alike in all panels
        for number, (label, result) in enumerate(results.items())
    }
    for label, values in found.items():
        axes.ecdf(
            scale(values),
            linewidth=1.4,
            label=_told(label, values, unit),
            **line_style(places[label]),
        )
    if log:
        from matplotlib.ticker import EngFormatter

        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(EngFormatter(unit="" if unit == "ratio" else unit))
        axes.set_xlabel(f"{name} (log scale)")
    else:
        begin = 1.0 if of == "slowdown" and least >= 1 else _begin(least, most)
        axes.set_xlim(begin / scale.factor, 1.03 * most / scale.factor or 1)
        aside = "; the axis does not begin at 0" if begin and of != "slowdown" else ""
        axes.set_xlabel((f"{name} ({scale.unit})" if unit != "ratio" else name) + aside)
    axes.set_ylim(0, 1.02)
    axes.set_ylabel("cumulative share")
    axes.set_title(
        f"Distribution: {name}", fontsize=10, loc="left", pad=12 + 72 * LINE_HEIGHT * len(found)
    )
    grid(axes)
    axes.legend(
        fontsize=8, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.3, frameon=False
    )


def _begin(least: float, most: float) -> float:
    """Where an axis begins: at 0, unless that left much of it empty."""
    return 0.0 if least < NEAR * most else max(least - 0.1 * (most - least or most), 0.0)


def _told(label: str, values: list[float], unit: str) -> str:
    """With how many there are, and the shares that papers tell."""
    from loomnet.measures.flow_completion import percentile

    def text(value: float) -> str:
        scale = Scale.of(value, unit)
        return f"{value / scale.factor:.3g}" + ("" if unit == "ratio" else f" {scale.unit}")

    told = ", ".join(f"p{100 * share:g} {text(percentile(values, share))}" for share in SHARES)
    return f"{label}: {how_many(len(values), 'value')}, {told}"
