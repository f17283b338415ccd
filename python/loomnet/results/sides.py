"""What is compared: a result, a report or a run's directory, as figures by name and the facts of
its run."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from loomnet.base.errors import UsageError
from loomnet.base.names import quoted
from loomnet.base.reading import parse_json, read_text
from loomnet.fabrics.facts import DEFAULT
from loomnet.measures.rows import check_plain, dotted_name_of, numbered
from loomnet.results.report import SCHEMA_VERSION, Report
from loomnet.results.result import Result


@dataclass(frozen=True)
class Figure:
    """One row of a report, or one check of it (`ok` is not None)."""

    name: str
    value: float | None
    unit: str | None = None
    reason: str | None = None
    stands: bool = True
    ok: bool | None = None

    @property
    def is_check(self) -> bool:
        return self.ok is not None


@dataclass(frozen=True)
class Side:
    """One of two results: its name, its figures by dotted name, why it is no result; `facts` of the
    run: scenario, clock, seed and parameters by name, as far as they are known; `given`: the name
    is a label that its user gave."""

    name: str
    figures: dict[str, Figure]
    behind: tuple[str, ...] = ()
    results: Mapping[str, Result] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    given: bool = False
    fabric: Mapping[str, str] = field(default_factory=dict)  # facts, where the report has them
    label: str | None = None  # of the only run of a report, before all of its figures' names

    @property
    def live(self) -> bool:
        return self.facts.get("clock") == "live"


MOST_DIFFERENCES = 2  # that name two runs; more are lines above the table
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
    ended: str


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
    fabrics: dict[str, dict[str, str]] = Field(default_factory=dict)  # of reports that have it


def side_of(given: Any, name: str) -> Side:
    """From what compare() was given; `name`: of a result that has no title. Raises UsageError for
    any other value, and for what is no report."""
    if isinstance(given, Result):
        title = given.title or given.transport or name
        late = given.data.fidelity
        behind = (late.fell_behind,) if late.fell_behind else ()
        figures = {
            own: Figure(own, row.value, row.unit, row.reason, row.stands)
            for own, row in given.by_name.items()
        }
        return Side(
            title,
            figures,
            behind,
            given.jobs or {"": given},
            facts_of(given),
            bool(given.title),
            given.fabric_facts,
        )
    if isinstance(given, Report):
        side = _from_json(json.loads(given.to_json()), given.scenario)
        parts = [part for result in given.results.values() for part in result.parts]
        results = dict(zip(numbered(part.title for part in parts), parts, strict=True))
        return replace(side, results=results)
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
    check_report(str(file), content)
    return content, file.resolve().parent


def check_report(where: str, content: Any) -> None:
    """Raises UsageError, beginning with `where`, for what is not the content of a report.json."""
    version = content.get("schema_version") if isinstance(content, dict) else None
    if version != SCHEMA_VERSION or not isinstance(content.get("metrics"), list):
        raise UsageError(f"{where} is no report of schema_version {SCHEMA_VERSION}")
    try:
        _Content.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise UsageError(
            f"{where}: not as the schema of a report says: {place}: {first['msg']}"
        ) from None
    check_plain(where, content)


def _from_json(content: dict[str, Any], name: str) -> Side:
    metrics, checks = content["metrics"], content["checks"]
    found = [
        _metric(name, row)
        for name, row in zip(numbered(map(dotted_name_of, metrics)), metrics, strict=True)
    ]
    found += [
        _check(name, row)
        for name, row in zip(
            numbered(f"check {row['name']}" for row in checks), checks, strict=True
        )
    ]
    behind = [
        f"{run['label'] or content['scenario']}: {run['verdict']}"
        for run in content["fidelity"]
        if not run["kept_up"]
    ]
    labels = {each for row in metrics if (each := row["labels"].get("label"))}
    [label] = labels if len(labels) == 1 else [None]
    facts = {
        "scenario": content["scenario"],
        "clock": content["clock"],
        "seed": content["seed"],
        **content["parameters"],
    }
    return Side(
        name,
        {figure.name: figure for figure in found},
        tuple(behind),
        facts=facts,
        fabric=_fabric(content.get("fabrics", {})),
        label=label,
    )


def _fabric(fabrics: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Facts of the runs' fabrics: of runs that differ in one, by label."""
    found: dict[str, str] = {}
    for name in dict.fromkeys(name for each in fabrics.values() for name in each):
        values = {label: each.get(name, DEFAULT) for label, each in fabrics.items()}
        if len(set(values.values())) == 1:
            found[name] = next(iter(values.values()))
        else:
            found |= {f"{name} of {label}": value for label, value in values.items()}
    return found


