"""Plain IPv6 routing for kernel traffic and the baselines: ECMP groups over shortest paths, and
what they become once the fabric has reconverged around dead links and switches."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from loomnet.topology import Topology


@dataclass(frozen=True)
class SwitchRoutes:
    """ECMP tables of one switch: groups of ports, and each host's group (-1: unreachable)."""

    groups: tuple[tuple[int, ...], ...]
    group_of: tuple[int, ...]  # index = host number

    def ports(self, host: int) -> tuple[int, ...]:
        """Ports of equal cost towards a host; empty when there is none."""
        index = self.group_of[host]
        return () if index < 0 else self.groups[index]


class EcmpTables:
    """Routes of every switch and host, given what is down.

    `down_links`: link numbers (a link with either direction down routes nothing);
    `down_switches`: node numbers. Costs are hop counts within a plane; hosts never forward.
    """

    def __init__(
        self, topology: Topology, down_links: Iterable[int] = (), down_switches: Iterable[int] = ()
    ) -> None:
        self.topology = topology
        self.down_links = frozenset(down_links)
        self.down_switches = frozenset(down_switches)
        self._next: dict[int, dict[int, tuple[int, ...]]] = {}  # leaf -> switch -> ports
        leaves = {
            topology.leaf_of(host, plane).node
            for plane in range(topology.planes)
            for host in range(len(topology.hosts))
        }
        for leaf in sorted(leaves):
            self._next[leaf] = self._towards(leaf)

    def _usable(self, link: int, far: int) -> bool:
        return link not in self.down_links and far not in self.down_switches

    def _towards(self, leaf: int) -> dict[int, tuple[int, ...]]:
        if leaf in self.down_switches:
            return {}
        distance = {leaf: 0}
        todo = deque([leaf])
        while todo:
            node = todo.popleft()
            for _, link, far in self.topology.neighbours(node):
                if (
                    not self.topology.is_host(far)
                    and far not in distance
                    and self._usable(link, far)
                ):
                    distance[far] = distance[node] + 1
                    todo.append(far)
        return {
            node: tuple(
                port
                for port, link, far in self.topology.neighbours(node)
                if self._usable(link, far) and distance.get(far, hops) == hops - 1
            )
            for node, hops in distance.items()
        }

    def _attached(self, host: int, plane: int) -> int | None:
        """The leaf a host can use in a plane; None while its link or that leaf is down."""
        leaf = self.topology.leaf_of(host, plane).node
        usable = self._usable(self.topology.ports[host][plane], leaf)
        return leaf if usable else None

    def switch(self, switch: int) -> SwitchRoutes:
        """Tables of one switch (node number); empty while it is down."""
        plane = self.topology.fabric.switches[self.topology.names[switch]].plane
        groups: dict[tuple[int, ...], int] = {}
        group_of = []
        for host in range(len(self.topology.hosts)):
            leaf = None if switch in self.down_switches else self._attached(host, plane)
            if leaf is None:
                ports: tuple[int, ...] = ()
            elif leaf == switch:
                ports = (self.topology.leaf_of(host, plane).port,)
            else:
                ports = self._next[leaf].get(switch, ())
            group_of.append(groups.setdefault(ports, len(groups)) if ports else -1)
        return SwitchRoutes(tuple(groups), tuple(group_of))

    def host_planes(self, source: int, destination: int) -> tuple[int, ...]:
        """Planes (NIC ports) by which `source` reaches `destination`."""
        usable = []
        for plane in range(self.topology.planes):
            first, last = self._attached(source, plane), self._attached(destination, plane)
            if first is not None and last is not None and first in self._next[last]:
                usable.append(plane)
        return tuple(usable)
