"""A checked fabric with numbers: nodes, ports and links as the engine and the tables index them.

Hosts are nodes 0 … H-1, then come switches, then panels, in order of construction. A host's first
ports are on its planes, in their order, the others at panels, in the order of the links; ports of
switches and panels are numbered in the order of their links."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from loomnet.fabrics.clos_shape import Clos
from loomnet.fabrics.links import Link
from loomnet.fabrics.view import ClosView, FabricView


@dataclass(frozen=True, slots=True)
class End:
    """One end of a link: a node number and a port of that node."""

    node: int
    port: int


class Topology:
    """Index of a fabric. Raises FabricError where the fabric does not check."""

    def __init__(self, fabric: FabricView) -> None:
        fabric.check()
        self.fabric = fabric
        self.hosts = list(fabric.hosts)
        self.switches = list(fabric.switches)
        self.panels = list(fabric.panels)
        self.names = [*self.hosts, *self.switches, *self.panels]
        self.number = {name: i for i, name in enumerate(self.names)}
        self.links: list[Link] = fabric.all_links()
        self.link_number = {link.name: i for i, link in enumerate(self.links)}
        self.planes = fabric.planes
        self.host_count = len(self.hosts)
        # Of each link; None: a panel's.
        self.plane: list[int | None] = [fabric.plane_of(link) for link in self.links]
        self._planar = {self.number[end] for link, plane in zip(self.links, self.plane, strict=True)
                        if plane is not None for end in (link.a, link.b)}
        self.ports: list[dict[int, int]] = [{} for _ in self.names]  # port -> link, per node
        self.ends: list[tuple[End, End]] = []
        for i, link in enumerate(self.links):
            self.ends.append((self._attach(link.a, i), self._attach(link.b, i)))

    def _attach(self, name: str, link: int) -> End:
        node, plane = self.number[name], self.plane[link]
        taken = self.ports[node]
        if not self.is_host(node):
            port = len(taken)
        elif plane is not None:
            port = plane
        else:
            first = self.planes if node in self._planar else 0
            port = first + sum(number >= first for number in taken)
        taken[port] = link
        return End(node, port)

    @property
    def host_numbers(self) -> Sequence[int]:
        """Hosts that are there, in order."""
        return range(self.host_count)

    def is_host(self, node: int) -> bool:
        return node < self.host_count

    def in_planes(self, host: int) -> bool:
        """Whether the host has a port in each plane; others have ports at panels alone."""
        return host in self._planar

    def is_panel(self, node: int) -> bool:
        return node >= self.host_count + len(self.switches)

    def present(self, link: int) -> bool:
        """False where a fabric is built in part and this link is left out."""
        return True

    def plane_of_switch(self, node: int) -> int:
        return self.fabric.switches[self.names[node]].plane

    def link_between(self, a: int, b: int) -> int:
        """The link of two neighbours."""
        return next(link for _, link, far in self.neighbours(a) if far == b)

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
        """The switch port that a host's NIC port of this plane is linked to; the host is one of
        in_planes()."""
        return self.far(host, plane)

    def plane_switches(self, plane: int) -> list[int]:
        """Node numbers of the switches of one plane."""
        return [self.number[s.name] for s in self.fabric.switches.values() if s.plane == plane]

    def chain(self, first: int, last: int) -> list[int]:
        """A shortest chain of switches, the first in port order where several are equal."""
        if self.fabric.shape is not None:
            return self._regular_chain(self.fabric.shape, first, last)
        before: dict[int, int] = {first: first}
        todo = deque([first])
        while todo and last not in before:
            node = todo.popleft()
            for _, _, far in self.neighbours(node):
                if not self.is_host(far) and far not in before:
                    before[far] = node
                    todo.append(far)
        chain = [last]
        while chain[-1] != first:
            chain.append(before[chain[-1]])
        return chain[::-1]

    def _regular_chain(self, shape: Clos, first: int, last: int) -> list[int]:
        if first == last:
            return [first]
        plane = self.plane_of_switch(first)
        here, there = (shape.place(leaf)[2] // shape.leaves_per_pod for leaf in (first, last))
        up, down = (shape.agg(plane, pod * shape.aggs_per_pod) for pod in (here, there))
        return [first, up, last] if here == there else [first, up, shape.core(plane, 0), down, last]


class PartialTopology(Topology):
    """The part of a regular fabric that traffic among `hosts` can meet, numbered as the whole.
    Nothing is stored per link: what is asked for is worked out from the shape."""

    fabric: ClosView

    def __init__(self, fabric: ClosView, hosts: Iterable[int]) -> None:
        assert fabric.shape is not None
        self.fabric, self.shape = fabric, fabric.shape
        self.planes, self.host_count = self.shape.planes, self.shape.hosts
        self.part = self.shape.touched(hosts)
        self.panels = []
        self.switch_numbers, self.link_numbers = self.part.switches, self.part.links
        self.names = _computed(self.shape.name)
        self.number = _computed(self.shape.node)
        self.link_number = _computed(self._link_of)
        self.links = _computed(fabric.link)
        self.plane = _computed(self.shape.plane_of)
        self.ends = _computed(self._ends)
        self.ports = _computed(self._ports)

    def _link_of(self, name: str) -> int | None:
        a, _, b = name.partition("--")
        first, last = self.shape.node(a), self.shape.node(b)
        return None if first is None or last is None else self.shape.link_between(first, last)

    def _ends(self, link: int) -> tuple[End, End]:
        low, high = self.shape.ends(link)
        return End(*low), End(*high)

    def _ports(self, node: int) -> dict[int, int]:
        return {port: link for port, link, _ in self.part.neighbours(node)}

    def present(self, link: int) -> bool:
        return self.part.has(link)

    def in_planes(self, host: int) -> bool:
        return True

    def is_panel(self, node: int) -> bool:
        return False

    @property
    def host_numbers(self) -> Sequence[int]:
        return self.part.hosts

    def plane_of_switch(self, node: int) -> int:
        return self.shape.place(node)[1]

    def link_between(self, a: int, b: int) -> int:
        found = self.shape.link_between(a, b)
        assert found is not None
        return found

    def neighbours(self, node: int) -> list[tuple[int, int, int]]:
        return self.part.neighbours(node)

    def leaf_of(self, host: int, plane: int) -> End:
        return End(self.shape.leaf(plane, self.shape.leaf_index(host)), self.shape.downlink(host))

    def plane_switches(self, plane: int) -> list[int]:
        return [node for node in self.switch_numbers if self.shape.place(node)[1] == plane]


def _computed(compute: Callable[[Any], Any]) -> Any:
    """Typed as the list or dict of a whole Topology that it stands for."""
    return _Computed(compute)


class _Computed:
    """Reads like a list or a dict whose values are worked out."""

    def __init__(self, compute: Callable[[Any], Any]) -> None:
        self._compute = compute

    def __getitem__(self, key: Any) -> Any:
        return self._compute(key)
