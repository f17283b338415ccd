"""Flow-completion times: each flow's record and the figures drawn from all of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from loomnet.fabrics.link_settings import FRAMING_BYTES, Frames
from loomnet.measures.lone_ways import LoneWay, LoneWays, clocking_ps
from loomnet.measures.run_data import RunData
from loomnet.plans.model import MESSAGE_BYTES, Plan

LOCAL_PIECE = 65_536  # bytes by which writes take turns on a local link


@dataclass(frozen=True, slots=True)
class FlowRecord:
    """One flow: host numbers, payload bytes, times of the job (picoseconds). It ends twice: at
    `arrived_ps` its last byte is in place at the destination, at `end_ps` its sender has the last
    acknowledgement; None: never, or not known (arrivals of the kernel's TCP). `ideal_ps`: no flow
    of this size between these hosts can be acknowledged sooner, alone in the fabric without faults.
    (After a fault a flow may go by more links that are faster.)"""

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
    """Least time from a flow's start to its last acknowledgement, for a transport that sends these
    frames: they cross one after another, a short last one behind the full one ahead of it on each
    link, and the acknowledgement crosses back. Without packets (`fluid`) the last is alone on all
    links but the narrowest. Between two ranks of one host the bytes cross the local link.

    Each frame's time on a link is rounded as the engine rounds it: a sum in exact arithmetic is up
    to half a picosecond a frame above what a flow takes."""

    def __init__(self, plan: Plan, frames: Frames, *, fluid: bool = False) -> None:
        self._plan, self._frames, self._fluid = plan, frames, fluid
        self._ways = LoneWays(plan)

    def of(self, source: int, destination: int, size: int) -> int:
        if source == destination:
            return self._local(source, size)
        frames = self._frames
        if self._plan.panels:
            return self._by_any_port(source, destination, size)
        ports = [self._ways.of(source, destination, plane) for plane in range(self._plan.planes)]
        if frames.ways == "all" and (len(ports) > 1 or ports[0].forks):
            return self._spread(ports, size)
        if frames.ways in ("all", "one"):
            # Each end chooses the plane that it sends by, so that acknowledgements may come back in
            # another plane than that of the data.
            return (min(self._piecewise(way, self._messages(size)) for way in ports)
                    + min(self._returned(way) for way in ports))
        longest = 0
        for number, way in enumerate(ports):
            pieces = [self._part(length, number, len(ports)) for length in self._messages(size)]
            if any(pieces) or frames.immediate:
                longest = max(longest, self._piecewise(way, pieces) + self._returned(way))
        return longest

    def _messages(self, size: int) -> list[int]:
        """The bytes of each message of a flow of `size` bytes; a write is a message."""
        full, rest = divmod(size, MESSAGE_BYTES)
        return [MESSAGE_BYTES] * full + [rest] * (rest > 0)

    def _part(self, length: int, number: int, count: int) -> int:
        """Bytes of a message that the plane of this number carries."""
        unit = self._frames.part
        share = math.ceil(math.ceil(length / count) / unit) * unit
        return max(min(share, length - share * number), 0)

    def _cut(self, pieces: list[int]) -> list[tuple[int, int]]:
        """The frames of messages, or of the parts of them that one plane carries, the last of the
        last message in the end."""
        sent = [piece for piece in pieces if piece or self._frames.immediate]
        # All messages but the last are alike.
        alike = [(frame, times * (len(sent) - 1)) for frame, times in self._frames.cut(sent[0])]
        return [*alike, *self._frames.cut(sent[-1])]

    def _piecewise(self, way: LoneWay, pieces: list[int]) -> int:
        """Least time in which these pieces cross one path one after another."""
        return way.passing_ps(self._cut(pieces), fluid=self._fluid)

    def _returned(self, way: LoneWay) -> int:
        return way.crossing_ps(self._frames.ack, back=True)

    def _spread(self, ways: list[LoneWay], size: int) -> int:
        """Least time in which a flow that is sprayed over all planes and paths crosses: packets
        pass the narrowest links of all paths side by side. Where paths fork, other flows may hold
        up any of them, so that it comes last."""
        cut = self._cut(self._messages(size))
        last = min(frame for frame, times in cut if times)
        return (self._abreast([*cut, (last, -1)], sum(way.rate_bps for way in ways),
                              max(way.fastest_bps for way in ways),
                              sum(way.abreast for way in ways) - 1)
                + min(way.crossing_ps(last) for way in ways)
                + min(self._returned(way) for way in ways))

    def _abreast(self, cut: list[tuple[int, int]], rate_bps: int, fastest_bps: int,
                 beside: int) -> int:
        """Least time in which links that have this rate together clock out these frames, all but so
        many full ones. Each frame may take half a picosecond less than exactly."""
        wire = sum((frame + FRAMING_BYTES) * times for frame, times in cut)
        wire -= beside * (self._frames.full + FRAMING_BYTES)
        rounded = fastest_bps * sum(times for _, times in cut) // 2 + 1
        return max(wire * 8 * 10**12 - rounded, 0) // rate_bps

    def _local(self, host: int, size: int) -> int:
        ends = self._plan.hosts[host]
        full, rest = divmod(size, LOCAL_PIECE)
        whole, last = ((each * 8 * 10**12 + ends.local_rate_bps // 2) // ends.local_rate_bps
                       for each in (LOCAL_PIECE, rest))
        return full * whole + last + 2 * ends.local_delay_ps

    # --- beside panels ----------------------------------------------------------------------------
    def _by_any_port(self, source: int, destination: int, size: int) -> int:
        """A lower bound where circuits come and go: as if all ports sent at the same time, over the
        circuits and links that join the two hosts at any time of the run."""
        plan, frames, messages = self._plan, self._frames, self._messages(size)
        ports = [plan.links[link].forward for link in plan.hosts[source].ports]
        # The last packet is what is left over, of the message or of its part for a port.
        last = min(frames.cut(length)[-1][0]
                   for length in (messages[-1], -(-messages[-1] // len(ports))))
        rates = [port.rate_bps for port in ports]
        ahead = self._abreast(self._cut(messages), sum(rates), max(rates), len(ports))
        times = [[self._light(a, b, count) for a, b, count in
                  ((here, there, last), (there, here, frames.ack))]
                 for here, there in self._circuits(source, destination)]
        if plan.joined(source, destination):
            ways = [self._ways.of(source, destination, plane) for plane in range(plan.planes)]
            times += [[way.crossing_ps(last), way.crossing_ps(frames.ack, back=True)]
                      for way in ways]
        return ahead + sum(min(way) for way in zip(*times, strict=True))

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
        return sent.delay_ps + clocking_ps(frame, sent.rate_bps) + glass.delay_ps


def records(plan: Plan, data: RunData) -> list[FlowRecord]:
    """The flows of a run, with what each would have taken alone."""
    if not data.flows:
        return []
    assert data.frames is not None
    ideals = Ideals(plan, data.frames, fluid=data.fluid)
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
