"""How far a figure may change: one share for all, or shares by name."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean, in_quotes, quoted

MOST_SHARE = 1e9


def fits(name: str, pattern: str) -> bool:
    """Whether a figure's dotted name is the pattern, ends in it behind a dot, or is of the glob."""
    return name == pattern or name.endswith(f".{pattern}") or fnmatch.fnmatchcase(name, pattern)


@dataclass(frozen=True)
class Tolerance:
    """Shares of the first value by pattern. Of several patterns that fit a name the last holds; a
    name that none fits may not change at all."""

    shares: tuple[tuple[str, float], ...]

    @classmethod
    def flat(cls, share: float) -> Tolerance:
        """One share for all figures."""
        return cls((("*", share),))

    def of(self, name: str) -> float:
        """The share by which the figure of this dotted name may change."""
        return next((share for pattern, share in reversed(self.shares) if fits(name, pattern)), 0.0)

    def check(self, where: str, names: Iterable[str]) -> None:
        """Raises UsageError for a pattern that fits none of these figures."""
        check_patterns(where, [pattern for pattern, _ in self.shares if pattern != "*"], names)

    def __str__(self) -> str:
        if len(self.shares) == 1 and self.shares[0][0] == "*":
            return percent(self.shares[0][1])
        return ", ".join(f"{percent(share)} of {name}" for name, share in self.shares)


def percent(share: float) -> str:
    """0.05 as "5 %"."""
    return f"{100 * share:.6g} %"


def tolerance(where: str, given: Any) -> Tolerance:
    """From what a user gave: 0.05, or {"*": 0.01, "blip_s": 0.15}. Raises UsageError."""
    rows = given.items() if isinstance(given, Mapping) else [("*", given)]
    shares = []
    for name, share in rows:
        if not isinstance(name, str):
            raise UsageError(f"{where}: {quoted(name)} is not a number's name")
        if (
            isinstance(share, bool)
            or not isinstance(share, (int, float))
            or not 0 <= share < MOST_SHARE
        ):
            of = "" if given is share else f" of {in_quotes(name)}"
            raise UsageError(f"{where}={quoted(share)}{of} must be a number, 0 or more")
        shares.append((name, float(share)))
    return Tolerance(tuple(shares))


def check_patterns(where: str, patterns: Iterable[str], names: Iterable[str]) -> None:
    """Raises UsageError for a pattern that fits none of the names."""
    known = list(names)
    for pattern in patterns:
        if not any(fits(name, pattern) for name in known):
            hint = did_you_mean(pattern, known)
            raise UsageError(f"{where}: no number {in_quotes(pattern)}{hint}")
