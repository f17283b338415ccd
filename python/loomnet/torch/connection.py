"""This process's one connection to its emulated NIC, made when first needed, left at exit."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from loomnet.base import rank_environment as env
from loomnet.torch import children, rank_notes

# At exit, for posted writes to complete: peers may need them. On the virtual clock the engine says
# when nothing is under way any more.
_LINGER_NS = 5_000_000_000
_MAX_CALLBACK_THREADS = 8
OWN_THREADS = "loomnet-"  # how the names of this package's threads begin


class Connection:
    """The rank's session and what the process needs beside it: callback threads, works in flight.

    Use :func:`connection`. Attributes: `session`, the compiled ``RankSession``; `core`, the
    compiled module.
    """

    def __init__(self) -> None:
        try:
            import loomnet._core as _core
        except ImportError as error:
            raise RuntimeError(
                f"loomnet: the compiled module is missing ({error}); "
                "in a clone of Loomnet: pip install ."
            ) from None
        memory, event = os.environ.get(env.RANK_FD), os.environ.get(env.EVENT_FD)
        if memory is None or event is None:
            raise RuntimeError(
                f"loomnet: no emulated NIC here ({env.RANK_FD} is not set); start the script with "
                '`loomnet run` (ln.TorchJob), or ask for backend "gloo"'
            )
        rank_notes.open_file()
        fds = [int(memory), int(event)]
        self.core = _core
        # Over TCP a send is over once the socket has the bytes, as Gloo sees it.
        awaits = os.environ.get(env.AWAIT_SENDS, "1") == "1"
        self.session = _core.RankSession(*fds, await_sends=awaits)
        self.virtual = os.environ.get(env.CLOCK) == "virtual"
        if os.environ.get(env.RING_STEPS) == "1":
            self.session.mark_ring_steps()
        if env.DILATION in os.environ:
            self.session.use_dilation(float(os.environ[env.DILATION]))
        # The NIC is this process's alone: not its children's, forked or spawned.
        for fd in fds:
            os.close(fd)
        del os.environ[env.RANK_FD], os.environ[env.EVENT_FD]
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._wanted: dict[int, Any] = {}
        self._flying: dict[int, Any] = {}
        atexit.register(self.leave)

    def hold(self, work: Any) -> None:
        """Keeps a work, and so its tensors, alive while the NIC may touch them."""
        flying = self._flying
        flying[work.raw.id] = work
        if len(flying) >= 64:
            for old in list(flying.values()):
                if old.raw.done:
                    old.settle()

    def release(self, work: Any) -> None:
        self._flying.pop(work.raw.id, None)

    def want(self, work: Any) -> None:
        """Has ``work.finish()`` called on a callback thread as soon as it is done."""
        with self._lock:
            self._wanted[work.raw.id] = work
            if len(self._threads) < _MAX_CALLBACK_THREADS:
                # Several: a callback may itself wait for a collective and its future.
                name = f"{OWN_THREADS}callbacks-{len(self._threads)}"
                thread = threading.Thread(target=self._callbacks, name=name, daemon=True)
                self._threads.append(thread)
                thread.start()
        if not self.session.want(work.raw):
            self._wanted.pop(work.raw.id, None)
            work.finish()

    def _callbacks(self) -> None:
        while (raw := self.session.next_finished()) is not None:
            work = self._wanted.pop(raw.id, None)
            if work is not None:
                work.finish()
            del work

    def leave(self) -> None:
        """Says goodbye to the NIC; an unhandled exception is told to the peers first."""
        if os.getpid() != self._pid:
            return  # a forked child: the NIC is its parent's
        error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        if error is not None:
            reason = f"rank {self.session.rank} failed: {type(error).__name__}: {error}"[:400]
            self.session.mark(self.core.MARK_KINDS["failure"], 255)
            for group in _open_groups():
                group.fail(reason)
        self._name_strays()
        self.session.leave(_LINGER_NS)
        for thread in self._threads:
            thread.join(2.0)
        self._flying.clear()

    def _name_strays(self) -> None:
        """Into the rank's log, a line each: the run reads them there."""
        for name in self.session.strays:
            shown = "".join(c if c.isprintable() else "?" for c in name)[:80]
            print(f"{env.STRAY}{shown or 'a thread that Python did not start'}", flush=True)


_connection: Connection | None = None
_guard = threading.Lock()
_groups: set[Any] = set()
_to_tell: list[Callable[[Connection], None]] = []


def connection() -> Connection:
    """The process's connection. Raises RuntimeError, in one line, outside a run."""
    global _connection
    children.refuse()
    with _guard:
        if _connection is None:
            _connection = Connection()
            for call in _to_tell:
                call(_connection)
            _to_tell.clear()
        return _connection


def when_connected(call: Callable[[Connection], None]) -> None:
    """Calls it with the process's connection, now or as soon as there is one."""
    with _guard:
        if _connection is None:
            _to_tell.append(call)
            return
    call(_connection)


def existing() -> Connection | None:
    """The connection if there is one already."""
    return _connection


def register_group(group: Any) -> None:
    _groups.add(group)


def forget_group(group: Any) -> None:
    _groups.discard(group)


def _open_groups() -> list[Any]:
    return list(_groups)


def error(message: str) -> Exception:
    """What a failed collective raises: a RuntimeError, as with the built-in backends."""
    return dist.DistBackendError(message)
