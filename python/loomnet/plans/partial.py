"""A plan of the part of a regular fabric that some hosts' traffic can meet: the numbers, addresses
and seeds of the whole, computed when read. A run on it ends like one on the whole, byte for
byte."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import numpy

from loomnet.base import bounds
from loomnet.base.errors import FabricError
from loomnet.base.units import Time
from loomnet.fabrics.clos_fabric import ClosFabric
from loomnet.fabrics.clos_shape import Clos
from loomnet.fabrics.link_settings import HEADER_BYTES, LinkDefaults, longest_rtt, tier_settings
from loomnet.fabrics.model import Fabric
from loomnet.fabrics.topology import PartialTopology
from loomnet.plans.ecmp import EcmpTables, SwitchRoutes
from loomnet.plans.model import HalfLinkPlan, HostPlan, LinkPlan, Plan, SwitchPlan
from loomnet.plans.usid_plan import Style, UsidPlan, host_address

T = TypeVar("T")


class Part(Generic[T]):
    """Entries by the numbers of the whole fabric; iterating gives those that are there."""

    def __init__(self, numbers: list[int], make: Any) -> None:
        self.numbers, self._make = numbers, make

    def __getitem__(self, number: int) -> T:
        return self._make(number)

    def __iter__(self) -> Iterator[T]:
        return map(self._make, self.numbers)

    def __len__(self) -> int:
        return len(self.numbers)


class Halves:
    """What every half-link of a tier and direction shares: `settings[tier][back]`."""

    def __init__(
        self, fabric: ClosFabric, rtt: Time, frame: int, defaults: LinkDefaults
    ) -> None:
        assert fabric.shape is not None
        self.shape: Clos = fabric.shape
        self.settings = tier_settings(fabric, rtt, frame, defaults)

    def plan(self, number: int) -> LinkPlan:
        shape = self.shape
        tier = shape.link_tier(number)
        low, high = shape.ends(number)
        names = shape.name(low[0]), shape.name(high[0])
        ahead, back = (
            HalfLinkPlan(
                2 * number + back,
                f"{names[back]}->{names[not back]}",
                *ends,
                last_hop=tier == 0 and back,
                **self.settings[tier][back],
            )
            for back, ends in ((False, (*low, *high)), (True, (*high, *low)))
        )
        return LinkPlan(number, f"{names[0]}--{names[1]}", shape.plane_of(number), ahead, back)

    def reserved_bytes(self, node: int, links: Iterable[int]) -> int:
        """What PFC reserves of a switch's buffer for these of its links."""
        total = 0
        for link in links:
            upper = self.shape.ends(link)[1][0] == node
            half = self.settings[self.shape.link_tier(link)][not upper]
            total += half["pfc_xoff_bytes"] + half["pfc_headroom_bytes"]
        return total

    @property
    def pfc(self) -> bool:
        return any(half["pfc_xoff_bytes"] for tier in self.settings for half in tier)

    def buffer_bytes(self, node: int) -> int:
        """All the limits of a switch's ports, those left out included; of lossy packets."""
        shape, tier = self.shape, self.shape.place(node)[0]

        def held(tier: int, back: bool) -> int:
            half = self.settings[tier][back]
            return half["data_limit_bytes"] + half["control_limit_bytes"]

        if tier == "leaf":
            return shape.hosts_per_leaf * held(0, True) + shape.aggs_per_pod * held(1, False)
        if tier == "core":
            return shape.pods * held(2, True)
        up = shape.cores_per_agg * held(2, False) if shape.cores else 0
        return shape.leaves_per_pod * held(1, True) + up


class PartialPlan(Plan):
    """A Plan whose entries are made when read; see Plan."""

    @property
    def pfc(self) -> bool:
        assert isinstance(self.topology, PartialTopology)
        shape = self.topology.shape
        first = [shape.host_link(0, 0), shape.leaf_link(0, 0, 0)]
        first += [shape.agg_link(0, 0, 0)] if shape.cores else []
        links = [self.links[number] for number in first]
        return any(half.pfc_xoff_bytes for link in links for half in (link.forward, link.backward))

    def wiring(self) -> Iterator[numpy.ndarray]:
        """Rows of link, node, port, node, port in order of the links' numbers, an array for each
        tier of a plane."""
        topology = self.topology
        assert isinstance(topology, PartialTopology)
        shape, part = topology.shape, topology.part
        for plane in range(shape.planes):
            hosts = numpy.array(part.hosts, dtype=numpy.int64)
            leaf = numpy.array([shape.leaf_index(host) for host in part.hosts])
            place = numpy.array([shape.downlink(host) for host in part.hosts])
            yield _rows(
                shape.host_link(plane, 0) + hosts,
                hosts,
                plane,
                shape.leaf(plane, 0) + leaf,
                place,
            )
            low, up = _pairs(part.leaves, part.ups)
            if len(low):
                pod, down = numpy.divmod(low, shape.leaves_per_pod)
                yield _rows(
                    shape.leaf_link(plane, 0, 0) + low * shape.aggs_per_pod + up,
                    shape.leaf(plane, 0) + low,
                    shape.hosts_per_leaf + up,
                    shape.agg(plane, 0) + pod * shape.aggs_per_pod + up,
                    down,
                )
            low, up = _pairs(part.aggs, part.core_ups)
            if len(low):
                pod, which = numpy.divmod(low, shape.aggs_per_pod)
                yield _rows(
                    shape.agg_link(plane, 0, 0) + low * shape.cores_per_agg + up,
                    shape.agg(plane, 0) + low,
                    shape.leaves_per_pod + up,
                    shape.core(plane, 0) + which * shape.cores_per_agg + up,
                    pod,
                )


