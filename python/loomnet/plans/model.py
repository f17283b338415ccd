"""Everything an engine needs to know about a fabric, as plain frozen data: numbers, no names to
look up and nothing left to decide. Built by make.py from a checked Fabric."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, TypeVar

from loomnet.fabrics.link_settings import MIN_QUEUE_PACKETS
from loomnet.fabrics.nodes import FORWARD
from loomnet.fabrics.topology import PartialTopology, Topology
from loomnet.plans.ecmp import EcmpTables, SwitchRoutes
from loomnet.plans.usid_plan import PlanePaths, SwitchUsids, UsidPlan

MESSAGE_BYTES = 1 << 20  # of a flow: bytes per write
# Of a port that packets leave by without uSIDs: for switches to route, or as light of a panel.
LEFT_TO_SWITCHES = PlanePaths((), -1, (0,))

T_co = TypeVar("T_co", covariant=True)
@dataclass(frozen=True, slots=True)
class HalfLinkPlan:
    """One direction of a link. Its number is 2 * link for a->b and 2 * link + 1 for b->a."""

    number: int
    name: str
    source: int  # node that sends
    source_port: int
    target: int
    target_port: int
    rate_bps: int
    delay_ps: int
    data_limit_bytes: int
    control_limit_bytes: int
    control_share: float  # of the link, for control packets while data waits
    ecn_low_bytes: int  # 0 with ecn_high_bytes 0: no marking
    ecn_high_bytes: int
    ecn_share: float  # of packets marked just below ecn_high_bytes; all above
    trim_bytes: int  # 0: no trimming
    trim_victim: str  # which packet a full queue cuts: "arriving", or by a "coin" the last waiting
    queue: str  # discipline of the sending port, and its options that are not at their presets
    queue_options: tuple[tuple[str, int], ...]
    largest_frame_bytes: int  # of the run's packets
    pfc_xoff_bytes: int  # of the switch port it ends at; 0: no PFC there
    pfc_xon_bytes: int
    pfc_headroom_bytes: int
    last_hop: bool  # the far end is a host
    # A panel sends it: `rate_bps` is that of the light, which is not serialised a second time.
    glass: bool = False

    @property
    def reserved_bytes(self) -> int:
        """Of the buffer of the switch it ends at."""
        return self.pfc_xoff_bytes + self.pfc_headroom_bytes

    def queue_share(self, share: float, frame_bytes: int) -> float:
        """What a queue keeps of its limits and thresholds where `share` is asked for: never less
        than the fewest packets that a queue holds."""
        if self.data_limit_bytes == 0:
            return share
        return min(max(share, MIN_QUEUE_PACKETS * frame_bytes / self.data_limit_bytes), 1.0)


@dataclass(frozen=True, slots=True)
class LinkPlan:
    number: int
    name: str
    plane: int | None  # None: a panel's
    forward: HalfLinkPlan
    backward: HalfLinkPlan


@dataclass(frozen=True, slots=True)
class HostPlan:
    """Node number = host number. ports[i] is the number of the link at NIC port i, planes[i] the
    plane that the port is on and panels[i] the panel (node number) that it is at, None if none.
    A job has up to `ranks` ranks there, joined by a link of `local_rate_bps` and `local_delay_ps`;
    both are 0 where there is one rank."""

    number: int
    name: str
    role: str
    address: str  # inner address, the same on all ports
    ports: tuple[int, ...]
    planes: tuple[int | None, ...]
    panels: tuple[int | None, ...]
    ranks: int = 1
    local_rate_bps: int = 0
    local_delay_ps: int = 0

    @property
    def local_window(self) -> int:
        """Bytes under way that keep the local link busy: two bandwidth-delay products, there and
        back."""
        return 2 * self.local_rate_bps * 2 * self.local_delay_ps // (8 * 10**12)


@dataclass(frozen=True, slots=True)
class SwitchPlan:
    """ports[i] is the number of the link at port i; `usids` is static, `routes` reconverges."""

    number: int  # node number
    name: str
    plane: int
    ports: Sequence[int]
    usids: SwitchUsids
    routes: SwitchRoutes
    buffer_bytes: int  # the shared buffer its egress queues draw from, what PFC reserves included
    pfc: bool  # some port of it is lossless
    placement: str = "xdp"  # on the live clock
    program: str = FORWARD
    options: tuple[tuple[str, Any], ...] = ()  # of the program, those that were given

    @property
    def in_kernel(self) -> bool:
        """On the live clock; on the virtual one no switch is."""
        return self.placement != "engine"


@dataclass(frozen=True, slots=True)
class PanelPlan:
    """ports[i] is the number of the link at port i; there may be fewer links than ports.
    circuits[i] is the port that port i is patched to when a run begins, -1: none."""

    number: int  # node number
    name: str
    ports: tuple[int, ...]
    circuits: tuple[int, ...]
    profile: str = "ideal"  # this and `carrier` as Fabric.add_panel() takes them
    carrier: str = "both"
    placement: str = "engine"  # on the live clock

    @property
    def in_kernel(self) -> bool:
        """On the live clock; on the virtual one no panel is."""
        return self.placement != "engine"


@dataclass(frozen=True)
class Plan:
    """A fabric ready to run. Nodes: hosts, then switches, then panels; halves: two per link."""

    name: str
    seed: int
    planes: int
    payload_bytes: int  # RDMA payload of a full packet
    frame_bytes: int  # its Ethernet frame without FCS
    base_rtt_ps: int  # longest empty-network round trip: full packet out, SACK back
    # Of a plan made in part: what is there, by the numbers of the whole (see partial.py).
    hosts: Numbered[HostPlan]
    switches: Iterable[SwitchPlan]
    links: Numbered[LinkPlan]
    topology: Topology = field(repr=False, compare=False)
    addresses: UsidPlan = field(repr=False, compare=False)
    routes: EcmpTables = field(repr=False, compare=False)
    panels: tuple[PanelPlan, ...] = ()

    @property
    def counts(self) -> tuple[int, int, int]:
        """Hosts, switches and links of the whole fabric."""
        return self.topology.fabric.counts

    @property
    def partial(self) -> bool:
        return isinstance(self.topology, PartialTopology)

    @property
    def ranks(self) -> tuple[int, ...]:
        """Where ranks of a job of all hosts are: rank r runs on the host of number ranks[r]."""
        return tuple(host.number for host in self.hosts if host.role == "rank"
                     for _ in range(host.ranks))

    @cached_property
    def most_host_bps(self) -> int:
        """Of the host whose ports together are fastest."""
        return max(sum(self.links[port].forward.rate_bps for port in host.ports)
                   for host in self.hosts)

    @cached_property
    def most_local_window(self) -> int:
        """Bytes, of the host whose local link holds most."""
        return max((host.local_window for host in self.hosts), default=0)

    @property
    def pfc(self) -> bool:
        """Whether some switch port is lossless."""
        return any(switch.pfc for switch in self.switches)

    def half(self, number: int) -> HalfLinkPlan:
        link = self.links[number // 2]
        return link.backward if number % 2 else link.forward

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

    def port_paths(self, source: int, destination: int, *, by_usids: bool
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
            flat[name] = [dataclasses.asdict(entry) for entry in flat[name]]
        return flat


def writes_outstanding(plan: Plan) -> int:
    """Writes of MESSAGE_BYTES that a flow keeps under way: two bandwidth-delay products of its NIC
    or, where that is more, of the local link, at least 4."""
    hosts = list(itertools.islice(plan.hosts, 64))
    nic_bps = max((sum(plan.links[link].forward.rate_bps for link in host.ports)
                   for host in hosts), default=0)
    local = max((host.local_window for host in hosts), default=0)
    return max(4, 1 + 2 * nic_bps * plan.base_rtt_ps // (8 * 10**12 * MESSAGE_BYTES),
               1 + local // MESSAGE_BYTES if local else 0)


class Numbered(Protocol[T_co]):
    """A tuple whose index is the number, or what stands for one."""

    def __getitem__(self, number: int, /) -> T_co: ...
    def __iter__(self) -> Iterator[T_co]: ...
    def __len__(self) -> int: ...
