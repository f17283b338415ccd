"""`ln.plugin`: decorators that register a class by name, and the base classes of plug-ins."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from loomnet.base.arguments import checked_call
from loomnet.base.errors import UsageError
from loomnet.base.names import in_quotes
from loomnet.plugins.assignments import RULES
from loomnet.plugins.assignments import Assigner as Assigner
from loomnet.plugins.congestions import Congestion as Congestion
from loomnet.plugins.congestions import register_congestion
from loomnet.plugins.controllers import EVENTS as EVENTS
from loomnet.plugins.controllers import Changes as Changes
from loomnet.plugins.controllers import Controller as Controller
from loomnet.plugins.controllers import Event as Event
from loomnet.plugins.controllers import JobView as JobView
from loomnet.plugins.controllers import LinkView as LinkView
from loomnet.plugins.controllers import View as View
from loomnet.plugins.priorities import FORMULAS
from loomnet.plugins.priorities import Message as Message
from loomnet.plugins.priorities import Priority as Priority
from loomnet.plugins.priorities import formula as formula
from loomnet.plugins.registry import (
    ASSIGNMENT,
    CONGESTION,
    CONTROLLER,
    PRIORITY,
    check_name,
    check_new,
    keep,
)

if TYPE_CHECKING:
    from loomnet._core import AckSample as AckSample
    from loomnet._core import CongestionEvent as CongestionEvent
    from loomnet._core import CongestionFlow as CongestionFlow

Class = TypeVar("Class", bound=type[Any])
_OF_THE_ENGINE = ("AckSample", "CongestionEvent", "CongestionFlow")


def __getattr__(name: str) -> Any:
    """What a congestion control is called with, for its annotations; a controller alone loads no
    engine."""
    if name not in _OF_THE_ENGINE:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    import loomnet._core as _core

    return getattr(_core, name)


@checked_call
def controller(name: str) -> Callable[[Class], Class]:
    """Registers a class as a controller; see Controller. A run has it by
    `controllers=[ln.controller("mine", every="30 ms")]`."""
    return _registers(CONTROLLER, name)


@checked_call
def priority(name: str) -> Callable[[Class], Class]:
    """Registers a class that says how urgent a message is; see Priority. A run has it by
    `ln.ModelJob(…, priority="mine")`."""
    if name in FORMULAS:
        raise UsageError(
            f"plugin.priority {in_quotes(name)}: the engine has a formula of that "
            "name; choose another"
        )
    return _registers(PRIORITY, name)


@checked_call
def assignment(name: str) -> Callable[[Class], Class]:
    """Registers a class that says which servers circuits join; see Assigner. `rule="mine"` takes it
    wherever a rule of the engine is taken."""
    if name in RULES:
        raise UsageError(
            f"plugin.assignment {in_quotes(name)}: the engine has a rule of that "
            "name; choose another"
        )
    return _registers(ASSIGNMENT, name)


@checked_call
def congestion(name: str) -> Callable[[Class], Class]:
    """Registers a class as a congestion control; see Congestion. A run on the virtual clock has it
    by `tcp={"cc": "mine"}`, `roce={"cc": "mine"}` or `mrc={"cc": "mine"}`."""
    check_name(CONGESTION, name)

    def register(made: Class) -> Class:
        register_congestion(name, made)
        return made

    return register


def _registers(kind: str, name: str) -> Callable[[Class], Class]:
    check_name(kind, name)

    def register(made: Class) -> Class:
        check_new(kind, name, made)
        keep(kind, name, made)
        return made

    return register
