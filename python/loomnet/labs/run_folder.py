"""A run's folder: what its label may be, and the files of its figures beside the report."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path

from loomnet.base.errors import UsageError
from loomnet.base.names import quoted
from loomnet.measures.run_data import RunData
from loomnet.processes.folder import Folder
from loomnet.processes.invoking_user import RankUser, rights_of
from loomnet.results.run_directory import CIRCUITS, FILES, GATES, OBSERVED, POOLS


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


def check_label(label: str | None) -> None:
    """Raises UsageError for a label that is no plain name of a folder."""
    if label is None or label == "":
        return
    if label in FILES:
        raise UsageError(f"run: label {quoted(label)} is the name of a run's own file; "
                         "choose another")
    if not (isinstance(label, str) and _LABEL.fullmatch(label)):
        raise UsageError(f"run: label {quoted(label)}: write up to 100 letters, digits, _ . and -, "
                         "and begin with a letter, a digit or _")


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
