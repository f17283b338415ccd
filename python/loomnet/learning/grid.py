"""Grids of bottlenecks by which policies are chosen and judged. What chooses is never what judges:
the sealed grid has none of the selection grid's rates, round trips, buffers."""

from __future__ import annotations

import itertools
import math
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from numbers import Integral, Real
from typing import Any

import numpy as np

from loomnet.base.errors import UsageError
from loomnet.learning.bottleneck import MTU, Bottleneck, Flow
from loomnet.learning.by_function import Decide, measured_by
from loomnet.learning.measured import control_of, measured
from loomnet.learning.scores import Scores
from loomnet.processes.rank_isolation import die_with_parent

LENGTH_S = 30.0
JOINING = 0.3  # of the length, in which flows come one after the other
LEAVING = 2 / 3  # of the length: then the first flow goes
LEAST_WINDOW = 4  # packets
CHANGE_S = 3.0
FACTORS = (0.5, 1.4, 0.8, 2.0, 1.0, 0.6, 1.7, 1.2, 0.7)  # of a changing link's rate
SUBSET = 5  # of so many points of the selection grid one is looked at while a policy is trained


@dataclass(frozen=True)
class Ranges:
    """What a policy is trained for, least and most of each."""

    rate_mbps: tuple[float, float] = (10, 400)
    rtt_ms: tuple[float, float] = (5, 200)
    buffer: tuple[float, float] = (0.2, 8)
    flows: tuple[int, int] = (1, 10)

    def holds(self, point: Point) -> bool:
        """Whether a point lies within, its rates after changes too."""
        rates = [point.rate_mbps * each for each in (FACTORS if point.changing else (1,))]
        return all(
            least <= value <= most
            for value, (least, most) in (
                *((rate, self.rate_mbps) for rate in rates),
                (point.rtt_ms, self.rtt_ms),
                (point.buffer, self.buffer),
                (point.flows, self.flows),
            )
        )


@dataclass(frozen=True)
class Point:
    """A link that flows share for 30 s. They come one after the other within the first 9 s, and the
    first of them goes after 20 s.

    Attributes:
        rate_mbps: megabits per second.
        rtt_ms: round trip without a queue, milliseconds.
        buffer: bandwidth-delay products.
        changing: whether the rate changes every 3 s, to half to twice of `rate_mbps`.
    """

    rate_mbps: float
    rtt_ms: float
    buffer: float
    flows: int
    changing: bool = False

    def __post_init__(self) -> None:
        for name in ("rate_mbps", "rtt_ms", "buffer"):
            value = getattr(self, name)
            if not (isinstance(value, Real) and 0 < float(value) < math.inf):
                raise UsageError(f"Point.{name}: {value!r} is not a number above 0")
        if not isinstance(self.flows, Integral) or self.flows < 1:
            raise UsageError(f"Point.flows: {self.flows!r} is not a whole number above 0")

    def __str__(self) -> str:
        return (
            f"{self.rate_mbps:g}Mbps-{self.rtt_ms:g}ms-{self.buffer:g}bdp-{self.flows}flows"
            f"{'-changing' if self.changing else ''}"
        )

    @property
    def counts(self) -> bool:
        """Whether flows at their least windows fit on the path and in the queue: else no control
        could do well, and the point is reported without a part in the mean."""
        path = self.rate_mbps * 1e6 / 8 * self.rtt_ms / 1e3 / MTU
        return self.flows * LEAST_WINDOW <= path * (1 + self.buffer)

    def bottleneck(self) -> Bottleneck:
        apart = JOINING * LENGTH_S / self.flows
        starts = [math.floor(2 * apart * number) / 2 for number in range(self.flows)]
        ends = f"{LEAVING * LENGTH_S:g} s" if self.flows > 1 else None
        changes = (
            [
                (f"{CHANGE_S * (k + 1):g} s", f"{self.rate_mbps * factor:g} Mb/s")
                for k, factor in enumerate(FACTORS)
            ]
            if self.changing
            else []
        )
        return Bottleneck(
            rate=f"{self.rate_mbps:g} Mb/s",
            rtt=f"{self.rtt_ms:g} ms",
            buffer=self.buffer,
            flows=[
                Flow(f"{start:g} s", ends if number == 0 else None)
                for number, start in enumerate(starts)
            ],
            length=f"{LENGTH_S:g} s",
            changes=changes,
        )


def _grid(*axes: Sequence[float]) -> Iterator[Point]:
    for rate, rtt, buffer, flows in itertools.product(*axes):
        yield Point(rate, rtt, buffer, int(flows))


