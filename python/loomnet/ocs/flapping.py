"""Opens and shuts ports by scripts (TL1's flapping), in a thread that sleeps until the next
change."""

from __future__ import annotations

import threading
from typing import Any

from loomnet.base.errors import LoomnetError
from loomnet.ocs.access import Access

_LEAST_S, _MOST_S = 0.0005, 0.25  # wall time between two looks while a script runs
_IDLE_S = 60.0


class Flapper:
    """Runs the scripts of one panel. Its thread starts with the first script."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._wake, self._ending = threading.Event(), False
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """To be called when a script has begun."""
        with self._guard:
            if self._thread is None and not self._ending:
                self._thread = threading.Thread(target=self._run, name="loomnet-flap", daemon=True)
                self._thread.start()
        self._wake.set()

    def close(self) -> None:
        """Ends the thread. May be called more than once."""
        with self._guard:
            self._ending = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._ending:
            self._wake.clear()
            try:
                left_s = self._access.operate(self._look)
            except LoomnetError:  # the run has ended
                return
            self._wake.wait(_IDLE_S if left_s is None else min(max(left_s, _LEAST_S), _MOST_S))

    def _look(self, device: Any, now_ps: int) -> float | None:
        """Sets the shutters as the scripts say. Returns the seconds until the next change, or None
        where no script runs."""
        return look(self._access, device, now_ps)


def look(access: Access, device: Any, now_ps: int) -> float | None:
    dues: list[int] = []
    for port, flap in access.settings.flaps.items():
        if flap.begun_ps is None:
            continue
        shut, due = flap.phase(now_ps)
        if device.shutter_closed(port, False) != shut:
            device.set_shutter(port, False, shut, now_ps)
        if due is None:
            flap.begun_ps = None
        else:
            dues.append(due)
    return (min(dues) - now_ps) * 1e-12 if dues else None
