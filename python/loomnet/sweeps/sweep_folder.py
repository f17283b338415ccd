"""The folder of a sweep: its index, and the lock by which one sweep at a time works in it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from loomnet.base.errors import UsageError
from loomnet.base.reading import parse_json
from loomnet.labs.scenario import Scenario
from loomnet.processes.folder import read_bounded
from loomnet.processes.invoking_user import rights_of, writer_of
from loomnet.sweeps.points import SWEEP_VERSION, Point, write_atomically

TABLE, INDEX, POINTS = "table.parquet", "sweep.json", "points"
SCRATCH = re.compile(r"\.dask-[A-Za-z0-9_]{8}")


class SweepIndex:
    """sweep.json: what the sweep is, and which folder is its cluster's own while it lasts."""

    def __init__(self, folder: Path) -> None:
        """Raises UsageError for a folder with files that no sweep has written and this one would
        write."""
        self.folder, before = folder, _index_of(folder)
        if before is None:
            for name in (INDEX, TABLE, POINTS):
                if os.path.lexists(folder / name):
                    raise UsageError(
                        f"sweep: {folder}/{name} is no sweep's; give another folder with --out"
                    )
        self._content: dict[str, Any] = before or {}

    @property
    def scratch(self) -> str | None:
        """The name of the folder that the cluster of this sweep, or of one that was killed, has
        here."""
        found = self._content.get("scratch")
        return found if isinstance(found, str) and SCRATCH.fullmatch(found) else None

    def note(self, scratch: str | None) -> None:
        self._content["scratch"] = scratch
        write_atomically(self.folder / INDEX, (json.dumps(self._content, indent=1) + "\n").encode())

    def write(
        self,
        scenario: Scenario,
        axes: Mapping[str, list[Any]],
        seeds: list[int],
        points: list[Point],
    ) -> None:
        scratch = self.scratch
        self._content = {
            "sweep_version": SWEEP_VERSION,
            "scenario": scenario.name,
            "file": str(scenario.file) if scenario.file else None,
            "axes": {
                name: [v if isinstance(v, (int, float, str)) else str(v) for v in values]
                for name, values in axes.items()
            },
            "seeds": seeds,
            "points": {
                point.key: {"parameters": dict(point.parameters), "seed": point.seed}
                for point in points
            },
        }
        self.note(scratch)


def _index_of(folder: Path) -> dict[str, Any] | None:
    """What sweep.json says; None where there is none of a sweep's."""
    try:
        content = parse_json(read_bounded(folder / INDEX), INDEX)
    except (OSError, UsageError):
        return None
    return content if isinstance(content, dict) and "sweep_version" in content else None


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """One sweep at a time works in a directory."""
    made = [each for each in (folder, *folder.parents) if not os.path.lexists(each)]
    try:
        with rights_of(writer_of(folder)):
            folder.mkdir(parents=True, exist_ok=True)
            lock = (folder / ".lock").open("a")  # which may be another program's
    except OSError as error:
        _unmade(folder, made)
        raise UsageError(f"sweep: --out {folder}: {error.strerror}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(f"sweep: another one works in {folder}; wait, or use --out") from None
        try:
            yield
        except UsageError:
            if not os.path.lexists(folder / INDEX):  # it could not even begin
                _unmade(folder, made)
            raise


def _unmade(folder: Path, made: list[Path]) -> None:
    """Removes the lock of a sweep that could not begin, and folders made for it that are empty."""
    with rights_of(writer_of(folder)), contextlib.suppress(OSError):
        (folder / ".lock").unlink()
    for each in (folder / "points", *made):
        with rights_of(writer_of(folder)), contextlib.suppress(OSError):
            each.rmdir()
