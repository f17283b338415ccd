"""A run's folder: what its label may be, and the files of its figures beside the report."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Container, Sequence
from pathlib import Path

from loomnet.base.errors import UsageError
from loomnet.base.names import quoted
from loomnet.measures.run_data import RunData
from loomnet.processes.folder import Folder
from loomnet.processes.invoking_user import RankUser, rights_of
from loomnet.results.run_directory import CIRCUITS, FILES, GATES, OBSERVED, POOLS, RUNS


class TemporaryFolder:
    """Where a run that is not to be kept has what it needs on disk. It belongs to the run's user,
    as any run's folder."""

    def __init__(self) -> None:
        self._user = RankUser.invoking()
        with rights_of(self._user):
            self.path = Path(tempfile.mkdtemp(prefix="loomnet-"))

    def remove(self) -> None:
        """Idempotent."""
        with rights_of(self._user):
            shutil.rmtree(self.path, ignore_errors=True)

    def remove_with(self, *owners: object) -> None:
        """Removes it when none of the owners is there any more, at the latest when Python ends."""
        self._owners = len(owners)
        for owner in owners:
            weakref.finalize(owner, self._one_less)

    def _one_less(self) -> None:
        self._owners -= 1
        if self._owners == 0:
            self.remove()


_LABEL = re.compile("[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


def folders_in(directory: Path) -> frozenset[Path]:
    """A folder and all in it, where it is there."""
    return frozenset(Path(each) for each, _, _ in os.walk(directory))


def remove_empty(folder: Path, theirs: frozenset[Path]) -> bool:
    """Removes empty folders in a run's folder, but `theirs`, and the folder itself and runs/ if
    nothing is in them. Whether the folder has gone."""
    parents = [folder.parent] if folder.parent.name == RUNS else []
    with contextlib.suppress(OSError):
        for path in [*sorted(folder.rglob("*"), reverse=True), folder, *parents]:
            if path in theirs:
                continue
            if path.is_dir() and not path.is_symlink() and not any(path.iterdir()):
                path.rmdir()
        return not folder.exists()
    return False


def check_label(label: str | None, taken: Container[str | None], source: Path | None) -> None:
    """Raises UsageError for a label that is no plain name of a folder, that another run of the lab
    has (`taken`), or that is the name of the scenario's file (`source`)."""
    if label in FILES:
        raise UsageError(
            f"run: label {quoted(label)} is the name of a run's own file; choose another"
        )
    if label not in (None, "") and not (isinstance(label, str) and _LABEL.fullmatch(label)):
        raise UsageError(
            f"run: label {quoted(label)}: write up to 100 letters, digits, _ . and -, "
            "and begin with a letter, a digit or _"
        )
    if label in taken:
        raise UsageError(
            f'run: label "{label}" is taken; give each run of a lab its own label='
            if label
            else "run: a second run needs a label="
        )
    if label and source is not None and label == source.name:
        raise UsageError(
            f"run: label {quoted(label)} is the name of the scenario's file, of "
            "which a run keeps a copy; choose another"
        )


def write_figures(folder: Folder, found: Sequence[RunData]) -> None:
    """Writes the parts of a run that are too long for the report: series of senders, slots of
    pools, events of circuits and the counts of gates, each where the runs have some."""
    if found[0].observed is not None:
        folder.write(OBSERVED, found[0].observed.csv())
    if found[0].pools is not None:
        folder.write(POOLS, found[0].pools.csv())
    events = b"".join(data.experts.events.lines() for data in found if data.experts is not None)
    if events:
        folder.write(CIRCUITS, events)
    for data in found:
        if data.experts is not None and data.experts.gates is not None:
            gates = folder.folder(GATES)
            for name, content in data.experts.gates.files():
                gates.write(name, content)
