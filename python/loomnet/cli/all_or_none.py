"""Files that a command writes for a user: all of them, or none and no new folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from loomnet.processes.folder import Folder


@contextlib.contextmanager
def all_or_none(opened: Folder, below: Iterable[Path]) -> Iterator[None]:
    """Inside, files are written at these paths below a folder, where none were. If one cannot be
    written, as on a full disk, those before it are removed, with the folders made for them."""
    try:
        yield
    except BaseException:
        paths = list(below)
        inner = {parent for path in paths for parent in path.parents if parent != Path(".")}
        with opened.rights():
            for path in paths:
                with contextlib.suppress(OSError):
                    (opened.path / path).unlink()
            for each in sorted(inner, key=lambda parent: -len(parent.parts)):
                with contextlib.suppress(OSError):
                    (opened.path / each).rmdir()
            for each in opened.made:
                with contextlib.suppress(OSError):
                    each.rmdir()
        raise
