"""Queue disciplines of switch ports, as a fabric names them: the engine's own table of disciplines
and their options, and how a user's values become the engine's."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

from loomnet.base.errors import FabricError
from loomnet.base.names import did_you_mean, in_quotes, quoted
from loomnet.base.units import Size, Time

PRIORITY = "priority"  # the default: strict priority with RED, trimming and PFC
# Disciplines of ports that may be under PFC.
UNDER_PFC = (PRIORITY, "laggard_first")
UNDER_PFC_NAMES = " or ".join(f'"{name}"' for name in UNDER_PFC)
# An option of some disciplines that is a setting of every link.
OF_LINKS = frozenset(("ecn",))


class Option(NamedTuple):
    unit: str  # "time" (picoseconds), "size" (bytes), "count" or "switch"
    preset: int
    least: int
    most: int


@functools.cache
def disciplines() -> Mapping[str, Mapping[str, Option]]:
    """Options by discipline."""
    import loomnet._core as _core

    return {
        queue: {name: Option(*rest) for name, *rest in options}
        for queue, options in _core.queue_disciplines().items()
    }


def discipline(value: Any) -> str:
    """The name of a discipline. Raises FabricError."""
    if not isinstance(value, str) or value not in disciplines():
        raise FabricError(
            f"{in_quotes(value)} is not a queue discipline{did_you_mean(value, disciplines())}"
        )
    return value


def options_of(queue: str) -> Mapping[str, Option]:
    """The options that a link takes beside queue=."""
    return {name: option for name, option in disciplines()[queue].items() if name not in OF_LINKS}


def having(option: str) -> list[str]:
    """The disciplines that have such an option."""
    return [queue for queue in disciplines() if option in options_of(queue)]


def as_option(option: Option, value: Any) -> int:
    """The engine's number for an option's value. Raises UsageError."""
    if option.unit == "time":
        number, shown = Time(value).count, Time.of
    elif option.unit == "size":
        number, shown = Size(value).bytes, Size.of
    else:
        if type(value) is not int:
            raise FabricError(f"{quoted(value)} is not a whole number")
        number, shown = value, str
    if not option.least <= number <= option.most:
        raise FabricError(
            f"{quoted(value)} is not from {shown(option.least)} to {shown(option.most)}"
        )
    return number
