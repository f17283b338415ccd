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
    """Makes the waits of PyTorch's stores and futures known to the virtual clock. Once."""
    _install_stores()
    _replace(torch._C.Future, "done", _polling)  # torch.futures.Future calls these
    _replace(torch._C.Future, "wait", _blocking)
    for module in (torch.autograd, torch.autograd.graph):
        # Of DistributedDataParallel, backward() ends by waiting for its buckets in C++.
        _replace(module, "_engine_run_backward", _blocking)


def _replace(owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
    original = getattr(owner, name, None)
    if original is not None:
        setattr(owner, name, wrap(original))


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
    check, get = dist.Store.check, dist.Store.get
    wait, several = dist.Store.wait, getattr(dist.Store, "multi_get", None)

    def until(store: Any, keys: list[str], timeout: timedelta) -> None:
        session = _session()
        limit = session.now_ps + int(timeout.total_seconds() * 1e12)
        while not check(store, keys):
            if session.now_ps >= limit:
                limit_ms = timeout // timedelta(milliseconds=1)
                raise dist.DistStoreError(f"wait timeout after {limit_ms}ms, "
                                          f"keys: {', '.join(keys)}")
            polled(False)
        polled(True)

    @functools.wraps(wait)
    def store_wait(self: Any, keys: list[str], timeout: timedelta | None = None) -> None:
        if _session() is None:
            return wait(self, keys) if timeout is None else wait(self, keys, timeout)
        return until(self, keys, self.timeout if timeout is None else timeout)

    @functools.wraps(get)
    def store_get(self: Any, key: str) -> bytes:
        if _session() is not None:
            until(self, [key], self.timeout)
        return get(self, key)

    @functools.wraps(check)
    def store_check(self: Any, keys: list[str]) -> bool:
        return polled(check(self, keys))

    dist.Store.wait, dist.Store.get, dist.Store.check = store_wait, store_get, store_check
    if several is not None:

        @functools.wraps(several)
        def store_multi_get(self: Any, keys: list[str]) -> list[bytes]:
            if _session() is not None:
                until(self, keys, self.timeout)
            return several(self, keys)

        dist.Store.multi_get = store_multi_get
