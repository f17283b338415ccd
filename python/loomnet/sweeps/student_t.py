"""The mean of a few values with its confidence interval, by Student's t."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from loomnet.base.errors import UsageError
from loomnet.base.names import quoted

_LARGEST_T = 1e12  # of one degree of freedom, at a confidence of 1 - 1e-12


@dataclass(frozen=True)
class Interval:
    """The mean of values and half the width of its confidence interval; None of one value, whose
    spread is not known."""

    mean: float
    half: float | None


def check_confidence(where: str, given: Any) -> float:
    """A confidence, 0.95 for 95 %. Raises UsageError for any other value."""
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 < given < 1:
        hint = (
            f"; {given} % is {given / 100:g}"
            if isinstance(given, (int, float)) and 1 < given < 100
            else ""
        )
        raise UsageError(f"{where}={quoted(given)} must be a share between 0 and 1{hint}")
    return float(given)


def interval(values: Sequence[float], confidence: float) -> Interval:
    """Of independent values: mean ± t s / √n, with the sample's standard deviation s."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Interval(mean, None)
    spread = statistics.stdev(values) / math.sqrt(len(values))
    return Interval(mean, t_quantile(confidence, len(values) - 1) * spread)


@cache
def t_quantile(confidence: float, freedom: int) -> float:
    """The t that |T| stays below with this probability; `freedom`: degrees of freedom, 1 and more.
    The distribution is summed (Abramowitz and Stegun, 26.7.3 and 26.7.4), and t is found by
    halving."""
    low, high = 0.0, 1.0
    while _within(high, freedom) < confidence and high < _LARGEST_T:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < confidence else (low, middle)
    return (low + high) / 2


def _within(t: float, freedom: int) -> float:
    """The probability of |T| <= t."""
    angle = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = term if freedom > 1 else 0.0
    for each in range(2 if odd else 1, freedom - 2, 2):
        term *= cosine * cosine * each / (each + 1)
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
