"""Everything an engine needs to know about a fabric, as plain frozen data: numbers, no names to
look up and nothing left to decide. Built by make_plan() from a checked Fabric."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from loomnet import bounds
from loomnet.addressing import PlanePaths, Style, SwitchUsids, UsidPlan, host_address
from loomnet.errors import FabricError
from loomnet.fabric import Fabric, HalfLink
from loomnet.naming import quoted
from loomnet.pfc import FRAMING_BYTES, NO_PFC, thresholds
from loomnet.routing import EcmpTables, SwitchRoutes
from loomnet.topology import PartialTopology, Topology
from loomnet.units import Time

# Ethernet 14, outer and inner IPv6 40 each, UDP 8, BTH 12, METH 4, TSETH 4, RETH 16, iCRC 4
# ("MRC + SRv6 multi-plane fabrics" 3.3); preamble, gap and FCS are 24 more on the wire.
HEADER_BYTES, SACK_FRAME_BYTES = 142, 154
TRIM_BYTES = 128
T_co = TypeVar("T_co", covariant=True)
# DCQCN's marking at 40 Gb/s; the bytes grow with the rate ("MRC + SRv6 multi-plane fabrics" 5).
DCQCN_RATE, DCQCN_KMIN, DCQCN_KMAX, DCQCN_PMAX = 40 * 10**9, 5_000, 200_000, 0.01
# Of a link, for control packets while data waits: a weight of 25 %, where the publication has "at
# most half" ("MRC + SRv6 multi-plane fabrics" 2.10). Below the half, late headers pace an incast.
CONTROL_SHARE, CONTROL_SHARE_MOST = 0.25, 0.5
CONTROL_QUEUES, MOST_PAYLOAD = 4, 4096  # control queue: data queues, at the largest payload
MESSAGE_BYTES = 1 << 20  # of a flow: bytes per write
MIN_QUEUE_PACKETS = 8  # a queue of less than 8 full packets trims on any burst
# Where packets are dropped, not trimmed ("MRC + SRv6 multi-plane fabrics" 2.9).
LOSSY_BDPS = 5


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
    pfc_xoff_bytes: int  # of the switch port it ends at; 0: no PFC there
    pfc_xon_bytes: int
    pfc_headroom_bytes: int
    last_hop: bool  # the far end is a host

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
    plane: int
    forward: HalfLinkPlan
    backward: HalfLinkPlan


@dataclass(frozen=True, slots=True)
class HostPlan:
    """Node number = host number; ports[plane] is the number of the link there."""

    number: int
    name: str
    role: str
    address: str  # inner address, the same on all planes
    ports: tuple[int, ...]


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

    @property
    def in_kernel(self) -> bool:
        """On the live clock; on the virtual one no switch is."""
        return self.placement != "engine"


@dataclass(frozen=True)
class Plan:
    """A fabric ready to run. Nodes: hosts first, then switches; halves: two per link."""

    name: str
    seed: int
    planes: int
    payload_bytes: int  # RDMA payload of a full packet
    frame_bytes: int  # its Ethernet frame without FCS
    base_rtt_ps: int  # longest empty-network round trip: full packet out, SACK back
    # Of a plan made in part: what is there, by the numbers of the whole (see sparse.py).
    hosts: Numbered[HostPlan]
    switches: Iterable[SwitchPlan]
    links: Numbered[LinkPlan]
    topology: Topology = field(repr=False, compare=False)
    addresses: UsidPlan = field(repr=False, compare=False)
    routes: EcmpTables = field(repr=False, compare=False)

    @property
    def counts(self) -> tuple[int, int, int]:
        """Hosts, switches and links of the whole fabric."""
        return self.topology.fabric.counts

    @property
    def partial(self) -> bool:
        return isinstance(self.topology, PartialTopology)

    @property
    def ranks(self) -> tuple[int, ...]:
        """Host numbers that may run a rank; rank r runs on ranks[r]."""
        return tuple(host.number for host in self.hosts if host.role == "rank")

    @property
    def pfc(self) -> bool:
        """Whether some switch port is lossless."""
        return any(switch.pfc for switch in self.switches)

    def half(self, number: int) -> HalfLinkPlan:
        link = self.links[number // 2]
        return link.backward if number % 2 else link.forward

    def paths(self, source: int, destination: int) -> tuple[PlanePaths, ...]:
        """Path templates between two hosts (numbers), one per plane."""
        return tuple(
            self.addresses.paths(source, destination, plane) for plane in range(self.planes)
        )

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
        for name in ("hosts", "switches", "links"):
            flat[name] = [dataclasses.asdict(entry) for entry in flat[name]]
        return flat


def writes_outstanding(plan: Plan) -> int:
    """Writes of MESSAGE_BYTES that a flow keeps under way: two bandwidth-delay products of its NIC,
    at least 4."""
    nic_bps = max((sum(plan.links[link].forward.rate_bps for link in host.ports)
                   for host in itertools.islice(plan.hosts, 64)), default=0)
    return max(4, 1 + 2 * nic_bps * plan.base_rtt_ps // (8 * 10**12 * MESSAGE_BYTES))


class Numbered(Protocol[T_co]):
    """A tuple whose index is the number, or what stands for one."""

    def __getitem__(self, number: int, /) -> T_co: ...
    def __iter__(self) -> Iterator[T_co]: ...
    def __len__(self) -> int: ...


def base_rtt(topology: Topology, addresses: UsidPlan, frame_bytes: int) -> Time:
    """Longest round trip on an empty network among one host per leaf, over all planes."""
    longest = 0
    for plane in range(topology.planes):
        host_on: dict[int, int] = {}
        for host in topology.host_numbers:
            host_on.setdefault(topology.leaf_of(host, plane).node, host)
        first, source = next(iter(host_on.items()))
        for last, destination in host_on.items():
            if destination == source and len(host_on) > 1:
                continue
            nodes = [source, *addresses.chain(first, last), destination]
            longest = max(
                longest,
                _one_way(topology, nodes, frame_bytes)
                + _one_way(topology, nodes[::-1], SACK_FRAME_BYTES),
            )
    return Time.of(longest)


def wire_time(half: HalfLink, frame_bytes: int) -> int:
    """Picoseconds that a frame of this size takes to cross an idle link."""
    return half.delay.count + (frame_bytes + FRAMING_BYTES) * 8 * 10**12 // half.rate.count


def _one_way(topology: Topology, nodes: list[int], frame_bytes: int) -> int:
    total = 0
    for node, after in itertools.pairwise(nodes):
        link = topology.link_between(node, after)
        ahead = topology.ends[link][0].node == node
        half = topology.links[link].forward if ahead else topology.links[link].backward
        total += wire_time(half, frame_bytes)
    return total


def half_settings(
    spec: HalfLink,
    back: HalfLink,
    rtt: Time,
    frame: int,
    *,
    last_hop: bool,
    from_host: bool,
    pfc: bool,
    dcqcn: bool,
    trims: bool,
    where: str,
) -> dict[str, Any]:
    """The numbers of one direction that follow from its rate and where it leads. `back` is the
    other direction, `pfc` whether it is lossless where it does not say, `dcqcn` whether it marks as
    DCQCN wants it, `trims` whether what is sent may be trimmed."""
    # Thresholds: 1 BDP, 1.5 BDP at the last hop; ECN 0.2 … 0.8 BDP, off at the last hop; control
    # 4 x data, and more for shorter packets, whose headers are as long: where the publication has
    # 2 x ("MRC + SRv6 multi-plane fabrics" 2.9), the headers of 128 senders overflow. A NIC's own
    # egress neither marks nor trims: only kernel traffic ever queues there.
    bdp = max(spec.rate.bytes_in(rtt), MIN_QUEUE_PACKETS * frame)
    pauses = pfc if spec.pfc is None else spec.pfc is not False
    lossy = from_host or not (pauses or (spec.trim and trims))
    limit = LOSSY_BDPS * bdp if lossy else bdp * 3 // 2 if last_hop else bdp
    if spec.data_limit is not None:
        limit = spec.data_limit.bytes
    control = (CONTROL_QUEUES * limit * MOST_PAYLOAD // (frame - HEADER_BYTES)
               if spec.control_limit is None else spec.control_limit.bytes)
    marks = spec.ecn if spec.ecn is not None else not (last_hop or from_host)
    low, high, share = bdp // 5, bdp * 4 // 5, 1.0
    if dcqcn:  # at every hop, by thresholds that grow with the rate but hold a few packets
        marks = spec.ecn is not False and not from_host
        low, high = (max(at * spec.rate.count // DCQCN_RATE, n * frame)
                     for at, n in ((DCQCN_KMIN, 2), (DCQCN_KMAX, 8)))  # fmt: skip
        share = DCQCN_PMAX
    trims = spec.trim and not from_host
    # A host takes whatever comes and never pauses the network.
    lossless = NO_PFC if last_hop else thresholds(spec, back, bdp, frame, default=pfc, where=where)
    bounds.check_half(where, spec.rate.count, rtt.count, {
        "data_limit": limit, "control_limit": control, "ecn": high,
        "pfc": sum(lossless.values())})
    return {
        "rate_bps": spec.rate.count,
        "delay_ps": spec.delay.count,
        "data_limit_bytes": limit,
        "control_limit_bytes": control,
        "control_share": CONTROL_SHARE if spec.control_share is None else spec.control_share,
        "ecn_low_bytes": low if marks else 0,
        "ecn_high_bytes": high if marks else 0,
        "ecn_share": share,
        "trim_bytes": TRIM_BYTES if trims else 0,
        "trim_victim": spec.trim_victim,
        **lossless,
    }


def _half_plan(
    topology: Topology, link: int, back: bool, rtt: Time, frame: int, defaults: dict[str, bool]
) -> HalfLinkPlan:
    ahead, reverse = topology.links[link].forward, topology.links[link].backward
    spec, other = (reverse, ahead) if back else (ahead, reverse)
    source, target = topology.ends[link][::-1] if back else topology.ends[link]
    last_hop, from_host = topology.is_host(target.node), topology.is_host(source.node)
    name = f"{topology.names[source.node]}->{topology.names[target.node]}"
    return HalfLinkPlan(
        number=2 * link + back,
        name=name,
        source=source.node,
        source_port=source.port,
        target=target.node,
        target_port=target.port,
        last_hop=last_hop,
        **half_settings(
            spec, other, rtt, frame, last_hop=last_hop, from_host=from_host, where=name, **defaults
        ),
    )


def _switch_plan(fabric: Fabric, topology: Topology, name: str, links: Sequence[LinkPlan],
                 addresses: UsidPlan, routes: EcmpTables) -> SwitchPlan:
    """Its one buffer holds what its ports may queue and what PFC reserves behind them."""
    node = topology.number[name]
    ports = tuple(link for _, link in sorted(topology.ports[node].items()))
    queued = reserved = 0
    for number in ports:
        ahead, back = links[number].forward, links[number].backward
        leaves, arrives = (ahead, back) if ahead.source == node else (back, ahead)
        queued += leaves.data_limit_bytes + leaves.control_limit_bytes
        reserved += arrives.reserved_bytes
    bounds.check_buffer(name, queued + reserved)
    return SwitchPlan(
        node,
        name,
        fabric.switches[name].plane,
        ports,
        addresses.tables(node),
        routes.switch(node),
        queued + reserved,
        reserved > 0,
        fabric.switches[name].placement,
    )


def check_seed(seed: Any) -> None:
    """Raises FabricError for what is no seed."""
    if type(seed) is not int or not 0 <= seed < 2**64:
        raise FabricError(f"seed {quoted(seed)} must be a whole number from 0 to 2^64 - 1")


def make_plan(
    fabric: Fabric,
    *,
    seed: int = 0,
    style: Style = "uN",
    hosts: Iterable[int] | None = None,
    pfc: bool = False,
    dcqcn: bool = False,
    trims: bool = True,
) -> Plan:
    """Checks a fabric and works out every number. Raises FabricError or AddressError.

    `pfc`: whether switch ports are lossless where their links do not say; `dcqcn`: whether switches
    mark as DCQCN's constants have it; `trims`: whether the transport's packets may be trimmed, for
    which switches have shorter queues.

    `hosts`: only what traffic among these hosts (numbers) can meet, with the numbers, addresses and
    seeds of the whole; the fabric must be regular and without overrides.
    """
    check_seed(seed)
    if hosts is not None:
        from loomnet.sparse import partial_plan

        return partial_plan(
            fabric, hosts, seed, style, {"pfc": pfc, "dcqcn": dcqcn, "trims": trims})
    topology = Topology(fabric)
    addresses, routes = UsidPlan(topology, style), EcmpTables(topology)
    frame = fabric.payload.bytes + HEADER_BYTES
    rtt = base_rtt(topology, addresses, frame)
    bounds.check_round_trip(fabric.name, rtt.count)
    defaults = {"pfc": pfc, "dcqcn": dcqcn, "trims": trims}
    links = tuple(
        LinkPlan(
            i,
            link.name,
            topology.plane[i],
            _half_plan(topology, i, False, rtt, frame, defaults),
            _half_plan(topology, i, True, rtt, frame, defaults),
        )
        for i, link in enumerate(topology.links)
    )
    host_plans = tuple(
        HostPlan(
            i,
            name,
            fabric.hosts[name].role,
            str(host_address(i)),
            tuple(topology.ports[i][plane] for plane in range(topology.planes)),
        )
        for i, name in enumerate(topology.hosts)
    )
    switches = tuple(
        _switch_plan(fabric, topology, name, links, addresses, routes)
        for name in topology.switches
    )
    return Plan(
        fabric.name,
        seed,
        topology.planes,
        fabric.payload.bytes,
        frame,
        rtt.count,
        host_plans,
        switches,
        links,
        topology,
        addresses,
        routes,
    )
