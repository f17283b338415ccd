"""SRv6 uSID plan (RFC 9800): static tables per switch, path templates
per pair of hosts and plane, and the entropy values that choose among them. The plan of three
tiers is written down in clos.py."""

from __future__ import annotations

import ipaddress
import itertools
from dataclasses import dataclass, replace
from typing import Literal

from loomnet.base.errors import AddressError
from loomnet.fabrics.clos_shape import Clos
from loomnet.fabrics.topology import PartialTopology, Topology

Style = Literal["uN", "uA"]
T1, T0, T2, HOST = 0x1000, 0x2000, 0x3000, 0x4000
UA_T1, UA_T0, UA_HOST, DECAPSULATE = 0xF000, 0xE000, 0xE800, 0xD000
MAX_UPLINKS = 256  # two tiers: eight bits of an entropy value name the uplink
MAX_USIDS = 6


def block(plane: int) -> int:
    """The 32-bit block of a plane: fc00:<plane>::/32."""
    return 0xFC00_0000 | plane


def host_address(host: int) -> ipaddress.IPv6Address:
    """A host's inner address fd00::<host>, the same on all its planes."""
    return ipaddress.IPv6Address((0xFD00 << 112) | host)


def usid_address(plane: int, usids: tuple[int, ...]) -> ipaddress.IPv6Address:
    """Destination address of format F3216: the plane's block, then up to six uSIDs."""
    if len(usids) > MAX_USIDS:
        raise AddressError(f"{len(usids)} uSIDs do not fit one address; the most is {MAX_USIDS}")
    value = block(plane)
    for usid in (*usids, *(0,) * (MAX_USIDS - len(usids))):
        value = value << 16 | usid
    return ipaddress.IPv6Address(value)


@dataclass(frozen=True, slots=True)
class PlanePaths:
    """Row template of one (source, destination, plane): the entropy value's uplink number is added
    to usids[uplink_slot]; -1 and uplinks (0,) where there is one path only. Across pods the number
    is the core's, and the uSIDs of the mask `agg_slots` (bit = slot) get it divided by
    `cores_per_agg`."""

    usids: tuple[int, ...]
    uplink_slot: int
    uplinks: tuple[int, ...]
    agg_slots: int = 0
    cores_per_agg: int = 1

    def address(self, plane: int, uplink: int) -> ipaddress.IPv6Address:
        """Destination address of one path. Raises AddressError for an uplink that is no path."""
        if uplink not in self.uplinks:
            raise AddressError(f"uplink {uplink} is no path here; there are {self.uplinks}")
        usids = list(self.usids)
        if self.uplink_slot >= 0:
            usids[self.uplink_slot] += uplink
        for slot in range(len(usids)):
            if self.agg_slots >> slot & 1:
                usids[slot] += uplink // self.cores_per_agg
        return usid_address(plane, tuple(usids))


@dataclass(frozen=True, slots=True)
class SwitchUsids:
    """Static uSID tables of one switch; keys are uSIDs behind the plane's block."""

    block: int
    own: int  # uN: shift, then look up again
    adjacencies: tuple[tuple[int, int], ...]  # uA: shift, then this port
    fib: tuple[tuple[int, int], ...]  # next uSID -> port


