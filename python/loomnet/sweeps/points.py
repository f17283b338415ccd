"""The points of a sweep: what each is, its result on disk, and the table of all. Independent of
what runs them."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from loomnet.base.errors import UnavailableError, UsageError
from loomnet.base.installing import install_line
from loomnet.base.names import how_many, quoted
from loomnet.base.reading import parse_json
from loomnet.base.version import version
from loomnet.labs.scenario import Scenario
from loomnet.measures.rows import dotted_name_of, numbered
from loomnet.processes.folder import read_bounded
from loomnet.processes.inputs import Unchanged, build
from loomnet.processes.invoking_user import rights_of, writer_of
from loomnet.results.report import BROKEN_OFF
from loomnet.results.sides import check_report

SWEEP_VERSION = 2
DONE, FAILED = "done", "failed"
MOST_REMARKS = 5
_FIGURES_FROM = ("numpy", "networkx", "highspy", "torch")
_HALF = re.compile(r"\.[0-9a-f]{24}\.json\.[0-9]+")  # as write_atomically names a point's
MOST_POINTS = 100_000  # each is listed, and a file of its own


@dataclass(frozen=True)
class Point:
    """One run of a sweep. `index`: its place in the table; `key`: names its result, and changes
    with the scenario's text, its parameters, its seed, the build of Loomnet, and the versions of
    Python and of packages that figures come from."""

    index: int
    parameters: Mapping[str, Any]  # all of the scenario's, as report.json has them
    seed: int
    key: str

    def __str__(self) -> str:
        named = ", ".join(f"{name}={value}" for name, value in self.parameters.items())
        return f"point {self.index} ({named}{', ' if named else ''}seed {self.seed})"


def seeds_of(seeds: int | Iterable[int]) -> list[int]:
    """0 … n-1 from a number, or the seeds given. Raises UsageError."""
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        seeds = range(max(seeds, 0))
    found = list(itertools.islice(seeds, MOST_POINTS + 1)) if isinstance(seeds, Iterable) else []
    if len(found) > MOST_POINTS:
        raise UsageError(
            f"sweep: seeds={quoted(seeds)} are more than the {MOST_POINTS:,} points of one sweep"
        )
    if not found or any(type(s) is not int or not 0 <= s < 2**64 for s in found):
        raise UsageError(
            f"sweep: seeds={quoted(seeds)} must be a number, 1 or more, or a list of seeds"
        )
    if len(set(found)) < len(found):
        raise UsageError("sweep: a seed is given twice")
    return found


def points_of(
    scenario: Scenario, axes: Mapping[str, Sequence[Any]], seeds: Sequence[int]
) -> list[Point]:
    """Every combination in a fixed order: the first axis changes slowest, the seed fastest. All
    are validated here, before anything runs. Raises UsageError."""
    common = {
        "scenario": scenario.name,
        "source": hashlib.sha256(scenario.source().encode()).hexdigest(),
        "loomnet": f"{version()} {build()}",
        "python": platform.python_version(),
        **{name: _installed(name) for name in _FIGURES_FROM},
    }
    count = math.prod(map(len, axes.values())) * len(seeds)
    if count > MOST_POINTS:
        raise UsageError(
            f"sweep: {count:,} combinations are more than the {MOST_POINTS:,} points "
            "of one sweep; make several"
        )
    points: list[Point] = []
    seen: dict[str, Point] = {}
    for values in itertools.product(*axes.values()):
        typed = scenario.validate(dict(zip(axes, values, strict=True))).model_dump(mode="json")
        for seed in seeds:
            text = json.dumps({**common, "parameters": typed, "seed": seed}, sort_keys=True)
            key = hashlib.sha256(text.encode()).hexdigest()[:24]
            if key in seen:
                raise UsageError(f"sweep: {seen[key]} is there twice; give every value once")
            points.append(Point(len(points), typed, seed, key))
            seen[key] = points[-1]
    return points


def _installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def write_atomically(path: Path, data: bytes) -> None:
    """Writes a file so that a reader sees all of it or the one before. Raises UsageError where it
    cannot be written; then nothing of it is left."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with rights_of(writer_of(path.parent)):
            try:
                beside.write_bytes(data)
                beside.replace(path)
            except BaseException:
                with contextlib.suppress(OSError):
                    beside.unlink()
                raise
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror}; free or change that folder, or "
            "name another one"
        ) from None


