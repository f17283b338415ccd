"""The switch program that sums, in a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from loomnet.plans.entries import SwitchPlan
from loomnet.plans.model import Plan
from loomnet.systems.ina.pool import PROGRAM
from loomnet.systems.ina.run import Sums
from loomnet.systems.system import Program, RunPart
from loomnet.systems.transport import Options


class Aggregate(Program):
    name = PROGRAM

    def settings(self, switch: SwitchPlan, plan: Plan, options: Options) -> dict[str, Any]:
        return dict(switch.options) | {"hop": switch.number}

    def rows(self, switch: SwitchPlan, parts: Iterable[RunPart]) -> Mapping[str, Any]:
        return {
            "jobs": [row for part in parts if isinstance(part, Sums) for row in part.rows(switch)]
        }
