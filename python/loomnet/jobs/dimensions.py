"""Collectives over a network of several dimensions, a phase for each, as ASTRA-sim's hierarchical
collectives: rank r has coordinate r % a in the first dimension of size a, then r // a % b, …"""

from __future__ import annotations

from collections.abc import Sequence

from loomnet.jobs.task_graph import TaskGraph


def over_dimensions(
    graph: TaskGraph,
    kind: str,
    members: Sequence[int],
    size: int,
    enter: Sequence[int],
    what: str,
    root: int,
    dimensions: Sequence[int],
    involved: Sequence[bool],
) -> list[int]:
    """As TaskGraph.collective among the ranks that differ in the involved dimensions alone.
    All-reduce is reduce-scatter along each dimension but the last, all-reduce along the last one,
    and all-gather along the others on the way back. A collective with a root is one tree."""
    strides, stride = [], 1
    for count in dimensions:
        strides.append(stride)
        stride *= count
    along = [d for d, count in enumerate(dimensions) if involved[d] and count > 1]
    at = list(enter)

    def phase(name: str, over: Sequence[int], bytes_each: int) -> None:
        lines: dict[int, list[int]] = {}
        for position in range(len(members)):
            fixed = position - sum(
                position // strides[d] % dimensions[d] * strides[d] for d in over
            )
            lines.setdefault(fixed, []).append(position)
        for line in lines.values():
            first = line.index(root) if root in line else 0
            ends = graph.collective(
                name, [members[p] for p in line], bytes_each, [at[p] for p in line], what, first
            )
            for position, end in zip(line, ends, strict=True):
                at[position] = end

    if kind == "all_reduce":
        for d in along[:-1]:
            phase("reduce_scatter", [d], size)
            size = -(-size // dimensions[d])
        for d in along[-1:]:
            phase("all_reduce", [d], size)
        for d in along[-2::-1] if len(along) > 1 else []:
            phase("all_gather", [d], size)
            size *= dimensions[d]
    elif kind == "all_gather":
        for d in reversed(along):
            phase(kind, [d], size)
            size *= dimensions[d]
    elif kind == "reduce_scatter":
        for d in along:
            phase(kind, [d], size)
            size = -(-size // dimensions[d])
    elif kind == "all_to_all":
        for d in along:
            phase(kind, [d], size)
    else:
        phase(kind, along, size)
    return at
