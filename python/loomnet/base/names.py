"""Names and values for messages: what the user may have meant, and what was given."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable, Sequence

MOST_COMPARED = 200  # characters; SequenceMatcher's time grows with the square


def nearest(name: object, known: Iterable[str], count: int = 3) -> list[str]:
    """The `count` names of `known` most like `name`, best first; never empty if `known` is not."""
    unique = sorted(set(known))
    folded = (name if isinstance(name, str) else quoted(name))[:MOST_COMPARED].casefold()

    def distance(other: str) -> tuple[float, str]:
        return (-difflib.SequenceMatcher(None, folded, other.casefold()).ratio(), other)

    return sorted(unique, key=distance)[:count]


def how_many(count: int, one: str, several: str | None = None) -> str:
    """ "1 plane", "4 planes"; `several` where the plural is not the singular with an s."""
    return f"{count} {one if count == 1 else several or one + 's'}"


def joined_ranks(ranks: Sequence[int]) -> str:
    """ "rank 2", "ranks 0, 1 and 3"."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """`; nearest: a, b, c`, or an empty string when there is nothing to offer."""
    names = nearest(name, known)
    return f"; nearest: {', '.join(names)}" if names else ""


def one_slip(given: str, meant: str) -> bool:
    """Whether one letter too many, too few or another, or two letters exchanged, makes the name."""
    if abs(len(given) - len(meant)) > 1:
        return False
    at = next(
        (i for i, (a, b) in enumerate(zip(given, meant, strict=False)) if a != b),
        min(len(given), len(meant)),
    )
    rest, other = given[at:], meant[at:]
    return (
        rest[1:] == other
        or rest == other[1:]
        or rest[1:] == other[1:]
        or (rest[:2] == other[1::-1] and rest[2:] == other[2:])
    )


class _Short(reprlib.Repr):
    """repr() with bounds: of length, of depth, and of what a value's own repr() may do."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = 80

    def repr_int(self, value: int, level: int) -> str:
        # Python refuses to write integers of more than 4,300 digits.
        if value.bit_length() > 400:
            return f"{'-' if value < 0 else ''}(an integer of {value.bit_length()} bits)"
        return super().repr_int(value, level)


_short = _Short()


def quoted(value: object) -> str:
    """A user's value for a message: its repr(), cut to a line's length. A value whose repr() fails
    is shown by its type."""
    try:
        return _short.repr(value)
    except Exception:
        return f"<{type(value).__name__}>"


def in_quotes(name: object) -> str:
    """A name that a user gave, between double quotes; a value that is no text as quoted()."""
    return f'"{name}"' if isinstance(name, str) else quoted(name)
