"""Two results side by side: what changed, and whether it became worse."""

from __future__ import annotations

import base64
import html
import io
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from loomnet.base.arguments import checked_call
from loomnet.base.errors import EXIT_CHECK_FAILED, EXIT_FIDELITY, EXIT_OK, UsageError
from loomnet.base.names import quoted
from loomnet.base.reading import parse_json, read_text
from loomnet.base.table import Table
from loomnet.measures.rows import check_plain, dotted_name_of, numbered
from loomnet.results.report import SCHEMA_VERSION, Report
from loomnet.results.result import Result

# Which way is worse, by a figure's own name; where the name says nothing, its unit may.
# By how the name begins: `goodput_ratio`, `slowdown_p99`.
LOWER_IS_WORSE = (
    "goodput", "algbw", "busbw", "throughput", "expected_capacity", "accuracy", "fairness",
)
HIGHER_IS_WORSE = (
    "lost", "retransmitted", "errors", "final_loss", "drop", "wrong", "trimmed", "slowdown", "fct",
    "unfinished",
)
RATES = frozenset(("b/s", "Kb/s", "Mb/s", "Gb/s", "B/s", "MB/s", "GB/s"))
TIMES = frozenset(("s", "ms", "us", "ns", "ps"))
Direction = Literal["lower", "higher", "any"]  # which change is a regression
Verdict = Literal["same", "better", "worse", "changed", "missing", "new", "unsure"]
REGRESSIONS: tuple[Verdict, ...] = ("worse", "changed", "missing")


@dataclass(frozen=True)
class Figure:
    """One row of a report, or one check of it (`ok` is not None)."""

    name: str
    value: float | None
    unit: str | None = None
    reason: str | None = None
    stands: bool = True
    ok: bool | None = None


@dataclass(frozen=True)
class Side:
    """One of two results: its name, its figures by dotted name, why it is no result."""

    name: str
    figures: dict[str, Figure]
    behind: tuple[str, ...] = ()
    results: Mapping[str, Result] = field(default_factory=dict)


def worse(name: str, unit: str | None) -> Direction:
    """Which change of a figure is a regression: of goodput a lower value, of times, silences and
    losses a higher one, of anything unknown every difference."""
    last = re.sub(r" \(\d+\)$", "", name).rpartition(".")[2]  # without what numbered() adds
    if last.startswith(LOWER_IS_WORSE) or unit in RATES:
        return "lower"
    if last.startswith(HIGHER_IS_WORSE) or last.endswith("_s") or unit in TIMES:
        return "higher"
    return "any"


@dataclass(frozen=True)
class Difference:
    """One figure in both results. `change`: (b - a) / |a|; None where that says nothing."""

    name: str
    unit: str | None
    a: float | None
    b: float | None
    verdict: Verdict
    reason: str | None = None

    @property
    def change(self) -> float | None:
        if self.a is None or self.b is None or not self.a:
            return None
        return (self.b - self.a) / math.fabs(self.a)

    def row(self, a: str, b: str) -> dict[str, Any]:
        change = None if self.change is None else f"{self.change:+.1%}"
        note = self.verdict if self.verdict != "same" else ""
        return {"figure": self.name, "unit": self.unit, a: _short(self.a), b: _short(self.b),
                "change": change, "verdict": note, "reason": self.reason}


