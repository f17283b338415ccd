"""An emulated optical circuit switch whose clock is the wall clock, to use the control interfaces
without a run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from loomnet._core import PanelDevice

T = TypeVar("T")
# Calls fn(device, now_ps) while the device's owner does not use the device; returns its result.
Operate = Callable[[Callable[[Any, int], Any]], Any]


class StandaloneSwitch:
    """A panel's device. Its time is the wall-clock time since this object was made. Raises
    ValueError."""

    def __init__(
        self, ports: int, profile: str = "sim25", *, carrier: str = "both", seed: int = 1
    ) -> None:
        self._device = PanelDevice(ports, profile, carrier, seed)
        self._begin = time.monotonic_ns()
        self._lock = threading.Lock()

    def operate(self, fn: Callable[[Any, int], T]) -> T:
        with self._lock:
            now = (time.monotonic_ns() - self._begin) * 1000
            self._device.advance(now)
            self._device.take_events()  # they are not used here, and must not accumulate
            return fn(self._device, now)
