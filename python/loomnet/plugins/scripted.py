"""Patches circuits at times that are known before a run, as `lab.circuits(…, at=)` asks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from loomnet.base.units import Time
from loomnet.plans.model import Plan
from loomnet.plugins.change import Circuits
from loomnet.plugins.controllers import ControllerChoice, Seat

Row = tuple[Time, Circuits]


class _Script:
    def __init__(self, rows: Iterable[Row]) -> None:
        # the sort is stable: rows of equal times stay in order
        self._rows = sorted(rows, key=lambda row: row[0].count)

    def next_time(self) -> int | None:
        return self._rows[0][0].count if self._rows else None

    def advance(self, now: int, view: object) -> list[Circuits]:
        due = [change for at, change in self._rows if at.count <= now]
        del self._rows[: len(due)]
        return due


@dataclass(frozen=True)
class ScriptedCircuits(ControllerChoice):
    """A controller that makes these changes at their times."""

    rows: tuple[Row, ...] = ()

    @classmethod
    def of(cls, rows: Iterable[Row]) -> ScriptedCircuits:
        return cls("circuits", None, {}, tuple(rows))

    def made(self, plan: Plan) -> Seat:
        """The controller for a run. Raises UsageError for a panel or an end that the plan does not
        have."""
        for _, change in self.rows:
            change.resolved(plan)
        return Seat(self, _Script(self.rows), plan)

    def describe(self) -> str:
        return ", ".join(f"circuits of {change.panel} at {at}" for at, change in self.rows)
