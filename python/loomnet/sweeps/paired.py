"""Differences between two values of a sweep's parameter, seed by seed."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean, in_quotes, quoted
from loomnet.base.table import Table
from loomnet.sweeps.student_t import interval
from loomnet.sweeps.summary import numbers_of, varied
from loomnet.sweeps.swept import Swept

COLUMNS = ("number", "mean a", "mean b", "difference", "low", "high", "unit", "seeds")


def differences(
    made: Swept, over: str, a: Any, b: Any, what: str | Sequence[str] | None, confidence: float
) -> Table:
    """See Sweep.differences."""
    names = varied(made.points)
    if over not in names:
        raise UsageError(
            f"differences: {in_quotes(over)} was not varied{did_you_mean(over, names)}"
        )
    given = {str(point.parameters[over]) for point in made.points}
    for value in (a, b):
        if str(value) not in given:
            raise UsageError(
                f"differences: {over}={quoted(value)} is not in the sweep"
                f"{did_you_mean(str(value), given)}"
            )
    others = [name for name in names if name != over]
    found: dict[str, tuple[list[Any], dict[tuple[str, int], Any]]] = {}
    for point in made.points:
        read = made.results.read(point)
        if str(point.parameters[over]) in (str(a), str(b)) and read and read["report"]:
            values = [point.parameters[name] for name in others]
            _, ended = found.setdefault(json.dumps(values, default=str), (values, {}))
            ended[str(point.parameters[over]), point.seed] = numbers_of(read)
    known = dict.fromkeys(
        name
        for _, ended in found.values()
        for each in ended.values()
        for name in each
        if name not in names
    )
    wanted = list(known) if what is None else [what] if isinstance(what, str) else list(what)
    for name in wanted:
        if name not in known:
            raise UsageError(f"differences: no number {in_quotes(name)}{did_you_mean(name, known)}")
    rows = [
        dict(zip(others, values, strict=True)) | row
        for values, ended in found.values()
        for name in wanted
        if (row := _difference(name, ended, str(a), str(b), confidence)) is not None
    ]
    if not rows:
        raise UsageError(
            "differences: no number has a value at two seeds or more of both; run the "
            "sweep with seeds=5"
        )
    return Table((*others, *COLUMNS), rows)


def _difference(
    name: str, ended: Mapping[tuple[str, int], Any], a: str, b: str, confidence: float
) -> dict[str, Any] | None:
    """A row; None where fewer than two seeds have the number at both."""
    pairs, unit = [], None
    for seed in sorted({seed for _, seed in ended}):
        here, there = (ended.get((value, seed), {}).get(name, (None, None)) for value in (a, b))
        if here[0] is not None and there[0] is not None:
            pairs.append((float(here[0]), float(there[0])))
            unit = here[1]
    if len(pairs) < 2:
        return None
    of = interval([later - first for first, later in pairs], confidence)
    half = of.half or 0.0
    means = (statistics.fmean(each) for each in zip(*pairs, strict=True))
    return dict(
        zip(
            COLUMNS,
            (name, *means, of.mean, of.mean - half, of.mean + half, unit, len(pairs)),
            strict=True,
        )
    )
