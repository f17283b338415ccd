"""SRv6 uSID plan (RFC 9800): static tables per switch, path templates
per pair of hosts and plane, and the entropy values that choose among them. The plan of three
tiers is written down in clos.py."""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from loomnet.base.errors import AddressError
from loomnet.fabrics.clos_part import Touched
from loomnet.fabrics.clos_shape import Clos
from loomnet.fabrics.topology import ClosTopology, Topology
from loomnet.plans.path_sets import MOST_WAYS, PathSets

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
    `cores_per_agg`. Where no arithmetic gives the ways, `ways` has uSIDs of each by its number,
    which take the slots from `uplink_slot` on; the ends of many pairs of hosts share it."""

    usids: tuple[int, ...]
    uplink_slot: int
    uplinks: tuple[int, ...]
    agg_slots: int = 0
    cores_per_agg: int = 1
    ways: tuple[tuple[int, ...], ...] = ()

    def address(self, plane: int, uplink: int) -> ipaddress.IPv6Address:
        """Destination address of one path. Raises AddressError for an uplink that is no path."""
        if uplink not in self.uplinks:
            raise AddressError(f"uplink {uplink} is no path here; there are {self.uplinks}")
        usids = list(self.usids)
        if self.ways:
            row = self.ways[uplink]
            usids[self.uplink_slot : self.uplink_slot + len(row)] = row
        elif self.uplink_slot >= 0:
            usids[self.uplink_slot] += uplink
        for slot in range(len(usids)):
            if self.agg_slots >> slot & 1:
                usids[slot] += uplink // self.cores_per_agg
        return usid_address(plane, tuple(usids))


@dataclass(frozen=True, slots=True, eq=False)
class SwitchUsids:
    """Static uSID tables of one switch; keys are uSIDs behind the plane's block, in order.
    `links`: rows of a uA uSID, which is shifted, and its port; `next`: rows of the uSID that comes
    next and its port."""

    block: int
    own: int  # uN: shift, then look up again
    links: np.ndarray  # uint16[n, 2]
    next: np.ndarray  # uint16[n, 2]

    @classmethod
    def of(
        cls, block: int, own: int, ports: Any = (), links: Any = (), next: Any = ()
    ) -> SwitchUsids:
        """From columns: ports, and for each the uA uSID of its link and the uSID behind it."""
        made = (
            np.column_stack([keys, ports]).astype(np.uint16).reshape(-1, 2)
            for keys in (links, next)
        )
        return cls(block, own, *(rows[np.argsort(rows[:, 0], kind="stable")] for rows in made))

    @property
    def adjacencies(self) -> tuple[tuple[int, int], ...]:
        return tuple(map(tuple, self.links.tolist()))

    @property
    def fib(self) -> tuple[tuple[int, int], ...]:
        return tuple(map(tuple, self.next.tolist()))

    def to_dict(self) -> dict[str, Any]:
        return {
            "block": self.block,
            "own": self.own,
            "adjacencies": self.adjacencies,
            "fib": self.fib,
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SwitchUsids) and self.to_dict() == other.to_dict()


class UsidPlan:
    """Numbers the switches tier by tier in each plane and derives every table from them.

    A switch with hosts is a leaf (T0), one next to a leaf a spine (T1), any other a core (T2), each
    numbered in order of construction. Where a number does not fit its range, switches have no
    tables of uSIDs, and what asks for paths raises AddressError: other packets need none. A pair of
    hosts has every shortest way between its leaves.
    """

    def __init__(self, topology: Topology, style: Style = "uN") -> None:
        self.topology, self.style = topology, style
        self.shape = topology.fabric.shape
        self.path_sets = PathSets(topology)
        self.leaf: dict[int, int] = {}
        self.spine: dict[int, int] = {}
        self.core: dict[int, int] = {}
        self.downlink: dict[tuple[int, int], int] = {}  # (leaf node, host) -> number
        self._exhausted: str | None = None  # why not all nodes have a number
        # Per plane, the first core's place among the uA uSIDs of T1 and T2. In a regular fabric no
        # switch is next to both, and both begin at 0; elsewhere cores come behind the spines.
        self._first_core: dict[int, int] = dict.fromkeys(range(topology.planes), 0)
        if isinstance(topology, ClosTopology):
            self._number_as_whole(topology)
        else:
            for plane in range(topology.planes):
                self._number(plane)
        self._routes: dict[tuple[int, int], PlanePaths] = {}
        # uSIDs of the ways between leaves of two kinds, by the ways' switches.
        self._listed: dict[int, tuple[tuple[int, ...], ...]] = {}

    def _number_as_whole(self, topology: ClosTopology) -> None:
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

    def _limit(self, used: int, most: int, what: str) -> None:
        if used > most and self._exhausted is None:
            self._exhausted = (
                f"uSID space exhausted: more than {most} {what}; use more planes or "
                'fewer nodes per plane, or give transport="roce" or "tcp"'
            )

    def _need_numbers(self) -> None:
        if self._exhausted is not None:
            raise AddressError(self._exhausted)

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
        if self._exhausted is not None:
            return SwitchUsids.of(block(plane), 0)
        if isinstance(self.topology, ClosTopology):
            return self._regular_tables(self.topology.part, switch)
        ports, links, after = [], [], []
        for port, _, far in self.topology.neighbours(switch):
            ports.append(port)
            links.append(self.adjacency(switch, far))
            host = self.topology.is_host(far)
            after.append(HOST + self.downlink[switch, far] if host else self.own(far))
        return SwitchUsids.of(block(plane), self.own(switch), ports, links, after)

    def _regular_tables(self, part: Touched, switch: int) -> SwitchUsids:
        shape = part.shape
        tier, plane, index = shape.place(switch)
        # Of the links down and up: ports, the numbers behind them, and where uSIDs of them begin.
        if tier == "leaf":
            down = np.array(part.downlinks(index), np.int64)
            up = np.array(part.ups, np.int64)
            base = index // shape.leaves_per_pod * shape.aggs_per_pod
            found = ((down, down, UA_HOST, HOST), (shape.hosts_per_leaf + up, base + up, UA_T1, T1))
        elif tier == "agg":
            pod, which = divmod(index, shape.aggs_per_pod)
            leaves = np.array(part.leaves_in(pod), np.int64)
            up = np.array(part.core_ups, np.int64)
            found = (
                (leaves - pod * shape.leaves_per_pod, leaves, UA_T0, T0),
                (shape.leaves_per_pod + up, which * shape.cores_per_agg + up, UA_T1, T2),
            )
        else:
            pods = np.array(part.pods, np.int64)
            which = index // shape.cores_per_agg
            found = ((pods, pods * shape.aggs_per_pod + which, UA_T1, T1),)
        ports, links, after = (
            np.concatenate(each)
            for each in zip(
                *(
                    (ports, numbers + adjacent, numbers + own)
                    for ports, numbers, adjacent, own in found
                ),
                strict=True,
            )
        )
        return SwitchUsids.of(block(plane), self.own(switch), ports, links, after)

    def paths(self, source: int, destination: int, plane: int) -> PlanePaths:
        """The path template between two hosts (numbers) in one plane."""
        self._need_numbers()
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

    def check(self, hosts: Iterable[int], pairs: Iterable[tuple[int, int]] | None = None) -> None:
        """Raises AddressError where the ways between two of these hosts, or of these pairs of them
        alone, do not fit addresses or entropy values."""
        self._need_numbers()
        if self.shape is not None:
            return  # its builder has checked
        there = [host for host in hosts if self.topology.in_planes(host)]
        for plane in range(self.topology.planes):
            leaf = {host: self.topology.leaf_of(host, plane).node for host in there}
            ends = (
                self.path_sets.kinds(leaf.values())
                if pairs is None
                else {(leaf[a], leaf[b]) for a, b in pairs if a in leaf and b in leaf}
            )
            for first, last in ends:
                self._route(first, last)

    def _route(self, first: int, last: int) -> PlanePaths:
        """The template from the first leaf to the last one, without the last hop."""
        if self.shape is not None and first != last:
            return self._up_and_down(self.shape, first, last)
        uA = self.style == "uA"
        switches = self.path_sets.switches(first, last)
        # uN: one for each switch and the host; uA: one for each link and one that decapsulates.
        needed = switches + 1
        if needed > MAX_USIDS:
            names = self.topology.names
            raise AddressError(
                f"the path {names[first]} … {names[last]} crosses {switches} switches and needs "
                f"{needed} uSIDs; one address holds {MAX_USIDS}, and MRC names its paths by one: "
                'give transport="roce" or "tcp"'
            )
        between = self.path_sets.between(first, last)
        if len(between) == 1:
            return PlanePaths(self._named(first, between[0], last), -1, (0,))
        spines = sorted(self.spine.get(chain[0], -1) for chain in between)
        if switches == 3 and spines[0] >= 0 and spines[-1] - spines[0] < MOST_WAYS:
            base, *_ = spines  # a pod's first, as in a regular fabric
            uplinks = tuple(spine - base for spine in spines)
            if uA:
                return PlanePaths((UA_T1 + base, UA_T0 + self.leaf[last]), 0, uplinks)
            return PlanePaths((self.own(first), T1 + base, self.own(last)), 1, uplinks)
        key = id(between)  # which the path sets keep
        if key not in self._listed:
            slot = 0 if uA else 1
            width = switches - 2
            self._listed[key] = tuple(
                self._named(first, chain, last)[slot : slot + width] for chain in between
            )
        return PlanePaths(
            self._named(first, between[0], last),
            0 if uA else 1,
            tuple(range(len(between))),
            ways=self._listed[key],
        )

    def _named(self, first: int, between: tuple[int, ...], last: int) -> tuple[int, ...]:
        """uSIDs of one way, without the last hop."""
        chain = (first, *between, last) if first != last else (first,)
        if self.style == "uA":
            return tuple(self.adjacency(a, b) for a, b in itertools.pairwise(chain))
        return tuple(self.own(node) for node in chain)

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
