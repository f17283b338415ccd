"""The directory of a run: its name, what lies in it, and to whom it belongs."""

from __future__ import annotations

import json
import os
import platform
import re
import secrets
import shutil
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from loomnet.counters import counters_json
from loomnet.report import Report

RUNS = "runs"
REPORT, COUNTERS, ENVIRONMENT = "report.json", "counters.json", "environment.json"
_PACKAGES = ("loomnet", "torch", "numpy", "pydantic", "typer", "networkx", "matplotlib")


def new_run_directory(scenario: str, seed: int, root: Path | str = RUNS) -> Path:
    """Creates runs/<scenario>-<time>-<seed>-<id>/ and returns it."""
    name = re.sub(r"[^A-Za-z0-9_.]+", "_", scenario)[:80] or "run"
    stamp = time.strftime("%Y%m%dT%H%M%S")
    path = Path(root) / f"{name}-{stamp}-{seed}-{secrets.token_hex(3)}"
    path.mkdir(parents=True)
    return path


def environment(
    started: float, source: Path | None = None, notes: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Host, versions, paths and wall times: what may differ between two equal runs. `source`: the
    scenario's file, whose folder holds the scripts it names."""
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
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


def write_run(
    directory: Path,
    report: Report,
    *,
    started: float,
    source: Path | None = None,
    notes: dict[str, Any] | None = None,
) -> Path:
    """Writes report.json, counters.json, environment.json and a copy of the scenario; returns
    report.json."""
    directory.mkdir(parents=True, exist_ok=True)
    target = directory / REPORT
    target.write_text(report.to_json())
    (directory / COUNTERS).write_text(
        counters_json(
            report.scenario, {label: each.data.totals for label, each in report.results.items()}
        )
    )
    (directory / ENVIRONMENT).write_text(
        json.dumps(environment(started, source, notes), sort_keys=True, indent=2) + "\n"
    )
    if source is not None and source.is_file():
        shutil.copyfile(source, directory / source.name)
    report.directory = directory
    give_to_user(directory)
    return target


def give_to_user(path: Path) -> None:
    """Under sudo, hands a directory and all in it to the user who typed sudo."""
    uid, gid = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    if not uid.isdigit() or os.geteuid() != 0:
        return
    owner = (int(uid), int(gid) if gid.isdigit() else -1)
    parent = path.parent
    if parent.name == RUNS and parent.stat().st_uid == 0:
        os.chown(parent, *owner, follow_symlinks=False)
    for entry in (path, *path.rglob("*")):
        os.chown(entry, *owner, follow_symlinks=False)
