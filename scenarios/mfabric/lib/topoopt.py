"""TopoOpt's static links, for the mean demand of a whole job (Wang et al., "TopoOpt: Co-optimizing
Network Topology and Parallelization Strategy for Distributed Training Jobs", NSDI 2023), as MixNet
compares itself with it: one panel of any size, servers that forward."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from loomnet.base.errors import UsageError

if TYPE_CHECKING:  # networkx itself is imported only where links are computed
    import networkx as nx


def topoopt_links(
    sums: dict[tuple[int, ...], float], demand: np.ndarray, degree: int = 8
) -> list[tuple[int, int]]:
    """The links between servers. A pair that has several links is listed as many times.

    The degree is divided between the all-reduces and the rest in proportion to their bytes, with
    one at least for all-reduces where there are some: these get rings through their groups with
    strides coprime to the group's size. The rest gets maximum-weight matchings one after another;
    a pair's demand is halved each time that it is matched. Where servers are in parts after that,
    the parts' closest servers are joined in place of the last matching. The outline is the
    publication's; what it leaves open (rounding, what joins the parts) is decided here.

    Args:
        sums: of each group of servers that sum gradients its bytes.
        demand: bytes that pairs exchange otherwise, (servers, servers), symmetrical.
        degree: links of a server.

    Raises:
        UsageError: a group or the demand is not of these servers.
    """
    import networkx as nx

    wanted = np.array(demand, dtype=float)
    servers = len(wanted)
    if wanted.shape != (servers, servers) or (wanted != wanted.T).any() or (wanted < 0).any():
        raise UsageError("topoopt_links: demand must be symmetrical, 0 and more")
    if any(not 0 <= server < servers for group in sums for server in group):
        raise UsageError(f"topoopt_links: a group has a server above {servers - 1}")
    rest = float(wanted.sum()) / 2
    all_reduce = sum(sums.values())
    rings = 0
    if all_reduce:
        rings = min(max(round(degree * all_reduce / (all_reduce + rest)), 1), degree)
        rings += rings % 2  # a ring uses two links of each server
        rings = min(rings, degree)
    free = np.full(servers, degree)
    links: list[tuple[int, int]] = []

    def join(a: int, b: int) -> None:
        links.append((min(a, b), max(a, b)))
        free[a] -= 1
        free[b] -= 1

    for group in sums:
        for stride in _strides(len(group))[: max(rings // 2, 1)] if rings else []:
            around = [(group[i], group[(i + stride) % len(group)]) for i in range(len(group))]
            if len(group) == 2:
                around = around[:1]
            for a, b in around:
                if free[a] and free[b]:
                    join(a, b)
    while True:
        graph = nx.Graph()
        for a in range(servers):
            for b in range(a + 1, servers):
                if wanted[a, b] > 0 and free[a] and free[b]:
                    graph.add_edge(a, b, weight=wanted[a, b])
        matched = nx.max_weight_matching(graph)
        if not matched:
            break
        for a, b in sorted(map(sorted, matched)):
            join(a, b)
            wanted[a, b] = wanted[b, a] = wanted[a, b] / 2
    return sorted(_joined(servers, links))


def _strides(size: int) -> list[int]:
    """Strides that are coprime to the size and make different rings."""
    return [stride for stride in range(1, size // 2 + 1) if math.gcd(stride, size) == 1] or [1]


def _joined(servers: int, links: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The links, changed so that every server reaches every other. As few links as possible are
    changed: to join two parts, a link a-b of one and a link c-d of the other become a-c and b-d."""
    import networkx as nx

    graph = nx.MultiGraph(links)
    graph.add_nodes_from(range(servers))
    parts = sorted(map(sorted, nx.connected_components(graph)))
    for part in parts[1:]:
        first = set(nx.node_connected_component(graph, parts[0][0]))
        mine = _spare(graph, first)
        other = _spare(graph, set(part))
        if mine is None or other is None:
            graph.add_edge(min(first), part[0])
            continue
        graph.remove_edge(*mine)
        graph.remove_edge(*other)
        graph.add_edge(mine[0], other[0])
        graph.add_edge(mine[1], other[1])
    return [(min(a, b), max(a, b)) for a, b in graph.edges()]


def _spare(graph: nx.MultiGraph, part: set[int]) -> tuple[int, int] | None:
    """A link that can be removed without dividing the part: it has a parallel link or lies on a
    cycle. None where there is no such link."""
    import networkx as nx

    inside = graph.subgraph(part)
    for a, b in sorted((min(edge), max(edge)) for edge in set(inside.edges())):
        if inside.number_of_edges(a, b) > 1:
            return a, b
    bridges = {tuple(sorted(edge)) for edge in nx.bridges(nx.Graph(inside))}
    for a, b in sorted((min(edge), max(edge)) for edge in set(inside.edges())):
        if (a, b) not in bridges:
            return a, b
    return None
