"""`ln.plugin`: decorators that register a class by name, and the base classes of plug-ins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from loomnet.base.arguments import checked_call
from loomnet.plugins.controllers import Controller as Controller
from loomnet.plugins.controllers import Event as Event
from loomnet.plugins.controllers import JobView as JobView
from loomnet.plugins.controllers import LinkView as LinkView
from loomnet.plugins.controllers import View as View
from loomnet.plugins.registry import CONTROLLER, check_name, check_new, keep

Class = TypeVar("Class", bound=type[Any])


@checked_call
def controller(name: str) -> Callable[[Class], Class]:
    """Registers a class as a controller; see Controller. A run has it by
    `controllers=[ln.controller("mine", every="30 ms")]`."""
    return _registers(CONTROLLER, name)


def _registers(kind: str, name: str) -> Callable[[Class], Class]:
    check_name(kind, name)

    def register(made: Class) -> Class:
        check_new(kind, name, made)
        keep(kind, name, made)
        return made

    return register
