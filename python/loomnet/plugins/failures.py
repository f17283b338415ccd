"""How an error says what a plug-in's own code raised, and where."""

from __future__ import annotations

import traceback
from pathlib import Path

from loomnet.base.errors import LoomnetError

_PACKAGE = Path(__file__).parents[1]


def raised(method: str, error: BaseException) -> str:
    """`advance raised KeyError: 'x' (policy.py:12)`."""
    text = str(error)
    said = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if isinstance(error, LoomnetError):  # of what it called
        said = text
    return f"{method} raised {said}{place(error)}"


def place(error: BaseException | None) -> str:
    """` (policy.py:12)`: the last line outside this package on the way to the error; empty where
    none is known."""
    frames = traceback.extract_tb(None if error is None else error.__traceback__)
    own = [each for each in frames if not Path(each.filename).is_relative_to(_PACKAGE)]
    return f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""
