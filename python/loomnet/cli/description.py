"""`loomnet describe`: the fabric that a builder's name and settings make."""

from __future__ import annotations

import inspect
import os
from typing import Any

from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean
from loomnet.cli.completion import FABRICS
from loomnet.fabrics import clos
from loomnet.fabrics.model import Fabric


def built(target: str, settings: list[str]) -> Fabric | None:
    """The fabric of a builder's name and its name=value settings; None for a file. Raises
    UsageError for a name that is neither."""
    name = target.removeprefix("ln.").removeprefix("clos.")
    if name not in FABRICS:
        if "." in target or "/" in target or "::" in target or os.path.exists(target):
            return None
        raise UsageError(
            f'describe: "{target}" is neither a file nor a fabric; fabrics are {", ".join(FABRICS)}'
        )
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
        wanted = " ".join(f"--set {key}=…" for key in missing)
        raise UsageError(f"describe {name}: add {wanted}")
    return make(**values)
