"""Requests for panels that come from threads of control interfaces, and are carried out by the one
thread that may touch the network."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from loomnet.base.errors import UnavailableError

T = TypeVar("T")
Work = Callable[[Any, int], Any]
MOST_WAITING = 64
MOST_AT_ONCE = 4  # because each request stops the engine's loop for a moment
LEAST_APART_S = 0.002  # least time between two looks, even if requests wait
PATIENCE_S = 60.0  # for the owner to look at requests; a run takes a while to start


class RunEnded(UnavailableError):
    """The run is over, or no longer carries requests out."""


class _Request:
    def __init__(self, panel: str, fn: Work) -> None:
        self.panel, self._fn = panel, fn
        self.done = threading.Event()
        self.result: Any = None
        self.error: Exception | None = None

    def run(self, device: Any, now_ps: int) -> None:
        """Carries the request out. An error is kept for the thread that asked, and is not raised
        here: the run continues."""
        try:
            self.result = self._fn(device, now_ps)
        except Exception as error:
            self.error = error


class Requests:
    """Askers call operate(); the owner of the network calls wait() and serve() in turn."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[_Request] = deque()
        self._open, self._served = True, 0.0

    # --- askers -----------------------------------------------------------------------------------
    def operate(self, panel: str, fn: Callable[[Any, int], T]) -> T:
        """Has the owner call fn(device, now_ps) for that panel at its next look, and returns the
        result. Raises what fn raises, RunEnded, and UnavailableError where too many requests
        wait."""
        asked = _Request(panel, fn)
        with self._changed:
            if not self._open:
                raise RunEnded("the run has ended")
            if len(self._waiting) >= MOST_WAITING:
                raise UnavailableError(f"{MOST_WAITING} requests wait already; ask again")
            self._waiting.append(asked)
            self._changed.notify()
        if not asked.done.wait(PATIENCE_S):
            with self._changed:
                if asked in self._waiting:
                    self._waiting.remove(asked)
                    raise RunEnded(f"the run has taken no request for {PATIENCE_S:.0f} s")
            asked.done.wait()  # the owner is carrying it out
        if asked.error is not None:
            raise asked.error
        return asked.result

    # --- the owner --------------------------------------------------------------------------------
    def wait(self, seconds: float) -> bool:
        """Returns when a request waits or the time is over: whether a request waits."""
        with self._changed:
            if not self._waiting and self._open:
                self._changed.wait(seconds)
            found = bool(self._waiting)
        if found and (early := self._served + LEAST_APART_S - time.monotonic()) > 0:
            time.sleep(early)
        return found

    def serve(self, operate: Callable[[str, Work], Any]) -> None:
        """Carries out up to MOST_AT_ONCE of the waiting requests, by `operate(panel, fn)`."""
        for _ in range(MOST_AT_ONCE):
            with self._changed:
                if not self._waiting:
                    return
                asked = self._waiting.popleft()
            self._served = time.monotonic()
            try:
                operate(asked.panel, asked.run)
            except Exception as error:
                asked.error = error
            except BaseException:
                asked.error = RunEnded("the run has ended")
                raise
            finally:
                asked.done.set()

    def close(self) -> None:
        """From now on all requests, also those that wait, end with RunEnded. May be called more
        than once."""
        with self._changed:
            self._open = False
            waiting, self._waiting = list(self._waiting), deque()
            self._changed.notify_all()
        for asked in waiting:
            asked.error = RunEnded("the run has ended")
            asked.done.set()

    @property
    def open(self) -> bool:
        return self._open
