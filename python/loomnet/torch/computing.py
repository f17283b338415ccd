"""Computing on the virtual clock: the process stands still while the time passes that its computing
is declared to take."""

from __future__ import annotations

import json
import time

import loomnet.torch.connection as _connection
from loomnet.torch.layers import Layers


class Computing:
    """What the step hook calls after every optimizer step, numbered from 1.

    Args:
        text: what the variable COMPUTE of rank_environment holds: picoseconds per step joined by
            commas, the last one for all that follow; "measured FACTOR"; or a table by layer as
            JSON. None where time passes by itself (the live clock).
    """

    def __init__(self, text: str | None) -> None:
        # Monotonic ns in which this process stood still; kept for a run that is traced.
        self.pauses: list[tuple[int, int]] | None = None
        self._each: list[int] = []
        self._factor: float | None = None
        self._layers: Layers | None = None
        if text is None:
            return
        if text.startswith("measured"):
            self._factor = float(text.removeprefix("measured"))
            self._began: float | None = None  # imports and the first step are no iteration
        elif text.startswith("{"):
            self._layers = Layers(json.loads(text), self._pass)
        else:
            self._each = [int(each) for each in text.split(",")]

    def after_step(self, number: int) -> None:
        if self._each:
            self._pass(self._each[min(number, len(self._each)) - 1])
        elif self._factor is not None:
            if self._began is not None:
                took = time.process_time() - self._began
                self._pass(max(round(took * self._factor * 1e12), 1))
            self._began = time.process_time()
        elif self._layers is not None:
            self._layers.after_step()

    def _pass(self, picoseconds: int) -> None:
        link = _connection.existing()
        if link is None or not picoseconds:
            return
        began = time.monotonic_ns()
        link.session.compute(picoseconds)
        if self.pauses is not None:
            self.pauses.append((began, time.monotonic_ns()))