class Comparison:
    """Iterates as Differences; shows itself as a table, in a notebook with a figure."""

    def __init__(self, a: Side, b: Side, rows: list[Difference], rel: float) -> None:
        self.a, self.b, self.rel, self._rows = a, b, rel, rows

    def __iter__(self) -> Iterator[Difference]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def regressions(self) -> list[Difference]:
        """What became worse by more than `rel`, is gone, or changed though nobody knows which way
        is worse."""
        return [row for row in self._rows if row.verdict in REGRESSIONS]

    @property
    def ok(self) -> bool:
        return not self.regressions and not self.behind

    @property
    def behind(self) -> list[str]:
        """Why one of the two is no result to be compared with."""
        return [f"{side.name}: {line}" for side in (self.a, self.b) for line in side.behind]

    @property
    def exit_code(self) -> int:
        """3 where one of the two is no result, 1 on a regression, 0."""
        if self.behind:
            return EXIT_FIDELITY
        return EXIT_CHECK_FAILED if self.regressions else EXIT_OK

    @property
    def table(self) -> Table:
        """figure, unit, the two values under the results' names, change, verdict, reason."""
        names = (self.a.name, self.b.name)
        return Table(("figure", "unit", *names, "change", "verdict", "reason"),
                     [row.row(*names) for row in self._rows])

    @property
    def summary(self) -> str:
        """One line: how many figures, how many regressions."""
        count = len(self.regressions)
        text = f"{len(self)} figures, {count} regression{'' if count == 1 else 's'}"
        return f"{text} beyond {self.rel:.3g} of {self.a.name}" if self.rel else text

    def figure(self) -> Any:
        """A matplotlib Figure: goodput over time of both where their series are at hand, else the
        relative change of every figure that both have. None where there is nothing to draw."""
        from loomnet.results.plots import change_figure, goodput_figure

        runs = {
            " ".join(filter(None, (side.name, label))): result
            for side in (self.a, self.b)
            for label, result in side.results.items()
        }
        if runs and len(runs) <= 8:
            # A run that stalls for seconds beside one of milliseconds would hide all of that.
            ends = [result.data.end_ps for result in runs.values()]
            until = max(min(4 * min(ends), max(ends)), 1)
            return goodput_figure(runs, every=f"{max(until // 300, 1)} ps", until=f"{until} ps")
        changes = [(row.name, row.change, row.verdict) for row in self if row.change]
        return change_figure(changes) if changes else None

    def __repr__(self) -> str:
        return f"{self.table!r}\n{self.summary}"

    def _repr_html_(self) -> str:
        figure, picture = self.figure(), ""
        if figure is not None:
            buffer = io.BytesIO()
            figure.savefig(buffer, format="png", dpi=90, metadata={"Software": None})
            code = base64.b64encode(buffer.getvalue()).decode()
            picture = f'<img alt="comparison" src="data:image/png;base64,{code}"/>'
        return f"{self.table._repr_html_()}<p>{html.escape(self.summary)}</p>{picture}"


@checked_call
def compare(a: Any, b: Any, *, rel: float = 0.0) -> Comparison:
    """Compares two results: what ln.run or lab.run returned, reports, or run directories and their
    report.json. `a` is the one to compare with; a change up to `rel` times |a| is none.

    Raises UsageError where one cannot be read, or where they have no figure in common.
    """
    if isinstance(rel, bool) or not isinstance(rel, (int, float)) or not 0 <= rel < math.inf:
        raise UsageError(f"compare: rel={quoted(rel)} must be a number, 0 or more")
    left, right = _side(a, "a"), _side(b, "b")
    left, right = _told_apart(left, right)
    if not left.figures.keys() & right.figures.keys():
        raise UsageError(f"compare: {left.name} and {right.name} have no figure in common; "
                         "labels and jobs are part of a figure's name")
    rows = [_difference(name, figure, right.figures.get(name), rel)
            for name, figure in left.figures.items()]
    rows += [Difference(name, figure.unit, None, figure.value, "new")
             for name, figure in right.figures.items() if name not in left.figures]
    return Comparison(left, right, rows, rel)


def _difference(name: str, a: Figure, b: Figure | None, rel: float) -> Difference:
    def verdict(which: Verdict, reason: str | None = None) -> Difference:
        value = None if b is None else b.value
        return Difference(name, a.unit, a.value, value, which, reason)

    if b is None:
        return verdict("missing", "not in the second result")
    if a.ok is not None:  # a check: whether it holds is all that counts
        if a.ok == b.ok:
            return verdict("same")
        return verdict("better" if b.ok else "worse", "holds now" if b.ok else "fails now")
    if not (a.stands and b.stands):
        return verdict("unsure", "below the resolution of its run")
    if a.value is None and b.value is None:
        return verdict("same")
    if b.value is None:
        return verdict("worse", f"null now: {b.reason}")
    if a.value is None:
        known = worse(name, a.unit) != "any"
        return verdict("better" if known else "changed", f"was null: {a.reason}")
    # A bound as written, 5% of 1, is met by 1.05 in spite of binary fractions.
    if math.fabs(b.value - a.value) <= rel * math.fabs(a.value) * (1 + 1e-9):
        return verdict("same")
    bad = worse(name, a.unit)
    if bad == "any":
        return verdict("changed", "which way is worse is not known")
    return verdict("worse" if (b.value < a.value) == (bad == "lower") else "better")


