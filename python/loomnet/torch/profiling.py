"""Collectives in torch.profiler: an event per call, named and shaped as Gloo's are."""

from __future__ import annotations

import atexit
import queue
import threading
from collections.abc import Sequence
from typing import Any

import torch
import torch.autograd.profiler

from loomnet.torch.private_names import replace

# True in a thread that a profiler watches; a few nanoseconds.
profiling = torch.autograd._profiler_enabled

_ending: queue.SimpleQueue[Record | None] = queue.SimpleQueue()
_open: set[Record] = set()  # begun and not yet ended
_thread: threading.Thread | None = None
_guard = threading.Lock()


class Record:
    """An event that begins here and ends with the work, or with the profiler if that stops first.

    It ends in a thread of its own: the profiler takes an event for asynchronous if it ends in
    another thread than the one that it began in.
    """

    def __init__(self, title: str, tensors: Sequence[torch.Tensor]) -> None:
        handle = torch.autograd._record_function_with_args_enter(title, *tensors)
        self._work_ended: torch.futures.Future = torch.futures.Future()
        # Ends the event with the profiler of this thread, whichever thread sets the result.
        torch.ops.profiler._call_end_callbacks_on_jit_fut(handle, self._work_ended)
        self._asked, self._ended = False, threading.Event()
        _open.add(self)

    def end(self) -> None:
        """Returns once the profiler has the event; again, at once."""
        global _thread
        with _guard:
            if _thread is None:
                _thread = threading.Thread(target=_end_events, name="loomnet-profiler", daemon=True)
                _thread.start()
                atexit.register(_ending.put, None)
            if not self._asked:
                self._asked = True
                _ending.put(self)
        self._ended.wait()


def end(record: Record | None) -> None:
    """Ends the event of a call that had one."""
    if record is not None:
        record.end()


def _end_events() -> None:
    while (record := _ending.get()) is not None:
        record._work_ended.set_result(None)
        _open.discard(record)
        record._ended.set()
        del record


def _stop_after_events(stop: Any) -> Any:
    """`stop`, which ends first what is open: an event that ends after the profiler has stopped is
    written to memory that the profiler has given back."""

    def stop_after_events(*args: Any, **kwargs: Any) -> Any:
        for record in list(_open):
            record.end()
        return stop(*args, **kwargs)

    return stop_after_events


for _module in (torch.autograd, torch.autograd.profiler):
    replace(_module, "_disable_profiler", _stop_after_events)
