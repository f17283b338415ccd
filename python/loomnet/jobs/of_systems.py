"""What jobs ask of the systems: which of them make all-reduces, and the options that they add.

Systems import jobs, so their room is found by its name here, when a job names what is theirs."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean, in_quotes

RING = "ring"  # `allreduce=` where the ranks themselves sum


def _registry() -> Any:
    return importlib.import_module("loomnet.systems.registry")


def job_options() -> Mapping[str, Any]:
    """Options of systems (JobOption), by name."""
    return _registry().job_options()


def allreduce_name(name: str) -> str:
    """The name. Raises UsageError where nothing makes all-reduces by it."""
    if name == RING or name in (known := _registry().reducers()):
        return name
    names = [RING, *known]
    raise UsageError(f"{in_quotes(name)} is not one of {' or '.join(names)}"
                     f"{did_you_mean(name, names)}")
