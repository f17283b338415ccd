"""The fabric that a scenario would run on, without a run."""

from __future__ import annotations

from typing import Any

from loomnet.base.errors import LoomnetError
from loomnet.fabrics.model import Fabric
from loomnet.labs.lab import Lab
from loomnet.labs.scenario import Scenario


class _Found(LoomnetError):
    """Ends a scenario once its fabric is known."""


def fabric_of(scenario: Scenario, values: dict[str, Any]) -> Fabric | None:
    """The fabric of a scenario's first run, which is not run; None if it has none."""
    found: list[Fabric] = []

    class Looking(Lab):
        def run(self, fabric: Fabric, *args: Any, **kwargs: Any) -> Any:
            found.append(fabric)
            raise _Found("found")

    typed = scenario.validate(values)
    lab = Looking(scenario.name, base=scenario.file.parent if scenario.file else None)
    try:
        scenario.play(lab, typed)
    except _Found:
        pass
    return found[0] if found and isinstance(found[0], Fabric) else None
