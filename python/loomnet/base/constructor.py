"""Constructors of specifications: one signature for users, editors, type checkers and help()."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from loomnet.base.units import Quantity

Declared = TypeVar("Declared", bound=Callable[..., None])


def constructor(declared: Declared) -> Declared:
    """Decorator of a specification's `__init__`, whose body is `...`. The signature is what users
    and type checkers read; the `__init__` of the base class runs.

    The last parameter may be `**rest: Unpack[SomeTypedDict]`, for the names that several
    specifications have in common; help() shows them one by one."""

    @functools.wraps(declared)
    def __init__(self: Any, *args: Any, **values: Any) -> None:
        self.construct(args, values)

    return __init__  # pyright: ignore[reportReturnType]


class _Text(str):
    """An annotation that help() shows without quotes."""

    __repr__ = str.__str__


def signature_of(
    init: Callable[..., None], defaults: Mapping[str, Any]
) -> inspect.Signature | None:
    """The signature that constructor() was given, with the names behind `**rest` written out, whose
    defaults are in `defaults`; None for another `__init__`."""
    declared = getattr(init, "__wrapped__", None)
    if declared is None:
        return None
    parameters = []
    for each in list(inspect.signature(declared).parameters.values())[1:]:
        if each.kind is each.VAR_KEYWORD:
            parameters += _rest(declared, each, defaults)
        else:
            parameters.append(
                each.replace(annotation=_Text(each.annotation), default=_shown(each.default))
            )
    return inspect.Signature(parameters)


def _rest(
    declared: Any, rest: inspect.Parameter, defaults: Mapping[str, Any]
) -> list[inspect.Parameter]:
    """Of `**rest: Unpack[Name]`, where Name is a TypedDict of the constructor's module: its names
    that the specification has as fields."""
    name = rest.annotation.removeprefix("Unpack[").removesuffix("]")
    options = getattr(sys.modules[declared.__module__], name)
    keyword = inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(
            name, keyword, annotation=_Text(hint.__forward_arg__), default=_shown(defaults[name])
        )
        for name, hint in options.__annotations__.items()
        if name in defaults
    ]


def _shown(default: Any) -> Any:
    """A quantity as a user writes it, "0 s"; another specification by its class."""
    if isinstance(default, Quantity):
        return str(default) if default else f"0 {default.shown[0]}"
    return _Text(f"{type(default).__name__}()") if hasattr(default, "model_fields_set") else default
