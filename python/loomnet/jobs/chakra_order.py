"""The order in which the nodes of a rank of a Chakra trace can run."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from loomnet.jobs.chakra import Node


def in_order(nodes: Sequence[Node], *, control: bool) -> Sequence[Node] | None:
    """The nodes of a rank, by number, so that none comes before one that it waits for: the order in
    which its collectives meet those of other ranks. None where some wait for each other."""
    numbered = {node.id: node for node in nodes}
    before = {
        node.id: {
            other
            for other in (*node.after, *(node.control if control else ()))
            if other in numbered
        }
        for node in nodes
    }
    if all(max(on, default=-1) < number for number, on in before.items()):
        return nodes
    waits = {number: len(on) for number, on in before.items()}
    following: dict[int, list[int]] = {}
    for number, on in before.items():
        for other in on:
            following.setdefault(other, []).append(number)
    todo = [number for number, count in waits.items() if count == 0]
    heapq.heapify(todo)
    ordered: list[Node] = []
    while todo:
        number = heapq.heappop(todo)
        ordered.append(numbered[number])
        for other in following.get(number, ()):
            waits[other] -= 1
            if waits[other] == 0:
                heapq.heappush(todo, other)
    return ordered if len(ordered) == len(nodes) else None
