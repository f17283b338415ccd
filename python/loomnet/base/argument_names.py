"""Arguments of the package's public names: which of them has one of a name."""

from __future__ import annotations

import importlib
import inspect

MOST_OWNERS = 3  # named in a line


def owners_of(argument: str) -> list[str]:
    """Public names, as "ln.CircuitControl", that take an argument of this name, in their order: of
    many the first MOST_OWNERS. Methods of classes and functions of modules are among them."""
    package = importlib.import_module("loomnet")  # above this module: found when it is asked for
    found = []
    for name in sorted(package.__all__):
        public = getattr(package, name)
        inside = (
            []
            if inspect.isroutine(public)
            else [
                (f".{each}", getattr(public, each))
                for each in sorted(vars(public))
                if not each.startswith("_")
            ]
            if hasattr(public, "__dict__")
            else []
        )
        found += [
            f"ln.{name}{suffix}"
            for suffix, each in [("", public), *inside]
            if argument in _arguments(each)
        ]
    return found[:MOST_OWNERS]


def _arguments(public: object) -> set[str]:
    if not callable(public):
        return set()
    try:
        return {name.casefold() for name in inspect.signature(public).parameters}
    except (TypeError, ValueError):  # of a class without a constructor in Python
        return set()
