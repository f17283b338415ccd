"""Plain IPv6 routing for kernel traffic and the baselines: ECMP groups over shortest paths, and
what they become once the fabric has reconverged around dead links and switches."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from loomnet.fabrics.topology import PartialTopology, Topology


@dataclass(frozen=True)
class SwitchRoutes:
    """ECMP tables of one switch: groups of ports, and each host's group (-1: unreachable)."""

    groups: tuple[tuple[int, ...], ...]
    group_of: Sequence[int] | Mapping[int, int]  # by host number

    def items(self) -> Iterable[tuple[int, int]]:
        """(host number, group) of every host that is there."""
        by_number = self.group_of
        return by_number.items() if isinstance(by_number, Mapping) else enumerate(by_number)

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
        # leaf -> switch -> ports, each leaf's when first asked for. An undisturbed regular fabric
        # needs none of it: its shape knows.
        self._next: dict[int, dict[int, tuple[int, ...]]] = {}
        self._leaf_of: dict[int, list[int | None]] = {}  # by plane
        self._around: dict[int, list[tuple[int, int, int]]] = {}  # by switch
        whole = not (self.down_links or self.down_switches)
        self._shape = topology.shape if isinstance(topology, PartialTopology) and whole else None

    def _usable(self, link: int, far: int) -> bool:
        return link not in self.down_links and far not in self.down_switches

    def _neighbours(self, node: int) -> list[tuple[int, int, int]]:
        if node not in self._around:
            self._around[node] = self.topology.neighbours(node)
        return self._around[node]

    def _towards(self, leaf: int) -> dict[int, tuple[int, ...]]:
        if leaf in self.down_switches:
            return {}
        distance = {leaf: 0}
        todo = deque([leaf])
        while todo:
            node = todo.popleft()
            for _, link, far in self._neighbours(node):
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
                for port, link, far in self._neighbours(node)
                if self._usable(link, far) and distance.get(far, hops) == hops - 1
            )
            for node, hops in distance.items()
        }

    def ports_towards(self, switch: int, leaf: int) -> tuple[int, ...]:
        if self._shape is not None:
            return self._shape.next_ports(switch, leaf)
        if leaf not in self._next:
            self._next[leaf] = self._towards(leaf)
        return self._next[leaf].get(switch, ())

    def attached(self, host: int, plane: int) -> int | None:
        """The leaf a host can use in a plane; None while its link or that leaf is down, and of a
        host at panels alone."""
        if not self.topology.in_planes(host):
            return None
        leaf = self.topology.leaf_of(host, plane).node
        if self._shape is not None:
            return leaf
        usable = self._usable(self.topology.ports[host][plane], leaf)
        return leaf if usable else None

    def _leaves(self, plane: int) -> list[int | None]:
        """attached() of all hosts."""
        if plane not in self._leaf_of:
            self._leaf_of[plane] = [self.attached(host, plane)
                                    for host in self.topology.host_numbers]
        return self._leaf_of[plane]

    def switch(self, switch: int) -> SwitchRoutes:
        """Tables of one switch (node number); empty while it is down."""
        plane = self.topology.plane_of_switch(switch)
        groups: dict[tuple[int, ...], int] = {}
        group_of: dict[int, int] = {}
        by_leaf: dict[int | None, int] = {None: -1}
        for host, leaf in zip(self.topology.host_numbers, self._leaves(plane), strict=True):
            if switch in self.down_switches:
                group = -1
            elif leaf == switch:
                ports = (self.topology.leaf_of(host, plane).port,)
                group = groups.setdefault(ports, len(groups))
            elif (known := by_leaf.get(leaf)) is not None:
                group = known
            else:
                assert leaf is not None
                ports = self.ports_towards(switch, leaf)
                group = groups.setdefault(ports, len(groups)) if ports else -1
                by_leaf[leaf] = group
            group_of[host] = group
        whole = len(group_of) == self.topology.host_count
        return SwitchRoutes(tuple(groups), tuple(group_of.values()) if whole else group_of)

    def host_planes(self, source: int, destination: int) -> tuple[int, ...]:
        """Planes (NIC ports) by which `source` reaches `destination`."""
        usable = []
        for plane in range(self.topology.planes):
            first, last = self.attached(source, plane), self.attached(destination, plane)
            if first is None or last is None:
                continue
            if first == last or self.ports_towards(first, last):
                usable.append(plane)
        return tuple(usable)
