"""--max-wall for a user's own code: an alarm that ends it while a scenario file is loaded, between
the runs of a lab, and in a plug-in that a run has called. A run itself looks at the time."""

from __future__ import annotations

import contextlib
import functools
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, ParamSpec, TypeVar

from loomnet.base.errors import UsageError, WallTimeError
from loomnet.base.names import quoted

P = ParamSpec("P")
T = TypeVar("T")

# A run that --max-wall ended still returns its figures; the scenario has this long to check them.
CLOSING_S = 2.0
MOST_S = 10**9
AGAIN_S = 0.5  # the alarm repeats: code that swallows every exception may swallow the first


def over_text(seconds: float | None) -> str:
    return f"--max-wall {seconds:g} s is over"


class WallTimeOver(BaseException):
    """Raised in a scenario's own code; no `except Exception` of the scenario holds it up."""


class WallTime:
    """The wall time that one scenario may take; None is any. Entered around the scenario's own
    code; suspended() is entered around what must not be broken off there, a run above all, and
    users_code() in it around each call of a user's own.

    The alarm is SIGALRM's, so it is set in the main thread alone. One that was set before, as a
    test's time-out is, still comes at its time.
    """

    def __init__(self, seconds: float | None) -> None:
        """Raises UsageError for what is no number of seconds."""
        number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
        if seconds is not None and not (number and 0 < seconds <= MOST_S):
            raise UsageError(
                f"max_wall_s={quoted(seconds)} must be seconds, above 0 and at most {MOST_S}"
            )
        self.seconds = seconds
        self._end = None if seconds is None else time.monotonic() + seconds
        self._alarm = 0.0 if self._end is None else self._end + CLOSING_S
        self._before: Any = None
        self._theirs: float | None = None  # when the alarm comes that was set before
        self._suspended = 0  # how deep in suspended()
        self._users = 0  # how deep in users_code()
        self._paused: WallTime | None = None  # of the scenario that runs this one
        self._set = False

    @property
    def left_s(self) -> float | None:
        """Seconds until the end, 0 or more; None where there is none."""
        return None if self._end is None else max(self._end - time.monotonic(), 0.0)

    def check(self) -> None:
        """Raises WallTimeError once nothing is left."""
        if self.left_s == 0.0:
            raise WallTimeError(self.reason)

    @property
    def reason(self) -> str:
        return over_text(self.seconds)

    def __enter__(self) -> WallTime:
        if self._end is not None and _running is not None:
            self._paused = _running
            self._paused.disarm()
        self._arm()
        return self

    def __exit__(self, *_: object) -> None:
        self.disarm()
        if self._paused is not None:
            self._paused._arm()

    def _arm(self) -> None:
        if self._end is None or threading.current_thread() is not threading.main_thread():
            return
        global _running
        _running = self
        left, _ = signal.getitimer(signal.ITIMER_REAL)
        self._theirs = time.monotonic() + left if left else None
        self._before = signal.signal(signal.SIGALRM, self._on_alarm) or signal.SIG_DFL
        self._set = True
        self._wind()

    def _wind(self) -> None:
        due = self._alarm if self._theirs is None else min(self._alarm, self._theirs)
        signal.setitimer(signal.ITIMER_REAL, max(due - time.monotonic(), 0.001), AGAIN_S)

    def disarm(self) -> None:
        if not self._set:
            return
        global _running
        self._set, _running = False, None
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)
        if self._theirs is not None:
            signal.setitimer(signal.ITIMER_REAL, max(self._theirs - time.monotonic(), 0.001))

    def _on_alarm(self, number: int, frame: FrameType | None) -> None:
        if not self._set:
            return
        now = time.monotonic()
        if self._theirs is not None and now >= self._theirs - 0.001:
            self._theirs = None
            self._wind()
            if callable(self._before):
                self._before(number, frame)
        if now < self._alarm - 0.001:
            return
        if not self._suspended or self._users or any(asked() for asked in under_way):
            break_off(WallTimeOver(self.reason))


_running: WallTime | None = None  # of the main thread
# Functions that say whether the engine is calling a user's code now. A kind of plug-in that the
# engine calls by itself adds one.
under_way: list[Callable[[], bool]] = []


def _here() -> WallTime | None:
    """The one in force, in the main thread."""
    return _running if threading.current_thread() is threading.main_thread() else None


@contextlib.contextmanager
def suspended() -> Iterator[None]:
    """Inside, no alarm of --max-wall comes but in users_code(); one that was due comes behind it. A
    scenario's time to check its figures begins when the run that was cut short is over, a live
    tear-down included."""
    here = _here()
    if here is None or here._end is None:
        yield
        return
    here._suspended += 1
    began = time.monotonic()
    try:
        yield
    finally:
        here._suspended -= 1
        if not here._suspended:
            if began < here._end < (now := time.monotonic()):
                here._alarm = now + CLOSING_S
            if here._set:
                here._wind()


@contextlib.contextmanager
def users_code() -> Iterator[None]:
    """Inside suspended(), around a call of a user's own code, which --max-wall's alarm may end."""
    here = _here()
    if here is None:
        yield
        return
    here._users += 1
    try:
        yield
    finally:
        here._users -= 1


_unbroken = 0  # how deep the main thread is in unbroken()
_due: BaseException | None = None  # an alarm or Ctrl-C that came inside unbroken()


@contextlib.contextmanager
def unbroken() -> Iterator[None]:
    """Around what a user's own code calls and must not be left half done, a pause of the engine
    above all: an alarm or Ctrl-C that comes inside is raised behind it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    global _unbroken, _due
    _unbroken += 1
    try:
        yield
    finally:
        _unbroken -= 1
        if _unbroken == 0 and _due is not None:
            error, _due = _due, None
            raise error


def break_off(error: BaseException) -> None:
    """For a signal's handler: raises the error now, or behind unbroken()."""
    global _due
    if _unbroken == 0:
        raise error
    _due = _due or error


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Around code that imports: what a signal's handler has raised comes out of it. Native code
    that is under way makes errors of its own of that: an extension module that is being imported
    an ImportError, caused by it; pydantic's core a SchemaError, which keeps its text."""
    try:
        yield
    except Exception as error:
        if isinstance(error.__cause__, (KeyboardInterrupt, WallTimeOver)):
            raise error.__cause__ from None
        for kind in (KeyboardInterrupt, WallTimeOver):
            told = re.search(rf"^ *{kind.__name__}(?:: ?(.*))?$", str(error), re.MULTILINE)
            if told is not None:
                raise kind(*filter(None, told.groups())) from None
        raise


def uninterrupted(function: Callable[P, T]) -> Callable[P, T]:
    """Decorator: the alarm of --max-wall is suspended while `function` runs."""

    @functools.wraps(function)
    def wrapper(*args: P.args, **values: P.kwargs) -> T:
        with suspended():
            return function(*args, **values)

    return wrapper
