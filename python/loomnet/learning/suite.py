"""A frozen benchmark of congestion controls: links to learn on, links that score, and digests by
which a test sees that neither has moved."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from loomnet.learning.bottleneck import Bottleneck
from loomnet.learning.grid import Point, Ranges

OF_LINK = (
    "rate",
    "rtt",
    "buffer",
    "length",
    "changes",
    "loss",
    "jitter",
    "bunching",
    "action_delay",
    "lockstep",
    "tcp",
)
OF_FLOW = ("start", "lifetime", "rtt", "cc")


@dataclass(frozen=True)
class Suite:
    """One version of a benchmark. What would move a score makes another version.

    Attributes:
        name: with the version, as "loomnet/CC-v1".
        ranges: of the links to learn on.
        draw: makes such a link of a generator. All of its flows learn.
        points: links that score. No learner sees one of them.
    """

    name: str
    ranges: Ranges
    draw: Callable[[np.random.Generator], Bottleneck]
    points: tuple[Point, ...]

    @property
    def scored(self) -> list[Point]:
        """Points within the ranges, by which the one score is."""
        return [each for each in self.points if self.ranges.holds(each)]

    @property
    def beyond(self) -> list[Point]:
        """Points outside the ranges, which have a mean of their own."""
        return [each for each in self.points if not self.ranges.holds(each)]

    def digest_of_points(self) -> str:
        """SHA-256 of all that is said of each point's bottleneck, hexadecimal."""
        return digest(each.bottleneck() for each in self.points)

    def digest_of_draws(self, count: int = 50) -> str:
        """SHA-256 of what `draw` makes first of the generator of seed 0."""
        random = np.random.default_rng(0)
        return digest(self.draw(random) for _ in range(count))


def digest(bottlenecks: Iterable[Bottleneck]) -> str:
    rows: list[Any] = [
        [
            *(getattr(link, name) for name in OF_LINK),
            [[getattr(flow, name) for name in OF_FLOW] for flow in link.flows],
        ]
        for link in bottlenecks
    ]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()
