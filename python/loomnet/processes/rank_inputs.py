"""What ranks read, as an input of the run that started them: each rank writes it into a file."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from loomnet.base.rank_environment import READS
from loomnet.base.rank_reads import BEGUN, LISTED, OPENED, WRITTEN
from loomnet.processes.folder import Folder
from loomnet.processes.inputs import listening, stamp_of

MOST_BYTES = 32 << 20  # of one rank's file


class RankReads:
    """The files in which the ranks of one group note what they read, one for each rank, in the
    folder of the ranks' logs. There are none where no Inputs object is entered."""

    def __init__(self, folder: Folder) -> None:
        self._folder, self._listeners = folder, listening()
        self._files: dict[int, str] = {}  # by rank

    def of(self, rank: int, argv: Sequence[str], cwd: Path) -> dict[str, str]:
        """The variable that tells a rank where to note what it reads. Also notes the files that
        the rank's command names, since a rank notes nothing before it imports PyTorch."""
        if not self._listeners:
            return {}
        name = self._files[rank] = f"{rank}.reads"
        os.close(self._folder.create(name))
        for word in argv[1:]:
            path = os.path.abspath(cwd / str(word).rpartition("=")[2])
            if os.path.isfile(path):
                for each in self._listeners:
                    each.told(OPENED, path, stamp_of(path))
        return {READS: str(self._folder / name)}

    def gather(self) -> None:
        """Tells the listeners what ranks have read, and removes the files. Idempotent."""
        for rank, name in self._files.items():
            rows = list(map(_row, self._read(name)))
            for each in self._listeners:
                if not rows or rows[0] is None or rows[0][0] != BEGUN:
                    each.miss(f"files that rank {rank} has read")
                for row in rows:
                    if row is not None:
                        each.told(*row)
        self._files.clear()

    def _read(self, name: str) -> list[bytes]:
        try:
            found = self._folder.read(name, MOST_BYTES).splitlines()
        except OSError:
            found = []
        with self._folder.rights(), contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self._folder.fd)
        return found


def _row(line: bytes) -> tuple[str, str, tuple[int, int, int] | None] | None:
    """A line of a rank's, which may hold anything; None where it is none."""
    try:
        kind, path, stamp = json.loads(line)
    except (ValueError, TypeError, RecursionError):
        return None
    if kind not in (BEGUN, OPENED, LISTED, WRITTEN) or not isinstance(path, str) or "\0" in path:
        return None
    if isinstance(stamp, list) and len(stamp) == 3 and all(type(each) is int for each in stamp):
        return kind, path, (stamp[0], stamp[1], stamp[2])
    return (kind, path, None) if stamp is None else None
