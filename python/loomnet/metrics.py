"""Rows of a report: metrics, checks, and the judgement whether a figure stands against the
engine's lateness."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from loomnet.errors import UsageError
from loomnet.shown import number_text

Number = int | float
RATE_WINDOWS, TIME_MULTIPLE = 100, 20  # of the p99 lateness


@dataclass(frozen=True)
class Metric:
    """One row. `value` None has a `reason`. `stands` is false for a figure below the resolution of
    the run that measured it."""

    name: str
    value: Number | None
    unit: str | None = None
    label: str | None = None
    phase: str | None = None
    published: Number | None = None
    reason: str | None = None
    stands: bool = True

    @property
    def dotted(self) -> str:
        """`<label>.<phase>.<name>`, without the parts there are not."""
        return ".".join(part for part in (self.label, self.phase, self.name) if part)

    def row(self) -> dict[str, Any]:
        labels = {
            key: value for key, value in (("label", self.label), ("phase", self.phase)) if value
        }
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "labels": labels,
            "published": self.published,
            "reason": self.reason,
            "below_resolution": not self.stands,
        }


class Measured(float):
    """A figure read from a result: a float that still knows its metric, so that a check on a figure
    that does not stand is seen."""

    metric: Metric

    def __new__(cls, metric: Metric) -> Measured:
        made = super().__new__(cls, metric.value)  # type: ignore[arg-type]
        made.metric = metric
        return made


def metric(
    name: str,
    value: Any,
    *,
    unit: str | None = None,
    published: Number | None = None,
    reason: str | None = None,
    label: str | None = None,
    phase: str | None = None,
    stands: bool = True,
) -> Metric:
    """A row from any number; NaN, infinity and None become null with a reason."""
    if isinstance(value, Measured):
        stands = stands and value.metric.stands
    if value is None:
        return Metric(name, None, unit, label, phase, published, reason or "not measured", stands)
    number = _number(value, f"metric {name}")
    if not math.isfinite(number):
        return Metric(
            name, None, unit, label, phase, published, f"not a finite number ({value})", stands
        )
    return Metric(name, number, unit, label, phase, published, reason, stands)


def _number(value: Any, what: str) -> Number:
    if isinstance(value, (bool, int)):
        return int(value)
    try:
        return float(value)
    except (TypeError, ValueError):
        raise UsageError(f"{what}: {value!r} is not a number") from None


def stands(
    value: Number | None, unit: str | None, span_ps: int | None, lateness_p99_ps: int | None
) -> bool:
    """Whether a rate was taken over 100 x p99 lateness or more, and a time is 20 x p99 or more.
    Counts always stand here: conservation judges them."""
    if not lateness_p99_ps or value is None:
        return True
    if span_ps is not None:
        return span_ps >= RATE_WINDOWS * lateness_p99_ps
    if unit == "s":
        return value * 1e12 >= TIME_MULTIPLE * lateness_p99_ps
    return True


@dataclass(frozen=True)
class Check:
    """One bound on one value. Null and NaN fail. `unit` is the figure's that was checked, for the
    text of the check; the row in a report has none."""

    name: str
    value: Number | None
    bound: dict[str, Number] = field(default_factory=dict)
    ok: bool = False
    published: Number | None = None
    reason: str | None = None
    stands: bool = True
    unit: str | None = None

    def row(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "value": self.value,
            "bound": self.bound,
            "ok": self.ok,
            "published": self.published,
            "reason": self.reason,
            "below_resolution": not self.stands,
        }

    @property
    def bound_text(self) -> str:
        def text(key: str) -> str:
            return number_text(self.bound[key], self.unit)

        if "approx" in self.bound:
            return f"{text('approx')} ± {text('tolerance')}"
        sign = {"ge": "≥", "le": "≤", "eq": "="}
        return ", ".join(f"{sign[key]} {text(key)}" for key in self.bound)


def check(
    name: str,
    value: Any,
    *,
    ge: Number | None = None,
    le: Number | None = None,
    eq: Number | None = None,
    approx: Number | None = None,
    rel: float | None = None,
    abs: float | None = None,
    published: Number | None = None,
    reason: str | None = None,
) -> Check:
    """Judges a value against bounds: ge and le may be combined; approx needs rel or abs.

    Raises UsageError when no bound, or a contradictory set of them, is given.
    """
    given = {"ge": ge, "le": le, "eq": eq, "approx": approx}
    bound: dict[str, Number] = {}
    for key, limit in given.items():
        if limit is not None:
            bound[key] = _number(limit, f"check {name}.{key}")
            if not math.isfinite(bound[key]):
                raise UsageError(f"check {name}: {key}={limit} is no bound")
    if not bound:
        raise UsageError(f"check {name}: give a bound: ge=, le=, eq= or approx= with rel= or abs=")
    if len(bound) > 1 and set(bound) != {"ge", "le"}:
        raise UsageError(f"check {name}: {' and '.join(bound)} do not go together")
    if (approx is None) != (rel is None and abs is None):
        raise UsageError(f"check {name}: approx= goes with rel= or abs=, and they with approx=")
    if approx is not None:
        tolerance = max((rel or 0.0) * math.fabs(approx), abs or 0.0)
        bound["tolerance"] = tolerance
    still, unit = True, None
    if isinstance(value, Measured):
        still, unit = value.metric.stands, value.metric.unit
    if value is None:
        return Check(name, None, bound, False, published, reason or "the value is null", still)
    number = _number(value, f"check {name}")
    if not math.isfinite(number):
        return Check(name, None, bound, False, published, f"the value is {value}", still)
    ok = (
        number >= bound.get("ge", number)
        and number <= bound.get("le", number)
        and number == bound.get("eq", number)
    )
    if approx is not None:
        ok = math.fabs(number - bound["approx"]) <= bound["tolerance"]
    return Check(name, number, bound, ok, published, reason, still, unit)
