"""Rows of a report: metrics, checks, and the judgement whether a figure stands against the
engine's lateness."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from loomnet.base.errors import UsageError
from loomnet.base.names import quoted
from loomnet.base.number_text import number_text

Number = int | float
RATE_WINDOWS, TIME_MULTIPLE = 100, 20  # of the p99 lateness


def dotted_name(*parts: str | None) -> str:
    """A figure's name from its label, job, phase and own name, in this order; parts that are None
    or empty are left out."""
    return ".".join(part for part in parts if part)


def dotted_name_of(row: Mapping[str, Any]) -> str:
    """Metric.dotted of a row as report.json has it."""
    labels = row["labels"]
    return dotted_name(labels.get("label"), labels.get("job"), labels.get("phase"), row["name"])


def numbered(names: Iterable[str]) -> list[str]:
    """The names, each its own: the second `x` is `x (2)`. A reader that keeps rows by name would
    otherwise lose all rows of one name but the last."""
    counts: dict[str, int] = {}
    found: dict[str, None] = {}
    for name in names:
        own = name
        while own in found:
            counts[name] = counts.get(name, 1) + 1
            own = f"{name} ({counts[name]})"
        found[own] = None
    return list(found)


@dataclass(frozen=True)
class Metric:
    """One row. `value` None has a `reason`. `stands` is false for a figure below the resolution of
    the run that measured it. `recorded`: the scenario's own, by lab.metric."""

    name: str
    value: Number | None
    unit: str | None = None
    label: str | None = None
    phase: str | None = None
    published: Number | None = None
    reason: str | None = None
    stands: bool = True
    job: str | None = None  # where a run has several
    recorded: bool = False

    @property
    def dotted(self) -> str:
        """`<label>.<job>.<phase>.<name>`, without the parts there are not."""
        return dotted_name(self.label, self.job, self.phase, self.name)

    @property
    def within_run(self) -> str:
        """The same without the run's label."""
        return dotted_name(self.job, self.phase, self.name)

    @property
    def within_job(self) -> str:
        """The same without the run's label and the job."""
        return dotted_name(self.phase, self.name)

    def row(self) -> dict[str, Any]:
        parts = (("label", self.label), ("job", self.job), ("phase", self.phase))
        labels = {key: value for key, value in parts if value}
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
    that does not stand is seen. A number that is computed from figures by their type, as
    statistics.mean does, is a float."""

    metric: Metric

    if TYPE_CHECKING:  # `r["errors"] == 0` compares with an int, which mypy --strict doubts

        def __eq__(self, other: object) -> bool: ...

    def __new__(cls, metric: Metric) -> Measured:
        if not isinstance(metric, Metric):
            return float(metric)  # pyright: ignore[reportReturnType]
        assert metric.value is not None
        made = super().__new__(cls, metric.value)
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
    job: str | None = None,
    stands: bool = True,
) -> Metric:
    """A row from any number; NaN, infinity and None become null with a reason."""
    where = f"metric {_named('metric', name)}"
    for field_name, text in (
        ("unit", unit),
        ("label", label),
        ("phase", phase),
        ("reason", reason),
    ):
        _text_or_none(f"{where}: {field_name}", text)
    published = _published(where, published)
    if isinstance(value, Measured):
        stands = stands and value.metric.stands
    if value is None:
        why = reason or "not measured"
        return Metric(name, None, unit, label, phase, published, why, stands, job)
    number = _number(value, where)
    if not _finite(number):
        why = f"not a finite number ({quoted(value)})"
        return Metric(name, None, unit, label, phase, published, why, stands, job)
    return Metric(name, number, unit, label, phase, published, reason, stands, job)


def _number(value: Any, what: str) -> Number:
    if isinstance(value, (bool, int)):
        return int(value)
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f"{what}: {quoted(value)} is not a number") from None


def _finite(number: Number) -> bool:
    """Whether a float holds it: an integer of any length is a number, but no figure."""
    try:
        return math.isfinite(number)
    except OverflowError:
        return False


def _published(where: str, value: Number | None) -> Number | None:
    if value is None:
        return None
    number = _number(value, f"{where}: published")
    if not _finite(number):
        raise UsageError(f"{where}: published={quoted(value)} is not a finite number")
    return number


def _named(what: str, name: Any) -> str:
    if not isinstance(name, str) or not name:
        raise UsageError(f"{what}: name {quoted(name)} is not a text")
    check_plain(f"{what}: name", name)
    return name


def _text_or_none(where: str, value: Any) -> None:
    if value is not None and not isinstance(value, str):
        raise UsageError(f"{where} {quoted(value)} is not a text")
    check_plain(where, value)


def check_plain(where: str, value: Any) -> None:
    """Raises UsageError, beginning with `where`, for a value that report.json cannot hold: NaN,
    infinity, half a character, what is no JSON value."""
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        why = "it holds half a character (a surrogate)"
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        why = str(error)
    else:
        return
    raise UsageError(f"{where}: {quoted(value)} cannot be written into report.json: {why}")


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
    text of the check; the row in a report has none. `what`: in words, what is checked."""

    name: str
    value: Number | None
    bound: dict[str, Number] = field(default_factory=dict)
    ok: bool = False
    published: Number | None = None
    reason: str | None = None
    stands: bool = True
    unit: str | None = None
    what: str | None = None

    def row(self) -> dict[str, Any]:
        made = {
            "name": self.name,
            "value": self.value,
            "bound": self.bound,
            "ok": self.ok,
            "published": self.published,
            "reason": self.reason,
            "below_resolution": not self.stands,
        }
        return made if self.what is None else {**made, "what": self.what}

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
    what: str | None = None,
) -> Check:
    """Judges a value against bounds: ge and le may be combined; approx needs rel or abs.

    Raises UsageError when no bound, or a contradictory set of them, is given.
    """
    _named("check", name)
    _text_or_none(f"check {name}: reason", reason)
    _text_or_none(f"check {name}: what", what)
    published = _published(f"check {name}", published)
    given = {"ge": ge, "le": le, "eq": eq, "approx": approx}
    bound: dict[str, Number] = {}
    for key, limit in given.items():
        if limit is not None:
            bound[key] = _number(limit, f"check {name}.{key}")
            if not _finite(bound[key]):
                raise UsageError(f"check {name}: {key}={quoted(limit)} is no bound")
    if not bound:
        raise UsageError(f"check {name}: give a bound: ge=, le=, eq= or approx= with rel= or abs=")
    if len(bound) > 1 and set(bound) != {"ge", "le"}:
        raise UsageError(f"check {name}: {' and '.join(bound)} do not go together")
    if (approx is None) != (rel is None and abs is None):
        raise UsageError(f"check {name}: approx= goes with rel= or abs=, and they with approx=")
    if approx is not None:
        bound["tolerance"] = _tolerance(name, bound["approx"], rel, abs)
    still, unit = True, None
    if isinstance(value, Measured):
        still, unit = value.metric.stands, value.metric.unit
    if value is None:
        why = reason or "the value is null"
        return Check(name, None, bound, False, published, why, still, what=what)
    number = _number(value, f"check {name}")
    if not _finite(number):
        why = f"the value is {quoted(value)}"
        return Check(name, None, bound, False, published, why, still, what=what)
    ok = (
        number >= bound.get("ge", number)
        and number <= bound.get("le", number)
        and number == bound.get("eq", number)
    )
    if approx is not None:
        ok = math.fabs(number - bound["approx"]) <= bound["tolerance"]
    return Check(name, number, bound, ok, published, reason, still, unit, what)


def _tolerance(name: str, approx: Number, rel: float | None, absolute: float | None) -> float:
    shares = {"rel": 0.0, "abs": 0.0}
    for key, value in (("rel", rel), ("abs", absolute)):
        if value is None:
            continue
        number = _number(value, f"check {name}.{key}")
        if not (_finite(number) and number >= 0):
            raise UsageError(f"check {name}: {key}={quoted(value)} must be 0 or more")
        shares[key] = float(number)
    return max(shares["rel"] * math.fabs(approx), shares["abs"])
