"""Plain IPv6 routing for kernel traffic and the baselines: ECMP groups over shortest paths, and
what they become once the fabric has reconverged around dead links and switches."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loomnet.fabrics.topology import ClosTopology, Topology


@dataclass(frozen=True, eq=False)
class SwitchRoutes:
    """ECMP tables of one switch. `groups`: ports of equal cost; `hosts`: numbers of the hosts that
    are there, in order; `group`: of each, its group, -1: unreachable."""

    groups: tuple[tuple[int, ...], ...]
    hosts: np.ndarray  # int64[n]
    group: np.ndarray  # int64[n]

    def ports(self, host: int) -> tuple[int, ...]:
        """Ports of equal cost towards a host; empty when there is none."""
        at = int(np.searchsorted(self.hosts, host))
        if at == len(self.hosts) or self.hosts[at] != host or self.group[at] < 0:
            return ()
        return self.groups[self.group[at]]

    def to_dict(self) -> dict[str, Any]:
        return {
            "groups": self.groups,
            "group_of": dict(zip(self.hosts.tolist(), self.group.tolist(), strict=True)),
        }

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, SwitchRoutes)
            and self.groups == other.groups
            and all(
                np.array_equal(*each)
                for each in ((self.hosts, other.hosts), (self.group, other.group))
            )
        )


class _PlaneHosts:
    """The hosts of a plane, by their places in the topology's order, and the leaves (node numbers)
    that they can use."""

    def __init__(self, leaves: Sequence[int | None]) -> None:
        self.at: dict[int, list[int]] = {}  # leaf -> places
        for place, leaf in enumerate(leaves):
            if leaf is not None:
                self.at.setdefault(leaf, []).append(place)
        self.first = {leaf: places[0] for leaf, places in self.at.items()}
        self.leaves = [None, *self.at]
        self.number = {leaf: number for number, leaf in enumerate(self.leaves)}
        self.leaf = np.array([self.number[leaf] for leaf in leaves], np.int64)  # by place


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
        self._hosts: dict[int, _PlaneHosts] = {}  # by plane
        self._around: dict[int, list[tuple[int, int, int]]] = {}  # by switch
        whole = not (self.down_links or self.down_switches)
        self._shape = topology.shape if isinstance(topology, ClosTopology) and whole else None
        self._numbers = np.array(topology.host_numbers, np.int64)

    def _usable(self, link: int, far: int) -> bool:
        return link not in self.down_links and far not in self.down_switches

    def _neighbours(self, node: int) -> list[tuple[int, int, int]]:
        """(port, link, node at its far end) towards other switches by what is usable."""
        if node not in self._around:
            self._around[node] = [
                each
                for each in self.topology.neighbours(node)
                if not self.topology.is_host(each[2]) and self._usable(*each[1:])
            ]
        return self._around[node]

    def _towards(self, leaf: int) -> dict[int, tuple[int, ...]]:
        if leaf in self.down_switches:
            return {}
        distance = {leaf: 0}
        found: dict[int, tuple[int, ...]] = {}
        todo = deque([leaf])
        while todo:
            node = todo.popleft()
            hops, ports = distance[node], []
            for port, _, far in self._neighbours(node):
                if far not in distance:
                    distance[far] = hops + 1
                    todo.append(far)
                elif distance[far] == hops - 1:  # all of them have been looked around
                    ports.append(port)
            found[node] = tuple(ports)
        return found

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

    def _plane_hosts(self, plane: int) -> _PlaneHosts:
        if plane not in self._hosts:
            numbers = self.topology.host_numbers
            self._hosts[plane] = _PlaneHosts([self.attached(host, plane) for host in numbers])
        return self._hosts[plane]

    def switch(self, switch: int) -> SwitchRoutes:
        """Tables of one switch (node number); empty while it is down."""
        plane = self.topology.plane_of_switch(switch)
        numbers, hosts = self.topology.host_numbers, self._plane_hosts(plane)
        groups: dict[tuple[int, ...], int] = {}
        own = [] if switch in self.down_switches else hosts.at.get(switch, [])
        # Groups are numbered in the order in which hosts come first that need them.
        firsts = [(first, leaf) for leaf, first in hosts.first.items() if leaf != switch]
        firsts += [(place, -1) for place in own]
        of_leaf = np.full(len(hosts.leaves), -1)
        of_own: list[int] = []
        for place, leaf in sorted(firsts) if switch not in self.down_switches else ():
            if leaf < 0:
                ports: tuple[int, ...] = (self.topology.leaf_of(numbers[place], plane).port,)
                of_own.append(groups.setdefault(ports, len(groups)))
            elif ports := self.ports_towards(switch, leaf):
                of_leaf[hosts.number[leaf]] = groups.setdefault(ports, len(groups))
        group_of = of_leaf[hosts.leaf]
        group_of[own] = of_own
        return SwitchRoutes(tuple(groups), self._numbers, group_of)

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
