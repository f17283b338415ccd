"""What follows for one direction of a link from its rate, the fabric's longest round trip and where
it leads: the limits and thresholds of its queue, PFC's thresholds and headroom."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from loomnet.base import bounds
from loomnet.base.errors import FabricError
from loomnet.base.units import Size, Time
from loomnet.fabrics import queues
from loomnet.fabrics.ecn import Ecn
from loomnet.fabrics.links import HalfLink
from loomnet.fabrics.pfc import Pfc
from loomnet.fabrics.topology import Topology
from loomnet.fabrics.view import ClosView

# Ethernet 14, outer and inner IPv6 40 each, UDP 8, BTH 12, METH 4, TSETH 4, RETH 16, iCRC 4
# (OCP MRC 1.0); preamble, gap and FCS are 24 more on the wire.
HEADER_BYTES, SACK_FRAME_BYTES = 142, 154
TRIM_BYTES = 128
STEP_HEADER_BYTES = 16  # behind UDP, of packets that say which ring step they belong to
# Bytes beside a frame's own, and the smallest frame: a pause frame.
FRAMING_BYTES, PAUSE_BYTES = 24, 60
# Largest frame of a run whose transport says nothing else: 4,096 B behind MRC's headers.
MAX_FRAME_BYTES = 4096 + 142
NO_PFC = {"pfc_xoff_bytes": 0, "pfc_xon_bytes": 0, "pfc_headroom_bytes": 0}
# DCQCN's marking at 40 Gb/s; the bytes grow with the rate (Zhu et al., SIGCOMM 2015).
DCQCN_RATE, DCQCN_KMIN, DCQCN_KMAX, DCQCN_PMAX = 40 * 10**9, 5_000, 200_000, 0.01
# Of a link, for control packets while data waits: a weight of 25 %, where the publication has "at
# most half" (Araujo et al., arXiv 2605.04333). Below the half, late headers pace an incast.
CONTROL_SHARE, CONTROL_SHARE_MOST = 0.25, 0.5
CONTROL_QUEUES, MOST_PAYLOAD = 4, 4096  # control queue: data queues, at the largest payload
MIN_QUEUE_PACKETS = 8  # a queue of less than 8 full packets trims on any burst
# Where packets are dropped, not trimmed.
LOSSY_BDPS = 5
# Ours: bytes that a queue holds for each byte at which it marks, where a transport names those:
# room for what its senders have under way when the first mark is made.
MARKED_QUEUE = 4


@dataclass(frozen=True)
class Frames:
    """How a transport cuts messages into packets, in bytes. `payload`: of a full packet; `header`:
    of a data packet's Ethernet frame without FCS, beside its payload; `ack`: of an
    acknowledgement's frame; `first`: more headers in the first packet of a message, or of its part;
    `immediate`: more in the last one, where messages carry an immediate value, with which a part of
    no bytes is a packet, too;
    `stream`: what stands before a message and takes the place of payload; `align`: packets' payload
    is padded to a multiple of it. `ways`: a message takes all planes and paths packet by packet
    ("all"), has a part for each plane, a multiple of `part`, which takes one path ("parts"), or
    takes one path of one plane ("one")."""

    payload: int
    header: int
    ack: int
    first: int = 0
    immediate: int = 0
    stream: int = 0
    align: int = 1
    part: int = 1
    ways: Literal["all", "parts", "one"] = "all"

    def cut(self, length: int) -> list[tuple[int, int]]:
        """The frames of a message, or of a part of one, in order: bytes, and how many in a row."""
        length += self.stream
        before = max(-(-length // self.payload), 1) - 1
        last = self._padded(length - before * self.payload) + self.header + self.immediate
        if not before:
            return [(last + self.first, 1)]
        return [(self.full + self.first, 1), (self.full, before - 1), (last, 1)]

    @property
    def full(self) -> int:
        """Bytes of a full packet's frame."""
        return self._padded(self.payload) + self.header

    def _padded(self, length: int) -> int:
        return length + -length % self.align


