"""Everything an engine needs to know about a fabric, as plain frozen data: numbers, no names to
look up and nothing left to decide. Built by make.py from a checked Fabric."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from loomnet.fabrics.topology import Topology
from loomnet.plans.columns import Links, Part
from loomnet.plans.ecmp import EcmpTables
from loomnet.plans.entries import HalfLinkPlan, HostPlan, PanelPlan, SwitchPlan
from loomnet.plans.usid_plan import PlanePaths, UsidPlan

MESSAGE_BYTES = 1 << 20  # of a flow: bytes per write
# Of a port that packets leave by without uSIDs: for switches to route, or as light of a panel.
LEFT_TO_SWITCHES = PlanePaths((), -1, (0,))


@dataclass(frozen=True)
class Plan:
    """A fabric ready to run. Nodes: hosts, then switches, then panels; halves: two per link."""

    name: str
    seed: int
    planes: int
    payload_bytes: int  # RDMA payload of a full packet
    frame_bytes: int  # its Ethernet frame without FCS
    base_rtt_ps: int  # longest empty-network round trip: full packet out, SACK back
    # A plan made in part has the built entries alone, by their numbers in the whole fabric.
    hosts: Part[HostPlan]
    switches: Part[SwitchPlan]
    links: Links
    topology: Topology = field(repr=False, compare=False)
    addresses: UsidPlan = field(repr=False, compare=False)
    routes: EcmpTables = field(repr=False, compare=False)
    panels: tuple[PanelPlan, ...] = ()
    # What an engine has made of the plan and the next one of the same plan takes as it is.
    made: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def counts(self) -> tuple[int, int, int]:
        """Hosts, switches and links of the whole fabric."""
        return self.topology.fabric.counts

    @property
    def partial(self) -> bool:
        return self.topology.partial

    @property
    def ranks(self) -> tuple[int, ...]:
        """Where ranks of a job of all hosts are: rank r runs on the host of number ranks[r]."""
        return tuple(
            host.number for host in self.hosts if host.role == "rank" for _ in range(host.ranks)
        )

    @cached_property
    def most_host_bps(self) -> int:
        """Of the host whose ports together are fastest."""
        return max(sum(self.port_rates(host)) for host in self.hosts)

    def port_rates(self, host: HostPlan) -> tuple[int, ...]:
        """Bits per second at which each port of a host sends, as its link was built."""
        ends, number = self.topology.ends, host.number
        return tuple(
            self.links.setting(2 * link + (ends[link][0].node != number), "rate_bps")
            for link in host.ports
        )

    @cached_property
    def most_local_window(self) -> int:
        """Bytes, of the host whose local link holds most."""
        return max((host.local_window for host in self.hosts), default=0)

    @property
    def pfc(self) -> bool:
        """Whether some switch port is lossless."""
        return any(switch.pfc for switch in self.switches)

    def half(self, number: int) -> HalfLinkPlan:
        return self.links.half(number)

    def paths(self, source: int, destination: int) -> tuple[PlanePaths, ...]:
        """Path templates between two hosts (numbers), one per plane; none where one of the hosts
        has ports at panels alone."""
        if not self.joined(source, destination):
            return ()
        return tuple(
            self.addresses.paths(source, destination, plane) for plane in range(self.planes)
        )

    def joined(self, source: int, destination: int) -> bool:
        """Whether switches join two hosts: not where one of them has ports at panels alone."""
        return self.topology.in_planes(source) and self.topology.in_planes(destination)

    def port_paths(
        self, source: int, destination: int, *, by_usids: bool
    ) -> tuple[PlanePaths, ...]:
        """As paths(), of packets that say their way; for others, whose way switches find, a port of
        each plane."""
        if by_usids:
            return self.paths(source, destination)
        return (LEFT_TO_SWITCHES,) * self.planes if self.joined(source, destination) else ()

    def host_planes(self, source: int, destination: int) -> tuple[int, ...]:
        """Planes by which kernel traffic of one host may reach another, nothing being down."""
        return self.routes.host_planes(source, destination)

    def reconverged(
        self,
        down_links: frozenset[int] | set[int],
        down_switches: frozenset[int] | set[int] = frozenset(),
    ) -> EcmpTables:
        """ECMP tables around these dead links (numbers) and switches (node numbers)."""
        return EcmpTables(self.topology, down_links, down_switches)

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain JSON values."""
        flat = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.repr}
        for name in ("hosts", "switches", "links", "panels"):
            flat[name] = [entry.to_dict() for entry in flat[name]]
        return flat


def writes_outstanding(plan: Plan) -> int:
    """Writes of MESSAGE_BYTES that a flow keeps under way: two bandwidth-delay products of its NIC
    or, where that is more, of the local link, at least 4."""
    hosts = list(itertools.islice(plan.hosts, 64))
    nic_bps = max((sum(plan.port_rates(host)) for host in hosts), default=0)
    local = max((host.local_window for host in hosts), default=0)
    return max(
        4,
        1 + 2 * nic_bps * plan.base_rtt_ps // (8 * 10**12 * MESSAGE_BYTES),
        1 + local // MESSAGE_BYTES if local else 0,
    )
