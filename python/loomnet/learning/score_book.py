"""Scores that are kept in a folder as they come, so that none is computed twice."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from loomnet.base.errors import UsageError
from loomnet.base.reading import parse_json
from loomnet.learning.grid import Found, Point, score
from loomnet.learning.scores import Scores
from loomnet.processes.folder import Folder
from loomnet.processes.inputs import build

WRITTEN_S = 20.0  # between two times that a book is written


def name_of(control: str | bytes) -> str:
    """A control's own name; of a policy a digest of its bytes."""
    return control if isinstance(control, str) else f"policy-{digest(control)[:16]}"


def digest(policy: bytes) -> str:
    return hashlib.sha256(policy).hexdigest()


class ScoreBook:
    """A file of scores by control and point. Those of another build of Loomnet are forgotten."""

    def __init__(self, folder: Folder, name: str) -> None:
        """Raises UsageError where the file is not such a book."""
        self._folder, self._name = folder, name
        self._rows: dict[str, dict[str, Any]] = {}
        if name in folder.names():
            try:
                content = parse_json(folder.read(name), name)
                if content["build"] == build():
                    self._rows = {str(key): dict(rows) for key, rows in content["rows"].items()}
                    for rows in self._rows.values():
                        for row in rows.values():
                            _scores(row)
            except (OSError, UsageError, KeyError, TypeError, AttributeError, ValueError) as error:
                raise UsageError(
                    f"{folder / name} is damaged ({type(error).__name__}); remove it, and its "
                    "scores are computed again"
                ) from None

    def of(
        self,
        control: str | bytes,
        points: Sequence[Point],
        options: Mapping[str, Any],
        *,
        jobs: int = 1,
        watch: Callable[[int], None] = lambda done: None,
    ) -> Found:
        """Of a control at these points; those that the book does not have are computed. `watch` is
        told how many are there, and may raise: what was computed until then is kept."""
        rows = self._rows.setdefault(name_of(control), {})
        missing = [each for each in points if str(each) not in rows]
        written = time.monotonic()
        try:
            for each, found in score(missing, control, options, jobs):
                rows[str(each)] = found.row()
                if time.monotonic() - written > WRITTEN_S:
                    self._write()
                    written = time.monotonic()
                watch(sum(str(point) in rows for point in points))
        finally:
            if missing:
                self._write()
        return {each: _scores(rows[str(each)]) for each in points}

    def controls(self) -> list[str]:
        """Names of those that have scores."""
        return [name for name, rows in self._rows.items() if rows]

    def _write(self) -> None:
        content = {"build": build(), "rows": self._rows}
        self._folder.write(self._name, json.dumps(content, indent=1) + "\n")


def _scores(row: Mapping[str, Any]) -> Scores:
    """The scores of a row. Raises ValueError and TypeError where the row has other entries."""
    values = {name: value for name, value in row.items() if name != "score"}
    for name, value in values.items():
        if not (math.isfinite(value) if value is not None else name == "converged_s"):
            raise ValueError(f"{name} is {value}")
    return Scores(**values)
