"""A live fabric without a job: hosts' kernels talk over it, and its user runs commands in it."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from loomnet.base.errors import UnavailableError
from loomnet.live import doctor
from loomnet.live.network import LiveNetwork, check_plan, require_live
from loomnet.plans.model import Plan
from loomnet.processes.interrupts import UNEXPECTED, Interrupts, caught_signals, leave
from loomnet.processes.journal import RunLock
from loomnet.running.engine import Engine

_LOOK_S = 0.25  # between two looks at whether the lab still stands
_ENDING = (signal.SIGTERM, signal.SIGHUP, *UNEXPECTED)


class Standing:
    """Up when made, its loop running on a thread of its own; `close()` takes it down.

    While it stands, Ctrl-C is Python's own KeyboardInterrupt; SIGTERM and SIGHUP end the process by
    SystemExit, so that `with` blocks and exit handlers run; `on_end` is what an exit handler calls.
    `guard`: a lock that is held while anyone changes the network, as requests for panels do.

    Raises:
        UsageError, PrivilegeError, UnavailableError: in one line; nothing is left behind.
        KeyboardInterrupt: Ctrl-C during bring-up; nothing is left behind.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        dilation: float,
        on_end: Callable[[], None],
        guard: AbstractContextManager[Any],
    ) -> None:
        check_plan(plan)
        require_live()
        os.environ["PATH"] = doctor.tool_path()  # Mininet ends the process without its tools
        self._stack = contextlib.ExitStack()
        self._on_end = on_end
        self._before: dict[signal.Signals, Any] = {}
        with Interrupts() as interrupts:
            try:
                self.lock = self._stack.enter_context(RunLock())
                # No transport: NICs carry what the hosts' kernels send.
                self.engine = Engine(plan, live=True)
                self.network = LiveNetwork(
                    self._stack, self.lock, self.engine, dilation=dilation, look=interrupts.check
                )
                self.network.live.start()
                interrupts.check()
                if plan.panels:
                    self._serve_panels(guard)
            except BaseException as error:
                self._stack.close()
                interrupts.check()  # Ctrl-C reaches what bring-up started, too
                # SystemExit: Mininet ends the process where a tool it calls did not answer.
                if isinstance(error, (OSError, RuntimeError, SystemExit)):
                    raise UnavailableError(doctor.cannot_start(error)) from error
                raise
        if interrupts.pending:  # in the last moment
            self._stack.close()
            raise KeyboardInterrupt(interrupts.pending)
        atexit.register(on_end)
        if threading.current_thread() is threading.main_thread():
            caught = caught_signals()
            for number in _ENDING:
                if not caught >> (number - 1) & 1:
                    self._before[number] = signal.signal(number, leave)

    def _serve_panels(self, guard: AbstractContextManager[Any]) -> None:
        """On a thread, which ends with what takes the requests."""
        requests, operate = self.network.faces.requests, self.network.operate

        def serve() -> None:
            while requests.open:
                if requests.wait(_LOOK_S):
                    with guard:
                        requests.serve(operate)

        thread = threading.Thread(target=serve, name="loomnet-panels", daemon=True)
        thread.start()
        self._stack.callback(thread.join)
        self._stack.callback(self.network.faces.close)

    def counters(self) -> dict[str, dict[str, int]]:
        """What everything has counted so far; zeros left out."""
        live = self.network.live
        with self.network.held():
            found = self.engine.totals()
        for switch in self.network.plan.switches:
            row = {name: n for name, n in live.switch_counters(switch.number).items() if n}
            if row:
                found[f"switch {switch.name}"] = row
        return found | self.network.panel_totals()

    def close(self) -> None:
        """Takes everything down; Ctrl-C meanwhile is raised when all is away."""
        with Interrupts() as interrupts:
            self._stack.close()
            atexit.unregister(self._on_end)
            for number, handler in self._before.items():
                signal.signal(number, handler)
            self._before.clear()
        interrupts.check()
