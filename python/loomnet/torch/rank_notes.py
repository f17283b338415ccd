"""What this process has asked of PyTorch, in a file that the run reads: a run whose network was
never used says so with it. The file is the one in which the run asks for the stacks of threads."""

from __future__ import annotations

import faulthandler
import os
import signal
from typing import Any

from loomnet.base import rank_environment as env

_MOST = 64  # different notes of one rank
_MOST_LETTERS = 120
_fd: int | None = None
_said: set[str] = set()


def open_file() -> None:
    """Takes over the descriptor that the launcher left, and answers the run's question where each
    thread is from now on. Once; without a descriptor nothing happens."""
    global _fd
    if _fd is None and (left := os.environ.pop(env.STACK_FD, None)) is not None:
        _fd = int(left)
        faulthandler.register(signal.SIGRTMAX, file=_fd)


def say(kind: str, what: str = "") -> None:
    """Notes, once, a line "KIND WHAT"."""
    line = "".join(c if c.isprintable() else "?" for c in f"{kind} {what}"[:_MOST_LETTERS])
    if _fd is None or line in _said or len(_said) >= _MOST:
        return
    _said.add(line)
    os.write(_fd, f"{line}\n".encode())


def watch(dist: Any) -> None:
    """Notes each backend that the script asks for, by whichever call."""
    # Every way of making a group makes a BackendConfig of the backend's name.
    config = dist.distributed_c10d.BackendConfig
    original = config.__init__

    def init(self: Any, backend: Any) -> None:
        say("asked", str(backend))
        original(self, backend)

    config.__init__ = init
    say("loaded")
