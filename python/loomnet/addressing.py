"""SRv6 uSID plan ("MRC + SRv6 multi-plane fabrics" 3.1): static tables per switch, path templates
per pair of hosts and plane, and the entropy values that choose among them (3.2)."""

from __future__ import annotations

import ipaddress
import itertools
from collections import deque
from dataclasses import dataclass
from typing import Literal

from loomnet.errors import AddressError
from loomnet.topology import Topology

Style = Literal["uN", "uA"]
T1, T0, HOST = 0x1000, 0x2000, 0x4000
UA_T1, UA_T0, UA_HOST, DECAPSULATE = 0xF000, 0xE000, 0xE800, 0xD000
MAX_UPLINKS = 256  # eight bits of an entropy value name the uplink
MAX_USIDS = 6


def block(plane: int) -> int:
    """The 32-bit block of a plane: fc00:<plane>::/32."""
    return 0xFC00_0000 | plane


def host_address(host: int) -> ipaddress.IPv6Address:
    """A host's inner address fd00::<host>, the same on all its planes."""
    return ipaddress.IPv6Address((0xFD00 << 112) | host)


def entropy_value(plane: int, uplink: int) -> int:
    """EV = 0xC000 | uplink << 3 | plane. Raises AddressError outside 8 planes, 256 uplinks."""
    if not (0 <= plane < 8 and 0 <= uplink < MAX_UPLINKS):
        raise AddressError(
            f"entropy value: plane {plane}, uplink {uplink} exceed 8 planes, {MAX_UPLINKS} uplinks"
        )
    return 0xC000 | uplink << 3 | plane


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
    to usids[uplink_slot]; -1 and uplinks (0,) where there is one path only."""

    usids: tuple[int, ...]
    uplink_slot: int
    uplinks: tuple[int, ...]

    def address(self, plane: int, uplink: int) -> ipaddress.IPv6Address:
        """Destination address of one path. Raises AddressError for an uplink that is no path."""
        if uplink not in self.uplinks:
            raise AddressError(f"uplink {uplink} is no path here; there are {self.uplinks}")
        usids = list(self.usids)
        if self.uplink_slot >= 0:
            usids[self.uplink_slot] += uplink
        return usid_address(plane, tuple(usids))


@dataclass(frozen=True, slots=True)
class SwitchUsids:
    """Static uSID tables of one switch; keys are uSIDs behind the plane's block."""

    block: int
    own: int  # uN: shift, then look up again
    adjacencies: tuple[tuple[int, int], ...]  # uA: shift, then this port
    fib: tuple[tuple[int, int], ...]  # next uSID -> port


class UsidPlan:
    """Numbers leaves and spines plane by plane and derives every table from them.

    A switch with hosts is a leaf (T0), one without a spine (T1), each numbered in order of
    construction. Raises AddressError when a number does not fit its uSID range.
    """

    def __init__(self, topology: Topology, style: Style = "uN") -> None:
        self.topology, self.style = topology, style
        self.leaf: dict[int, int] = {}
        self.spine: dict[int, int] = {}
        self.downlink: dict[tuple[int, int], int] = {}  # (leaf node, host) -> number
        for plane in range(topology.planes):
            self._number(plane)
        self._routes: dict[tuple[int, int], tuple[tuple[int, ...], int, tuple[int, ...]]] = {}

    def _number(self, plane: int) -> None:
        leaves = spines = 0
        most_leaves = 2048 if self.style == "uA" else 4096
        for switch in self.topology.plane_switches(plane):
            hosts = [
                far for _, _, far in self.topology.neighbours(switch) if self.topology.is_host(far)
            ]
            if hosts:
                self.leaf[switch] = leaves
                leaves += 1
                self._limit(leaves, most_leaves, f"leaves in plane {plane}")
                self._limit(len(hosts), most_leaves, f"hosts on {self.topology.names[switch]}")
                self.downlink.update({(switch, host): i for i, host in enumerate(hosts)})
            else:
                self.spine[switch] = spines
                spines += 1
                self._limit(spines, MAX_UPLINKS, f"spines in plane {plane}")

    @staticmethod
    def _limit(used: int, most: int, what: str) -> None:
        if used > most:
            raise AddressError(
                f"uSID space exhausted: more than {most} {what}; use more planes or "
                "fewer nodes per plane"
            )

    def own(self, switch: int) -> int:
        """The uN uSID of a switch."""
        return T0 + self.leaf[switch] if switch in self.leaf else T1 + self.spine[switch]

    def adjacency(self, switch: int, far: int) -> int:
        """The uA uSID by which a switch names its link to a neighbour."""
        if self.topology.is_host(far):
            return UA_HOST + self.downlink[switch, far]
        return UA_T0 + self.leaf[far] if far in self.leaf else UA_T1 + self.spine[far]

    def tables(self, switch: int) -> SwitchUsids:
        plane = self.topology.fabric.switches[self.topology.names[switch]].plane
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
        usids, slot, uplinks = self._routes[key]
        if self.style == "uA":
            return PlanePaths(
                (*usids, self.adjacency(last, destination), DECAPSULATE), slot, uplinks
            )
        return PlanePaths((*usids, HOST + self.downlink[last, destination]), slot, uplinks)

    def _route(self, first: int, last: int) -> tuple[tuple[int, ...], int, tuple[int, ...]]:
        """uSIDs from the first leaf to the last one, without the last hop."""
        chain = self.chain(first, last)
        if len(chain) == 3:
            near = {far for _, _, far in self.topology.neighbours(first)}
            both = near & {far for _, _, far in self.topology.neighbours(last)}
            spines = sorted(self.spine[node] for node in both if node in self.spine)
            if spines and self.style == "uA":
                return (UA_T1, UA_T0 + self.leaf[last]), 0, tuple(spines)
            if spines:
                return (self.own(first), T1, self.own(last)), 1, tuple(spines)
        if self.style == "uA":
            usids = tuple(self.adjacency(a, b) for a, b in itertools.pairwise(chain))
        else:
            usids = tuple(self.own(node) for node in chain)
        tail = 2 if self.style == "uA" else 1
        if len(usids) + tail > MAX_USIDS:
            names = self.topology.names
            raise AddressError(
                f"the path {names[first]} … {names[last]} needs {len(usids) + tail} "
                f"uSIDs; one address holds {MAX_USIDS}"
            )
        return usids, -1, (0,)

    def chain(self, first: int, last: int) -> list[int]:
        """A shortest chain of switches, the first in port order where several are equal."""
        before: dict[int, int] = {first: first}
        todo = deque([first])
        while todo and last not in before:
            node = todo.popleft()
            for _, _, far in self.topology.neighbours(node):
                if not self.topology.is_host(far) and far not in before:
                    before[far] = node
                    todo.append(far)
        chain = [last]
        while chain[-1] != first:
            chain.append(before[chain[-1]])
        return chain[::-1]
