"""The build backend of pyproject.toml: scikit-build-core, with a line every half minute that says
how far compiling is. pip shows nothing of what a backend prints, and some minutes of compiling then
look as if they hung."""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from scikit_build_core import build as _backend

STEP = re.compile(rb"^\[(\d+)/(\d+)\] ")  # of Ninja, at the beginning of a line
EVERY_S = 30.0
CLEARED = "\r\x1b[K"  # the begin of the line, and what stands on it is gone
FEW = 20  # steps, which are done before a first line would help


def build_wheel(*arguments: Any, **options: Any) -> str:
    with said():
        return _backend.build_wheel(*arguments, **options)


def build_editable(*arguments: Any, **options: Any) -> str:
    with said():
        return _backend.build_editable(*arguments, **options)


def __getattr__(name: str) -> Any:
    """The other hooks, as far as scikit-build-core has them."""
    return getattr(_backend, name)


class Progress:
    """Reads a build's output and says how far it is; `say` takes a line, `now` is a clock in
    seconds."""

    def __init__(
        self, say: Callable[[str], None], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._say, self._now = say, now
        self._began: float | None = None  # when the compiling began, of more than a few steps
        self._last = 0.0
        self._done = self._total = 0
        self._rest = b""

    def read(self, output: bytes) -> None:
        *lines, self._rest = (self._rest + output).split(b"\n")
        for step in filter(None, map(STEP.match, lines)):
            self._done, self._total = int(step[1]), int(step[2])
            if self._began is None and self._total >= FEW:
                self._began = self._last = self._now()
                self._say(
                    f"{self._total} steps of compiling on {os.cpu_count()} cores; a line "
                    f"every {EVERY_S:.0f} s says how far they are"
                )

    def tick(self) -> None:
        """To be called every second or so."""
        now = self._now()
        if self._began is None or now - self._last < EVERY_S or not self._done:
            return
        self._last, passed = now, now - self._began
        left = passed / self._done * (self._total - self._done)
        self._say(
            f"{self._done} of {self._total} steps in {duration(passed)}, about "
            f"{duration(left)} left"
        )

    def end(self) -> None:
        """To be called when the build has succeeded."""
        if self._began is not None:
            self._say(f"compiled in {duration(self._now() - self._began)}")


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


@contextlib.contextmanager
def said() -> Iterator[None]:
    """Says how far the build is that runs inside: on the terminal or, with
    LOOMNET_BUILD_PROGRESS=stdout, on standard output. Where there is neither, nothing is done."""
    with contextlib.ExitStack() as stack:
        if os.environ.get("LOOMNET_BUILD_PROGRESS") == "stdout":
            stdout = os.dup(1)
            stack.callback(os.close, stdout)
            say = partial(_write, stdout, "loomnet: ")
        else:
            say = _on_terminal(stack)
        if say is not None:
            stack.enter_context(_watched(Progress(say)))
        yield


def _write(fd: int, before: str, line: str) -> None:
    with contextlib.suppress(OSError):  # a build never fails for what it says of itself
        os.write(fd, f"{before}{line}\n".encode())


def _on_terminal(stack: contextlib.ExitStack) -> Callable[[str], None] | None:
    try:
        fd = os.open("/dev/tty", os.O_WRONLY | os.O_NOCTTY)
    except OSError:
        return None
    stack.callback(os.close, fd)
    if not _foreground(fd):
        return None
    # The first line ends pip's own, which waits with a spinner; later ones overwrite the spinner.
    before = iter(["\n"])

    def say(line: str) -> None:
        if _foreground(fd):
            _write(fd, f"{next(before, CLEARED)}  loomnet: ", line)

    return say


def _foreground(fd: int) -> bool:
    """Whether the terminal is this process's to write to: a job in the background may be stopped
    for it."""
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return False


@contextlib.contextmanager
def _watched(progress: Progress) -> Iterator[None]:
    """Passes what is written to standard output inside on to where it went, and to `progress`."""
    sys.stdout.flush()
    kept = os.dup(1)
    reader, writer = os.pipe()
    os.dup2(writer, 1)
    os.close(writer)
    thread = threading.Thread(target=_pass_on, args=(reader, kept, progress), daemon=True)
    thread.start()
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)  # closes the pipe's last end, and the thread ends
        thread.join(10)
    progress.end()


def _pass_on(reader: int, to: int, progress: Progress) -> None:
    while True:
        if select.select([reader], [], [], 1.0)[0]:
            output = os.read(reader, 65536)
            if not output:
                break
            with contextlib.suppress(OSError):
                left = memoryview(output)
                while left:
                    left = left[os.write(to, left) :]
            progress.read(output)
        progress.tick()
