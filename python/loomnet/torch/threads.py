"""Tells the session of each thread that a script starts, so that on the virtual clock time stands
while that thread runs, from its first line on and not only from its first collective."""

from __future__ import annotations

import functools
import threading
from typing import Any

import loomnet.torch.connection as _connection

_installed = False


def install() -> None:
    """Once. The thread that starts another one goes on when the session knows of the new one."""
    global _installed
    if _installed:
        return
    _installed = True
    original = threading.Thread.start

    @functools.wraps(original)
    def start(self: threading.Thread) -> None:
        link = _connection.existing()
        if link is None or not link.virtual or self.name.startswith(_connection.OWN_THREADS):
            return original(self)
        known = threading.Event()
        own = self.__dict__.get("run")
        run = self.run

        def run_known() -> None:
            _forget(self, own)
            link.session.thread_begins(self.name)
            known.set()
            try:
                run()
            finally:
                link.session.thread_ends()

        self.run = run_known  # the object's own, so that a subclass's method is left as it is
        try:
            original(self)
        except BaseException:
            _forget(self, own)
            raise
        known.wait()
        return None

    threading.Thread.start = start


def _forget(thread: threading.Thread, own: Any) -> None:
    """Gives the thread its own `run` back."""
    if own is None:
        del thread.run
    else:
        thread.run = own
