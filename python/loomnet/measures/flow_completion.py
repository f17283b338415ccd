"""Flow-completion times: each flow's record and the figures drawn from all of them."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from loomnet.fabrics.link_settings import FRAMING_BYTES, FrameOverhead
from loomnet.measures.run_data import RunData
from loomnet.plans.model import Plan

LOCAL_PIECE = 65_536  # bytes by which writes take turns on a local link


@dataclass(frozen=True, slots=True)
class FlowRecord:
    """One flow: host numbers, payload bytes, times of the job (picoseconds). It ends twice: at
    `arrived_ps` its last byte is in place at the destination, at `end_ps` its sender has the last
    acknowledgement; None: never, or not known (arrivals of the kernel's TCP). `ideal_ps`: no flow
    of this size between these hosts can be acknowledged sooner, alone in the fabric."""

    source: int
    destination: int
    bytes: int
    start_ps: int
    end_ps: int | None
    ideal_ps: int
    arrived_ps: int | None = None

    @property
    def completion_ps(self) -> int | None:
        return None if self.end_ps is None else self.end_ps - self.start_ps


class Ideals:
    """Least time from a flow's start to its last acknowledgement: the last frame leaves when the
    NIC's ports have sent the rest together, crosses the fabric, and its acknowledgement crosses
    back. Between two ranks of one host the bytes cross the local link."""

    def __init__(self, plan: Plan, overhead: FrameOverhead) -> None:
        self._plan, self._overhead = plan, overhead
        self._crossings: dict[tuple[int, int, int], int] = {}

    def of(self, source: int, destination: int, size: int) -> int:
        if source == destination:
            return self._local(source, size)
        plan, header = self._plan, self._overhead.header
        # What has shorter headers may have as much more payload in a frame.
        most = plan.frame_bytes - header
        full, rest = divmod(size, most)
        # The last packet is what is left over, of the message or of its part for a plane.
        piece = -(-size // len(plan.hosts[source].ports)) if self._overhead.parts else size
        last = min(rest or most, piece) + header
        on_wire = size + (full + (rest > 0)) * (header + FRAMING_BYTES)
        ports = [plan.links[link].forward for link in plan.hosts[source].ports]
        rate = sum(port.rate_bps for port in ports)
        ahead = max(0, on_wire - len(ports) * (most + header + FRAMING_BYTES))
        key = (source, destination, last)
        if key not in self._crossings:
            self._crossings[key] = self._crossing(*key)
        return ahead * 8 * 10**12 // rate + self._crossings[key]

    def _local(self, host: int, size: int) -> int:
        ends = self._plan.hosts[host]
        full, rest = divmod(size, LOCAL_PIECE)
        whole, last = ((each * 8 * 10**12 + ends.local_rate_bps // 2) // ends.local_rate_bps
                       for each in (LOCAL_PIECE, rest))
        return full * whole + last + 2 * ends.local_delay_ps

    def _crossing(self, source: int, destination: int, frame: int) -> int:
        plan, topology = self._plan, self._plan.topology
        times = [[self._light(a, b, size) for a, b, size in
                  ((here, there, frame), (there, here, self._overhead.ack))]
                 for here, there in self._circuits(source, destination)]
        for plane, paths in enumerate(plan.paths(source, destination)):
            first, last = (topology.leaf_of(host, plane).node for host in (source, destination))
            uplinks = paths.uplinks[:1] if topology.fabric.uniform else paths.uplinks
            for uplink in uplinks:
                nodes = [source, *plan.addresses.switches_on(first, last, uplink), destination]
                times.append([self._along(nodes, size, back) for size, back in
                              ((frame, False), (self._overhead.ack, True))])
        # Packets and their acknowledgements choose their paths apart.
        return sum(min(way) for way in zip(*times, strict=True))

    def _circuits(self, source: int, destination: int) -> list[tuple[int, int]]:
        """Links of the two hosts that a panel may join at some time of the run."""
        here, there = self._plan.hosts[source], self._plan.hosts[destination]
        return [(a, b) for a, panel in zip(here.ports, here.panels, strict=True)
                for b, other in zip(there.ports, there.panels, strict=True)
                if panel is not None and panel == other]

    def _light(self, sent_by: int, seen_by: int, frame: int) -> int:
        links = self._plan.links[sent_by], self._plan.links[seen_by]
        (sent, _), (_, glass) = (
            (link.backward, link.forward) if link.forward.glass else (link.forward, link.backward)
            for link in links)
        return (sent.delay_ps + (frame + FRAMING_BYTES) * 8 * 10**12 // sent.rate_bps
                + glass.delay_ps)

    def _along(self, nodes: list[int], frame: int, back: bool) -> int:
        total = 0
        for a, b in itertools.pairwise(nodes):
            link = self._plan.links[self._plan.topology.link_between(a, b)]
            half = link.forward if (link.forward.source == a) != back else link.backward
            total += half.delay_ps + (frame + FRAMING_BYTES) * 8 * 10**12 // half.rate_bps
        return total


def records(plan: Plan, data: RunData) -> list[FlowRecord]:
    """The flows of a run, with what each would have taken alone."""
    ideals = Ideals(plan, data.overhead)
    return [
        FlowRecord(flow.source, flow.destination, flow.bytes, flow.start_ps, flow.end_ps,
                   ideals.of(flow.source, flow.destination, flow.bytes), flow.arrived_ps)
        for flow in data.flows
    ]


def percentile(values: Sequence[float], share: float) -> float:
    """Nearest rank: the smallest value that at least this share of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered) - 1e-9) - 1)]


def figures(flows: Sequence[FlowRecord]) -> dict[str, tuple[float | None, str]]:
    """(value, unit) by name over the flows that ended; values None where none did."""
    done = [
        (flow.completion_ps / 1e12, flow.completion_ps / max(flow.ideal_ps, 1))
        for flow in flows
        if flow.completion_ps is not None
    ]
    times, slowdowns = [time for time, _ in done], [slowdown for _, slowdown in done]
    found: dict[str, tuple[float | None, str]] = {
        "flows": (len(flows), "flows"),
        "unfinished": (len(flows) - len(done), "flows"),
    }
    for name, share in (("fct_p50_s", 0.5), ("fct_p99_s", 0.99), ("fct_max_s", 1.0)):
        found[name] = (percentile(times, share) if done else None, "s")
    found["fct_mean_s"] = (statistics.fmean(times) if done else None, "s")
    found["slowdown_mean"] = (statistics.fmean(slowdowns) if done else None, "ratio")
    found["slowdown_p99"] = (percentile(slowdowns, 0.99) if done else None, "ratio")
    found["slowdown_max"] = (max(slowdowns) if done else None, "ratio")
    return found
