"""Regular Clos fabrics as arithmetic: every number of a node, port or link follows from the shape,
so that a fabric of a million links costs nothing until one of them is used.

Numbering is that of the builders in clos.py. Hosts are nodes 0 … H-1. Plane by plane follow its
leaves (T0), its spines or aggregation switches (T1) and its cores (T2), and its links in the same
order: host–leaf by host, leaf–T1 by leaf, T1–core by aggregation switch. Core a·C + c, with C cores
per aggregation switch, is linked to the a-th aggregation switch of every pod, by that one's c-th
uplink."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

Order = Literal["spread", "block"]
Tier = Literal["host", "leaf", "agg", "core"]
_SWITCH = re.compile(r"p([0-9]{1,9})\.(leaf|spine|agg|core)([0-9]{1,9})")
_HOST = re.compile(r"h([0-9]{1,9})")


@dataclass(frozen=True)
class Clos:
    """Two tiers (`pods` 1, `cores_per_agg` 0; T1 is a spine) or three. `order`: host i hangs on
    leaf i mod leaves (`spread`) or on leaf i // hosts_per_leaf (`block`)."""

    planes: int
    leaves: int  # per plane, all pods
    aggs_per_pod: int  # two tiers: spines per plane
    hosts_per_leaf: int
    pods: int = 1
    cores_per_agg: int = 0
    order: Order = "spread"

    # --- counts -----------------------------------------------------------------------------------
    @cached_property
    def hosts(self) -> int:
        return self.leaves * self.hosts_per_leaf

    @cached_property
    def aggs(self) -> int:
        return self.pods * self.aggs_per_pod

    @cached_property
    def cores(self) -> int:
        return self.aggs_per_pod * self.cores_per_agg

    @cached_property
    def leaves_per_pod(self) -> int:
        return self.leaves // self.pods

    @cached_property
    def tiers(self) -> int:
        return 3 if self.cores else 2

    @cached_property
    def switches_per_plane(self) -> int:
        return self.leaves + self.aggs + self.cores

    @cached_property
    def switches(self) -> int:
        return self.planes * self.switches_per_plane

    @cached_property
    def nodes(self) -> int:
        return self.hosts + self.switches

    @cached_property
    def links_of_tiers(self) -> tuple[int, int, int]:
        """Of a plane: host–leaf, leaf–T1 and T1–core."""
        return self.hosts, self.leaves * self.aggs_per_pod, self.aggs * self.cores_per_agg

    @cached_property
    def links_per_plane(self) -> int:
        return sum(self.links_of_tiers)

    @cached_property
    def links(self) -> int:
        return self.planes * self.links_per_plane

    # --- nodes ------------------------------------------------------------------------------------
    def leaf_index(self, host: int) -> int:
        return host % self.leaves if self.order == "spread" else host // self.hosts_per_leaf

    def downlink(self, host: int) -> int:
        """A host's place among those of its leaf; also its port there."""
        return host // self.leaves if self.order == "spread" else host % self.hosts_per_leaf

    def host_at(self, leaf: int, place: int) -> int:
        if self.order == "spread":
            return place * self.leaves + leaf
        return leaf * self.hosts_per_leaf + place

    def leaf(self, plane: int, index: int) -> int:
        return self.hosts + plane * self.switches_per_plane + index

    def agg(self, plane: int, index: int) -> int:
        return self.leaf(plane, self.leaves + index)

    def core(self, plane: int, index: int) -> int:
        return self.leaf(plane, self.leaves + self.aggs + index)

    def place(self, node: int) -> tuple[Tier, int, int]:
        """(tier, plane, index within its tier and plane); a host's plane is -1."""
        if node < self.hosts:
            return "host", -1, node
        plane, index = divmod(node - self.hosts, self.switches_per_plane)
        if index < self.leaves:
            return "leaf", plane, index
        index -= self.leaves
        return ("agg", plane, index) if index < self.aggs else ("core", plane, index - self.aggs)

    def name(self, node: int) -> str:
        tier, plane, index = self.place(node)
        if tier == "host":
            return f"h{index}"
        if tier == "agg" and not self.cores:
            return f"p{plane}.spine{index}"
        return f"p{plane}.{tier}{index}"

    def node(self, name: str) -> int | None:
        """Number of a node by name; None where there is none."""
        if match := _HOST.fullmatch(name):
            number = int(match.group(1))
            return number if number < self.hosts else None
        if not (match := _SWITCH.fullmatch(name)):
            return None
        plane, tier, index = int(match.group(1)), match.group(2), int(match.group(3))
        if plane >= self.planes or tier == ("spine" if self.cores else "agg"):
            return None
        if tier == "leaf":
            return self.leaf(plane, index) if index < self.leaves else None
        if tier == "core":
            return self.core(plane, index) if index < self.cores else None
        return self.agg(plane, index) if index < self.aggs else None

    def ports(self, node: int) -> int:
        """Ports of a node, all of them linked."""
        return {
            "host": self.planes,
            "leaf": self.hosts_per_leaf + self.aggs_per_pod,
            "agg": self.leaves_per_pod + self.cores_per_agg,
            "core": self.pods,
        }[self.place(node)[0]]

    # --- links ------------------------------------------------------------------------------------
    def host_link(self, plane: int, host: int) -> int:
        return plane * self.links_per_plane + host

    def leaf_link(self, plane: int, leaf: int, uplink: int) -> int:
        return plane * self.links_per_plane + self.hosts + leaf * self.aggs_per_pod + uplink

    def agg_link(self, plane: int, agg: int, uplink: int) -> int:
        below = self.hosts + self.leaves * self.aggs_per_pod
        return plane * self.links_per_plane + below + agg * self.cores_per_agg + uplink

    def link_tier(self, link: int) -> Literal[0, 1, 2]:
        """0: host–leaf, 1: leaf–T1, 2: T1–core."""
        rest = link % self.links_per_plane
        if rest < self.hosts:
            return 0
        return 1 if rest - self.hosts < self.leaves * self.aggs_per_pod else 2

    def plane_of(self, link: int) -> int:
        return link // self.links_per_plane

    def ends(self, link: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """((node, port), (node, port)), the lower tier first."""
        plane, rest = divmod(link, self.links_per_plane)
        if rest < self.hosts:
            return (rest, plane), (self.leaf(plane, self.leaf_index(rest)), self.downlink(rest))
        rest -= self.hosts
        if rest < self.leaves * self.aggs_per_pod:
            leaf, up = divmod(rest, self.aggs_per_pod)
            pod, down = divmod(leaf, self.leaves_per_pod)
            low = (self.leaf(plane, leaf), self.hosts_per_leaf + up)
            return low, (self.agg(plane, pod * self.aggs_per_pod + up), down)
        agg, up = divmod(rest - self.leaves * self.aggs_per_pod, self.cores_per_agg)
        pod, which = divmod(agg, self.aggs_per_pod)
        low = (self.agg(plane, agg), self.leaves_per_pod + up)
        return low, (self.core(plane, which * self.cores_per_agg + up), pod)

    def link_at(self, node: int, port: int) -> int:
        """The link at a port of a node."""
        tier, plane, index = self.place(node)
        if tier == "host":
            return self.host_link(port, index)
        if tier == "leaf":
            if port < self.hosts_per_leaf:
                return self.host_link(plane, self.host_at(index, port))
            return self.leaf_link(plane, index, port - self.hosts_per_leaf)
        if tier == "agg":
            pod, which = divmod(index, self.aggs_per_pod)
            if port < self.leaves_per_pod:
                return self.leaf_link(plane, pod * self.leaves_per_pod + port, which)
            return self.agg_link(plane, index, port - self.leaves_per_pod)
        which, up = divmod(index, self.cores_per_agg)
        return self.agg_link(plane, port * self.aggs_per_pod + which, up)

    def link_between(self, a: int, b: int) -> int | None:
        """The link of two nodes; None where they are not neighbours."""
        low, high = min(a, b), max(a, b)  # tiers of a plane are numbered upwards
        (tier, plane, index), (upper, other, above) = self.place(low), self.place(high)
        if tier == "host" and upper == "leaf":
            return self.host_link(other, index) if self.leaf_index(index) == above else None
        if plane != other:
            return None
        if tier == "leaf" and upper == "agg":
            pod, up = divmod(above, self.aggs_per_pod)
            return self.leaf_link(plane, index, up) if index // self.leaves_per_pod == pod else None
        if tier == "agg" and upper == "core":
            which, up = divmod(above, self.cores_per_agg)
            return self.agg_link(plane, index, up) if index % self.aggs_per_pod == which else None
        return None

    # --- routes of the healthy fabric -------------------------------------------------------------
    def next_ports(self, switch: int, leaf: int) -> tuple[int, ...]:
        """Ports of equal cost by which a switch reaches a leaf (node number) of its plane."""
        tier, _, index = self.place(switch)
        target = self.place(leaf)[2]
        pod, place = divmod(target, self.leaves_per_pod)
        if tier == "leaf":
            up = range(self.hosts_per_leaf, self.hosts_per_leaf + self.aggs_per_pod)
            return () if index == target else tuple(up)
        if tier == "agg":
            if index // self.aggs_per_pod == pod:
                return (place,)
            return tuple(range(self.leaves_per_pod, self.leaves_per_pod + self.cores_per_agg))
        return (pod,)

    def longest_path(self) -> int:
        """Switches on the longest of the shortest paths."""
        return 5 if self.cores and self.pods > 1 else 3 if self.leaves > 1 else 1
