"""A sweep on a terminal: a row for each combination of values, medians over its seeds."""

from __future__ import annotations

import json
import shutil
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loomnet.base.names import how_many
from loomnet.base.number_text import number_text
from loomnet.base.table import Table
from loomnet.measures.rows import dotted_name_of, numbered
from loomnet.sweeps.points import Point
from loomnet.sweeps.student_t import interval
from loomnet.sweeps.swept import Swept

Numbers = dict[str, tuple[Any, str | None]]  # value and unit, by name
MOST_ROWS = 24  # all points are in the table on disk
MOST_NUMBERS = 12  # columns, in a notebook
MOST_NAMED = 4  # of the numbers that have no column
PIPED_WIDTH = 80  # of output that goes to no terminal
SPREAD = "numbers: medians over the seeds, in brackets the least and the greatest"
MEANS = "numbers: means over the seeds, ± half of their {:g} % confidence intervals (Student's t)"
OF_METRIC = "metric."  # before the name of a metric that a check or a column has, too


@dataclass(frozen=True)
class Summary:
    """The table; how many combinations and seeds there are; numbers that have no column in it."""

    table: Table
    combinations: int
    seeds: int
    left_out: Sequence[str]

    @property
    def remarks(self) -> list[str]:
        """What the table does not show, a line each."""
        lines = []
        if (more := self.combinations - len(self.table)) > 0:
            lines.append(f"… and {how_many(more, 'more combination')}")
        if self.left_out:
            named = ", ".join(self.left_out[:MOST_NAMED])
            dots = ", …" if len(self.left_out) > MOST_NAMED else ""
            lines.append(f"… and {how_many(len(self.left_out), 'more number')}: {named}{dots}")
        return lines


def spread_text(ci: float | None) -> str:
    """What the numbers of a table are."""
    return SPREAD if ci is None else MEANS.format(100 * ci)


def summary(made: Swept, ci: float | None = None) -> list[str]:
    """Lines: the values that differ between points, how many points hold all their checks, and the
    numbers, as far as the terminal is wide: those that the scenario checks, those that it records,
    the figures of its jobs. Numbers that are the same at all points are left out. No lines where no
    point has ended. `ci`: see Sweep.table."""
    width = shutil.get_terminal_size((PIPED_WIDTH, MOST_ROWS)).columns
    found = summary_table(made, width=width, ci=ci)
    if found is None:
        return []
    lines = repr(found.table).splitlines() + found.remarks
    if found.table.columns[-1] != "ok" and found.seeds > 1:
        lines.append(spread_text(ci))
    return lines


def summary_table(
    made: Swept, *, width: int | None = None, most: int | None = None, ci: float | None = None
) -> Summary | None:
    """As wide as so many characters, and with so many numbers, at the most. None where no point has
    ended."""
    results, ok = made.results, dict(made.frame.select("point", "ok").rows())
    names_varied = varied(made.points)
    groups: dict[str, list[Point]] = {}
    for point in made.points:
        if point.index in ok:
            key = json.dumps([point.parameters[name] for name in names_varied], default=str)
            groups.setdefault(key, []).append(point)
    shown = list(groups.values())[:MOST_ROWS]
    if not shown:
        return None
    numbers = [_medians([results.read(point) for point in group], ci) for group in shown]
    given: dict[str, list[str]] = {}
    for each in numbers:
        for name, text in each.items():
            given.setdefault(name, []).append(text)
    names = [
        name
        for name, texts in given.items()
        if name not in (*names_varied, "ok") and (len(texts) == 1 or len(set(texts)) > 1)
    ]
    rows = [
        {
            **{name: group[0].parameters[name] for name in names_varied},
            "ok": f"{sum(bool(ok[point.index]) for point in group)} of {len(group)}",
            **{name: each.get(name, "–") for name in names},
        }
        for group, each in zip(shown, numbers, strict=True)
    ]
    columns = [*names_varied, "ok"]
    fit = 0
    for name in names[:most]:
        if width is not None and _width(Table([*columns, name], rows)) > width:
            break
        columns.append(name)
        fit += 1
    return Summary(Table(columns, rows), len(groups), max(map(len, shown)), names[fit:])


def varied(points: Iterable[Point]) -> list[str]:
    """Parameters that have more than one value among the points."""
    values: dict[str, set[str]] = {}
    for point in points:
        for name, value in point.parameters.items():
            values.setdefault(name, set()).add(str(value))
    return [name for name, found in values.items() if len(found) > 1]


def _medians(ended: Iterable[Mapping[str, Any] | None], ci: float | None) -> dict[str, str]:
    """Or, with `ci`, means and their intervals: by name, as text, over the points that gave a
    report. A number that is null or missing at one of them is left out."""
    reports = [numbers_of(known) for known in ended if known and known["report"]]
    made = {}
    for name in reports[0] if reports else ():
        values = [each[name][0] for each in reports if name in each and each[name][0] is not None]
        if len(values) == len(reports):
            unit = reports[0][name][1]
            if ci is not None:
                found = interval(values, ci)
                half = "" if not found.half else f" ± {number_text(found.half, unit)}"
                made[name] = f"{number_text(found.mean, unit)}{half}"
                continue
            middle, least, most = (
                number_text(of(values), unit) for of in (statistics.median, min, max)
            )
            made[name] = middle if least == most else f"{middle} ({least}–{most})"
    return made


def numbers_of(known: Mapping[str, Any]) -> Numbers:
    """Value and unit of every number of a point that has a report, by name: what its scenario
    checks, what it records, then the figures of its runs as the frame has them. Of a check and a
    metric of one name the check is here."""
    report = known["report"]
    found: Numbers = {}
    for check in report["checks"]:
        found.setdefault(check["name"], (check["value"], None))
    metrics = metrics_of(report)
    own = set(known["recorded"])
    for recorded in (True, False):
        for number, (name, value) in enumerate(metrics.items()):
            if (number in own) == recorded:
                found.setdefault(name, value)
    return found


def metrics_of(report: Mapping[str, Any]) -> Numbers:
    """Of a report's metrics, in its order."""
    rows = report["metrics"]
    return {
        name: (row["value"], row["unit"])
        for name, row in zip(numbered(map(dotted_name_of, rows)), rows, strict=True)
    }


def _width(table: Table) -> int:
    return max(map(len, repr(table).splitlines()))
