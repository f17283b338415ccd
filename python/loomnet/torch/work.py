"""Work handles: what a collective returns, and its future."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from threading import Lock
from types import CodeType, FrameType, MappingProxyType
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

import loomnet.torch.connection as _connection
from loomnet.torch.errors import InvalidCall
from loomnet.torch.waits import polled

_finish_lock = Lock()
# Files that are no script's: this package, what stands beside PyTorch, the standard library's own.
_NOT_OWN = (
    f"{Path(__file__).parents[1]}{os.sep}",
    f"{Path(torch.__file__).parents[1]}{os.sep}",
    threading.__file__,
)


class Caller(NamedTuple):
    """A thread that calls on a group, and the line of the script in which it called last. Where it
    is when the call has failed tells little: the failure lets all threads of the group go on."""

    name: str
    code: CodeType | None
    line: int

    @classmethod
    def now(cls, name: str) -> Caller:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.startswith(_NOT_OWN):
            frame = frame.f_back
        return cls(name, None, 0) if frame is None else cls(name, frame.f_code, frame.f_lineno)

    def __str__(self) -> str:
        if self.code is None:
            return f"{self.name} inside PyTorch"
        return f"{self.name} at {self.code.co_filename}:{self.line} in {self.code.co_name}"


class LoomnetWork(dist.Work):
    """One started call of a group.

    Args:
        link: the process's :class:`~loomnet.torch.connection.Connection`.
        raw: the compiled work.
        result: what the future gives; a list of tensors (of lists for ``allgather``).
        keep: everything whose memory the NIC reads or writes.
        after: run once when done and before anybody learns of it: copies into tensors whose memory
            was not contiguous.
        record: the call's event in the profiler, where one watches.
        callers: each thread that has called on the group, by its number.
    """

    def __init__(
        self,
        link: Any,
        raw: Any,
        result: list[Any],
        keep: Any,
        after: list[Callable[[], None]],
        record: Any = None,
        callers: Mapping[int, Caller] = MappingProxyType({}),
    ) -> None:
        super().__init__()
        self.raw = raw
        self._link = link
        self._result = result
        self._keep = keep
        self._after = after
        self._record = record
        self._callers = callers
        self._broken: Exception | None = None  # done, but the result fits not into its tensors
        self._future: torch.futures.Future | None = None
        self._base: torch.futures.Future | None = None

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Blocks until done. Raises DistBackendError if it failed, RuntimeError after `timeout`
        (0: the group's), in which case the operation goes on."""
        limit = int(timeout.total_seconds() * 1e9)
        if not self._link.session.wait(self.raw, limit if limit > 0 else -1):
            raise RuntimeError(f"Operation timed out! ({self.raw.name} goes on)")
        self.settle()
        if not self._is_right():
            raise self.failure()
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        if not polled(self.raw.done):
            return False
        self.settle()
        return True

    def is_success(self) -> bool:
        return self.is_completed() and self._is_right()

    def exception(self) -> Exception | None:
        return self.failure() if self.raw.done and not self._is_right() else None

    def result(self) -> list[Any]:
        self.wait()
        return self._result

    def _source_rank(self) -> int:
        if not self.raw.name.startswith("recv"):
            raise RuntimeError(
                "sourceRank() may only be called on work objects that correspond to "
                "a recv or recv-from-any call."
            )
        return self.raw.source

    def source_rank(self) -> int:
        return self._source_rank()

    def get_future(self) -> torch.futures.Future:
        """Completed on a callback thread, never on the one that moves the data."""
        if self._future is None:
            base: torch.futures.Future = torch.futures.Future()
            # Only an error raised in a callback reaches C++ as an error.
            self._base, self._future = base, base.then(lambda f: f.value())
            if self.raw.done:
                self.finish()
            else:
                self._link.want(self)
        return self._future

    def _is_right(self) -> bool:
        return self.raw.ok and self._broken is None

    def failure(self) -> Exception:
        if self._broken is not None:
            return self._broken
        message = self.raw.message or self.raw.status
        if len(self._callers) > 1 and self.raw.status in ("mismatch", "peer_aborted"):
            message += _places(self._callers)
        return _connection.error(f"loomnet: {self.raw.name}: {message}")

    def finish(self) -> None:
        """Completes the future. Called once, by the thread that finds the work done."""
        self.settle()
        assert self._base is not None
        if self._is_right():
            self._base.set_result(self._result)
        else:
            self._base.set_exception(self.failure())

    def settle(self) -> None:
        """Once done: copies back, then lets go of the tensors. Idempotent."""
        if self._keep is None:
            return
        with _finish_lock:
            if self._keep is None:
                return
            if self.raw.ok:
                try:
                    for copy in self._after:
                        copy()
                except InvalidCall as error:
                    self._broken = error
            if self._record is not None:
                self._record.end()
                self._record = None
            self._after = []
            self._keep = None
        self._link.release(self)


def _places(callers: Mapping[int, Caller]) -> str:
    """Which threads call on one group, and where each of them called last."""
    return (
        "; several threads of this rank call on this group, and all ranks must make the calls "
        f"in one order: {', '.join(map(str, callers.values()))}"
    )


class FinishedWork(dist.Work):
    """A call that was done before it returned."""

    def __init__(self, result: list[Any], source: int = 0) -> None:
        super().__init__()
        self._result = result
        self._source = source

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def exception(self) -> None:
        return None

    def result(self) -> list[Any]:
        return self._result

    def _source_rank(self) -> int:
        return self._source

    def get_future(self) -> torch.futures.Future:
        future: torch.futures.Future = torch.futures.Future()
        future.set_result(self._result)
        return future


class CoalescedWork(dist.Work):
    """Several works waited for as one."""

    def __init__(self, works: list[dist.Work]) -> None:
        super().__init__()
        self._works = works

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        for work in self._works:
            work.wait(timeout)
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self._works)

    def is_success(self) -> bool:
        return all(work.is_success() for work in self._works)

    def exception(self) -> Exception | None:
        return next((e for work in self._works if (e := work.exception()) is not None), None)

    def result(self) -> list[Any]:
        return [t for work in self._works for t in work.result()]

    def get_future(self) -> torch.futures.Future:
        futures = torch.futures.collect_all([work.get_future() for work in self._works])
        return futures.then(lambda f: [t for part in f.value() for t in part.value()])
