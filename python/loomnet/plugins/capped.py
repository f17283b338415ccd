"""A congestion control with its window cut from outside, and looked at: how check_plugin tries
what a control's own rule may do on a day of many marks."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import loomnet._core as _core

# By the situation that it makes: the window in packets, drawn again and again. So many are under
# way before a cut that some of them have asked for no acknowledgement.
CUTS: dict[str, Callable[[random.Random], int]] = {
    "its window is cut deeply": lambda drawn: drawn.choice((64, drawn.randint(1, 12))),
    "its window is one packet": lambda drawn: 1,
}


class Capped:
    """Stands for a control's object. The engine reads a window of so many packets; all else is the
    object's own."""

    def __init__(self, made: Any, flow: Any, draw: Callable[[random.Random], int]) -> None:
        self._made, self._mss, self._draw = made, flow.mss, draw
        self._random = random.Random(flow.seed * 2**64 + flow.stream)
        self._packets = draw(self._random)
        self._left = self._random.randint(1, 6)  # acknowledgements until the next draw

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made, name)

    @property
    def window(self) -> int:
        return self._packets * self._mss

    def on_ack(self, ack: Any) -> None:
        self._made.on_ack(ack)
        self._left -= 1
        if self._left == 0:
            self._packets = self._draw(self._random)
            self._left = self._random.randint(1, 6)


@contextmanager
def capped(name: str, plugin: type, situation: str) -> Iterator[None]:
    """Inside, the control of that name has its window cut."""
    draw = CUTS[situation]
    with made_by(name, plugin, lambda flow: Capped(plugin(flow), flow, draw)):
        yield


@contextmanager
def kept(name: str, plugin: type) -> Iterator[list[tuple[Any, int]]]:
    """Inside, the objects of the control of that name are kept, each with its flow's mss."""
    objects: list[tuple[Any, int]] = []

    def make(flow: Any) -> Any:
        objects.append((plugin(flow), flow.mss))
        return objects[-1][0]

    with made_by(name, plugin, make):
        yield objects


@contextmanager
def made_by(name: str, plugin: type, make: Callable[[Any], Any]) -> Iterator[None]:
    """Inside, the engine calls `make` for the control of that name, in place of the class."""
    needs, options = list(getattr(plugin, "needs", ())), getattr(plugin, "options", {})
    accurate = bool(getattr(plugin, "accurate_ecn", False))

    def register(make: Callable[[Any], Any]) -> None:
        _core.register_congestion_control(
            name, make, needs=needs, options=options, accurate_ecn=accurate
        )

    make.__wrapped__ = plugin  # type: ignore[attr-defined]  # breaches name the lines of its code
    register(make)
    try:
        yield
    finally:
        register(plugin)