def _pairs(low: Sequence[int], ups: Sequence[int]) -> tuple[numpy.ndarray, numpy.ndarray]:
    return numpy.repeat(numpy.array(low, dtype=numpy.int64), len(ups)), numpy.tile(
        numpy.arange(len(ups), dtype=numpy.int64), len(low)
    )


def _rows(*columns: Any) -> numpy.ndarray:
    return numpy.stack(numpy.broadcast_arrays(*columns), axis=1).astype(numpy.int64)


class _Routes(SwitchRoutes):
    """A switch's ECMP tables, worked out when first read: a run of MRC alone never does."""

    def __init__(self, tables: EcmpTables, node: int) -> None:
        object.__setattr__(self, "_of", (tables, node))

    def __getattr__(self, name: str) -> Any:
        if name not in ("groups", "group_of"):
            raise AttributeError(name)
        tables, node = self._of
        found = tables.switch(node)
        object.__setattr__(self, "groups", found.groups)
        object.__setattr__(self, "group_of", found.group_of)
        return getattr(self, name)


class _Ports(Sequence[int]):
    """Links at a switch's ports, by arithmetic; equal to the tuple it stands for."""

    def __init__(self, shape: Clos, node: int) -> None:
        self._shape, self._node, self._count = shape, node, shape.ports(node)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, port: Any) -> Any:
        if not -self._count <= port < self._count:
            raise IndexError(port)
        return self._shape.link_at(self._node, port % self._count)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)


def partial_plan(
    fabric: Fabric, hosts: Iterable[int], seed: int, style: Style, defaults: LinkDefaults
) -> PartialPlan:
    """The plan of what these hosts' traffic can meet. Raises FabricError if that is not known."""
    if not isinstance(fabric, ClosFabric) or fabric.shape is None or not fabric.uniform:
        raise FabricError(
            f"{fabric.name}: only a regular fabric without overrides is built in part"
        )
    shape = fabric.shape
    wanted = sorted(set(hosts))
    if not wanted or not 0 <= wanted[0] <= wanted[-1] < shape.hosts:
        raise FabricError(f"{fabric.name}: hosts must be some of 0 … {shape.hosts - 1}")
    topology = PartialTopology(fabric, wanted)
    addresses, routes = UsidPlan(topology, style), EcmpTables(topology)
    frame = fabric.payload.bytes + HEADER_BYTES
    rtt = longest_rtt(fabric, frame)
    bounds.check_round_trip(fabric.name, rtt.count)
    halves = Halves(fabric, rtt, frame, defaults)
    lossless = halves.pfc

    def host(number: int) -> HostPlan:
        ports = tuple(shape.host_link(plane, number) for plane in range(shape.planes))
        return HostPlan(number, f"h{number}", "rank", str(host_address(number)), ports,
                        tuple(range(shape.planes)), (None,) * shape.planes,
                        *fabric.local.planned)

    def switch(node: int) -> SwitchPlan:
        reserved = 0
        if lossless:  # by the ports that are there: the others take nothing
            links = (link for _, link, _ in topology.part.neighbours(node))
            reserved = halves.reserved_bytes(node, links)
        bounds.check_buffer(shape.name(node), halves.buffer_bytes(node) + reserved)
        return SwitchPlan(
            node,
            shape.name(node),
            shape.place(node)[1],
            _Ports(shape, node),
            addresses.tables(node),
            _Routes(routes, node),
            halves.buffer_bytes(node) + reserved,
            reserved > 0,
        )

    return PartialPlan(
        fabric.name,
        seed,
        shape.planes,
        fabric.payload.bytes,
        frame,
        rtt.count,
        Part(wanted, host),
        Part(topology.switch_numbers, switch),
        Part(topology.link_numbers, halves.plan),
        topology,
        addresses,
        routes,
    )
