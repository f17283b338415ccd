"""What flows under training share: one link with its queue, and when they come and go."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loomnet.base.errors import UsageError
from loomnet.base.units import Rate, Size, Time
from loomnet.fabrics.link_settings import FRAMING_BYTES
from loomnet.fabrics.model import Fabric
from loomnet.faults.model import Fault, bunch, degrade, jitter, loss
from loomnet.jobs.flows import Flows
from loomnet.worlds.world import World

LEARNED = "outside"  # the policy of flows that a learner decides for
ENDLESS = "1 PB"  # a flow's size: it ends by its lifetime
FASTER = 10  # rate of the hosts' own links, in that of the bottleneck
MTU = 1500
FRAME = MTU + FRAMING_BYTES + 14  # of a full packet on the wire
MOST_BUNCHING = 1000
# A socket holds so many windows that fill path and queue: losses are repaired in several round
# trips, in which a control that does not heed them goes on sending.
SOCKETS, MOST_SOCKET = 4, 0xFFFF << 14  # and so many bytes at most, the largest window of RFC 7323
LEAST_SOCKETS = {"send_buffer": 4_194_304, "receive_buffer": 6_291_456}  # Linux's
INTERVAL_US = 30_000  # of Astraea's control, where options say nothing


@dataclass(frozen=True)
class Flow:
    """A flow of a bottleneck.

    Attributes:
        start: when it joins, counted from the episode's begin.
        lifetime: how long it sends; None: to the episode's end.
        rtt: of it without any queue; None: the bottleneck's.
        cc: its congestion control, as a job's `cc=`; None: the learner decides.
    """

    start: Time | str = "0 s"
    lifetime: Time | str | None = None
    rtt: Time | str | None = None
    cc: str | Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Bottleneck:
    """A link with a queue that flows of kernel TCP share, for one episode.

    Attributes:
        rate: of the link, each way.
        rtt: round trip of a flow without any queue: a quarter before the link, the rest behind it.
        buffer: of the link's queue, in bandwidth-delay products of `rate` and `rtt`.
        flows: those that come and go.
        length: of the episode.
        changes: when the link's rate becomes another one, in order of time; its queue keeps its
            bytes.
        loss: share of the packets that the link itself loses, which is no sign of congestion.
        jitter: up to which each acknowledgement takes longer on its way back, in order.
        bunching: acknowledgements come together, those of so many full packets at the link's rate;
            1: each by itself.
        action_delay: from a decision on, before which the sender does not take it; below an
            interval.
        lockstep: all flows decide at the same instants, at multiples of the interval, and none sees
            what another has just done: another game than that of agents of their own.
        tcp: options of TCP and of Astraea's control (`interval_us`, `features`, …) beside `cc`.
    """

    rate: Rate | str = "100 Mb/s"
    rtt: Time | str = "30 ms"
    buffer: float = 1.0
    flows: Sequence[Flow] = (Flow(), Flow())
    length: Time | str = "60 s"
    changes: Sequence[tuple[Time | str, Rate | str]] = ()
    loss: float = 0.0
    jitter: Time | str = "0 s"
    bunching: int = 1
    action_delay: Time | str = "0 s"
    lockstep: bool = False
    tcp: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.flows:
            raise UsageError("Bottleneck.flows is empty: give one flow or more")
        if not (math.isfinite(self.buffer) and self.buffer > 0):
            raise UsageError(f"Bottleneck.buffer: {self.buffer} is not above 0")
        if not 0 <= self.loss < 1:
            raise UsageError(f"Bottleneck.loss: {self.loss} is no share of 0 to 1")
        if isinstance(self.bunching, bool) or not 1 <= self.bunching <= MOST_BUNCHING:
            raise UsageError(
                f"Bottleneck.bunching: {self.bunching} packets, not 1 to {MOST_BUNCHING}"
            )
        for name in ("jitter", "action_delay"):
            Time.given(f"Bottleneck.{name}", getattr(self, name))
        times = [Time(at).count for at, _ in self.changes]
        for _, rate in self.changes:
            Rate.given("Bottleneck.changes", rate)
        if times != sorted(set(times)) or 0 in times:
            raise UsageError("Bottleneck.changes: give times above 0 s, each later than the last")
        if times and times[-1] >= Time(self.length).count:
            raise UsageError(
                f"Bottleneck.changes: {self.changes[-1][0]} is not within the length, {self.length}"
            )
        for name in ("cc", "policy"):
            if name in self.tcp:
                raise UsageError(f"Bottleneck.tcp: {name!r} is given by flow, as Flow(cc=)")
        if Time(self.action_delay).count and "action_delay_us" in self.tcp:
            raise UsageError("Bottleneck.action_delay and tcp's action_delay_us are the same")
        if self.lockstep and {"wake_us", "interval_rtts"} & self.tcp.keys():
            raise UsageError(
                "Bottleneck.lockstep: all flows have one interval, and wake up at its multiples; "
                "leave wake_us and interval_rtts out of tcp"
            )
        for number, flow in enumerate(self.flows):
            rtt = self.rtt if flow.rtt is None else flow.rtt
            if Time(rtt).count < Time(self.rtt).count // 2:
                raise UsageError(
                    f"Bottleneck.flows[{number}].rtt: {rtt} is less than half of {self.rtt}, the "
                    "link's own; give a shorter rtt"
                )

    @property
    def capacity_Bps(self) -> float:
        return Rate(self.rate).count / 8

    @property
    def highest(self) -> Rate:
        """The most that the link's rate is in the episode."""
        return max([Rate(self.rate), *(Rate(rate) for _, rate in self.changes)])

    @property
    def buffer_bytes(self) -> int:
        return max(round(self.buffer * self.capacity_Bps * Time(self.rtt).count / 1e12), MTU)

    @property
    def base_rtts(self) -> list[Time]:
        """Of each flow."""
        return [Time(self.rtt if flow.rtt is None else flow.rtt) for flow in self.flows]

    def fabric(self) -> Fabric:
        """Host k sends to host n + k, each by links of its own to the bottleneck's ends."""
        count, link = len(self.flows), Time(self.rtt).count // 4
        fast = Rate.of(FASTER * self.highest.count)
        fabric = Fabric("bottleneck")
        for number in range(2 * count):
            fabric.add_host(f"h{number}")
        fabric.add_switch("left", plane=0)
        fabric.add_switch("right", plane=0)
        fabric.add_link("left", "right", rate=self.highest, delay=Time.of(link))
        fabric.override("left->right", data_limit=Size.of(self.buffer_bytes))
        for number, rtt in enumerate(self.base_rtts):
            # Half of the round trip less the link's delay, before it and behind it.
            own = max(rtt.count // 2 - link, 2)
            for host, switch in ((f"h{number}", "left"), (f"h{count + number}", "right")):
                fabric.add_link(host, switch, rate=fast, delay=Time.of(own // 2))
        return fabric

    def jobs(self) -> list[Flows]:
        """One for each flow."""
        count, length = len(self.flows), Time(self.length).count
        found = []
        for number, flow in enumerate(self.flows):
            start = Time(flow.start)
            lifetime = Time.of(length) if flow.lifetime is None else Time(flow.lifetime)
            cc = {"cc": "astraea", "policy": LEARNED} if flow.cc is None else flow.cc
            found.append(
                Flows(
                    ENDLESS,
                    pairs=[(0, 1)],
                    hosts=[f"h{number}", f"h{count + number}"],
                    transport="tcp",
                    starts=[start],
                    lifetimes=[lifetime],
                    cc=cc,
                    name=f"flow{number}",
                )
            )
        return found

    def faults(self) -> list[Fault]:
        """The link's losses, and its rate wherever that is below the highest."""
        found = [loss("left->right", self.loss, at="0 s")] if self.loss else []
        if Time(self.jitter).count:
            found.append(jitter("right->left", self.jitter, at="0 s"))
        if self.bunching > 1:
            slot = Time.of(round(self.bunching * FRAME / self.capacity_Bps * 1e12))
            found.append(bunch("right->left", slot, at="0 s"))
        levels = [(Time("0 s"), Rate(self.rate))]
        levels += [(Time(at), Rate(rate)) for at, rate in self.changes]
        ends = [at for at, _ in levels[1:]] + [None]
        for (at, rate), end in zip(levels, ends, strict=True):
            if rate < self.highest:
                lasts = None if end is None else Time.of(end.count - at.count)
                found.append(
                    degrade("left->right", rate, at=at, duration=lasts, keep_thresholds=True)
                )
        return found

    def _sockets(self) -> dict[str, int]:
        """Bytes of the sockets' buffers: Linux's defaults, more where those would bound what a
        control can send. One flow of 800 Mb/s and 250 ms has a sixth of the link with 4 MB."""
        longest = max(each.count for each in self.base_rtts)
        path = self.highest.count / 8 * longest / 1e12
        size = min(round(SOCKETS * (path + self.buffer_bytes)), MOST_SOCKET)
        return {name: max(size, least) for name, least in LEAST_SOCKETS.items()}

    def options(self) -> dict[str, Any]:
        """What `tcp=` of a run of these flows is, beside their control."""
        tcp = {"mtu": MTU, **self._sockets(), **self.tcp}
        if late := Time(self.action_delay).count:
            tcp["action_delay_us"] = -(-late // 10**6)
        if self.lockstep:
            tcp["wake_us"] = tcp.get("interval_us", INTERVAL_US)
        return tcp

    def world(self, seed: int = 0) -> World:
        """Not reset yet."""
        return World(
            self.fabric(),
            self.jobs(),
            seed,
            faults=self.faults(),
            tcp=self.options(),
            jitter="0 s",
        )
