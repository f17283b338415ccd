"""The time that a picture shows. Where all that happened lies in a small part of it, as beside a
timeout of seconds, the quiet stretches between are drawn narrow: the axis is broken there."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from loomnet.base.notebook import since_text
from loomnet.base.units import Time
from loomnet.results.drawing import STALL, UNDISTURBED, Scale
from loomnet.results.drawn import Drawn

# Of a run longer than LONGEST_RATIO times the shortest beside it only the beginning is shown, so
# long as CUT_RATIO times the shortest.
LONGEST_RATIO, CUT_RATIO = 4, 1.5
EDGE = 0.01  # of an axis behind what it shows, so that its last point is whole
# An axis is broken where its quiet stretches, MOST_GAPS at most, take QUIET_SHARE of the time or
# more. Each is drawn as wide as GAP_SHARE of the rest.
QUIET_SHARE, MOST_GAPS, GAP_SHARE = 0.8, 4, 0.06


@dataclass(frozen=True)
class TimeSpan:
    """Seconds from `begin`, which is 0 or, of a job that began before the first, below, to `until`,
    without the quiet stretches `gaps` in the midst. `since`: what time 0 is, where that must be
    said."""

    until: float
    gaps: tuple[tuple[float, float], ...] = ()
    begin: float = 0.0
    since: str = ""

    @property
    def shown(self) -> float:
        """Seconds that are drawn at full width."""
        return self.until - self.begin - self.quiet

    @property
    def quiet(self) -> float:
        return sum(end - begin for begin, end in self.gaps)

    def on_paper(self, factor: float = 1.0) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
        """Functions from time in units of `factor` seconds to where it is drawn, and back."""
        import numpy as np

        width = GAP_SHARE * self.shown
        times, places = [0.0], [0.0]
        for begin, end in self.gaps:
            places += [places[-1] + begin - times[-1], places[-1] + begin - times[-1] + width]
            times += [begin, end]
        there, back = np.array(times) / factor, np.array(places) / factor

        def along(values: Any, xs: Any, ys: Any) -> Any:
            # Outside of the nodes a second is as wide as between gaps.
            values = np.asarray(values, dtype=float)
            inner = np.interp(values, xs, ys)
            inner = np.where(values > xs[-1], ys[-1] + values - xs[-1], inner)
            return np.where(values < xs[0], ys[0] + values - xs[0], inner)

        return (
            lambda values: along(values, there, back),
            lambda values: along(values, back, there),
        )

    @classmethod
    def of(cls, results: Mapping[str, Drawn], until: Time | str | None = None) -> TimeSpan:
        """What a picture of these runs shows: all that happened, but of a run that goes on for far
        longer than another the beginning. `until`: so long, without a break."""
        begin, since = _begin(results), clock_of(results)
        if until is not None:
            return cls(Time(until).seconds, (), begin, since)
        by_run: dict[int, float] = {}  # jobs of one run end when they end
        for result in results.values():
            end, run = max(result.data.end_ps, 1) / 1e12, id(result.plan)
            by_run[run] = max(by_run.get(run, end), end)
        ends = list(by_run.values()) or [1e-12]
        whole = cls(max(ends), quiet_gaps(results.values(), max(ends)), begin, since)
        place, time_at = whole.on_paper()
        places = [float(place(end)) - begin for end in ends]
        if max(places) > LONGEST_RATIO * min(places):
            end = float(time_at(begin + CUT_RATIO * min(places)))
            return replace(whole, until=end, gaps=tuple(gap for gap in whole.gaps if gap[1] < end))
        return replace(whole, until=whole.until + EDGE * whole.shown)


def clock_of(results: Mapping[str, Drawn]) -> str:
    """What an axis says of its time 0, where a run had several jobs."""
    first = {result.first_job for result in results.values()}
    return since_text(next(iter(first))) if len(first) == 1 else " since each run's first job began"


def _begin(results: Mapping[str, Drawn]) -> float:
    moments = [
        at
        for result in results.values()
        for at in (
            *(each.start_ps for each in result.data.iterations[:1]),
            *(host.begin_ps for host in result.data.hosts.values()),
        )
    ]
    return min([0, *moments]) / 1e12


def quiet_gaps(results: Iterable[Drawn], end: float) -> tuple[tuple[float, float], ...]:
    """Stretches of seconds in which no payload came, no iteration ended and no fault began or
    ended, in any of the runs; none where they leave more than a fifth of the time."""
    import numpy as np

    busy: list[Any] = [np.array([[0.0, 0.0], [end, end]])]
    usual = 0.0  # an iteration that computes is quiet, too; flows have no rhythm
    for result in results:
        data = result.data
        moments = [
            at
            for phase in result.phases
            if phase.name not in UNDISTURBED
            for at in (phase.start_ps, phase.end_ps)
        ]
        moments += [at for each in data.iterations for at in (each.start_ps, each.end_ps)]
        moments.append(data.end_ps)
        at = np.clip(np.array(moments, dtype=float) / 1e12, 0, end)
        busy.append(np.stack([at, at], axis=1))
        for host in data.hosts.values():
            bins = np.flatnonzero(np.asarray(host.payload)) * (host.bin_ps / 1e12)
            bins = bins + host.begin_ps / 1e12
            busy.append(np.stack([bins, bins + host.bin_ps / 1e12], axis=1))
        if data.iterations and not len(data.flows):
            usual = max(usual, statistics.median(i.length_ps for i in data.iterations) / 1e12)
    spans = np.concatenate(busy)
    spans = spans[np.argsort(spans[:, 0])]
    ended = np.maximum.accumulate(spans[:, 1])[:-1]
    lengths = spans[1:, 0] - ended
    found = [int(i) for i in np.argsort(-lengths)[:MOST_GAPS] if lengths[i] > STALL * usual]
    rest = end - float(lengths[found].sum())
    found = sorted(i for i in found if lengths[i] > rest / 2)  # a shorter one is seen at full width
    if not found or lengths[found].sum() < QUIET_SHARE * end:
        return ()
    return tuple((float(ended[i]), float(spans[i + 1, 0])) for i in found)


def time_axis(axes: Any, span: TimeSpan) -> Scale:
    """Labels the horizontal axis with emulated time and, where it is broken, marks and says it; the
    axis's scale."""
    scale = Scale.of(span.shown, "s")
    axes.set_xlabel(f"emulated time{span.since} ({scale.unit})")
    if span.gaps:
        _break(axes, span, scale)
    axes.set_xlim(span.begin / scale.factor, span.until / scale.factor)
    return scale


