"""Circuits that a scenario patches at times which it names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from loomnet.base.units import Time
from loomnet.fabrics.panels import Circuit
from loomnet.plans.model import Plan
from loomnet.plugins.change import Circuits, circuits
from loomnet.plugins.controllers import ControllerChoice, Seat, View


class _Script:
    """Rows of (time, change), as a controller."""

    def __init__(self, rows: Iterable[tuple[int, Circuits]]) -> None:
        self._rows = sorted(rows, key=lambda row: row[0])

    def next_time(self) -> int | None:
        return self._rows[0][0] if self._rows else None

    def advance(self, now: int, view: View) -> list[Circuits]:
        due = [change for at, change in self._rows if at <= now]
        self._rows = self._rows[len(due):]
        return due


@dataclass(frozen=True)
class ScriptedCircuits(ControllerChoice):
    """Those of one run. `rows`: time and change."""

    rows: tuple[tuple[int, Circuits], ...] = field(default=())

    def made(self, plan: Plan) -> Seat:
        for _, change in self.rows:
            change.resolved(plan)  # says now what would be wrong later
        return Seat(self, _Script(self.rows), plan)


def scripted(rows: Iterable[tuple[int, Circuits]]) -> list[ControllerChoice]:
    """The controller of these rows; none without rows."""
    found = tuple(rows)
    return [ScriptedCircuits("lab.circuits", None, {}, found)] if found else []


def row_of(panel: str, pairs: Iterable[Circuit], at: Time) -> tuple[int, Circuits]:
    """Raises UsageError."""
    return at.count, circuits(panel, pairs)
