"""Trees by which switches sum for a job: one for each plane on which every switch between the job's
hosts runs the aggregation program. Upwards is towards the job's parameter server."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from loomnet.fabrics.topology import Topology
from loomnet.plans.ecmp import EcmpTables


@dataclass(frozen=True)
class SumPlace:
    """A switch's place in a tree. `children`: of each port downwards the bitmap of the workers
    behind it; `hops`: of each switch below that has slots the port towards it."""

    up: int  # port
    root: bool
    children: tuple[tuple[int, int], ...]
    hops: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class SumTree:
    """One job's tree in one plane; switches by node number. `hops`: those of them that have slots,
    the root first."""

    plane: int
    root: int
    places: Mapping[int, SumPlace]
    hops: tuple[int, ...] = field(default=())

    @property
    def holders(self) -> set[int]:
        """Switches that need slots under SwitchML, which counts one part of each port downwards:
        those that have some, those at which ways meet, and the root, which answers."""
        return {
            self.root,
            *self.hops,
            *(node for node, place in self.places.items() if len(place.children) > 1),
        }


def sum_tree(
    topology: Topology,
    routes: EcmpTables,
    job: int,
    plane: int,
    workers: Sequence[int],
    server: int,
    slots: Mapping[int, int],
) -> SumTree | None:
    """The tree of a job of these hosts, worker w on workers[w], towards the host `server`. `slots`:
    of each switch that runs the program, how many slots it has. None where a switch on the way runs
    another program, or a host is cut off.

    Every switch has one next hop among those of equal cost, chosen by job and plane alone: leaves
    with the same choices agree on the switch above them, so that it sums what they send."""
    if routes.attached(server, plane) is None:
        return None
    root = topology.leaf_of(server, plane).node
    pick = zlib.crc32(f"{job} {plane}".encode())
    up: dict[int, int] = {}
    below: dict[int, dict[int, int]] = {}
    for worker, host in enumerate(workers):
        if routes.attached(host, plane) is None:
            return None
        end = topology.leaf_of(host, plane)
        node, port = end.node, end.port
        while True:
            if node not in slots:
                return None
            ways = below.setdefault(node, {})
            ways[port] = ways.get(port, 0) | 1 << worker
            if node == root:
                break
            if node not in up:
                ports = routes.ports_towards(node, root)
                if not ports:
                    return None
                ports = sorted(ports, key=lambda port, at=node: topology.far(at, port).node)
                up[node] = ports[pick % len(ports)]
            end = topology.far(node, up[node])
            node, port = end.node, end.port
    up[root] = topology.leaf_of(server, plane).port
    return _placed(topology, plane, root, up, below, slots)


def _placed(
    topology: Topology,
    plane: int,
    root: int,
    up: Mapping[int, int],
    below: Mapping[int, Mapping[int, int]],
    slots: Mapping[int, int],
) -> SumTree:
    """From ways up to what each switch knows of those below it."""
    hops: dict[int, dict[int, int]] = {node: {} for node in below}
    for node in sorted(below):
        at = node
        while slots[node] and at != root:
            end = topology.far(at, up[at])
            at = end.node
            hops[at][node] = end.port
    places = {
        node: SumPlace(
            up[node], node == root, tuple(sorted(ways.items())), tuple(sorted(hops[node].items()))
        )
        for node, ways in below.items()
    }
    order = [root, *sorted(node for node in below if node != root)]
    return SumTree(plane, root, places, tuple(node for node in order if slots[node]))
