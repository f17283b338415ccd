"""Which hosts of a job send to which, as its expected capacity is computed from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from loomnet.base.errors import UsageError

Edge = tuple[int, int]  # source and destination host numbers


def ring(hosts: Iterable[int]) -> list[Edge]:
    """Traffic of a ring all-reduce: every host sends to the next."""
    order = list(hosts)
    return [(a, b) for a, b in zip(order, order[1:] + order[:1], strict=True) if a != b]


def edges_of(pairs: Sequence[tuple[int, int]], placed: list[int], where: str) -> list[Edge]:
    """Host numbers of pairs of ranks. Raises UsageError, with `where` they are given."""
    for a, b in pairs:
        if not (0 <= a < len(placed) and 0 <= b < len(placed)) or a == b:
            raise UsageError(f"{where}: ({a}, {b}) is no pair of two of {len(placed)} ranks")
    return [(placed[a], placed[b]) for a, b in pairs]
