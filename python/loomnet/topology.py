"""A checked fabric with numbers: nodes, ports and links as the engine and the tables index them.

Hosts are nodes 0 … H-1 and switches H … H+S-1, in order of construction. A host's port is its
plane; a switch's ports are numbered in the order of its links."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loomnet.fabric import Fabric, Link


@dataclass(frozen=True, slots=True)
class End:
    """One end of a link: a node number and a port of that node."""

    node: int
    port: int


class Topology:
    """Index of a fabric. Raises FabricError where the fabric does not check."""

    def __init__(self, fabric: Fabric) -> None:
        fabric.check()
        self.fabric = fabric
        self.hosts = list(fabric.hosts)
        self.switches = list(fabric.switches)
        self.names = [*self.hosts, *self.switches]
        self.number = {name: i for i, name in enumerate(self.names)}
        self.links: list[Link] = fabric.all_links()
        self.link_number = {link.name: i for i, link in enumerate(self.links)}
        self.planes = fabric.planes
        self.plane = [fabric.plane_of(link) for link in self.links]
        self.ports: list[dict[int, int]] = [{} for _ in self.names]  # port -> link, per node
        self.ends: list[tuple[End, End]] = []
        for i, link in enumerate(self.links):
            self.ends.append((self._attach(link.a, i), self._attach(link.b, i)))

    def _attach(self, name: str, link: int) -> End:
        node = self.number[name]
        port = self.plane[link] if self.is_host(node) else len(self.ports[node])
        self.ports[node][port] = link
        return End(node, port)

    def is_host(self, node: int) -> bool:
        return node < len(self.hosts)

    def far(self, node: int, port: int) -> End:
        """The other end of the link at this port."""
        a, b = self.ends[self.ports[node][port]]
        return b if a.node == node else a

    def neighbours(self, node: int) -> list[tuple[int, int, int]]:
        """(port, link, node at its far end) for every port, in port order."""
        return [
            (port, link, self.far(node, port).node)
            for port, link in sorted(self.ports[node].items())
        ]

    def leaf_of(self, host: int, plane: int) -> End:
        """The switch port that a host's NIC port of this plane is linked to."""
        return self.far(host, plane)

    def plane_switches(self, plane: int) -> list[int]:
        """Node numbers of the switches of one plane."""
        return [self.number[s.name] for s in self.fabric.switches.values() if s.plane == plane]