@dataclass(frozen=True)
class LinkDefaults:
    """How switches queue the packets of a run where links do not say. `pfc`: without loss, by PFC;
    `dcqcn`: marked as DCQCN's constants have it; `trims`: packets may be trimmed, for which queues
    are shorter; `largest_frame`: bytes of the run's largest Ethernet frame, for PFC's headroom;
    `full_packet`: bytes of a frame that has a size of its own, as TCP's; 0: it follows the fabric's
    payload;
    `mark_bytes`: above so many every switch port marks, the last hop's too; 0: by the BDP;
    `trim_bytes`: what a trimmed packet keeps of its frame; `trim_dscps`: the code point it gets,
    and that at the last hop; `each`: those of each transport's model, where a run has several."""

    pfc: bool = False
    dcqcn: bool = False
    trims: bool = True
    largest_frame: int = MAX_FRAME_BYTES
    full_packet: int = 0
    mark_bytes: int = 0
    trim_bytes: int = TRIM_BYTES
    trim_dscps: tuple[int, int] = (0, 0)
    each: tuple[tuple[str, LinkDefaults], ...] = ()

    @classmethod
    def of_all(cls, wanted: Mapping[str, LinkDefaults]) -> LinkDefaults:
        """For the transports of a run, by model. Marks and trims are each one's own; they share the
        queues: of limits and PFC what one of them needs all have. A kernel's packets, and those of
        a transport that is not named, have the marks of the one that marks latest."""
        if len(wanted) == 1:
            return next(iter(wanted.values()))
        each = list(wanted.values())
        return cls(
            pfc=any(one.pfc for one in each),
            dcqcn=any(one.dcqcn for one in each),
            trims=any(one.trims for one in each),
            largest_frame=max(one.largest_frame for one in each),
            full_packet=max(one.full_packet for one in each),
            mark_bytes=max(one.mark_bytes for one in each),
            trim_bytes=max(one.trim_bytes for one in each),
            trim_dscps=max(one.trim_dscps for one in each),
            each=tuple(wanted.items()),
        )


_TIERS = ("host–leaf", "leaf–T1", "T1–core")


def wire_time(half: HalfLink, frame_bytes: int) -> int:
    """Picoseconds that a frame of this size takes to cross an idle link."""
    return half.delay.count + (frame_bytes + FRAMING_BYTES) * 8 * 10**12 // half.rate.count


def base_rtt(topology: Topology, frame_bytes: int) -> Time:
    """Longest round trip on an empty network: among one host per leaf, over all planes, and over
    any circuit that a panel may patch."""
    if topology.fabric.uniform:
        return longest_rtt(cast(ClosView, topology.fabric), frame_bytes)
    longest = _longest_circuit(topology, frame_bytes)
    for plane in range(topology.planes):
        host_on = topology.first_hosts(plane)
        first, source = next(iter(host_on.items()))
        for last, destination in host_on.items():
            if destination == source and len(host_on) > 1:
                continue
            nodes = [source, *topology.chain(first, last), destination]
            longest = max(
                longest,
                _one_way(topology, nodes, frame_bytes)
                + _one_way(topology, nodes[::-1], SACK_FRAME_BYTES),
            )
    return Time.of(longest)


def _longest_circuit(topology: Topology, frame_bytes: int) -> int:
    """A frame there and its acknowledgement back, each clocked once, by the sending host."""
    longest = 0
    for name in topology.panels:
        ports = [topology.links[link] for _, link, _ in topology.neighbours(topology.number[name])]
        halves = [
            (link.backward, link.forward) if link.a == name else (link.forward, link.backward)
            for link in ports
        ]
        # Ports alike make pairs alike, so two of each kind stand for all.
        kinds: dict[tuple[int, ...], list[Any]] = {}
        for own in halves:
            kind = tuple(number for half in own for number in (half.rate.count, half.delay.count))
            if len(kinds.setdefault(kind, [])) < 2:
                kinds[kind].append(own)
        for here, there in itertools.permutations(itertools.chain(*kinds.values()), 2):
            if here[0].rate == there[0].rate:
                longest = max(
                    longest,
                    wire_time(here[0], frame_bytes)
                    + there[1].delay.count
                    + wire_time(there[0], SACK_FRAME_BYTES)
                    + here[1].delay.count,
                )
    return longest


def _one_way(topology: Topology, nodes: list[int], frame_bytes: int) -> int:
    total = 0
    for node, after in itertools.pairwise(nodes):
        link = topology.link_between(node, after)
        ahead = topology.ends[link][0].node == node
        half = topology.links[link].forward if ahead else topology.links[link].backward
        total += wire_time(half, frame_bytes)
    return total


def longest_rtt(fabric: ClosView, frame: int) -> Time:
    """As base_rtt, from the shape of a regular fabric."""
    assert fabric.shape is not None
    hops = {1: (0, 0), 3: (0, 1, 1, 0), 5: (0, 1, 2, 2, 1, 0)}[fabric.shape.longest_path()]
    return Time.of(
        sum(
            wire_time(fabric.specs[tier], size)
            for size in (frame, SACK_FRAME_BYTES)
            for tier in hops
        )
    )


