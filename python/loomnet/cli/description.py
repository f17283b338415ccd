"""`loomnet describe`: the fabric that a builder's name and settings make."""

from __future__ import annotations

import inspect
from typing import Any

from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean
from loomnet.fabrics import clos
from loomnet.fabrics.model import Fabric

BUILDERS = ("two_tier", "three_tier", "fat_tree", "star", "dumbbell")


def built(target: str, settings: list[str]) -> Fabric | None:
    """The fabric of a builder's name and its name=value settings; None if it names none."""
    name = target.removeprefix("ln.").removeprefix("clos.")
    if name not in BUILDERS:
        return None
    make = getattr(clos, name)
    known = inspect.signature(make).parameters
    values: dict[str, Any] = {"rate": "100 Gb/s", "delay": "1 us"}
    for text in settings:
        key, sign, value = (part.strip() for part in text.partition("="))
        if not sign:
            raise UsageError(f"--set {text}: write name=value")
        if key not in known:
            raise UsageError(
                f'--set {text}: {name} has no parameter "{key}"{did_you_mean(key, known)}'
            )
        values[key] = int(value) if value.isdecimal() else value
    missing = [
        key
        for key, parameter in known.items()
        if parameter.default is parameter.empty and key not in values
    ]
    if missing:
        raise UsageError(f"describe {name}: --set {missing[0]}=… is missing")
    return make(**values)