def selection_grid() -> list[Point]:
    """The 180 points that stop a training and choose its policy."""
    rates = (20, 50, 100, 200, 400)
    return list(_grid(rates, (10, 30, 100), (0.5, 1, 4), (2, 3, 5, 10)))


def subset(points: Sequence[Point], one_of: int = SUBSET) -> list[Point]:
    """One of five points of the selection grid: each round trip, buffer and number of flows once in
    each combination, the rates in turn."""
    kept, rates = [], sorted({each.rate_mbps for each in points})
    others: dict[tuple[float, float, int], int] = {}
    for each in points:
        key = (each.rtt_ms, each.buffer, each.flows)
        number = others.setdefault(key, len(others))
        if rates.index(each.rate_mbps) % one_of == (number * 2 + number // one_of) % one_of:
            kept.append(each)
    return kept


def sealed_grid() -> list[Point]:
    """400 points off the selection grid, and 25 links whose rate changes: by these a chosen policy
    is judged once."""
    rates, rtts = (33, 75, 150, 300, 800), (7, 17, 55, 140, 250)
    still = _grid(rates, rtts, (0.3, 0.8, 2.5, 8), (1, 4, 7, 20))
    return [*still, *(Point(rate, rtt, 0.8, 4, changing=True) for rate in rates for rtt in rtts)]


Found = dict[Point, Scores]
Scored = str | Mapping[str, Any] | bytes | Decide
_policies: dict[bytes, Any] = {}  # of this process
_asked: list[Any] = []  # control and options that this process scores


def score(
    points: Sequence[Point],
    control: Scored,
    options: Mapping[str, Any] | None = None,
    jobs: int = 1,
) -> Iterator[tuple[Point, Scores]]:
    """Scores of a control at each point, as they come.

    Args:
        control: its name, as a job's `cc=`, or such a mapping; "teacher" for Astraea's rule; the
            bytes of a policy; or a function that decides, as measured_by() takes it.
        options: of Astraea's control, where it is a policy, the teacher or a function.
        jobs: processes. They are forked: a function need not be one that can be pickled.
    """
    given = dict(options or {})
    if jobs == 1 or len(points) < 2:
        for each in points:
            yield each, _score_one(each, control, given)
        return
    with ProcessPoolExecutor(
        min(jobs, len(points)),
        mp_context=get_context("fork"),
        initializer=_begin,
        initargs=(os.getpid(), control, given),
    ) as pool:
        # Points of many packets first, so that no process is left with one at the end.
        order = sorted(points, key=lambda each: -each.rate_mbps)
        waiting = {pool.submit(_score_asked, each): each for each in order}
        try:
            for each in as_completed(waiting):
                yield waiting[each], each.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _begin(parent: int, control: Scored, options: dict[str, Any]) -> None:
    """In a process that scores: the one that asks for scores hears Ctrl-C for all. Where that one
    is killed, this one ends too: else it would wait for points for ever, and hold the lock that it
    has inherited."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if not die_with_parent(signal.SIGKILL, parent):
        os._exit(1)
    if (torch := sys.modules.get("torch")) is not None:
        # The threads of PyTorch's pool are not there after a fork, and it would wait for them.
        torch.set_num_threads(1)
    _asked[:] = [control, options]


def _score_asked(point: Point) -> Scores:
    return _score_one(point, *_asked)


def _score_one(point: Point, control: Scored, options: dict[str, Any]) -> Scores:
    cc: Any = control
    if callable(control):
        return measured_by(point.bottleneck(), control, options)
    if isinstance(control, bytes):
        import loomnet._core as _core

        if control not in _policies:
            _policies.clear()
            _policies[control] = _core.astraea.Policy.from_bytes(control)
        cc = control_of(_policies[control], options)
    elif control == "teacher":
        cc = {"cc": "astraea", "policy": "teacher", **options}
    return measured(point.bottleneck(), cc)


def mean_score(found: Found) -> float:
    """Over the points that count."""
    return float(np.mean([each.score for point, each in found.items() if point.counts]))


def summary(found: Found) -> dict[str, float | None]:
    """Means of all scores over the points that count, with the least contested Jain."""
    rows = [each.row() for point, each in found.items() if point.counts]
    means: dict[str, float | None] = {}
    for name in rows[0]:
        values = [value for row in rows if (value := row[name]) is not None]
        means[name] = float(np.mean(values)) if values else None
    means["least_contested_jain"] = min(float(row["contested_jain"] or 0) for row in rows)
    return means
