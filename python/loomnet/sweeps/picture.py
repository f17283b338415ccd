"""The picture of a sweep: one number over a varied parameter, with the spread over seeds."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from typing import Any

from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean, how_many, in_quotes
from loomnet.base.units import Rate, Size, Time, UnitError
from loomnet.results.drawing import Scale, grid, legend_below, style
from loomnet.sweeps.points import Point
from loomnet.sweeps.student_t import interval
from loomnet.sweeps.summary import OF_METRIC, Numbers, metrics_of, numbers_of, varied
from loomnet.sweeps.swept import Swept

LOG_ABOVE = 30  # of the largest value of an axis over the smallest …
LOG_TEXT = 4  # … and of sizes, times and rates, whose labels are long
NEAR = 0.3  # of the largest value: where all are above, the axis does not begin at 0
MOST_LINES = 12  # all of which differ
SHIFT = 0.06  # between the lines of one picture, in the distance of two values that are no numbers
NOTHING = "plot: no point of the sweep has ended with a number"
# Of a job whose scenario checks and records nothing, the number that says most of it.
TELLING = ("slowdown_p99", "busbw", "iteration_s", "jct_s")


def sweep_figure(made: Swept, what: str | None, over: str | None, ci: float | None = None) -> Any:
    """See Sweep.plot."""
    from loomnet.results.drawing import new_picture

    ended = [
        (point, read)
        for point in made.points
        if (read := made.results.read(point)) and read["report"]
    ]
    found = [(point, numbers_of(read)) for point, read in ended]
    known = list(dict.fromkeys(name for _, numbers in found for name in numbers))
    if not known:
        raise UsageError(NOTHING)
    if what is None:
        what = _first(ended, found)
    elif what not in known and isinstance(what, str) and what.startswith(OF_METRIC):
        # As the frame calls a metric that has the name of a parameter or of a column.
        what = what.removeprefix(OF_METRIC)
        found = [(point, metrics_of(read["report"])) for point, read in ended]
        known = list(dict.fromkeys(name for _, numbers in found for name in numbers))
    if what not in known:
        raise UsageError(f"plot: no number {in_quotes(what)}{did_you_mean(what, known)}")
    names = varied(made.points)
    over = _longest(made, names) if over is None else over
    if over != "seed" and over not in names:
        raise UsageError(
            f"plot: over={in_quotes(over)} was not varied{did_you_mean(over, [*names, 'seed'])}"
        )
    others = [name for name in names if name != over]
    lines: dict[str, dict[str, tuple[Any, list[float]]]] = {}
    unit = None
    for point, numbers in found:
        value, unit_of = numbers.get(what, (None, None))
        if value is None:
            continue
        unit = unit_of
        at = point.seed if over == "seed" else point.parameters[over]
        line = ", ".join(f"{name}={_said(point.parameters[name])}" for name in others)
        lines.setdefault(line, {}).setdefault(_said(at), (at, []))[1].append(float(value))
    if not lines:
        raise UsageError(f"plot: {what} is null at every point")
    values = list(
        dict.fromkeys(
            _said(point.seed if over == "seed" else point.parameters[over]) for point in made.points
        )
    )
    figure, (axes,) = new_picture(height=2.6)
    _draw(axes, lines, values, what, unit, over, ci)
    seeds = len({point.seed for point in made.points})
    spread = (
        ""
        if seeds < 2 or over == "seed"
        else (
            f"; median of {seeds} seeds, bars from the least to the greatest"
            if ci is None
            else f"; mean of {seeds} seeds, bars: its {100 * ci:g} % confidence interval"
        )
    )
    axes.set_title(f"{what} over {over}{spread}", fontsize=10, loc="left")
    return figure


def _first(ended: Sequence[tuple[Point, Any]], found: Sequence[tuple[Point, Numbers]]) -> str:
    """The first number that the scenario checks or records; where it does neither, the one that
    says most of its job."""
    known = list(
        dict.fromkeys(
            name
            for _, numbers in found
            for name, (value, _) in numbers.items()
            if value is not None
        )
    )
    known = known or list(found[0][1])
    if any(read["report"]["checks"] or read["recorded"] for _, read in ended):
        return known[0]
    return next(
        (name for last in TELLING for name in known if name.rpartition(".")[2] == last), known[0]
    )


def _longest(made: Swept, names: Sequence[str]) -> str:
    """The parameter with most values, of several one with an order; the seed where only that
    differs."""

    def count(name: str) -> tuple[int, bool]:
        given = [point.parameters[name] for point in made.points]
        return len({_said(at) for at in given}), _amounts(given) is not None

    return max(names, key=count, default="seed")


def _amounts(given: Sequence[Any]) -> list[float] | None:
    """What these values of a parameter are on an axis: numbers, or times, sizes or rates, all of
    one kind; None of names, which have no order."""
    if all(type(at) in (int, float) for at in given):
        return [float(at) for at in given]
    for kind in (Time, Size, Rate):
        try:
            return (
                [float(kind(at).count) for at in given if isinstance(at, str)]
                if all(isinstance(at, str) for at in given)
                else None
            )
        except UnitError:
            continue
    return None


def _said(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _draw(
    axes: Any,
    lines: dict[str, dict[str, tuple[Any, list[float]]]],
    values: Sequence[str],
    what: str,
    unit: str | None,
    over: str,
    ci: float | None,
) -> None:
    bars = {
        id(numbers): _bar(numbers, ci) for line in lines.values() for _, numbers in line.values()
    }
    every = [number for low, _, high in bars.values() for number in (low, high)]
    scale = Scale.of(max(map(abs, every)), unit or "")
    given = [at for line in lines.values() for at, _ in line.values()]
    amounts = None if over == "seed" else _amounts(given)
    place = {} if amounts is None else dict(zip(map(_said, given), amounts, strict=True))
    shown = list(lines.items())[:MOST_LINES]
    for number, (name, line) in enumerate(shown):
        places, middles, below, above = [], [], [], []
        for text in sorted(
            (value for value in values if value in line), key=lambda text: place.get(text, 0.0)
        ):
            _, numbers = line[text]
            aside = SHIFT * (number - (len(shown) - 1) / 2)
            low, middle, high = bars[id(numbers)]
            places.append(place[text] if place else values.index(text) + aside)
            middles.append(middle / scale.factor)
            below.append((middle - low) / scale.factor)
            above.append((high - middle) / scale.factor)
        # Between names nothing lies, so no line leads from one to the next.
        look = style(number) if place else style(number) | {"linestyle": "none"}
        axes.errorbar(
            places,
            middles,
            yerr=[below, above],
            capsize=3,
            linewidth=1.1,
            markersize=5 if place else 7,
            label=name or None,
            **look,
        )
    least, most = (min(place.values()), max(place.values())) if place else (0.0, 0.0)
    texts = any(isinstance(at, str) for at in given)
    if least > 0 and most >= (LOG_TEXT if texts else LOG_ABOVE) * least:
        axes.set_xscale("log")
    if place and len(place) <= 12:
        ordered = sorted(place, key=place.__getitem__)
        axes.set_xticks(
            [place[text] for text in ordered],
            ordered if texts else [f"{place[text]:g}" for text in ordered],
        )
        axes.minorticks_off()
    elif not place:
        axes.set_xticks(range(len(values)), values)
        axes.set_xlim(-0.5, len(values) - 0.5)
    axes.set_xlabel(over)
    axes.set_ylabel(f"{what} ({scale.unit})" if scale.unit else what)
    _vertical(axes, min(every), max(every), scale)
    grid(axes)
    if len(lines) > len(shown):
        left = how_many(len(lines) - len(shown), "more line")
        axes.plot([], [], linestyle="none", label=f"and {left}")
    if any(name for name, _ in shown):
        legend_below(axes)


def _bar(numbers: Sequence[float], ci: float | None) -> tuple[float, float, float]:
    """The lower end, the middle and the upper end of the bar of one point over its seeds."""
    if ci is None:
        return min(numbers), statistics.median(numbers), max(numbers)
    found = interval(numbers, ci)
    half = found.half or 0.0
    return found.mean - half, found.mean, found.mean + half


def _vertical(axes: Any, low: float, high: float, scale: Scale) -> None:
    """The vertical axis: logarithmic where values differ by far, from 0 where that leaves the bars
    of the seeds to be seen, else from below the least."""
    if low > 0 and high >= LOG_ABOVE * low:
        axes.set_yscale("log")
        axes.set_ylabel(f"{axes.get_ylabel()}, log scale")
    elif low > NEAR * high:
        room = 0.1 * (high - low or high)
        axes.set_ylim(max(low - room, 0) / scale.factor, (high + room) / scale.factor)
        axes.set_ylabel(f"{axes.get_ylabel()}, not from 0")
    elif low >= 0:
        axes.set_ylim(0, 1.12 * high / scale.factor or 1)
