"""Nearest names for messages: what the user may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The `count` names of `known` most like `name`, best first; never empty if `known` is not."""
    unique = sorted(set(known))
    folded = name.casefold()

    def distance(other: str) -> tuple[float, str]:
        return (-difflib.SequenceMatcher(None, folded, other.casefold()).ratio(), other)

    return sorted(unique, key=distance)[:count]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; nearest: a, b, c`, or an empty string when there is nothing to offer."""
    names = nearest(name, known)
    return f"; nearest: {', '.join(names)}" if names else ""
