"""Slots of switches where each job has its own (SwitchML)."""

from __future__ import annotations

from collections.abc import Mapping

from loomnet.systems.ina.trees import SumTree


class OwnSlots:
    """Of each switch, by job, the first of the slots that are the job's alone until it ends."""

    def __init__(self, slots: Mapping[int, int]) -> None:
        self._slots = slots  # of each switch, how many it has
        self._bases: dict[int, dict[int, int]] = {}
        self._sizes: dict[int, int] = {}  # of jobs

    def take(self, job: int, window: int, tree: SumTree) -> bool:
        """Whether a tree's switches have two windows of slots for the job that are no other job's:
        in fewer, two fragments would meet."""
        self._sizes[job] = 2 * window
        found = {node: self._free(job, node) for node in tree.places}
        if any(found[node] + 2 * window > self._slots[node] for node in tree.holders):
            return False
        for node, base in found.items():
            self._bases.setdefault(node, {})[job] = base
        return True

    def base(self, job: int, node: int) -> int:
        return self._bases.get(node, {}).get(job, 0)

    def forget(self, job: int) -> None:
        for bases in self._bases.values():
            bases.pop(job, None)

    def _free(self, job: int, node: int) -> int:
        """The first of a switch's slots that the job has or can have, were there enough."""
        bases = self._bases.get(node, {})
        if job in bases:
            return bases[job]
        at, size = 0, self._sizes[job]
        for other, base in sorted(bases.items(), key=lambda each: each[1]):
            if base - at >= size:
                break
            at = base + self._sizes[other]
        return at
