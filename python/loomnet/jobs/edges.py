"""Which ranks of a job send to which, as its expected capacity is computed from."""

from __future__ import annotations

from collections.abc import Sequence

from loomnet.base.errors import UsageError

Edge = tuple[int, int]  # source and destination host numbers
Pair = tuple[int, int]  # source and destination ranks


def ring(ranks: int) -> list[Pair]:
    """Traffic of a ring all-reduce: every rank sends to the next."""
    return [(rank, (rank + 1) % ranks) for rank in range(ranks)]


def chain(ranks: int) -> list[Pair]:
    """Traffic of a broadcast of more than a few kilobytes: every rank but the last sends to the
    next."""
    return [(rank, rank + 1) for rank in range(ranks - 1)]


def checked_pairs(pairs: Sequence[Pair], ranks: int, where: str) -> list[Pair]:
    """Pairs of ranks, given `where`. Raises UsageError for ranks that are not there."""
    for a, b in pairs:
        if not (0 <= a < ranks and 0 <= b < ranks) or a == b:
            raise UsageError(f"{where}: ({a}, {b}) is no pair of two of {ranks} ranks")
    return list(pairs)
