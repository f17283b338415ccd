"""The directory of a run: its name, and what lies in it."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import secrets
import sys
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from loomnet.base.errors import UsageError
from loomnet.base.reading import parse_json
from loomnet.measures.drops import counters_json
from loomnet.processes.folder import Folder, read_bounded
from loomnet.processes.inputs import Unchanged, build
from loomnet.processes.invoking_user import rights_of, writer_of
from loomnet.results.report import Report

RUNS = "runs"
REPORT, COUNTERS, ENVIRONMENT = "report.json", "counters.json", "environment.json"
OBSERVED, POOLS, CIRCUITS = "observed.csv", "pools.csv", "circuits.jsonl"
GATES = "gates"  # a folder
FILES = (REPORT, COUNTERS, ENVIRONMENT, OBSERVED, POOLS, CIRCUITS)
_PACKAGES = ("loomnet", "torch", "numpy", "pydantic", "typer", "networkx", "highspy", "matplotlib")


def new_run_directory(scenario: str, seed: int, root: Path | str = RUNS) -> Folder:
    """Creates runs/<scenario>-<time>-<seed>-<id>/ and opens it. Raises UsageError."""
    name = re.sub(r"[^A-Za-z0-9_.]+", "_", scenario)[:80] or "run"
    stamp = time.strftime("%Y%m%dT%H%M%S")
    return Folder.at(Path(root) / f"{name}-{stamp}-{seed}-{secrets.token_hex(3)}", new=True)


def _version(package: metadata.Distribution) -> str:
    """As metadata.version(), which parses a file of hundreds of lines as a mail for it."""
    found = re.search(r"^Version: *(\S+)", package.read_text("METADATA") or "", re.MULTILINE)
    return package.version if found is None else found[1]


def environment(
    started: float,
    source: Path | None = None,
    notes: dict[str, Any] | None = None,
    inputs: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Host, versions, paths and wall times: what may differ between two equal runs. `source`: the
    scenario's file, whose folder holds the scripts it names; `inputs`: what the run has read, as
    processes.inputs found it, None where nothing listened."""
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = _version(metadata.distribution(name))
        except metadata.PackageNotFoundError:
            versions[name] = None
    return {
        "host": {
            "name": platform.node(),
            "machine": platform.machine(),
            "cpus": os.cpu_count(),
            "kernel": platform.release(),
            "system": platform.platform(),
        },
        "versions": {"python": platform.python_version(), **versions},
        "build": build(),
        "inputs": None if inputs is None else dict(inputs),
        "paths": {
            "cwd": str(Path.cwd()),
            "python": sys.executable,
            "scenario": None if source is None else str(source),
        },
        "command": sys.argv,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(started)),
        "wall_s": round(time.time() - started, 3),
        "load_average": list(os.getloadavg()),
        **(notes or {}),
    }


def outdated(directory: Path, home: Path | None = None) -> list[str]:
    """What is not as it was when the run of this directory was made, by its environment.json:
    Loomnet's build, and each file that the run has read. `home`: the folder of the scenario's file
    now. What cannot be told is not as it was."""
    try:
        content = parse_json(read_bounded(directory / ENVIRONMENT), ENVIRONMENT)
        inputs = {str(name): str(digest) for name, digest in content["inputs"].items()}
        before = content["build"]
    except (OSError, UsageError, LookupError, TypeError, AttributeError):
        return [ENVIRONMENT]
    return [
        *(["the build of Loomnet"] if before != build() else []),
        *Unchanged(home).changed(inputs),
    ]


def written(directory: Path) -> list[tuple[str, int, int]]:
    """What lies in a run's directory: name, how many files it is, and their bytes. A run's own
    files are first, then what is large. A folder's name ends in a slash."""
    sizes: dict[str, list[int]] = {}
    with rights_of(writer_of(directory)), contextlib.suppress(OSError):
        for folder, _, files, fd in os.fwalk(directory):
            inside = Path(folder).relative_to(directory).parts
            for name in files:
                with contextlib.suppress(OSError):
                    size = os.lstat(name, dir_fd=fd).st_size
                    sizes.setdefault(f"{inside[0]}/" if inside else name, []).append(size)
    order = sorted(sizes, key=lambda name: (_place(name), -sum(sizes[name]), name))
    return [(name, len(sizes[name]), sum(sizes[name])) for name in order]


def _place(name: str) -> int:
    return FILES.index(name) if name in FILES else len(FILES)


def write_run(
    folder: Folder,
    report: Report,
    *,
    started: float,
    source: Path | None = None,
    modules: Mapping[str, bytes] | None = None,
    inputs: Mapping[str, str] | None = None,
    notes: dict[str, Any] | None = None,
) -> Path:
    """Writes report.json, counters.json, environment.json and a copy of the scenario with the
    modules beside it that it uses; returns report.json. `modules`: texts by their paths, as they
    were loaded; the scenario's own file is read where its text is not among them. Raises UsageError
    for what cannot be written."""
    report.directory = folder.path
    target = folder.write(REPORT, report.to_json())
    folder.write(
        COUNTERS,
        counters_json(
            report.scenario, {label: each.data.totals for label, each in report.results.items()}
        ),
    )
    folder.write(
        ENVIRONMENT,
        json.dumps(environment(started, source, notes, inputs), sort_keys=True, indent=2) + "\n",
    )
    if source is not None and source.name not in (modules or {}):
        with contextlib.suppress(OSError):  # it has gone since it was loaded
            folder.write(source.name, read_bounded(source.resolve()))
    for path, content in (modules or {}).items():
        *above, name = Path(path).parts
        inner = folder
        for each in above:
            inner = inner.folder(each)
        inner.write(name, content)
    return target