class UsidPlan:
    """Numbers the switches tier by tier in each plane and derives every table from them.

    A switch with hosts is a leaf (T0), one next to a leaf a spine (T1), any other a core (T2), each
    numbered in order of construction. Raises AddressError when a number does not fit its range.
    Across cores only a regular fabric has templates; an irregular one has one path.
    """

    def __init__(self, topology: Topology, style: Style = "uN") -> None:
        self.topology, self.style = topology, style
        self.shape = topology.fabric.shape
        self.leaf: dict[int, int] = {}
        self.spine: dict[int, int] = {}
        self.core: dict[int, int] = {}
        self.downlink: dict[tuple[int, int], int] = {}  # (leaf node, host) -> number
        # Per plane, the first core's place among the uA uSIDs of T1 and T2. In a regular fabric no
        # switch is next to both, and both begin at 0; elsewhere cores come behind the spines.
        self._first_core: dict[int, int] = dict.fromkeys(range(topology.planes), 0)
        if isinstance(topology, PartialTopology):
            self._number_as_whole(topology)
        else:
            for plane in range(topology.planes):
                self._number(plane)
        self._routes: dict[tuple[int, int], PlanePaths] = {}
        self._spine_at: dict[tuple[int, int], int] = {}

    def _number_as_whole(self, topology: PartialTopology) -> None:
        shape = topology.shape
        self._limits(shape.leaves, shape.aggs, shape.cores, 0)
        by_tier = {"leaf": self.leaf, "agg": self.spine, "core": self.core}
        for node in topology.switch_numbers:
            tier, _, index = shape.place(node)
            by_tier[tier][node] = index
        for plane in range(topology.planes):
            for host in topology.host_numbers:
                leaf = shape.leaf(plane, shape.leaf_index(host))
                self.downlink[leaf, host] = shape.downlink(host)

    def _limits(self, leaves: int, spines: int, cores: int, plane: int) -> None:
        self._limit(leaves, 2048 if self.style == "uA" else 4096, f"leaves in plane {plane}")
        if cores:
            self._limit(spines, 4096, f"aggregation switches in plane {plane}")
            self._limit(cores, 4096, f"cores in plane {plane}")
        else:
            self._limit(spines, MAX_UPLINKS, f"spines in plane {plane}")

    def _number(self, plane: int) -> None:
        switches = self.topology.plane_switches(plane)
        near: set[int] = set()  # neighbours of leaves
        leaves = 0
        for switch in switches:
            around = [far for _, _, far in self.topology.neighbours(switch)]
            hosts = [far for far in around if self.topology.is_host(far)]
            if hosts:
                near.update(around)
                self.leaf[switch] = leaves
                leaves += 1
                most = 2048 if self.style == "uA" else 4096
                self._limit(len(hosts), most, f"hosts on {self.topology.names[switch]}")
                self.downlink.update({(switch, host): i for i, host in enumerate(hosts)})
        above = [switch for switch in switches if switch not in self.leaf]
        spines = [switch for switch in above if switch in near]
        cores = [switch for switch in above if switch not in near]
        self.spine.update({switch: i for i, switch in enumerate(spines)})
        self.core.update({switch: i for i, switch in enumerate(cores)})
        self._limits(leaves, len(spines), len(cores), plane)
        if self.shape is None:
            self._first_core[plane] = len(spines)
            self._limit(len(spines) + len(cores), 4096, f"switches above leaves in plane {plane}")

    @staticmethod
    def _limit(used: int, most: int, what: str) -> None:
        if used > most:
            raise AddressError(
                f"uSID space exhausted: more than {most} {what}; use more planes or "
                "fewer nodes per plane"
            )

    def own(self, switch: int) -> int:
        """The uN uSID of a switch."""
        if switch in self.leaf:
            return T0 + self.leaf[switch]
        return T1 + self.spine[switch] if switch in self.spine else T2 + self.core[switch]

    def adjacency(self, switch: int, far: int) -> int:
        """The uA uSID by which a switch names its link to a neighbour."""
        if self.topology.is_host(far):
            return UA_HOST + self.downlink[switch, far]
        if far in self.leaf:
            return UA_T0 + self.leaf[far]
        if far in self.spine:
            return UA_T1 + self.spine[far]
        return UA_T1 + self._first_core[self.topology.plane_of_switch(far)] + self.core[far]

    def tables(self, switch: int) -> SwitchUsids:
        plane = self.topology.plane_of_switch(switch)
        adjacencies, fib = [], []
        for port, _, far in self.topology.neighbours(switch):
            adjacencies.append((self.adjacency(switch, far), port))
            host = self.topology.is_host(far)
            fib.append((HOST + self.downlink[switch, far] if host else self.own(far), port))
        return SwitchUsids(
            block(plane), self.own(switch), tuple(sorted(adjacencies)), tuple(sorted(fib))
        )

    def paths(self, source: int, destination: int, plane: int) -> PlanePaths:
        """The path template between two hosts (numbers) in one plane."""
        first = self.topology.leaf_of(source, plane).node
        last = self.topology.leaf_of(destination, plane).node
        key = (first, last)
        if key not in self._routes:
            self._routes[key] = self._route(first, last)
        route = self._routes[key]
        if self.style == "uA":
            tail = (self.adjacency(last, destination), DECAPSULATE)
        else:
            tail = (HOST + self.downlink[last, destination],)
        return replace(route, usids=(*route.usids, *tail))

    def _route(self, first: int, last: int) -> PlanePaths:
        """The template from the first leaf to the last one, without the last hop."""
        uA = self.style == "uA"
        if self.shape is not None and first != last:
            return self._up_and_down(self.shape, first, last)
        chain = self.topology.chain(first, last)
        if len(chain) == 3:
            near = {far for _, _, far in self.topology.neighbours(first)}
            both = near & {far for _, _, far in self.topology.neighbours(last)}
            spines = tuple(sorted(self.spine[node] for node in both if node in self.spine))
            if spines and uA:
                return PlanePaths((UA_T1, UA_T0 + self.leaf[last]), 0, spines)
            if spines:
                return PlanePaths((self.own(first), T1, self.own(last)), 1, spines)
        if uA:
            usids = tuple(self.adjacency(a, b) for a, b in itertools.pairwise(chain))
        else:
            usids = tuple(self.own(node) for node in chain)
        tail = 2 if uA else 1
        if len(usids) + tail > MAX_USIDS:
            names = self.topology.names
            raise AddressError(
                f"the path {names[first]} … {names[last]} needs {len(usids) + tail} "
                f"uSIDs; one address holds {MAX_USIDS}"
            )
        return PlanePaths(usids, -1, (0,))

    def _up_and_down(self, shape: Clos, first: int, last: int) -> PlanePaths:
        """By any T1 inside a pod (two tiers are one pod), by any core between two."""
        here, there = (self.leaf[leaf] // shape.leaves_per_pod for leaf in (first, last))
        up, down = here * shape.aggs_per_pod, there * shape.aggs_per_pod
        uA = self.style == "uA"
        if here == there:
            uplinks = tuple(range(shape.aggs_per_pod))
            if uA:
                return PlanePaths((UA_T1 + up, UA_T0 + self.leaf[last]), 0, uplinks)
            return PlanePaths((self.own(first), T1 + up, self.own(last)), 1, uplinks)
        uplinks = tuple(range(shape.cores))
        if uA:
            usids = (UA_T1 + up, UA_T1, UA_T1 + down, UA_T0 + self.leaf[last])
            return PlanePaths(usids, 1, uplinks, 0b101, shape.cores_per_agg)
        usids = (self.own(first), T1 + up, T2, T1 + down, self.own(last))
        return PlanePaths(usids, 2, uplinks, 0b1010, shape.cores_per_agg)

    def switches_on(self, first: int, last: int, uplink: int) -> list[int]:
        """The switches of one path of the template between two leaves."""
        key = (first, last)
        if key not in self._routes:
            self._routes[key] = self._route(first, last)
        route = self._routes[key]
        if route.uplink_slot < 0:
            return self.topology.chain(first, last)
        shape, plane = self.shape, self.topology.plane_of_switch(first)
        if shape is None or not shape.cores:
            if not self._spine_at:
                self._spine_at = {
                    (self.topology.plane_of_switch(node), number): node
                    for node, number in self.spine.items()
                }
            return [first, self._spine_at[plane, uplink], last]
        here, there = (self.leaf[leaf] // shape.leaves_per_pod for leaf in (first, last))
        if here == there:
            return [first, shape.agg(plane, here * shape.aggs_per_pod + uplink), last]
        a = uplink // shape.cores_per_agg
        return [
            first,
            shape.agg(plane, here * shape.aggs_per_pod + a),
            shape.core(plane, uplink),
            shape.agg(plane, there * shape.aggs_per_pod + a),
            last,
        ]
