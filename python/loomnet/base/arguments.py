"""Calls by users: arguments that a signature does not take are one line, as bad values are."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean

P = ParamSpec("P")
T = TypeVar("T")


def parameters_of(function: Callable[..., object]) -> list[str]:
    """Names that a caller may write, without `self` and those behind `**`."""
    return [
        name
        for name, each in inspect.signature(function).parameters.items()
        if name != "self" and each.kind is not each.VAR_KEYWORD
    ]


def checked_call(function: Callable[P, T]) -> Callable[P, T]:
    """Decorator of a function that users call: arguments that its signature does not take are a
    UsageError, with the nearest names, instead of Python's TypeError."""

    @functools.wraps(function)
    def wrapper(*args: P.args, **values: P.kwargs) -> T:
        __tracebackhide__ = True  # pytest shows the user's line, not this one
        try:
            return function(*args, **values)
        except TypeError:
            signature = inspect.signature(function)
            try:
                signature.bind(*args, **values)
            except TypeError as error:
                name = function.__qualname__.removesuffix(".__init__")
                known = signature.parameters
                unknown = [each for each in values if each not in known]
                if unknown and all(p.kind is not p.VAR_KEYWORD for p in known.values()):
                    hint = did_you_mean(unknown[0], set(known) - {"self"})
                    raise UsageError(f'{name}: unknown name "{unknown[0]}"{hint}') from None
                raise UsageError(f"{name}: {error}") from None
            raise

    return wrapper
