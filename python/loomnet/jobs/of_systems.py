"""What jobs ask of the systems: which of them make all-reduces, and the options that they add.

Systems import jobs, so their room is found by its name here, when a job names what is theirs."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean, in_quotes
from loomnet.base.transport_names import USUAL

RING = "ring"  # `allreduce=` where the ranks themselves sum


def _registry() -> Any:
    return importlib.import_module("loomnet.systems.registry")


def job_options() -> Mapping[str, Any]:
    """Options of systems (JobOption), by name."""
    return _registry().job_options()


def have_servers() -> tuple[str, ...]:
    """The `allreduce=` whose jobs have servers."""
    return tuple(name for name, part in _registry().reducers().items() if part.has_servers)


def transport_name(name: str) -> str:
    """The name. Raises UsageError where there is no such transport."""
    if name in USUAL or name in (known := _registry().transports()):
        return name
    raise UsageError(f"{in_quotes(name)} is not a transport{did_you_mean(name, known)}")


def allreduce_name(name: str) -> str:
    """The name. Raises UsageError where nothing makes all-reduces by it."""
    if name == RING or name in (known := _registry().reducers()):
        return name
    names = [RING, *known]
    raise UsageError(
        f"{in_quotes(name)} is not one of {' or '.join(names)}{did_you_mean(name, names)}"
    )
