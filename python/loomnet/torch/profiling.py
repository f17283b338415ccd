"""Collectives in torch.profiler: an event per call, named and shaped as Gloo's are."""

from __future__ import annotations

import atexit
import queue
import threading
from collections.abc import Sequence
from typing import Any

import torch

# True in a thread that a profiler watches; a few nanoseconds.
profiling = torch.autograd._profiler_enabled

_ending: queue.SimpleQueue[tuple[Any, threading.Event] | None] = queue.SimpleQueue()
_thread: threading.Thread | None = None
_guard = threading.Lock()


class Record:
    """An event that begins here and ends with the work.

    It ends in a thread of its own: the profiler takes an event for asynchronous if it ends in
    another thread than the one that it began in.
    """

    def __init__(self, title: str, tensors: Sequence[torch.Tensor]) -> None:
        handle = torch.autograd._record_function_with_args_enter(title, *tensors)
        self._work_ended: torch.futures.Future = torch.futures.Future()
        # Ends the event with the profiler of this thread, whichever thread sets the result.
        torch.ops.profiler._call_end_callbacks_on_jit_fut(handle, self._work_ended)

    def end(self) -> None:
        """Returns once the profiler has the event. To be called once."""
        global _thread
        with _guard:
            if _thread is None:
                _thread = threading.Thread(target=_end_events, name="loomnet-profiler", daemon=True)
                _thread.start()
                atexit.register(_stop)
        ended = threading.Event()
        _ending.put((self._work_ended, ended))
        ended.wait()


def end(record: Record | None) -> None:
    """Ends the event of a call that had one."""
    if record is not None:
        record.end()


def _end_events() -> None:
    while (item := _ending.get()) is not None:
        work_ended, ended = item
        work_ended.set_result(None)
        ended.set()
        del item, work_ended


def _stop() -> None:
    _ending.put(None)
