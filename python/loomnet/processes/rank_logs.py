"""What ranks print: a file each, read by the descriptor it was made with. A rank has its log as
standard output, and may cut it off, stretch it or put another file in its place."""

from __future__ import annotations

import os
import re
import weakref

from loomnet.processes.folder import Folder

_LOG_TAIL = 256 * 1024  # bytes of a log that are read to find its traceback
_AT_ONCE = 4 << 20  # bytes taken in by one look at a log
_OF_RANK = re.compile(r"^\[rank\d{1,9}\]: ?")
_MOST_LINES = 200  # of a traceback
MOST_LINE = 64 * 1024  # bytes; a longer line of a log is left out


class RankLog:
    """One rank's log: `path` for messages, :meth:`tail` and :meth:`lines` for its content."""

    def __init__(self, folder: Folder, name: str) -> None:
        self.path = folder / name
        self._writer = folder.create(name)
        # Flags and offset belong to an open file: the rank shares its own with us, not this one.
        self._fd = os.open(f"/proc/self/fd/{self._writer}", os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._fd)
        self._offset, self._rest, self._skipping = 0, b"", False

    def writer(self) -> int:
        """The descriptor to write to, which the caller closes; once."""
        fd, self._writer = self._writer, -1
        return fd

    def lines(self) -> list[str]:
        """Whole lines that were written since the last call, 4 MiB of them at most. A line of
        more than 64 KiB is left out."""
        data = os.pread(self._fd, _AT_ONCE, self._offset)
        self._offset += len(data)
        *whole, rest = data.split(b"\n")
        if whole:
            whole[0] = self._rest + whole[0]
            if self._skipping:
                del whole[0]
            self._rest, self._skipping = b"", False
        self._rest += rest
        if len(self._rest) > MOST_LINE:
            self._rest, self._skipping = b"", True
        return [line.decode(errors="replace") for line in whole if len(line) <= MOST_LINE]

    @property
    def at_end(self) -> bool:
        """Whether all was read that is there now."""
        return self._offset >= os.fstat(self._fd).st_size

    def error(self) -> str:
        """The last Python traceback in it, chained ones included; without one, its last line."""
        return traceback_in(self._tail())

    def said(self, begin: str) -> list[str]:
        """What stands behind `begin` on lines near its end, in order; 80 characters of each."""
        return [
            line[len(begin) :][:80] for line in self._tail().splitlines() if line.startswith(begin)
        ]

    def _tail(self) -> str:
        size = os.fstat(self._fd).st_size
        tail = os.pread(self._fd, _LOG_TAIL, max(0, size - _LOG_TAIL))
        return tail.decode(errors="replace")


def traceback_in(text: str) -> str:
    """The last Python traceback in what a rank printed; without one, its last line."""
    # PyTorch's excepthook begins each line with the rank, once there is a process group.
    lines = [_OF_RANK.sub("", line[:MOST_LINE]) for line in text.splitlines()]
    starts = [i for i, line in enumerate(lines) if line.startswith("Traceback (most recent call")]
    if not starts:
        return next((line.strip()[:1000] for line in reversed(lines) if line.strip()), "")
    end = starts[-1] + 1
    while end < len(lines) and (lines[end].startswith((" ", "\t")) or not lines[end].strip()):
        end += 1
    found = lines[starts[-1] : end + 1]
    if len(found) > _MOST_LINES:
        half = _MOST_LINES // 2
        found[half:-half] = [f"  … {len(found) - 2 * half} lines left out …"]
    return "\n".join(found)
