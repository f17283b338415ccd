"""Calls of a plug-in's own code: what they may raise, how an error says it and where, and how
--max-wall and Ctrl-C end one that does not come back."""

from __future__ import annotations

import inspect
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from loomnet.base.errors import LoomnetError, PluginError
from loomnet.base.wall_time import WallTimeOver, users_code

_PACKAGE = Path(__file__).parents[1]
# A frame in one of these folders is Python's library or an installed package, not the user's code.
_LIBRARIES = tuple(
    {
        Path(sysconfig.get_path(name)).resolve()
        for name in ("stdlib", "platstdlib", "purelib", "platlib")
    }
)


# What a plug-in's own code may raise, to be said in one line: sys.exit() is no way to end a run.
BROKEN = (Exception, SystemExit, GeneratorExit)


class PluginInterrupted(KeyboardInterrupt):
    """Ctrl-C that came while a plug-in's own code ran: `in controller "mine": advance`."""


@contextmanager
def asked(where: str, method: str) -> Iterator[None]:
    """Around a call of a plug-in's method. Raises PluginError for what it raises, and where
    --max-wall has ended it; PluginInterrupted where Ctrl-C has."""
    try:
        with users_code():
            yield
    except WallTimeOver as over:
        raise not_back(f"{where}: {method}", over) from None
    except PluginInterrupted:
        raise
    except KeyboardInterrupt:
        raise PluginInterrupted(f"in {where}: {method}") from None
    except BROKEN as error:
        raise PluginError(f"{where}: {raised(method, error)}") from error


def not_back(what: str, over: WallTimeOver) -> PluginError:
    """The error of a call that --max-wall has ended."""
    return PluginError(f"{what} had not come back when {over}{place(over)}")


class Pending:
    """Keeps the exception that a plug-in has raised inside an event of the engine, since it cannot
    pass through the engine: the run loop raises it at its next look. Until then no plug-in that
    shares this object is called."""

    def __init__(self) -> None:
        self.raised: BaseException | None = None

    def check(self) -> None:
        """Raises the kept exception, if there is one."""
        if self.raised is not None:
            raise self.raised


def raised(method: str, error: BaseException) -> str:
    """`advance raised KeyError: 'x' (policy.py:12)`."""
    try:
        text = str(error)
    except Exception:  # an exception of the user's own
        text = ""
    said = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if isinstance(error, LoomnetError):  # of what it called
        said = text
    return f"{method} raised {said}{place(error)}"


def place(error: BaseException | None) -> str:
    """` (policy.py:12)`: the last line of a user's own code on the way to the error; without one
    the last outside this package; empty where none is known."""
    frames = traceback.extract_tb(None if error is None else error.__traceback__)
    outside = [(each.filename, each.lineno or 0) for each in frames if not _ours(each.filename)]
    own = [each for each in outside if not _of_library(each[0])] or outside
    return _at(*own[-1]) if own else ""


def called_from() -> str:
    """The same of the call that is under way: the nearest line outside this package."""
    frame = sys._getframe(1)
    while frame is not None and _ours(frame.f_code.co_filename):
        frame = frame.f_back
    return "" if frame is None else _at(frame.f_code.co_filename, frame.f_lineno)


def defined_at(method: Any) -> str:
    """The same of a method: where it begins; empty for one that is not written in Python."""
    code = getattr(inspect.unwrap(method), "__code__", None)
    return "" if code is None else _at(code.co_filename, code.co_firstlineno)


def defined_in(made: Any, method: str) -> str:
    """The same of a class's method, or, where that is not the user's own code, as "the maker" is
    none, of __init__ or of the first method in the class."""
    made = inspect.unwrap(made)
    for owner in getattr(made, "__mro__", ()):
        code = {
            name: inspect.unwrap(found).__code__
            for name, found in vars(owner).items()
            if inspect.isfunction(found)
        }
        own = {name: each for name, each in code.items() if not _ours(each.co_filename)}
        if own:
            first = min(own.values(), key=lambda each: each.co_firstlineno)
            found = own.get(method) or own.get("__init__") or first
            return _at(found.co_filename, found.co_firstlineno)
    return defined_at(made)


def _at(file: str, line: int) -> str:
    return f" ({Path(file).name}:{line})"


def _ours(file: str) -> bool:
    return Path(file).is_relative_to(_PACKAGE)


def _of_library(file: str) -> bool:
    path = Path(file)
    return file.startswith("<frozen ") or any(path.is_relative_to(each) for each in _LIBRARIES)
