"""Priorities: how urgent a message of a training job is, in 8 bits. The engine has formulas by
name; a class of a user's takes their place. The systems that send by priority ask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from loomnet.base.arguments import checked_call
from loomnet.base.errors import PluginError, UsageError
from loomnet.base.names import did_you_mean, in_quotes, quoted
from loomnet.plugins.failures import asked, defined_at
from loomnet.plugins.registry import PRIORITY, registered, registered_names

LEAST_PRIORITY, MOST_PRIORITY = 1, 255
# Of the engine: core/collective/priority.hpp.
FORMULAS = ("esa", "trem", "ratio", "layer", "none", "fifo", "random")


@dataclass(frozen=True)
class Message:
    """A message about to be sent: its job's name; its layer, counted from the input, of `layers`
    (None: it belongs to no layer); the iteration, from 1, and the share of it that is over (0 to
    1); its bytes; how many layers of the iteration are still to be sent after it; the seconds that
    are left of its job, as far as the sender can tell; and the time that an iteration's gradients
    take at the link's rate over the iteration's compute time (1/256 to 256). None: the sender does
    not know it."""

    job: str
    layer: int | None
    layers: int
    iteration: int
    progress: float
    bytes: int
    remaining_layers: int
    remaining_s: float | None = None
    communication_ratio: float | None = None


class Priority:
    """Base of a priority; a class without it that has the same method is as good."""

    def priority(self, message: Message) -> int:
        """How urgent the message is: a whole number from 1 to 255, the most urgent."""
        raise NotImplementedError


@checked_call
def formula(message: Message, name: str = "esa") -> int:
    """What the engine's own formula of that name gives a message, from 1 to 255.

    "esa" is remaining_s^-1 x communication_ratio x layers / (layer + 1) on a logarithmic scale from
    2^-16 to 2^16; "trem", "ratio" and "layer" are one factor alone; "none" and "fifo" are 128. What
    a message does not know counts as 1. Raises UsageError for another name, "random" among them,
    which a message does not settle, and for a message whose facts are no such numbers.
    """
    import loomnet._core as _core  # a controller alone needs no engine

    known = [each for each in FORMULAS if each != "random"]
    if not isinstance(name, str) or name not in known:
        raise UsageError(f"plugin.formula: no formula {in_quotes(name)}{did_you_mean(name, known)}")
    if not isinstance(message, Message):
        raise UsageError(f"plugin.formula: {quoted(message)} is no message; see plugin.Message")
    layer, layers = (0, 1) if message.layer is None else (message.layer, message.layers)
    for field, count in (("layer", layer), ("layers", layers)):
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < 2**31:
            raise UsageError(
                f"plugin.formula: {field}={quoted(count)} is no whole number from 0 to 2^31"
            )
    return _core.priority_of(
        name,
        remaining_s=_known("remaining_s", message.remaining_s),
        communication_ratio=_known("communication_ratio", message.communication_ratio),
        layers=max(layers, 1),
        layer=layer,
    )


def _known(field: str, value: float | None) -> float:
    if value is None:
        return 1.0
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e300:
        return float(value)
    raise UsageError(f"plugin.formula: {field}={quoted(value)} is no number of 0 or more")


def check_priority(where: str, name: str, clock: str) -> None:
    """Raises UsageError where there is no priority of that name, or none on that clock."""
    if name in FORMULAS:
        return
    if registered(PRIORITY, name) is None:
        known = (*FORMULAS, *registered_names(PRIORITY))
        raise UsageError(f"{where}: no priority {in_quotes(name)}{did_you_mean(name, known)}")
    if clock == "live":
        raise UsageError(
            f"{where}: {in_quotes(name)} is a class in Python, which is asked on the "
            f"virtual clock alone; live there are {', '.join(FORMULAS)}"
        )


def priority_made(where: str, name: str) -> Any:
    """An object of the class registered by that name; None for a formula of the engine."""
    if name in FORMULAS:
        return None
    check_priority(where, name, "virtual")
    made = registered(PRIORITY, name)
    assert made is not None
    with asked(f'priority "{name}"', "__init__"):
        return made()


def priority_of(name: str, plugin: Any, message: Message) -> int:
    """What the plug-in of that name says of a message. Raises PluginError where it does not keep
    its contract."""
    where = f'priority "{name}"'
    with asked(where, "priority"):
        found = plugin.priority(message)
    if (
        isinstance(found, bool)
        or not isinstance(found, int)
        or not LEAST_PRIORITY <= found <= MOST_PRIORITY
    ):
        raise PluginError(
            f"{where}: priority gave {quoted(found)}, which is no whole number from "
            f"{LEAST_PRIORITY} to {MOST_PRIORITY}{defined_at(plugin.priority)}"
        )
    return found
