"""Stock Gloo over the fabric's kernel TCP, measured as our own transports are.

The bytes, the algorithms and the works are Gloo's. This group only stands before it and marks when
each operation begins and ends, and how many bytes of payload it was.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

import loomnet.torch.connection as _connection
from loomnet.base import rank_environment as env
from loomnet.torch.naming import NamedGroup
from loomnet.torch.skip import skip_in_dynamo

# Everything that moves data; each method passes its arguments on unchanged.
_METHODS = (
    "allreduce",
    "allreduce_coalesced",
    "broadcast",
    "reduce",
    "allgather",
    "allgather_coalesced",
    "all_gather_single",
    "all_gather_single_coalesced",
    "_allgather_base",
    "allgather_into_tensor_coalesced",
    "gather",
    "scatter",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_single_coalesced",
    "_reduce_scatter_base",
    "reduce_scatter_tensor_coalesced",
    "alltoall",
    "all_to_all_single",
    "alltoall_base",
    "barrier",
    "send",
    "recv",
    "recv_anysource",
)


class MeasuredGloo(NamedGroup):
    """A Gloo group with marks. Bound to the variable ``HOST_ADDRESS`` of rank_environment where the
    launcher sets it: by default Gloo binds to what the host name resolves to, which is no address
    of the fabric."""

    def __init__(
        self,
        store: dist.Store,
        rank: int,
        size: int,
        timeout: timedelta,
        name: str = "",
        backend_name: str = "gloo",
    ) -> None:
        super().__init__(store, rank, size, timeout, name, backend_name)
        self._session = _connection.connection().session
        self._now = _connection.connection().core.monotonic_ns
        gloo: Any = dist.ProcessGroupGloo  # torch's stub lacks its options and what it measures
        options = gloo._Options()
        address = os.environ.get(env.HOST_ADDRESS)
        options._devices = [
            gloo.create_device(hostname=address) if address else gloo.create_default_device()
        ]
        options._timeout = timeout
        backend = gloo(store, rank, size, options)
        backend._set_sequence_number_for_group()
        inner: Any = dist.ProcessGroup(store, rank, size)
        inner._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
        inner._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, backend)
        inner._set_group_name(name)
        self._inner, self._backend = inner, backend
        self._answer_loggers(backend)

    def setGroupName(self, name: str) -> None:
        super().setGroupName(name)
        self._inner._set_group_name(name)

    def _get_backend(self, device: torch.device) -> Any:
        return self._backend

    def _get_sequence_number_for_group(self) -> int:
        return self._backend._get_sequence_number_for_group()

    def _set_sequence_number_for_group(self) -> None:
        self._backend._set_sequence_number_for_group()

    def set_timeout(self, timeout: timedelta) -> None:
        super().set_timeout(timeout)
        self._backend._set_default_timeout(timeout)

    def monitored_barrier(
        self, timeout: timedelta | None = None, wait_all_ranks: bool = False
    ) -> None:
        limit = self._backend.options._timeout if timeout is None else timeout
        self._backend.monitored_barrier(limit, wait_all_ranks)

    def shutdown(self) -> None:
        _callbacks.drain()
        self._inner.shutdown()

    def abort(self) -> None:
        self._inner.abort()

    def _measure(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        payload = max((_bytes(a) for a in args[:2]), default=0)
        began = self._now()
        number = self._session.foreign_begin()
        try:
            work = getattr(self._inner, name)(*args, **kwargs)
        except BaseException:
            self._session.foreign_end(number, began, payload, False)
            raise
        if work is None or number == 0:
            return work
        end = _End(self._session, number, began, payload)
        if name in ("send", "recv", "recv_anysource"):
            return _PointToPoint(work, end)  # these works have no future
        _callbacks.begin()
        work.get_future().add_done_callback(lambda f: _callbacks.run(end, f))
        return work


class _Callbacks:
    """Callbacks of futures run on Gloo's threads. One that wants the interpreter after it has begun
    to end takes the process down, so the end of the process waits for them."""

    def __init__(self) -> None:
        self._open = 0
        self._changed = threading.Condition()
        atexit.register(self.drain)

    def begin(self) -> None:
        with self._changed:
            self._open += 1

    def run(self, end: _End, future: Any) -> None:
        end(not _failed(future))
        with self._changed:
            self._open -= 1
            self._changed.notify_all()

    def drain(self, timeout: float = 5.0) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._open == 0, timeout)
        time.sleep(0.02)  # the last one has still to leave its frame


class _End:
    """Marks the end of one operation, once."""

    def __init__(self, session: Any, number: int, began: int, payload: int) -> None:
        self._arguments = (session, number, began, payload)
        self._done = False

    def __call__(self, ok: bool) -> None:
        if not self._done:
            self._done = True
            session, number, began, payload = self._arguments
            session.foreign_end(number, began, payload, ok)


_callbacks = _Callbacks()


class _PointToPoint(dist.Work):
    """Gloo's work of a send or receive, measured until it is waited for."""

    def __init__(self, work: Any, end: _End) -> None:
        super().__init__()
        self._work, self._end = work, end

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        try:
            done = self._work.wait(timeout) if timeout > timedelta(0) else self._work.wait()
        except BaseException:
            self._end(False)
            raise
        self._end(True)
        return done

    def is_completed(self) -> bool:
        return self._work.is_completed()

    def is_success(self) -> bool:
        return self._work.is_success()

    def exception(self) -> Any:
        return self._work.exception()

    def _source_rank(self) -> int:
        return self._work._source_rank()

    def source_rank(self) -> int:
        return self._work._source_rank()


def _failed(future: torch.futures.Future) -> bool:
    try:
        future.value()
    except Exception:
        return True
    return False


def _bytes(argument: Any) -> int:
    if isinstance(argument, torch.Tensor):
        return argument.numel() * argument.itemsize
    if isinstance(argument, (list, tuple)):
        return sum(map(_bytes, argument))
    return 0


def _delegate(name: str) -> Any:
    def method(self: MeasuredGloo, *args: Any, **kwargs: Any) -> Any:
        return self._measure(name, args, kwargs)

    method.__name__ = name
    return method


for _name in _METHODS:
    if hasattr(dist.ProcessGroup, _name):
        setattr(MeasuredGloo, _name, _delegate(_name))
skip_in_dynamo(MeasuredGloo)
