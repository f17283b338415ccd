"""Counts of a run's gates, as files that a job's `matrix=` reads."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

MOST_FILES = 100_000


@dataclass
class GateTrace:
    """Tokens from each source rank of a region to each expert rank, by iteration and layer; of a
    region's micro-batches the first."""

    counts: dict[tuple[int, int], dict[int, list[list[int]]]] = field(default_factory=dict)

    def add(
        self, iteration: int, micro_batch: int, region: int, layer: int, tokens: Sequence[int]
    ) -> None:
        """`tokens`: by ranks, source * experts + destination."""
        if micro_batch:
            return
        experts = round(len(tokens) ** 0.5)
        rows = [list(tokens[first : first + experts]) for first in range(0, len(tokens), experts)]
        self.counts.setdefault((region, iteration), {})[layer] = rows

    @property
    def layers(self) -> list[int]:
        """Layers that were dispatched, in order."""
        return sorted({layer for each in self.counts.values() for layer in each})

    def matrix(self, region: int, iteration: int) -> list[list[list[int]]] | None:
        """[layer][source][expert] of an iteration; None where a layer of it is missing."""
        found = self.counts.get((region, iteration), {})
        layers = self.layers
        return (
            [found[layer] for layer in layers]
            if layers and all(layer in found for layer in layers)
            else None
        )

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Name and content of a file for each whole iteration of region 0, the first MOST_FILES."""
        whole = [
            (iteration, matrix)
            for region, iteration in sorted(self.counts)
            if region == 0 and (matrix := self.matrix(region, iteration)) is not None
        ]
        for iteration, matrix in whole[:MOST_FILES]:
            yield f"iteration-{iteration:06d}.json", json.dumps(matrix).encode() + b"\n"
