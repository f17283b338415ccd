"""How an error says what a plug-in's own code raised, and where."""

from __future__ import annotations

import traceback
from pathlib import Path


def raised(method: str, error: BaseException) -> str:
    """`advance raised KeyError: 'x' (policy.py:12)`."""
    text = str(error)
    said = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"{method} raised {said}{place(error)}"


def place(error: BaseException | None) -> str:
    """` (policy.py:12)`: the line that raised; empty where none is known."""
    frames = traceback.extract_tb(None if error is None else error.__traceback__)
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
