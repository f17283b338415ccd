"""What a run notes at equal steps of time: bytes that wait in ports, and the state of TCP senders.
The same on both clocks: the virtual one reads the model, the live one `TCP_INFO`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from loomnet.errors import UsageError
from loomnet.naming import did_you_mean
from loomnet.plan import Plan
from loomnet.units import Time


class SenderState(NamedTuple):
    """One TCP sender at one time: bytes acknowledged since its flow began, congestion window in
    bytes, round-trip times (0: none measured yet)."""

    at_ps: int
    acked: int
    cwnd: int
    srtt_ps: int
    min_rtt_ps: int


@dataclass
class Samples:
    """`senders[i]`: of flow i, while it had bytes to send. `queues[name]`: (time, bytes that waited
    in the port which sends into that direction of a link)."""

    every_ps: int
    senders: dict[int, list[SenderState]] = field(default_factory=dict)
    queues: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    def queue_seconds(self, name: str, rate_bps: int, first_ps: int = 0,
                      last_ps: int = 2**63) -> list[float]:
        """How long a packet that arrived at each sample would have waited there."""
        return [size * 8 / rate_bps for at, size in self.queues[name] if first_ps <= at < last_ps]


class Sampler:
    """What `lab.run(…, sample="10 ms", queues=["a->b"])` asks for, and where it is gathered.

    Raises UsageError for a step that is no time or a direction that the plan does not have.
    """

    def __init__(self, every: Time, names: list[str], plan: Plan) -> None:
        if every.count < 1:
            raise UsageError(f"run: sample={every} must be above 0")
        self.samples = Samples(every.count)
        self.halves: list[int] = []
        known = {half.name: half.number for link in plan.links if names
                 for half in (link.forward, link.backward)}
        for name in names:
            if name not in known:
                raise UsageError(f'run: queues: no direction "{name}"{did_you_mean(name, known)}')
            self.halves.append(known[name])
            self.samples.queues[name] = []
        self.due_ps = 0  # of the next sample, job time

    @classmethod
    def of(cls, options: Mapping[str, Any], plan: Plan) -> Sampler | None:
        """None where a run's options ask for nothing."""
        every, queues = options.get("sample"), options.get("queues", ())
        if every is None:
            if queues:
                raise UsageError('run: queues are looked at every sample; give sample="10 ms" too')
            return None
        if not isinstance(queues, Iterable):
            raise UsageError(f'run: queues={queues!r} is no list of directions, as ["a->b"]')
        # Each once: a direction named twice has one queue.
        names = [queues] if isinstance(queues, str) else list(dict.fromkeys(queues))
        return cls(Time.given("run: sample", every), names, plan)

    def take(self, at_ps: int, queued: list[int],
             senders: Mapping[int, tuple[int, int, int, int]]) -> None:
        """One look: bytes per half, and per flow (acked, cwnd, srtt, min rtt)."""
        for name, size in zip(self.samples.queues, queued, strict=True):
            self.samples.queues[name].append((at_ps, size))
        for flow, state in senders.items():
            self.samples.senders.setdefault(flow, []).append(SenderState(at_ps, *state))
        self.due_ps = (at_ps // self.samples.every_ps + 1) * self.samples.every_ps
