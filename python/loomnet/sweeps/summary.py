"""A sweep on a terminal: a row for each combination of values, medians over its seeds."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from loomnet.base.number_text import number_text
from loomnet.base.table import Table
from loomnet.sweeps.points import Point

if TYPE_CHECKING:
    from loomnet.sweeps.sweep import Sweep

MOST_ROWS = 24  # all points are in the table on disk
WIDTH = 80
OF_EVERY_RUN = ("errors", "final_loss")


def summary(made: Sweep) -> list[str]:
    """Lines: the values that differ between points, how many points hold all their checks, and the
    scenario's own numbers, those of its checks first, as far as they fit. Numbers that are the same
    at all points are left out. No lines where no point has ended."""
    results, ok = made.results, dict(made.frame.select("point", "ok").rows())
    varied = _varied(made.points)
    groups: dict[str, list[Point]] = {}
    for point in made.points:
        if point.index in ok:
            key = json.dumps([point.parameters[name] for name in varied], default=str)
            groups.setdefault(key, []).append(point)
    shown = list(groups.values())[:MOST_ROWS]
    if not shown:
        return []
    numbers = [_medians([results.read(point) for point in group]) for group in shown]
    given: dict[str, list[str]] = {}
    for each in numbers:
        for name, text in each.items():
            given.setdefault(name, []).append(text)
    names = [name for name, texts in given.items()
             if name not in (*varied, "ok") and (len(texts) == 1 or len(set(texts)) > 1)]
    rows = [{**{name: group[0].parameters[name] for name in varied},
             "ok": f"{sum(bool(ok[point.index]) for point in group)} of {len(group)}",
             **{name: each.get(name, "–") for name in names}}
            for group, each in zip(shown, numbers, strict=True)]
    columns = [*varied, "ok"]
    for name in names:
        if _width(Table([*columns, name], rows)) > WIDTH:
            break
        columns.append(name)
    lines = repr(Table(columns, rows)).splitlines()
    if len(groups) > len(shown):
        lines.append(f"… and {len(groups) - len(shown)} combinations more")
    if columns[-1] != "ok" and max(map(len, shown)) > 1:
        lines.append("numbers: medians over the seeds")
    return lines


def _varied(points: Iterable[Point]) -> list[str]:
    """Parameters that have more than one value among the points."""
    values: dict[str, set[str]] = {}
    for point in points:
        for name, value in point.parameters.items():
            values.setdefault(name, set()).add(str(value))
    return [name for name, found in values.items() if len(found) > 1]


def _medians(ended: Iterable[Mapping[str, Any] | None]) -> dict[str, str]:
    """By name, as text, over the points that gave a report. A number that is null or missing at one
    of them is left out."""
    reports = [_numbers(known["report"]) for known in ended if known and known["report"]]
    made = {}
    for name in reports[0] if reports else ():
        values = [each[name][0] for each in reports if name in each and each[name][0] is not None]
        if len(values) == len(reports):
            made[name] = number_text(statistics.median(values), reports[0][name][1])
    return made


def _numbers(report: Mapping[str, Any]) -> dict[str, tuple[Any, str | None]]:
    """Value and unit of what the scenario itself checks and records, by name."""
    found: dict[str, tuple[Any, str | None]] = {}
    for check in report["checks"]:
        found.setdefault(check["name"], (check["value"], None))
    for row in report["metrics"]:
        if not row["labels"] and row["name"] not in OF_EVERY_RUN:
            found.setdefault(row["name"], (row["value"], row["unit"]))
    return found


def _width(table: Table) -> int:
    return max(map(len, repr(table).splitlines()))
