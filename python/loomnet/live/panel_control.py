"""Requests from outside to the panels of a live run: a socket for each, whose requests are carried
out where the run looks."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from loomnet.base.errors import UnavailableError
from loomnet.live.network import LiveNetwork
from loomnet.ocs.json_socket import JsonSocket
from loomnet.ocs.settings import Settings
from loomnet.ocs.sonic import Sonic
from loomnet.processes.invoking_user import RankUser
from loomnet.processes.journal import state_directory

Request = tuple[str, Callable[[Any, int], Any], "Future[Any]"]
_PATIENCE_S = 10.0


def sockets_folder() -> Path:
    """Root's alone to write; every user may look for the sockets in it."""
    return state_directory() / "panels"


def _owner(user: RankUser) -> tuple[int, int] | None:
    return None if user.uid is None or user.gid is None else (user.uid, user.gid)


class PanelControl:
    """Of one run. `serve()` is called by the thread that runs it; `asked` is when requests have
    changed something, since the run is then no repeat of another."""

    def __init__(self, stack: contextlib.ExitStack, network: LiveNetwork, run_id: str) -> None:
        self._network = network
        self._requests: queue.Queue[Request] = queue.Queue(maxsize=256)
        self._ended = threading.Event()
        self.asked: list[tuple[str, int]] = []  # panel, emulated time
        user = RankUser.invoking()
        for panel in network.plan.panels:
            folder = sockets_folder()
            folder.mkdir(mode=0o755, exist_ok=True)
            sonic = Sonic(partial(self.operate, panel.name), Settings(panel.name))
            path = folder / f"{run_id}-{quote(panel.name, safe='')}.sock"
            stack.callback(JsonSocket(path, sonic, _owner(user)).close)
        stack.callback(self._end)

    def operate(self, panel: str, request: Callable[[Any, int], Any]) -> Any:
        """Has a request carried out at the run's next look. Raises what the request raises, or
        UnavailableError where the run does not look any more."""
        if self._ended.is_set():
            raise UnavailableError("Error: the run has ended")
        answer: Future[Any] = Future()
        try:
            self._requests.put((panel, request, answer), timeout=_PATIENCE_S)
            return answer.result(timeout=_PATIENCE_S)
        except (queue.Full, TimeoutError):
            raise UnavailableError("Error: the run does not look at its panels now") from None

    def serve(self) -> None:
        """Carries out what has been asked."""
        while True:
            try:
                panel, request, answer = self._requests.get_nowait()
            except queue.Empty:
                return
            try:
                answer.set_result(self._network.operate(panel, partial(self._noted, panel,
                                                                       request)))
            except Exception as error:
                answer.set_exception(error)

    def notes(self) -> dict[str, str]:
        """What the report says of it."""
        if not self.asked:
            return {}
        at = ", ".join(f"{panel} at {now / 1e12:.6f} s" for panel, now in self.asked[:20])
        more = f" and {len(self.asked) - 20} more" * (len(self.asked) > 20)
        return {"patched from outside": at + more}

    def _noted(self, panel: str, request: Callable[[Any, int], Any], device: Any, now: int) -> Any:
        before = device.generation
        try:
            return request(device, now)
        finally:
            if device.generation != before:
                self.asked.append((panel, now))

    def _end(self) -> None:
        self._ended.set()
        while not self._requests.empty():
            self._requests.get_nowait()[2].set_exception(
                UnavailableError("Error: the run has ended"))
