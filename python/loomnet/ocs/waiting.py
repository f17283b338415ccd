"""Waits for a time of the device's clock. How fast that clock runs against the wall clock is not
known."""

from __future__ import annotations

import threading

from loomnet.ocs.switch import Operate

_LEAST_S, _MOST_S = 50e-6, 0.25


def wait_until(
    operate: Operate, at_ps: int, ending: threading.Event, timeout_s: float | None = None
) -> bool:
    """Returns True when the device's time is at_ps or later. Returns False where `ending` is set
    before, or where the patience, in wall-clock time, is over."""
    waited = 0.0
    while not ending.is_set():
        left_s = (at_ps - operate(lambda _device, now: now)) * 1e-12
        if left_s <= 0:
            return True
        if timeout_s is not None and waited >= timeout_s:
            return False
        pause = min(max(left_s, _LEAST_S), _MOST_S)
        waited += pause
        ending.wait(pause)
    return False
