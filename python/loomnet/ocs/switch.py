"""An emulated optical circuit switch on a wall clock of its own, for its control interfaces without
a run around it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from loomnet._core import PanelDevice

T = TypeVar("T")
# Runs fn(device, now_ps) where the device's owner lets it, and returns its result.
Operate = Callable[[Callable[[Any, int], Any]], Any]


class StandaloneSwitch:
    """A panel's device whose time is the wall's since it was made. Raises ValueError."""

    def __init__(self, ports: int, profile: str = "sim25", *, carrier: str = "both",
                 seed: int = 1) -> None:
        self._device = PanelDevice(ports, profile, carrier, seed)
        self._begin = time.monotonic_ns()
        self._lock = threading.Lock()

    def operate(self, fn: Callable[[Any, int], T]) -> T:
        with self._lock:
            now = (time.monotonic_ns() - self._begin) * 1000
            self._device.advance(now)
            self._device.take_events()  # no one reads them here
            return fn(self._device, now)