# --- reading ------------------------------------------------------------------------------------
MOST_REPORT = 1 << 26  # bytes of a report.json


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class _MetricRow(_Strict):
    name: str
    value: float | None
    unit: str | None
    labels: dict[str, str]
    reason: str | None
    below_resolution: bool


class _CheckRow(_Strict):
    name: str
    value: float | None
    reason: str | None
    ok: bool


class _RunRow(_Strict):
    label: str
    kept_up: bool
    verdict: str


class _Content(_Strict):
    """What is read of a report.json, and so must be as report.schema.json has it."""

    scenario: str
    parameters: dict[str, Any]
    clock: Literal["virtual", "live"]
    seed: Annotated[int, Field(ge=0, lt=2**64)]
    deterministic: bool
    interrupted: bool
    metrics: list[_MetricRow]
    checks: list[_CheckRow]
    fidelity: list[_RunRow]


def _side(given: Any, name: str) -> Side:
    if isinstance(given, Result):
        title = given.title or given.transport or name
        late = given.data.fidelity
        behind = (late.fell_behind,) if late.fell_behind else ()
        figures = {own: Figure(own, row.value, row.unit, row.reason, row.stands)
                   for own, row in given.by_name.items()}
        return Side(title, figures, behind, given.jobs or {"": given})
    if isinstance(given, Report):
        side = _from_json(json.loads(given.to_json()), given.scenario)
        parts = [part for result in given.results.values() for part in result.parts]
        results = dict(zip(numbered(part.title for part in parts), parts, strict=True))
        return Side(side.name, side.figures, side.behind, results)
    if isinstance(given, (str, Path)):
        return read_report(given)
    raise UsageError(f"compare: {quoted(given)} is no result, report, run directory or report.json")


def read_report(path: str | Path) -> Side:
    """A run by its directory or its report.json. Raises UsageError: one line, what is wrong."""
    content, folder = load_report(path)
    return _from_json(content, folder.name)


def load_report(path: str | Path) -> tuple[dict[str, Any], Path]:
    """(content of report.json, the run's directory). Raises UsageError for what is no report."""
    file = Path(path)
    if os.path.isdir(file):
        file = file / "report.json"
    try:
        text = read_text(file, MOST_REPORT)
    except UsageError as error:
        raise UsageError(f"{error}; name a run's directory or its report.json") from None
    content = parse_json(text, str(file))
    version = content.get("schema_version") if isinstance(content, dict) else None
    if version != SCHEMA_VERSION or not isinstance(content.get("metrics"), list):
        raise UsageError(f"{file} is no report of schema_version {SCHEMA_VERSION}")
    try:
        _Content.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise UsageError(f"{file}: not as the schema of a report says: {where}: {first['msg']}") \
            from None
    check_plain(str(file), content)
    return content, file.resolve().parent


def _from_json(content: dict[str, Any], name: str) -> Side:
    metrics, checks = content["metrics"], content["checks"]
    found = [_metric(name, row)
             for name, row in zip(numbered(map(dotted_name_of, metrics)), metrics, strict=True)]
    found += [_check(name, row) for name, row in
              zip(numbered(f"check {row['name']}" for row in checks), checks, strict=True)]
    behind = [f"{run['label'] or content['scenario']}: {run['verdict']}"
              for run in content["fidelity"] if not run["kept_up"]]
    return Side(name, {figure.name: figure for figure in found}, tuple(behind))


def _metric(name: str, row: Mapping[str, Any]) -> Figure:
    return Figure(name, row["value"], row["unit"], row["reason"], not row["below_resolution"])


def _check(name: str, row: Mapping[str, Any]) -> Figure:
    return Figure(name, row["value"], None, row["reason"], ok=row["ok"])


def _told_apart(a: Side, b: Side) -> tuple[Side, Side]:
    if a.name != b.name:
        return a, b
    return (Side(f"{a.name} (a)", a.figures, a.behind, a.results),
            Side(f"{b.name} (b)", b.figures, b.behind, b.results))


def _short(value: float | None) -> str | None:
    if value is None:
        return None
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e9 else f"{value:.4g}"