def with_fabrics(a: Side, b: Side) -> tuple[Side, Side]:
    """With facts of the fabrics, where both are known. Where a setting or a count differs, that the
    wiring does says no more."""
    if not (a.fabric and b.fabric):
        return a, b
    names = [
        name
        for name in dict.fromkeys((*a.fabric, *b.fabric))
        if a.fabric.get(name) != b.fabric.get(name)
    ]
    names = [name for name in names if not name.startswith("wiring")] or names
    return (
        replace(a, facts={**a.facts, **{name: a.fabric.get(name, DEFAULT) for name in names}}),
        replace(b, facts={**b.facts, **{name: b.fabric.get(name, DEFAULT) for name in names}}),
    )


def without_labels(a: Side, b: Side) -> tuple[Side, Side]:
    """Two reports of one run each, or one and a result, whose runs have other labels: by names that
    these are not a part of. The label is then a fact of the run."""

    def own(side: Side) -> list[str]:
        return (
            []
            if side.label is None
            else [name for name in side.figures if name.startswith(f"{side.label}.")]
        )

    if (
        a.label == b.label
        or any(name in b.figures for name in own(a))
        or any(name in a.figures for name in own(b))
    ):
        return a, b
    return _without_label(a), _without_label(b)


def with_no_timeouts(a: Side, b: Side) -> tuple[Side, Side]:
    """`timeouts` is a figure where any ran out: of the one of two runs in which none did it is 0,
    if that run counts what it sends again."""

    def filled(side: Side, other: Side) -> Side:
        none = {
            name: Figure(name, None if again.value is None else 0.0, figure.unit, again.reason)
            for name, figure in other.figures.items()
            if name.rpartition(".")[2] == "timeouts"
            and name not in side.figures
            and (again := side.figures.get(f"{name.removesuffix('timeouts')}retransmitted"))
        }
        return replace(side, figures={**side.figures, **none}) if none else side

    return filled(a, b), filled(b, a)


def _without_label(side: Side) -> Side:
    if side.label is None:
        return side
    figures = {}
    for name, figure in side.figures.items():
        bare = name.removeprefix(f"{side.label}.")
        # A metric of the scenario's own may have the bare name.
        kept = name if bare in side.figures else bare
        figures[kept] = replace(figure, name=kept)
    return replace(side, figures=figures, facts={**side.facts, "label": side.label})


def facts_of(result: Result) -> dict[str, Any]:
    """What a result knows of its own run."""
    plan = result.plan
    live = result.data.fidelity.lateness_p99_ps is not None
    return {
        "clock": "live" if live else "virtual",
        "seed": plan.seed,
        "fabric": plan.topology.fabric.name,
        "transport": result.transport,
        **result.setup,
    }


def _metric(name: str, row: Mapping[str, Any]) -> Figure:
    return Figure(name, row["value"], row["unit"], row["reason"], not row["below_resolution"])


def _check(name: str, row: Mapping[str, Any]) -> Figure:
    return Figure(name, row["value"], None, row["reason"], ok=row["ok"])


def _said(name: str, value: Any) -> str:
    """A transport's name says what it is."""
    return str(value) if name == "transport" else f"{name}={value}"


def told_apart(a: Side, b: Side) -> tuple[Side, Side]:
    """With names that differ: those that they have, where people gave them, else what the two runs
    differ in."""
    if a.given and b.given and a.name != b.name:
        return a, b
    differ = [
        name
        for name in dict.fromkeys((*a.facts, *b.facts))
        if a.facts.get(name) != b.facts.get(name)
    ]
    names = [
        ", ".join(_said(name, side.facts[name]) for name in differ if name in side.facts)
        for side in (a, b)
    ]
    if 0 < len(differ) <= MOST_DIFFERENCES and all(names) and names[0] != names[1]:
        return replace(a, name=names[0]), replace(b, name=names[1])
    if a.name != b.name:
        return a, b
    return replace(a, name=f"{a.name} (a)"), replace(b, name=f"{b.name} (b)")
