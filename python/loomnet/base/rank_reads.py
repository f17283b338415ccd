"""In a rank's process: tells the run which files the rank opens, a line each, by Python's audit
events. The standard library alone: it is part of `import torch`."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from typing import Any

from loomnet.base.rank_environment import READS

BEGUN = "begun"  # the first line; without it nothing is known of what the rank has read
OPENED, LISTED, WRITTEN = "opened", "listed", "written"
_WRITING = os.O_WRONLY | os.O_RDWR
_installed = False


def install() -> None:
    """Notes the files that were loaded so far and each file that is opened from here on, if the run
    has made a file for these notes. Idempotent."""
    global _installed
    path = os.environ.get(READS)
    if not path or _installed:
        return
    try:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return  # the run misses the first line
    _installed = True
    teller = _Teller(fd)
    teller.tell(BEGUN, "")
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and os.path.isabs(file):
            teller.tell(OPENED, os.path.abspath(file))
    sys.addaudithook(teller.hear)


class _Teller:
    def __init__(self, fd: int) -> None:
        self._fd, self._told = fd, set[tuple[str, str]]()
        self._python = tuple({f"{each}/lib/" for each in (sys.prefix, sys.base_prefix)})

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in ("open", "os.listdir", "os.scandir"):
            return
        path = arguments[0]
        try:
            if event != "open":
                # Python's import lists folders to find modules, which it opens then.
                if sys._getframe(1).f_code.co_filename.startswith("<frozen importlib"):
                    return
                path = "." if path is None else path
            if not isinstance(path, (str, bytes, os.PathLike)):
                return  # a descriptor
            kind = LISTED
            if event == "open":
                flags = arguments[2]
                kind = WRITTEN if isinstance(flags, int) and flags & _WRITING else OPENED
            self.tell(kind, os.path.abspath(os.fsdecode(path)))
        except (OSError, ValueError):
            pass  # a name that no file can have, or no room for the line

    def tell(self, kind: str, path: str) -> None:
        if path.startswith(self._python) or (kind, path) in self._told:
            return
        self._told.add((kind, path))
        if path.endswith(".pyc"):
            path = importlib.util.source_from_cache(path)
        stamp = None
        try:
            found = os.stat(path)
            stamp = [found.st_ino, found.st_size, found.st_mtime_ns]
        except OSError:
            pass
        os.write(self._fd, (json.dumps([kind, path, stamp]) + "\n").encode())
