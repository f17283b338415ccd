"""What of a job one parameter server finishes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from loomnet.systems.ina.trees import SumTree


@dataclass(frozen=True)
class SumShare:
    """What of a job one parameter server finishes, as switches and hosts know it: to them it is a
    job of its own. `group` is its number on the wire."""

    group: int
    workers: tuple[int, ...]  # hosts by worker number
    server: int  # host
    window: int  # fragments
    trees: tuple[SumTree, ...]

    def member(self, worker: int | None) -> tuple[int, int, int | None, int, list[list[int]]]:
        """A worker's place in the group, or its server's, as connect_qp takes it."""
        return self.group, len(self.workers), worker, self.window, self.hops

    def described(self, names: Sequence[str], server: str | None) -> str:
        """Its trees and, where it has one, its parameter server by name, for a report."""
        parts = []
        for tree in self.trees:
            below = ", ".join(names[node] for node in sorted(tree.places) if node != tree.root)
            parts.append(
                f"plane {tree.plane}: root {names[tree.root]}"
                + (f" with {below} below" if below else "")
            )
        if server is not None:
            parts.append(f"parameter server {server}")
        return "; ".join(parts)

    @property
    def hops(self) -> list[list[int]]:
        """Of each tree the switches that have slots."""
        return [list(tree.hops) for tree in self.trees]

    def paths(self, planes: int) -> list[Any]:
        """Of each plane what connect_qp takes of its paths: a plane without a tree has none."""
        mine = {tree.plane for tree in self.trees}
        return [([], -1, [0] if plane in mine else [], 0, 1, None, 1.0) for plane in range(planes)]