class Results:
    """The results of points in a directory, a file each, written when the point ends.

    A result stands for as long as the inputs that its run has read are as they were. `home`: the
    folder of the scenario's file now. `damaged` and `changed` fill as points are read.
    """

    def __init__(self, directory: Path, home: Path | None = None) -> None:
        self.directory = directory
        self.damaged: dict[Path, str] = {}  # files that hold no result, each with the reason
        self.changed: dict[str, set[int]] = {}  # inputs, with the numbers of the points they undo
        self._folder = directory / "points"
        self._inputs = Unchanged(home)
        try:
            with rights_of(writer_of(directory)):
                self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot make the folder {self._folder}: {error.strerror}") from None

    def tidy(self) -> None:
        """Removes what a killed sweep was about to write."""
        with rights_of(writer_of(self._folder)):
            for path in self._folder.glob(".*.json.*"):
                if _HALF.fullmatch(path.name):
                    path.unlink(missing_ok=True)

    def read(self, point: Point) -> dict[str, Any] | None:
        """What is known of a point: its status, error and report; None if it has not ended, if its
        file is damaged or if an input has changed since."""
        path = self._folder / f"{point.key}.json"
        try:
            content = _whole(path, point)
        except FileNotFoundError:
            return None
        except (OSError, UsageError) as error:
            self.damaged[path] = getattr(error, "strerror", None) or str(error)
            return None
        changed = self._inputs.changed(content["inputs"])
        for name in changed[:1]:
            self.changed.setdefault(name, set()).add(point.index)
        return None if changed else content

    def remarks(self) -> list[str]:
        """Why results that are there were not taken, a line each."""
        lines = [
            f"{path} is damaged and taken as missing: {why}"
            for path, why in list(self.damaged.items())[:MOST_REMARKS]
        ]
        if (more := len(self.damaged) - MOST_REMARKS) > 0:
            lines.append(f"{how_many(more, 'more file')} of points damaged and taken as missing")
        lines += [
            f"{name} is not as it was when {how_many(len(points), 'point')} ran; "
            f"{'that one is' if len(points) == 1 else 'these are'} taken as missing"
            for name, points in list(self.changed.items())[:MOST_REMARKS]
        ]
        return lines

    def keep(self, point: Point, outcome: Mapping[str, Any]) -> None:
        """`outcome`: report (or None), error (or None), wall_s, inputs, recorded."""
        content = {
            "key": point.key,
            "parameters": dict(point.parameters),
            "seed": point.seed,
            "status": FAILED if outcome["error"] else DONE,
            **outcome,
        }
        content["digest"] = _digest(content)
        text = json.dumps(content, sort_keys=True, indent=1) + "\n"
        write_atomically(self._folder / f"{point.key}.json", text.encode())


class _File(BaseModel):
    """What is read of a point's file."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)
    key: str
    seed: int
    status: Literal["done", "failed"]
    error: str | None
    recorded: list[int]
    inputs: dict[str, str]
    digest: str


def _whole(path: Path, point: Point) -> dict[str, Any]:
    """The content of a point's file. Raises OSError, and UsageError for what keep() has not written
    of this point."""
    content = parse_json(read_bounded(path), "the file")
    try:
        found = _File.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise UsageError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    if found.key != point.key:
        raise UsageError("it is the file of another point")
    if found.digest != _digest(content):
        raise UsageError("its content is not what was written")
    if (content.get("report") is None) != (found.status == FAILED):
        raise UsageError(f"status {found.status} does not fit its report")
    if content["report"] is not None:
        check_report("report", content["report"])
    return content


def _digest(content: Mapping[str, Any]) -> str:
    """Of all of a point's file but this digest. Raises UsageError."""
    rest = {name: value for name, value in content.items() if name != "digest"}
    try:
        text = json.dumps(rest, sort_keys=True, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise UsageError(str(error)) from None
    return hashlib.sha256(text.encode()).hexdigest()


def frame(points: Sequence[Point], results: Results) -> Any:
    """A polars.DataFrame: a row per point that has ended, in the points' order. Columns: point, the
    parameters, seed, status ("done" or "failed"), ok (all checks hold and no run was broken off),
    error, then every figure by its dotted name as a float, null where it is null. The same results
    give the same frame."""
    polars = import_polars()
    rows: list[dict[str, Any]] = []
    figures: dict[str, None] = {}
    for point in points:
        if (known := results.read(point)) is None:
            continue
        report = known["report"]
        metrics = [] if report is None else report["metrics"]
        values = {
            name: None if r["value"] is None else float(r["value"])
            for name, r in zip(numbered(map(dotted_name_of, metrics)), metrics, strict=True)
        }
        figures |= dict.fromkeys(values)
        ok = None if report is None else _held(report)
        rows.append(
            {
                "point": point.index,
                **point.parameters,
                "seed": point.seed,
                "status": known["status"],
                "ok": ok,
                "error": known["error"],
                "": values,
            }
        )
    names = list(points[0].parameters) if points else []
    taken = {"point", "seed", "status", "ok", "error", *names}
    numbers = [row["point"] for row in rows]
    columns: dict[str, Any] = {"point": polars.Series(numbers, dtype=polars.Int64)}
    for name in names:
        columns[name] = _parameter_column([r[name] for r in rows])
    columns["seed"] = polars.Series([r["seed"] for r in rows], dtype=polars.UInt64)
    columns["status"] = polars.Series([r["status"] for r in rows], dtype=polars.String)
    columns["ok"] = polars.Series([r["ok"] for r in rows], dtype=polars.Boolean)
    columns["error"] = polars.Series([r["error"] for r in rows], dtype=polars.String)
    for name in figures:
        title = f"metric.{name}" if name in taken else name
        columns[title] = polars.Series([r[""].get(name) for r in rows], dtype=polars.Float64)
    return polars.DataFrame(columns)


def _held(report: Mapping[str, Any]) -> bool:
    """Whether all checks of a report hold and every run of it ended well."""
    ended = any(run["ended"] in BROKEN_OFF for run in report["fidelity"])
    return not ended and all(check["ok"] for check in report["checks"])


def _parameter_column(values: list[Any]) -> Any:
    """Numbers and truth values as such; quantities and everything else as text."""
    polars = import_polars()
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int} and any(v is not None and not -(2**63) <= v < 2**63 for v in values):
        kinds = set()  # beyond what the table's whole numbers hold
    for allowed, dtype in (
        ({bool}, polars.Boolean),
        ({int}, polars.Int64),
        ({int, float}, polars.Float64),
    ):
        if kinds and kinds <= allowed:
            return polars.Series(values, dtype=dtype)
    text = [v if v is None or isinstance(v, str) else json.dumps(v) for v in values]
    return polars.Series(text, dtype=polars.String)


def import_polars() -> Any:
    """polars, or UnavailableError with the line that installs it."""
    try:
        import polars
    except ImportError:
        raise UnavailableError(f"a sweep's table needs polars: {install_line('sweep')}") from None
    return polars