def half_settings(
    spec: HalfLink,
    back: HalfLink,
    rtt: Time,
    frame: int,
    *,
    last_hop: bool,
    from_host: bool,
    defaults: LinkDefaults,
    where: str,
) -> dict[str, Any]:
    """The numbers of one direction that follow from its rate and where it leads. `back` is the
    other direction."""
    # Thresholds: 1 BDP, 1.5 BDP at the last hop; ECN 0.2 … 0.8 BDP, off at the last hop; control
    # 4 x data, and more for shorter packets, whose headers are as long: where the publication has
    # 2 x, the headers of 128 senders overflow. A NIC's own
    # egress neither marks nor trims: only kernel traffic ever queues there.
    bdp = max(spec.rate.bytes_in(rtt), MIN_QUEUE_PACKETS * max(frame, defaults.full_packet))
    pauses = defaults.pfc if spec.pfc is None else spec.pfc is not False
    paused_back = defaults.pfc if back.pfc is None else back.pfc is not False
    ordered = spec.queue == queues.PRIORITY
    paused = (pauses and not last_hop) or (paused_back and not from_host)
    if paused and spec.queue not in queues.UNDER_PFC:
        raise FabricError(
            f"{where}: queue: a port under PFC queues by {queues.UNDER_PFC_NAMES}, not "
            f'"{spec.queue}"; give '
            'queue="priority" or, on this link both ways, pfc=False'
        )
    holds = pauses and spec.queue in queues.UNDER_PFC
    lossy = from_host or not (holds or (ordered and spec.trim and defaults.trims))
    limit = LOSSY_BDPS * bdp if lossy else bdp * 3 // 2 if last_hop else bdp
    stated = spec.ecn if isinstance(spec.ecn, Ecn) else None
    limit = max(limit, MARKED_QUEUE * (stated.most.bytes if stated else defaults.mark_bytes))
    if spec.data_limit is not None:
        limit = spec.data_limit.bytes
    control = (
        CONTROL_QUEUES * limit * MOST_PAYLOAD // (frame - HEADER_BYTES)
        if spec.control_limit is None
        else spec.control_limit.bytes
    )
    own = {"last_hop": last_hop, "from_host": from_host}
    marks = _marks(spec, bdp, frame, defaults, **own)
    carriers = tuple(
        (model, *_marks(spec, bdp, frame, each, **own).values()) for model, each in defaults.each
    )
    if all(each == list(marks.values()) for _, *each in carriers):
        carriers = ()
    options = dict(spec.queue_options)
    if spec.ecn is not None and "ecn" in queues.disciplines()[spec.queue]:
        options["ecn"] = int(bool(spec.ecn))
    # A host takes whatever comes and never pauses the network.
    lossless = NO_PFC
    if not last_hop:
        lossless = thresholds(spec, back, bdp, frame, defaults, where=where)
    bounds.check_half(
        where,
        spec.rate.count,
        rtt.count,
        {
            "data_limit": limit,
            "control_limit": control,
            "ecn": marks["ecn_high_bytes"],
            "pfc": sum(lossless.values()),
        },
    )
    return {
        "rate_bps": spec.rate.count,
        "delay_ps": spec.delay.count,
        "data_limit_bytes": limit,
        "control_limit_bytes": control,
        "control_share": CONTROL_SHARE if spec.control_share is None else spec.control_share,
        **marks,
        "carriers": carriers,
        "trim_victim": spec.trim_victim,
        "queue": spec.queue,
        "queue_options": tuple(sorted(options.items())),
        "largest_frame_bytes": defaults.largest_frame,
        **lossless,
    }


