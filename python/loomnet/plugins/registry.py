"""The plug-ins of this process, by kind and name."""

from __future__ import annotations

import re
from typing import Any

from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean, in_quotes, quoted

ASSIGNMENT, CONGESTION, CONTROLLER = "assignment", "congestion", "controller"
PRIORITY = "priority"
_NAME = re.compile("[A-Za-z_][A-Za-z0-9_-]{0,39}")
_SCENARIO = re.compile("^loomnet_scenario_(.*)_[0-9a-f]{8}$")  # as labs.scenario names them
_classes: dict[str, dict[str, type]] = {
    ASSIGNMENT: {},
    CONGESTION: {},
    CONTROLLER: {},
    PRIORITY: {},
}


def check_name(kind: str, name: Any) -> None:
    """Raises UsageError unless the name is a plain one."""
    where = f"plugin.{kind}"
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(
            f"{where}: {quoted(name)} is not a name: write up to 40 letters, digits, "
            f'_ and -, as @ln.plugin.{kind}("mine")'
        )


def check_new(kind: str, name: str, made: Any) -> None:
    """Raises UsageError unless the class may be registered by that name: the name is free, or has
    the same class, as a notebook's cell that runs again defines it."""
    where = f"plugin.{kind}"
    if not isinstance(made, type):
        raise UsageError(
            f"{where}: {quoted(made)} is not a class; write @ln.plugin.{kind}"
            f'("{name}") above a class'
        )
    before = _classes[kind].get(name)
    if before is not None and _path(before) != _path(made):
        raise UsageError(
            f"{where}: {in_quotes(name)} is the name of {_path(before)} already; choose another"
        )


def keep(kind: str, name: str, made: type) -> None:
    """Registers a class that check_new() has let pass."""
    _classes[kind][name] = made


def registered(kind: str, name: object) -> type | None:
    """The class of that name; None where there is none."""
    return _classes[kind].get(name) if isinstance(name, str) else None


def registered_names(kind: str) -> tuple[str, ...]:
    return tuple(_classes[kind])


def plugin_named(kind: str, where: str, name: object) -> type:
    """The class of that name. Raises UsageError with the three nearest names."""
    found = registered(kind, name)
    if found is None:
        known = _classes[kind]
        hint = did_you_mean(name, known) or f'; register one: @ln.plugin.{kind}("mine")'
        raise UsageError(f"{where}: no {kind} {in_quotes(name)}{hint}")
    return found


def names_of(made: type) -> list[tuple[str, str]]:
    """(kind, name) of everything that a class is registered as."""
    return [
        (kind, name)
        for kind, classes in _classes.items()
        for name, each in classes.items()
        if each is made
    ]


def _path(made: type) -> str:
    """The class's full name. A scenario's file and a run's copy of it are one module here."""
    module = _SCENARIO.sub(lambda found: found[1], made.__module__)
    return f"{module}.{made.__qualname__}"
