"""A checked fabric with numbers: nodes, ports and links as the engine and the tables index them.

Hosts are nodes 0 … H-1, then come switches, then panels, in order of construction. A host's first
ports are on its planes, in their order, the others at panels, in the order of the links; ports of
switches and panels are numbered in the order of their links."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from loomnet.fabrics.clos_part import touched, whole
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
        self._planar = {
            self.number[end]
            for link, plane in zip(self.links, self.plane, strict=True)
            if plane is not None
            for end in (link.a, link.b)
        }
        self.ports: list[dict[int, int]] = [{} for _ in self.names]  # port -> link, per node
        self.ends: list[tuple[End, End]] = []
        for i, link in enumerate(self.links):
            self.ends.append((self._attach(link.a, i), self._attach(link.b, i)))
        self._around: dict[int, list[tuple[int, int, int]]] = {}  # by node
        # Of the last chain: its first switch, which switch each was found from, and those that
        # have yet to be looked around.
        self._search: tuple[int, dict[int, int], deque[int]] = (-1, {}, deque())

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

    @property
    def switch_numbers(self) -> Sequence[int]:
        """Switches that are there, in order."""
        return range(self.host_count, self.host_count + len(self.switches))

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

    @property
    def partial(self) -> bool:
        """Whether some of the fabric is left out."""
        return False

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
        if node not in self._around:
            self._around[node] = [
                (port, link, self.far(node, port).node)
                for port, link in sorted(self.ports[node].items())
            ]
        return self._around[node]

    def alike(self, first: int, last: int) -> int | None:
        """Where the ways between two leaves are alike, hop by hop, a number that all pairs of
        leaves have whose ways are the same; None: not known."""
        return None

    def leaf_of(self, host: int, plane: int) -> End:
        """The switch port that a host's NIC port of this plane is linked to; the host is one of
        in_planes()."""
        return self.far(host, plane)

    def first_hosts(self, plane: int) -> dict[int, int]:
        """The first host of each leaf of a plane, in the order of the hosts; of the whole fabric,
        also where it is built in part."""
        found: dict[int, int] = {}
        for host in filter(self.in_planes, self.host_numbers):
            found.setdefault(self.leaf_of(host, plane).node, host)
        return found

    def plane_switches(self, plane: int) -> list[int]:
        """Node numbers of the switches of one plane."""
        return [self.number[s.name] for s in self.fabric.switches.values() if s.plane == plane]

    def chain(self, first: int, last: int) -> list[int]:
        """A shortest chain of switches, the first in port order where several are equal."""
        if self._search[0] != first:  # chains are asked for from one switch to many
            self._search = (first, {first: first}, deque([first]))
        _, before, todo = self._search
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


class ClosTopology(Topology):
    """A regular fabric, or the part of it that traffic among `hosts` can meet, numbered as the
    whole. Nothing is stored per link: what is asked for is worked out from the shape."""

    fabric: ClosView

    def __init__(self, fabric: ClosView, hosts: Iterable[int] | None = None) -> None:
        assert fabric.shape is not None
        fabric.check()
        self.fabric, self.shape = fabric, fabric.shape
        self.planes, self.host_count = self.shape.planes, self.shape.hosts
        self.part = whole(self.shape) if hosts is None else touched(self.shape, hosts)
        self.panels = []
        self.names = _computed(self.shape.name, self.shape.nodes)
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

    @property
    def partial(self) -> bool:
        return len(self.part.hosts) < self.host_count

    def in_planes(self, host: int) -> bool:
        return True

    def is_panel(self, node: int) -> bool:
        return False

    @property
    def host_numbers(self) -> Sequence[int]:
        return self.part.hosts

    @cached_property
    def switch_numbers(self) -> Sequence[int]:  # type: ignore[override]
        return self.part.switches

    def plane_of_switch(self, node: int) -> int:
        return self.shape.place(node)[1]

    def link_between(self, a: int, b: int) -> int:
        found = self.shape.link_between(a, b)
        assert found is not None
        return found

    def neighbours(self, node: int) -> list[tuple[int, int, int]]:
        return self.part.neighbours(node)

    def first_hosts(self, plane: int) -> dict[int, int]:
        shape = self.shape
        return {shape.leaf(plane, leaf): shape.host_at(leaf, 0) for leaf in range(shape.leaves)}

    def chain(self, first: int, last: int) -> list[int]:
        if first == last:
            return [first]
        shape, plane = self.shape, self.plane_of_switch(first)
        here, there = (shape.place(leaf)[2] // shape.leaves_per_pod for leaf in (first, last))
        up, down = (shape.agg(plane, pod * shape.aggs_per_pod) for pod in (here, there))
        return [first, up, last] if here == there else [first, up, shape.core(plane, 0), down, last]

    def own_at(self, leaf: int) -> list[tuple[int, int]]:
        """Of the links of a leaf that are not like the others of their tier: the tier, 0 or 1, and
        by how much the rate away from the hosts differs (bits per second)."""
        return self._own[0].get(leaf, [])

    @cached_property
    def _own(self) -> tuple[dict[int, list[tuple[int, int]]], set[tuple[int, int]]]:
        """By leaf (node), as own_at(); and the pods, with their planes, that have such links
        further up."""
        shape, leaves, pods = self.shape, defaultdict(list), set()
        for number, (ahead, _) in self.fabric.own.items():
            tier, (low, high) = shape.link_tier(number), shape.ends(number)
            if tier == 2:
                pods.add((shape.plane_of(number), shape.place(low[0])[2] // shape.aggs_per_pod))
            else:
                leaf = (high if tier == 0 else low)[0]
                leaves[leaf].append((tier, ahead.rate.count - self.fabric.specs[tier].rate.count))
        return dict(leaves), pods

    def alike(self, first: int, last: int) -> int | None:
        leaves, pods = self._own
        if any(tier for leaf in (first, last) for tier, _ in leaves.get(leaf, ())):
            return None
        shape = self.shape
        ends = [
            (plane, index // shape.leaves_per_pod)
            for _, plane, index in map(shape.place, (first, last))
        ]
        if any(pod in pods for pod in ends):
            return None
        return 0 if first == last else 1 if ends[0] == ends[1] else 2

    def far(self, node: int, port: int) -> End:
        low, high = self.shape.ends(self.shape.link_at(node, port))
        return End(*(low if high[0] == node else high))

    def leaf_of(self, host: int, plane: int) -> End:
        return End(self.shape.leaf(plane, self.shape.leaf_index(host)), self.shape.downlink(host))

    def plane_switches(self, plane: int) -> list[int]:
        return [node for node in self.switch_numbers if self.shape.place(node)[1] == plane]


def _computed(compute: Callable[[Any], Any], count: int = 0) -> Any:
    """Typed as the list or dict of a whole Topology that it stands for."""
    return _Computed(compute, count)


class _Computed:
    """Reads like a list or a dict whose values are worked out."""

    def __init__(self, compute: Callable[[Any], Any], count: int) -> None:
        self._compute, self._count = compute, count

    def __getitem__(self, key: Any) -> Any:
        return self._compute(key)

    def get(self, key: Any) -> Any:
        return self._compute(key)

    def __iter__(self) -> Iterator[Any]:
        return map(self._compute, range(self._count))

    def __len__(self) -> int:
        return self._count


def topology_of(fabric: FabricView, hosts: Iterable[int] | None = None) -> Topology:
    """The index of a fabric; of a regular one, where hosts are named, of the part that their
    traffic can meet."""
    if fabric.shape is None:
        assert hosts is None
        return Topology(fabric)
    return ClosTopology(cast(ClosView, fabric), hosts)
