"""How a command's process ends where a scenario's own code does not let it end by itself: a thread
that lives on, os._exit() in the middle of a run."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from collections.abc import Iterator

from loomnet.base.errors import EXIT_CHECK_FAILED, printable

PATIENCE_S = 3.0  # for threads to end by themselves


def end_threads(status: int) -> None:
    """For a command that has ended. Python waits for each thread that is no daemon: where one goes
    on, a line says so and the process ends with `status`."""
    left = _left()
    if left:
        threading.Thread(target=_watch, args=(left, status), daemon=True).start()


def _left() -> list[threading.Thread]:
    return [
        each
        for each in threading.enumerate()
        if each is not threading.main_thread() and not each.daemon
    ]


def _watch(left: list[threading.Thread], status: int) -> None:
    """Waits PATIENCE_S for these threads: those of an executor end in that time, since Python asks
    them to when the main thread ends. If others still run, says so and ends the process."""
    threading.Event().wait(PATIENCE_S)
    names = [printable(each.name) for each in left if each.is_alive()]
    if not names:
        return
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    many = len(names) > 1
    with contextlib.suppress(OSError, ValueError):
        print(
            f"loomnet: ended with the thread{'s' if many else ''} {', '.join(names[:3])}{more} "
            f"still running, which the scenario or a plug-in had started; "
            f"{'daemon threads end by themselves' if many else 'a daemon thread ends by itself'}",
            file=sys.stderr,
        )
    with contextlib.suppress(BaseException):
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(status)


@contextlib.contextmanager
def exits_named() -> Iterator[None]:
    """Inside, a call of os._exit() by a scenario or a plug-in prints a line and ends the process
    with a failure, since no report has been written. Child processes call the real os._exit()."""
    own, real = os.getpid(), os._exit

    def named(status: int) -> None:
        if os.getpid() == own:
            from loomnet.plugins.failures import called_from

            with contextlib.suppress(OSError, ValueError, AttributeError):
                sys.stdout.flush()
            with contextlib.suppress(OSError, ValueError):
                print(
                    f"loomnet: the scenario's own code called os._exit({status}){called_from()}: "
                    "no report was written",
                    file=sys.stderr,
                    flush=True,
                )
            status = EXIT_CHECK_FAILED
        real(status)

    os._exit = named
    try:
        yield
    finally:
        os._exit = real
