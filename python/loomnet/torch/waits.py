"""What ranks wait for outside the network, on the virtual clock: key-value stores, futures, polls.

A wait in a store becomes polls of it. A poll that finds nothing costs emulated time, 1 us at first,
then twice as much each time up to 1 ms, so that polling ends although emulated time stands while a
rank computes. Calls that may block inside PyTorch on a future of the session are marked as such.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

import loomnet.torch.connection as _connection
from loomnet.torch.private_names import replace

FIRST_PS, MOST_PS = 10**6, 10**9


class _Next(threading.local):
    """What the thread's next poll costs if it finds nothing."""

    ps = FIRST_PS


_next = _Next()


def _session() -> Any:
    """The session if its clock is virtual."""
    link = _connection.existing()
    return link.session if link is not None and link.virtual else None


def polled(found: bool) -> bool:
    """Accounts for one poll; returns `found`."""
    session = _session()
    if session is None or found:
        _next.ps = FIRST_PS
        return found
    session.compute(_next.ps, True)
    _next.ps = min(2 * _next.ps, MOST_PS)
    return found


def install() -> None:
    """Makes the waits of PyTorch's stores and futures known to the virtual clock. Once.

    Raises PrivateNameError where PyTorch has one of them no more.
    """
    _install_stores()
    # torch.futures.Future calls these.
    replace(torch._C.Future, "done", _polling, "torch._C.Future.done")
    replace(torch._C.Future, "wait", _blocking, "torch._C.Future.wait")
    for module in (torch.autograd, torch.autograd.graph):
        # Of DistributedDataParallel, backward() ends by waiting for its buckets in C++.
        replace(module, "_engine_run_backward", _blocking)


def _polling(check: Any) -> Any:
    @functools.wraps(check)
    def poll(*args: Any, **kwargs: Any) -> bool:
        return polled(check(*args, **kwargs))

    return poll


def _blocking(call: Any) -> Any:
    @functools.wraps(call)
    def block(*args: Any, **kwargs: Any) -> Any:
        session = _session()
        if session is None:
            return call(*args, **kwargs)
        session.future_call(True)
        try:
            return call(*args, **kwargs)
        finally:
            session.future_call(False)

    return block


def _install_stores() -> None:
    # As PyTorch has them: what replaces one of them may call another.
    check, add, put, pop = (
        getattr(dist.Store, name) for name in ("check", "add", "set", "queue_pop")
    )

    def limit_of(store: Any, timeout: timedelta | None) -> timedelta:
        return store.timeout if timeout is None else timeout

    def until(what: Callable[[], Any], timeout: timedelta, keys: str) -> None:
        """Polls until `what` finds something, for `timeout` of emulated time at most."""
        session = _session()
        limit = session.now_ps + int(timeout.total_seconds() * 1e12)
        while not what():
            if session.now_ps >= limit:
                limit_ms = timeout // timedelta(milliseconds=1)
                raise dist.DistStoreError(f"wait timeout after {limit_ms}ms, keys: {keys}")
            polled(False)
        polled(True)

    def until_set(store: Any, keys: list[str], timeout: timedelta) -> None:
        until(lambda: check(store, keys), timeout, ", ".join(keys))

    def waiting(wait: Any) -> Any:
        @functools.wraps(wait)
        def store_wait(self: Any, keys: list[str], timeout: timedelta | None = None) -> None:
            if _session() is None:
                return wait(self, keys) if timeout is None else wait(self, keys, timeout)
            return until_set(self, keys, limit_of(self, timeout))

        return store_wait

    def getting(get: Any) -> Any:
        @functools.wraps(get)
        def store_get(self: Any, key: str) -> bytes:
            if _session() is not None:
                until_set(self, [key], self.timeout)
            return get(self, key)

        return store_get

    def getting_several(several: Any) -> Any:
        @functools.wraps(several)
        def store_multi_get(self: Any, keys: list[str]) -> list[bytes]:
            if _session() is not None:
                until_set(self, keys, self.timeout)
            return several(self, keys)

        return store_multi_get

    def checking(_: Any) -> Any:
        @functools.wraps(check)
        def store_check(self: Any, keys: list[str]) -> bool:
            return polled(check(self, keys))

        return store_check

    def popping(_: Any) -> Any:
        @functools.wraps(pop)
        def store_queue_pop(self: Any, key: str, block: bool = True) -> bytes:
            if not block:
                try:
                    value = pop(self, key, False)
                except dist.QueueEmptyError:
                    polled(False)
                    raise
                polled(True)
                return value
            if _session() is None:
                return pop(self, key)
            found: list[bytes] = []

            def popped() -> bool:
                # Another rank may take the last one between two calls, so the pop itself is tried.
                try:
                    found.append(pop(self, key, False))
                except dist.QueueEmptyError:
                    return False
                return True

            until(popped, self.timeout, key)
            return found[0]

        return store_queue_pop

    def meeting(barrier: Any) -> Any:
        @functools.wraps(barrier)
        def store_barrier(
            self: Any, key: str, world_size: int, timeout: timedelta | None = None
        ) -> None:
            if _session() is None:
                return barrier(self, key, world_size, timeout)
            # As PyTorch's own barrier of files and tables does it: a barrier in C++ cannot be
            # polled.
            if add(self, f"{key}/num_members", 1) >= world_size:
                put(self, f"{key}/last_member", "")
            return until_set(self, [f"{key}/last_member"], limit_of(self, timeout))

        return store_barrier

    for name, wrap in {
        "wait": waiting,
        "get": getting,
        "check": checking,
        "multi_get": getting_several,
        "queue_pop": popping,
        "barrier": meeting,
    }.items():
        replace(dist.Store, name, wrap, f"torch.distributed.Store.{name}")
