"""Hooks of systems answer what their contract says. An answer of another kind is an error of one
line that names the hook, where it would be a fault somewhere in the run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping
from numbers import Integral, Real
from typing import Any

from loomnet.base.errors import UsageError
from loomnet.base.units import Time
from loomnet.systems.given import Memory

# The answer that a hook must give, in words for the error, and the test of an answer.
Kind = tuple[str, Callable[[Any], bool]]


def _of(what: str, *types: type) -> Kind:
    return what, lambda answer: isinstance(answer, types)


def _numbers(answer: Any) -> bool:
    return isinstance(answer, Collection) and all(isinstance(each, Integral) for each in answer)


def _step(answer: Any) -> bool:
    return answer is None or (
        isinstance(answer, tuple) and [type(each) for each in answer] == [str, Time]
    )


def _figure(answer: Any) -> bool:
    if not isinstance(answer, tuple) or len(answer) != 4:
        return False
    name, value, unit, reason = answer
    return (
        isinstance(name, str)
        and (value is None or isinstance(value, Real))
        and isinstance(unit, str)
        and (reason is None or isinstance(reason, str))
    )


_TEXT = _of("a text", str)
_TRUTH = _of("True or False", bool)
_KEYWORDS = _of("a dict of keywords", Mapping)
ANSWERS: Mapping[str, Kind] = {
    "settings": _KEYWORDS,
    "settings_of": _KEYWORDS,
    "rows": _of("a dict of rows by table", Mapping),
    "carries": _TRUTH,
    "core_options": _KEYWORDS,
    "bridge_options": _KEYWORDS,
    "has_bytes": _TRUTH,
    "capacity": _of("a share or None", Real, type(None)),
    "stall": _TEXT,
    "remark": _TEXT,
    "forget": ("numbers of switches", _numbers),
    "step": ("(option, Time) or None", _step),
    "reads_steps": _TRUTH,
    "notes": _of("a dict of notes", Mapping),
}
ITEMS: Mapping[str, Kind] = {  # of hooks that answer several
    "memory": _of("Memory", Memory),
    "figures": ("(name, number or None, unit, reason or None)", _figure),
    "lint": _TEXT,
}


class Answering:
    """A class whose subclasses fill hooks: what these answer is checked."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in (*ANSWERS, *ITEMS):
            hook = cls.__dict__.get(name)
            if not hasattr(super(cls, cls), name):  # no hook of the contract: the class's own
                continue
            if isinstance(hook, property) and hook.fget is not None:
                setattr(cls, name, property(_checked(cls, name, hook.fget)))
            elif callable(hook):
                setattr(cls, name, _checked(cls, name, hook))


def _checked(cls: type, name: str, hook: Callable[..., Any]) -> Callable[..., Any]:
    several = name in ITEMS
    what, fits = (ITEMS if several else ANSWERS)[name]
    where = f"{cls.__name__}.{name}"

    def found(answer: Any) -> str:
        return f"{where}: {what} is expected, not {_kind(answer)}"

    @functools.wraps(hook)
    def wrapper(*args: Any, **keywords: Any) -> Any:
        answer = hook(*args, **keywords)
        if not several:
            if not fits(answer):
                raise UsageError(found(answer))
            return answer
        if isinstance(answer, (str, bytes)) or not isinstance(answer, Iterable):
            raise UsageError(f"{where}: several of {what} are expected, not {_kind(answer)}")
        items = list(answer)
        for item in items:
            if not fits(item):
                raise UsageError(found(item))
        return items

    return wrapper


def _kind(answer: Any) -> str:
    """The answer itself where it is short, so that its fault is seen; else its type."""
    text = repr(answer)
    return text if len(text) <= 60 and "\n" not in text else f"a {type(answer).__name__}"