def _break(axes: Any, span: TimeSpan, scale: Scale) -> None:
    from matplotlib.ticker import FixedFormatter, FixedLocator

    axes.set_xscale("function", functions=span.on_paper(scale.factor))
    places, labels = _ticks(span, scale)
    axes.set_xlabel(
        f"emulated time{span.since} ({scale.unit}); the axis is broken: "
        f"{short_time(span.quiet)} in which nothing moved are drawn narrow"
    )
    axes.xaxis.set_major_locator(FixedLocator(places))
    axes.xaxis.set_major_formatter(FixedFormatter(labels))
    for begin, end in (scale(gap) for gap in span.gaps):
        axes.axvspan(
            begin,
            end,
            facecolor="white",
            edgecolor="#999999",
            hatch="////",
            linewidth=0,
            zorder=0.6,
        )
        for edge in (begin, end):
            axes.plot(
                [edge] * 2,
                [0, 1],
                transform=axes.get_xaxis_transform(),
                linestyle="none",
                marker=[(-1, -2), (1, 2)],
                markersize=9,
                color="black",
                clip_on=False,
                markeredgewidth=1,
            )
        place, time_at = span.on_paper(scale.factor)
        middle = float(time_at((place(begin) + place(end)) / 2))
        axes.text(
            middle,
            0.5,
            short_time((end - begin) * scale.factor),
            rotation=90,
            fontsize=7.5,
            transform=axes.get_xaxis_transform(),
            ha="center",
            va="center",
            zorder=0.7,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0},
        )


def _ticks(span: TimeSpan, scale: Scale) -> tuple[list[float], list[str]]:
    """Places in the axis's units, and their labels: of one unit before and behind a break."""
    from matplotlib.ticker import MaxNLocator

    edges = [span.begin, *(edge for gap in span.gaps for edge in gap), span.until]
    places: list[float] = []
    labels: list[str] = []
    for number, (begin, end) in enumerate(zip(edges[::2], edges[1::2], strict=True)):
        share = (end - begin) / span.shown
        if share < 0.04:  # no room
            continue
        bins = max(round(7 * share), 1)
        # Right behind a break a number would run into the one before it.
        least = begin if number == 0 else begin + 0.03 * span.shown
        found = [
            at
            for at in MaxNLocator(bins, min_n_ticks=1, steps=[1, 2, 5, 10]).tick_values(
                begin / scale.factor, end / scale.factor
            )
            if least <= at * scale.factor <= end
        ]
        places += found
        step = found[1] - found[0] if len(found) > 1 else (end - begin) / scale.factor
        digits = max(0, math.ceil(-math.log10(step) - 1e-9))  # that tell one from the next
        labels += [f"{at:g}" if number == 0 else f"{at:,.{digits}f}" for at in found]
    return places, labels


def short_time(value: float) -> str:
    scale = Scale.of(value, "s")
    return f"{value / scale.factor:.3g} {scale.unit}"
