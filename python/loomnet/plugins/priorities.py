"""Priorities in Python: a class of a user's says how urgent a message of a training job is. The
systems that send by priority ask it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from loomnet.base.errors import PluginError
from loomnet.base.names import quoted
from loomnet.plugins.failures import raised

MOST_PRIORITY = 7


@dataclass(frozen=True)
class Message:
    """A message about to be sent: its job's name; its layer, counted from the input, of `layers`
    (None: it belongs to no layer); the iteration, from 1, and the share of it that is over (0 to
    1); its bytes; how many layers of the iteration are still to be sent after it."""

    job: str
    layer: int | None
    layers: int
    iteration: int
    progress: float
    bytes: int
    remaining_layers: int


class Priority:
    """Base of a priority; a class without it that has the same method is as good."""

    def priority(self, message: Message) -> int:
        """How urgent the message is: a whole number from 0 to 7, the most urgent."""
        raise NotImplementedError


def priority_of(name: str, plugin: Any, message: Message) -> int:
    """What the plug-in of that name says of a message. Raises PluginError where it does not keep
    its contract."""
    where = f'priority "{name}"'
    try:
        found = plugin.priority(message)
    except Exception as error:
        raise PluginError(f"{where}: {raised('priority', error)}") from error
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= MOST_PRIORITY:
        raise PluginError(f"{where}: priority gave {quoted(found)}, which is no whole number from "
                          f"0 to {MOST_PRIORITY}")
    return found
