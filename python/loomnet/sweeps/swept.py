"""The part of a Sweep that its tables and pictures read. They import this protocol in place of
Sweep, so that Sweep can import them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from loomnet.sweeps.points import Point, Results


class Swept(Protocol):
    @property
    def points(self) -> Sequence[Point]: ...
    @property
    def results(self) -> Results: ...
    @property
    def frame(self) -> Any: ...
