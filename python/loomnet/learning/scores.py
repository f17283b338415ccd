"""How well flows share a link, from what each sends in steps of time: Jain's index, convergence,
use of the link, round trips, loss, and one score of them all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np

STEP_S = 0.05  # of a Series
BIN = 10  # steps of a bin, 0.5 s, and of the window in which convergence is looked for
STAYS_S = 5.0  # so long a flow that has converged stays near its share
BANDS = (0.1, 0.25, 0.5)  # how near


@dataclass(frozen=True)
class Series:
    """What flows have done in steps of STEP_S. Rows are steps, columns flows.

    Attributes:
        share: float64; what left the bottleneck for each flow, in what the link carries at most.
        there: bool; whether the flow was to send for all of the step.
        stretch: float64; round trips in the least that the flow's path allows, NaN: not known.
        arrived, dropped: packets at the bottleneck's queue, and those that found it full.
    """

    share: np.ndarray
    there: np.ndarray
    stretch: np.ndarray
    arrived: int
    dropped: int


class Settling(NamedTuple):
    """After a flow has come or gone: seconds until all flows stay near their shares, and until the
    flow that came does (NaN where none came); `None` where they do not while nothing else changes,
    which takes `lasts` seconds. `flows`: how many are there."""

    all: float | None
    entering: float | None
    lasts: float
    flows: int


@dataclass(frozen=True)
class Scores:
    """Of one run.

    Attributes:
        contested_jain: mean of Jain's index over bins of 0.5 s with two flows or more; 1 where
            there is none.
        steady_jain: Jain's index of the means of flows in the second half of each time in which no
            flow comes or goes, averaged; 1 where never two flows are there.
        utilisation: mean over bins of what the link carries, in what it can carry.
        stretch: mean over bins and flows of round trips, in the least that their paths allow.
        loss: packets that found the queue full, of those that arrived at it.
        deviation: standard deviation of a flow's bins in those second halves, in the link's rate.
        least_to_most: mean over bins with two flows or more of the least share over the largest.
        converged_s: mean time until all flows stay within 25 % of their shares for 5 s after a flow
            has come or gone, of the times that end; None where none does.
        unsettled: share of those times that do not end.
        score: utilisation x contested_jain - 0.1 (stretch - 1) - 10 loss.
    """

    contested_jain: float
    steady_jain: float
    utilisation: float
    stretch: float
    loss: float
    deviation: float
    least_to_most: float
    converged_s: float | None
    unsettled: float

    @property
    def score(self) -> float:
        return self.utilisation * self.contested_jain - 0.1 * (self.stretch - 1) - 10 * self.loss

    def row(self) -> dict[str, float | None]:
        """All of them by name, the score first."""
        return {"score": self.score, **asdict(self)}


def jain(shares: np.ndarray) -> float:
    """Jain's index of fairness: 1 where all are equal, 1/n where one flow has all. Of flows that
    all have nothing it is 1."""
    square = float((shares**2).sum())
    return 1.0 if square == 0 else float(shares.sum()) ** 2 / (len(shares) * square)


def scores(series: Series) -> Scores:
    """Raises ValueError for a series shorter than a bin."""
    steps = len(series.share) // BIN * BIN
    if not steps:
        raise ValueError(f"scores: {len(series.share)} steps, and a bin has {BIN}")
    bins = series.share[:steps].reshape(-1, BIN, series.share.shape[1])
    there = np.array(series.there[:steps].reshape(bins.shape).all(1))
    mean = bins.mean(1)
    contested = [row[flows] for row, flows in zip(mean, there, strict=True) if flows.sum() > 1]
    steady, deviations = [], []
    for begin, end in segments(series.there):
        flows = series.there[begin]
        half = series.share[(begin + end) // 2 : end, flows]
        if flows.sum() > 1 and len(half):
            steady.append(jain(half.mean(0)))
        if len(half) >= 2 * BIN:
            whole = half[: len(half) // BIN * BIN].reshape(-1, BIN, half.shape[1])
            deviations.extend(whole.mean(1).std(0).tolist())
    settled = [each for each in settlings(series) if each.lasts >= STAYS_S]
    times = [each.all for each in settled if each.all is not None]
    known = np.isfinite(series.stretch)
    return Scores(
        contested_jain=_mean([jain(row) for row in contested], 1.0),
        steady_jain=_mean(steady, 1.0),
        utilisation=float(mean.sum(1).mean()),
        stretch=float(series.stretch[known].mean()) if known.any() else 1.0,
        loss=series.dropped / max(series.arrived, 1),
        deviation=_mean(deviations, 0.0),
        least_to_most=_mean([_least_to_most(row) for row in contested], 1.0),
        converged_s=float(np.mean(times)) if times else None,
        unsettled=1 - len(times) / len(settled) if settled else 0.0,
    )


def segments(there: np.ndarray) -> Iterator[tuple[int, int]]:
    """Steps from one to before the other in which the same flows are there, one or more."""
    changes = (there[1:] != there[:-1]).any(1).nonzero()[0] + 1
    for begin, end in zip([0, *changes], [*changes, len(there)], strict=True):
        if there[begin].any():
            yield int(begin), int(end)


def settlings(series: Series, band: float = 0.25) -> list[Settling]:
    """Of each time in which no flow comes or goes: when windows of 0.5 s are within `band` of an
    equal share for 5 s. A time shorter than that tells nothing: see `lasts`."""
    found, before = [], np.zeros(series.there.shape[1], bool)
    for begin, end in segments(series.there):
        flows = series.there[begin]
        windows = np.lib.stride_tricks.sliding_window_view(
            np.vstack([series.share[begin:end], np.full((BIN - 1, len(flows)), np.nan)]), BIN, 0
        ).mean(-1)[: max(end - begin - BIN + 1, 0)]
        near = np.abs(windows * flows.sum() - 1) <= band
        came = flows & ~before
        found.append(
            Settling(
                _since(near[:, flows].all(1)),
                _since(near[:, came].all(1)) if came.any() else float("nan"),
                (end - begin) * STEP_S,
                int(flows.sum()),
            )
        )
        before = flows
    return found


def _since(near: np.ndarray) -> float | None:
    """Seconds to the first window from which on all windows of STAYS_S are near."""
    needed = round(STAYS_S / STEP_S) - BIN + 1
    run = 0
    for place, each in enumerate(near.tolist()):
        run = run + 1 if each else 0
        if run == needed:
            return round((place + 1 - needed) * STEP_S, 3)
    return None


def _least_to_most(shares: np.ndarray) -> float:
    return float(shares.min() / shares.max()) if shares.max() > 0 else 1.0


def _mean(values: list[float], otherwise: float) -> float:
    return float(np.mean(values)) if values else otherwise
