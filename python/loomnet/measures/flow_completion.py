"""Flow-completion times: each flow's record and the figures drawn from all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loomnet.base.names import how_many
from loomnet.fabrics.link_settings import FRAMING_BYTES, Frames
from loomnet.measures.lone_ways import LoneWay, LoneWays, clocking_ps
from loomnet.measures.run_data import RunData
from loomnet.measures.training import Phase
from loomnet.measures.value import Value
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
        self._known: dict[tuple[int, ...], int] = {}  # by the ways and the size

    def of(self, source: int, destination: int, size: int) -> int:
        if source == destination:
            return self._local(source, size)
        if self._plan.panels:
            return self._by_any_port(source, destination, size)
        ports = [self._ways.of(source, destination, plane) for plane in range(self._plan.planes)]
        key = (size, *map(id, ports))  # ways last as long as this object
        if key not in self._known:
            self._known[key] = self._by_ways(ports, size)
        return self._known[key]

    def _by_ways(self, ports: list[LoneWay], size: int) -> int:
        frames = self._frames
        if frames.ways == "all" and (len(ports) > 1 or ports[0].forks):
            return self._spread(ports, size)
        if frames.ways in ("all", "one"):
            # Each end chooses the plane that it sends by, so that acknowledgements may come back in
            # another plane than that of the data.
            return min(self._piecewise(way, self._messages(size)) for way in ports) + min(
                self._returned(way) for way in ports
            )
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
        return (
            self._abreast(
                [*cut, (last, -1)],
                sum(way.rate_bps for way in ways),
                max(way.fastest_bps for way in ways),
                sum(way.abreast for way in ways) - 1,
            )
            + min(way.crossing_ps(last) for way in ways)
            + min(self._returned(way) for way in ways)
        )

    def _abreast(
        self, cut: list[tuple[int, int]], rate_bps: int, fastest_bps: int, beside: int
    ) -> int:
        """Least time in which links that have this rate together clock out these frames, all but so
        many full ones. Each frame may take half a picosecond less than exactly."""
        wire = sum((frame + FRAMING_BYTES) * times for frame, times in cut)
        wire -= beside * (self._frames.full + FRAMING_BYTES)
        rounded = fastest_bps * sum(times for _, times in cut) // 2 + 1
        return max(wire * 8 * 10**12 - rounded, 0) // rate_bps

    def _local(self, host: int, size: int) -> int:
        ends = self._plan.hosts[host]
        full, rest = divmod(size, LOCAL_PIECE)
        whole, last = (
            (each * 8 * 10**12 + ends.local_rate_bps // 2) // ends.local_rate_bps
            for each in (LOCAL_PIECE, rest)
        )
        return full * whole + last + 2 * ends.local_delay_ps

    # --- beside panels ----------------------------------------------------------------------------
    def _by_any_port(self, source: int, destination: int, size: int) -> int:
        """A lower bound where circuits come and go: as if all ports sent at the same time, over the
        circuits and links that join the two hosts at any time of the run."""
        plan, frames, messages = self._plan, self._frames, self._messages(size)
        ports = [plan.links[link].forward for link in plan.hosts[source].ports]
        # The last packet is what is left over, of the message or of its part for a port.
        last = min(
            frames.cut(length)[-1][0] for length in (messages[-1], -(-messages[-1] // len(ports)))
        )
        rates = [port.rate_bps for port in ports]
        ahead = self._abreast(self._cut(messages), sum(rates), max(rates), len(ports))
        times = [
            [
                self._light(a, b, count)
                for a, b, count in ((here, there, last), (there, here, frames.ack))
            ]
            for here, there in self._circuits(source, destination)
        ]
        if plan.joined(source, destination):
            ways = [self._ways.of(source, destination, plane) for plane in range(plan.planes)]
            times += [
                [way.crossing_ps(last), way.crossing_ps(frames.ack, back=True)] for way in ways
            ]
        return ahead + sum(min(way) for way in zip(*times, strict=True))

    def _circuits(self, source: int, destination: int) -> list[tuple[int, int]]:
        """Links of the two hosts that a panel may join at some time of the run."""
        here, there = self._plan.hosts[source], self._plan.hosts[destination]
        return [
            (a, b)
            for a, panel in zip(here.ports, here.panels, strict=True)
            for b, other in zip(there.ports, there.panels, strict=True)
            if panel is not None and panel == other
        ]

    def _light(self, sent_by: int, seen_by: int, frame: int) -> int:
        links = self._plan.links[sent_by], self._plan.links[seen_by]
        (sent, _), (_, glass) = (
            (link.backward, link.forward) if link.forward.glass else (link.forward, link.backward)
            for link in links
        )
        return sent.delay_ps + clocking_ps(frame, sent.rate_bps) + glass.delay_ps


def records(plan: Plan, data: RunData) -> list[FlowRecord]:
    """The flows of a run, with what each would have taken alone."""
    if not data.flows:
        return []
    assert data.frames is not None
    ideals = Ideals(plan, data.frames, fluid=data.fluid)
    return [
        FlowRecord(
            flow.source,
            flow.destination,
            flow.bytes,
            flow.start_ps,
            flow.end_ps,
            ideals.of(flow.source, flow.destination, flow.bytes),
            flow.arrived_ps,
        )
        for flow in data.flows
    ]


@dataclass(frozen=True)
class FlowTimes:
    """Flows by columns: when each began and ended (picoseconds; infinite where it never did), how
    long it took (seconds), and that over its ideal."""

    start_ps: np.ndarray
    end_ps: np.ndarray
    times: np.ndarray
    slowdowns: np.ndarray

    @classmethod
    def of(cls, plan: Plan, data: RunData) -> FlowTimes:
        if not data.flows:
            return cls(*(np.empty(0) for _ in range(4)))
        assert data.frames is not None
        ideals = Ideals(plan, data.frames, fluid=data.fluid)
        source, destination, size, start, end, _ = data.flows.columns
        flows = list(zip(source.tolist(), destination.tolist(), size.tolist(), strict=True))
        # Rounds of a job repeat the same flows.
        known = {each: ideals.of(*each) for each in set(flows)}
        ideal = np.array([known[each] for each in flows])
        took = np.where(end < start, np.inf, end - start)
        return cls(start, start + took, took / 1e12, took / np.maximum(ideal, 1))

    def of_phase(self, phase: Phase) -> FlowTimes:
        """Those of `before` that ended in it, of `after` that began in it, and of a fault's phase
        that were under way in it."""
        inside = np.ones(len(self.times), bool)
        if phase.name != "before":
            inside &= (
                self.end_ps > phase.start_ps
                if phase.name != "after"
                else self.start_ps >= phase.start_ps
            )
        if phase.name != "after":
            inside &= (
                self.start_ps < phase.end_ps
                if phase.name != "before"
                else self.end_ps <= phase.end_ps
            )
        return FlowTimes(
            self.start_ps[inside], self.end_ps[inside], self.times[inside], self.slowdowns[inside]
        )


def percentile(values: Sequence[float] | np.ndarray, share: float) -> float:
    """Nearest rank: the smallest value that at least this share of them do not exceed."""
    ordered = np.sort(values)
    return float(ordered[max(0, math.ceil(share * len(ordered) - 1e-9) - 1)])


SHARES = (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
UNITS = {
    "flows": "flows",
    "unfinished": "flows",
    **{f"fct_{of}_s": "s" for of in ("mean", "p50", "p99", "max")},
    **{f"slowdown_{of}": "ratio" for of in ("mean", "p50", "p99", "max")},
}

# Those of a report; means say little of what is as skewed as flows are.
SHOWN = (
    "flows",
    "unfinished",
    "fct_p50_s",
    "fct_p99_s",
    "fct_max_s",
    "slowdown_p50",
    "slowdown_p99",
    "slowdown_max",
)


def figures(flows: FlowTimes) -> dict[str, Value]:
    """Figures by name, units in UNITS. A flow that never ended is slower than any: a percentile or
    a mean that would need its time is None."""
    count = len(flows.times)
    stuck = int(np.isinf(flows.times).sum())
    why = (
        f"{how_many(stuck, 'flow')} of {count} never ended" if count else "no flow is of this phase"
    )
    found = {"flows": Value(count), "unfinished": Value(stuck)}
    for kind, end, values in (("fct", "_s", flows.times), ("slowdown", "", flows.slowdowns)):
        of = {"mean": float(np.mean(values)) if count else math.inf}
        of |= {name: percentile(values, share) if count else math.inf for name, share in SHARES}
        found |= {
            f"{kind}_{name}{end}": Value(None, why) if math.isinf(value) else Value(value)
            for name, value in of.items()
        }
    return found
