"""Ctrl-C, a polite kill and a closed terminal during a live run: they end it where it can be ended,
and never break its way up or down, which would leave kernel objects behind."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from loomnet.base.errors import UnavailableError
from loomnet.base.wall_time import break_off

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# These end a process that does not expect them, and a live run would leave its kernel objects.
# Where one has a handler (an alarm of the program's own, a dump of stacks), it keeps it.
UNEXPECTED = (
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGVTALRM,
    signal.SIGPROF,
    signal.SIGXCPU,
)
PATIENCE_S = 5.0  # so long after the first signal something hangs, and another one breaks it


class Interrupts:
    """While it is entered, signals that end a process are noted (`pending` names the first), and
    the first raises KeyboardInterrupt in the main thread when :meth:`check` or :meth:`listen` lets
    it.

    Signals that the process ignores (nohup) stay ignored. Outside the main thread it does nothing.
    """

    def __init__(self) -> None:
        self.pending: str | None = None
        self._since = 0.0
        self._listening = False
        self._before: dict[signal.Signals, Any] = {}

    def check(self) -> None:
        """Raises KeyboardInterrupt if a signal has come."""
        if self.pending is not None:
            raise KeyboardInterrupt(self.pending)

    @contextlib.contextmanager
    def listen(self) -> Iterator[None]:
        """Inside, the first signal raises at once."""
        self._listening = True
        try:
            self.check()
            yield
        finally:
            self._listening = False

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.pending is None:
            self._note("Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name)
            if self._listening:
                self._listening = False
                break_off(KeyboardInterrupt(self.pending))
        elif time.monotonic() - self._since > PATIENCE_S:
            self.check()  # inside unbroken() too: the code there may hang

    def ignore(self) -> None:
        """For a process that has put all away and ends: from here on for good."""
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)
        self._before.clear()

    def _note(self, name: str) -> None:
        self.pending, self._since = name, time.monotonic()

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in _ENDING:
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._before[number] = signal.signal(number, self._on_signal)
            for handler in self._before.values():
                # What the signal raised out there may have been lost, as in a __del__ that ran.
                around = getattr(handler, "__self__", None)
                if self.pending is None and isinstance(around, Interrupts) and around.pending:
                    self._note(around.pending)
            caught = caught_signals()
            for number in UNEXPECTED:
                if _ours(signal.getsignal(number)) or not caught >> (number - 1) & 1:
                    self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            around = getattr(handler, "__self__", None)
            if self.pending is not None and isinstance(around, Interrupts) and not around.pending:
                around._note(self.pending)  # told already
            signal.signal(number, handler)


def leave(number: int, frame: FrameType | None) -> None:
    """A handler of :data:`UNEXPECTED` while a lab stands: the process ends by its exit handlers."""
    raise SystemExit(128 + number)


def _ours(handler: object) -> bool:
    """Whether it is one of Loomnet's own, which a run may replace while it lasts."""
    return handler is leave or isinstance(getattr(handler, "__self__", None), Interrupts)


def caught_signals() -> int:
    """Signals that this process has a handler for or ignores, bit by bit; handlers that Python does
    not know of (faulthandler's) included. Raises UnavailableError without /proc."""
    masks = 0
    try:
        text = Path("/proc/self/status").read_text()
    except OSError as error:
        raise UnavailableError(
            f"/proc/self/status: {error.strerror}; Loomnet needs /proc: mount -t proc proc /proc"
        ) from None
    for line in text.splitlines():
        if line.startswith(("SigCgt:", "SigIgn:")):
            masks |= int(line.split()[1], 16)
    return masks
