"""Plays a run again from what its directory holds: the copy of its scenario, parameters, clock and
seed; and says whether the report came out the same to the byte."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loomnet.base.errors import UsageError
from loomnet.base.reading import MOST_SOURCE, is_file, parse_json, read_bytes, read_text
from loomnet.base.version import version
from loomnet.labs.scenario import Scenario, load, scenarios_in
from loomnet.processes.inputs import SCENARIO
from loomnet.results.comparison import compare
from loomnet.results.report import Report
from loomnet.results.run_directory import ENVIRONMENT, REPORT, outdated
from loomnet.results.sides import MOST_REPORT, load_report

MOST_REMARKS = 5  # about inputs


@dataclass(frozen=True)
class Replay:
    """What came of it. `original`: the report.json played again; `differences`: what is not the
    same, a line each, at most ten; `remarks`: what may explain them."""

    report: Report
    original: Path
    identical: bool
    size: int
    differences: tuple[str, ...]
    remarks: tuple[str, ...]


def replayed(
    run: Path,
    *,
    directory: Path | None = None,
    say: Callable[[str], None] | None = None,
    on_progress: Any = None,
) -> Replay:
    """Runs the scenario copied into a run's directory with that run's parameters, clock and seed;
    writes a run of its own. Raises UsageError for a directory that cannot be played again."""
    content, folder = load_report(run)
    environment = _environment(folder)
    original = _text_at(environment, "paths", "scenario")
    scenario = _copied(folder, content["scenario"], original)
    scenario.known(content["parameters"], str(folder / REPORT))
    home = Path(original).parent if original else folder
    remarks = []
    if original and not is_file(original):
        remarks.append(f"note: {original} is gone; scripts it names are looked for in {folder}")
        home = folder
    elif original and scenario.file and _source(original) != _source(scenario.file):
        remarks.append(f"note: {original} has changed since; its copy was played")
    if isinstance(environment.get("inputs"), dict):
        remarks += [
            f"note: {name} is not as it was in that run"
            for name in outdated(folder, home)
            if not is_file(folder / name.removeprefix(SCENARIO))
        ][:MOST_REMARKS]
    then, now = _text_at(environment, "versions", "loomnet"), version()
    if then not in (None, now):
        remarks.append(f"note: that run was made by loomnet {then}, this one by {now}")
    if not content["deterministic"]:
        remarks.append(
            "note: that run was not deterministic (live clock, or measured compute), "
            "so equal bytes are not to be expected"
        )
    report = scenario.run(
        seed=content["seed"],
        clock=content["clock"],
        base=home,
        directory=directory,
        say=say,
        on_progress=on_progress,
        **content["parameters"],
    )
    if report.unwritten is not None or report.directory is None:
        raise UsageError(report.unwritten or "the run was not written")
    before, after = read_bytes(folder / REPORT, MOST_REPORT), report.to_json().encode()
    differences = () if before == after else _differences(folder, report.directory)
    return Replay(
        report, folder / REPORT, before == after, len(before), differences, tuple(remarks)
    )


def _copied(folder: Path, name: str, original: str | None) -> Scenario:
    """The scenario of this name among the Python files of the run's directory; `original`: the
    file that it was copied from."""
    own = Path(original or "").name
    # Modules that the scenario imports lie beside its copy, and may be scenarios themselves.
    found = {*folder.glob("*.py"), *([folder / own] if own else [])}  # it may end in .txt, say
    for file in sorted(found, key=lambda each: (each.name != own, each)):
        if (
            is_file(file)
            and b"scenario" in read_bytes(file, MOST_SOURCE)
            and any(each.name == name for each in scenarios_in(file))
        ):
            return load(f"{file}::{name}")
    raise UsageError(
        f"{folder} holds no copy of scenario {name}: only runs of a scenario file can be replayed"
    )


def _environment(folder: Path) -> dict[str, Any]:
    """What environment.json says; a replay needs nothing of it, so one that is gone or broken is
    empty."""
    try:
        content = parse_json(read_text(folder / ENVIRONMENT, MOST_REPORT), ENVIRONMENT)
    except UsageError:
        return {}
    return content if isinstance(content, dict) else {}


def _source(file: str | Path) -> bytes:
    return read_bytes(file, MOST_SOURCE)


def _text_at(content: dict[str, Any], section: str, name: str) -> str | None:
    """A text of one of its sections; None where there is none."""
    found = content.get(section)
    value = found.get(name) if isinstance(found, dict) else None
    return value if isinstance(value, str) and value.isprintable() else None


def _differences(then: Path, now: Path) -> tuple[str, ...]:
    (before, _), (after, _) = load_report(then), load_report(now)
    lines = [
        f"{name}: {json.dumps(before.get(name))[:60]} then, {json.dumps(after.get(name))[:60]} now"
        for name in sorted({*before, *after} - {"metrics", "checks", "fidelity"})
        if before.get(name) != after.get(name)
    ]
    try:
        found = compare(then, now, rel=0.0)
        lines += [
            f"{row.name}: {row.a} then, {row.b} now" for row in found if row.verdict != "same"
        ]
    except UsageError as error:
        lines.append(str(error))
    return tuple(lines[:10]) or ("numbers are equal: it differs in fidelity or in its writing",)
