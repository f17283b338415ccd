"""The switch program that marks the leaders of rings, in a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from loomnet.plans.entries import SwitchPlan
from loomnet.plans.model import Plan
from loomnet.systems.symphony.run import Rings, epoch_shift
from loomnet.systems.symphony.ways import PROGRAM
from loomnet.systems.system import Program, RunPart
from loomnet.systems.transport import Options


class Symphony(Program):
    name = PROGRAM

    def settings(self, switch: SwitchPlan, plan: Plan, options: Options) -> dict[str, Any]:
        return {"shift": epoch_shift(switch, plan, options)} | dict(switch.options)

    def settings_of(self, switch: SwitchPlan, parts: Iterable[RunPart]) -> dict[str, Any]:
        for part in parts:
            if isinstance(part, Rings):
                return {"identity": part.identity(dict(switch.options))}
        return {}

    def rows(self, switch: SwitchPlan, parts: Iterable[RunPart]) -> Mapping[str, Any]:
        found: dict[str, Any] = {"jobs": [], "rules": []}
        for part in parts:
            if isinstance(part, Rings):
                found["jobs"], found["rules"] = part.rows(switch)
        return found