def _marks(
    spec: HalfLink, bdp: int, frame: int, defaults: LinkDefaults, *, last_hop: bool, from_host: bool
) -> dict[str, Any]:
    """How packets are marked and trimmed, in the order of CarrierMarks."""
    marks = bool(spec.ecn) if spec.ecn is not None else not (last_hop or from_host)
    low, high, share = bdp // 5, bdp * 4 // 5, 1.0
    if isinstance(spec.ecn, Ecn):
        marks = not from_host
        low, high, share = spec.ecn.low.bytes, spec.ecn.most.bytes, spec.ecn.share
    elif defaults.dcqcn:  # at every hop: thresholds grow with the rate, hold a few packets
        marks = spec.ecn is not False and not from_host
        low, high = (
            max(at * spec.rate.count // DCQCN_RATE, n * frame)
            for at, n in ((DCQCN_KMIN, 2), (DCQCN_KMAX, 8))
        )
        share = DCQCN_PMAX
    elif defaults.mark_bytes:
        marks = spec.ecn is not False and not from_host
        low = high = defaults.mark_bytes
    trims = spec.trim and spec.queue == queues.PRIORITY and not from_host
    return {
        "ecn_low_bytes": low if marks else 0,
        "ecn_high_bytes": high if marks else 0,
        "ecn_share": share if marks else 1.0,
        "trim_bytes": defaults.trim_bytes if trims else 0,
        "trim_dscp": defaults.trim_dscps[last_hop] if trims else 0,
    }


def panel_settings(
    spec: HalfLink, rtt: Time, frame: int, *, from_host: bool, defaults: LinkDefaults, where: str
) -> dict[str, Any]:
    """As half_settings, of a panel's link: a host's NIC queues as before any link, and a panel has
    no queue that could be under PFC, mark or trim."""
    plain = replace(spec, pfc=False, ecn=False, trim=False)
    return half_settings(
        plain,
        plain,
        rtt,
        frame,
        last_hop=not from_host,
        from_host=from_host,
        defaults=defaults,
        where=where,
    )


def tier_settings(
    fabric: ClosView,
    rtt: Time,
    frame: int,
    defaults: LinkDefaults,
    firsts: Sequence[str] | None = None,
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The numbers that all links of a tier of a regular fabric share: for each tier those of the
    direction away from the hosts, then of the direction towards them. `firsts`: of each tier the
    direction that an error names; None: errors name the tier."""
    return [
        (
            half_settings(
                spec,
                spec,
                rtt,
                frame,
                last_hop=False,
                from_host=tier == 0,
                where=where,
                defaults=defaults,
            ),
            half_settings(
                spec,
                spec,
                rtt,
                frame,
                last_hop=tier == 0,
                from_host=False,
                where=where,
                defaults=defaults,
            ),
        )
        for tier, spec in enumerate(fabric.specs)
        for where in [f"{fabric.name}, {_TIERS[tier]} links" if firsts is None else firsts[tier]]
    ]


def needed_headroom(ahead: HalfLink, back: HalfLink, largest_frame: int) -> int:
    """Room above xoff that loses nothing, in bytes: for the frame that made the port at the end of
    `ahead` pause, and for what arrives until the pause holds. The pause frame waits for a frame on
    `back`, crosses that link, and finds the sender at the start of a frame. Rounded up a little:
    the engine, which checks again, counts in picoseconds."""

    def clocked(frame: int, half: HalfLink) -> float:
        return (frame + FRAMING_BYTES) * 8e12 / half.rate.count

    until_heard = clocked(largest_frame, back) + clocked(PAUSE_BYTES, back) + back.delay.count
    until_quiet = clocked(largest_frame, ahead) + ahead.delay.count
    needed = int((until_heard + until_quiet) * ahead.rate.count / 8e12) + largest_frame
    # Above 2.7 Tb/s the engine's rounding to picoseconds is whole bytes, as a float's 53 bits are
    # above a terabyte.
    return needed + 16 + ahead.rate.count * 3 // (8 * 10**12) + (needed >> 40)


def thresholds(
    spec: HalfLink, back: HalfLink, bdp: int, frame: int, defaults: LinkDefaults, *, where: str
) -> dict[str, int]:
    """Bytes of xoff, xon and headroom of the port that `spec` ends at; zeros without PFC."""
    chosen = defaults.pfc if spec.pfc is None else spec.pfc
    if chosen is False:
        return dict(NO_PFC)
    pfc = chosen if isinstance(chosen, Pfc) else Pfc()
    # Marks come before pauses: what arrives here waits at egresses that most likely mark as `back`.
    least = max(
        (each.most.bytes for each in (spec.ecn, back.ecn) if isinstance(each, Ecn)), default=0
    )
    xoff = max(bdp, least) if pfc.xoff is None else pfc.xoff.bytes
    xon = xoff - 2 * frame if pfc.xon is None else pfc.xon.bytes
    if not 0 < xon < xoff:
        raise FabricError(
            f"{where}: pfc: xoff {Size.of(xoff)} leaves no room for "
            + (f"xon {pfc.xon}" if pfc.xon else f"xon, two frames of {frame} B below")
            + "; raise xoff or give a smaller xon"
        )
    needed = needed_headroom(spec, back, defaults.largest_frame)
    headroom = needed if pfc.headroom is None else pfc.headroom.bytes
    if headroom < needed:
        raise FabricError(
            f"{where}: pfc: headroom {pfc.headroom} is less than the {needed} B that still arrive "
            f"until a pause holds (round trip {Time.of(spec.delay.count + back.delay.count)} at "
            f"{spec.rate} and three frames of {defaults.largest_frame} B); raise it or leave it out"
        )
    return {"pfc_xoff_bytes": xoff, "pfc_xon_bytes": xon, "pfc_headroom_bytes": headroom}
