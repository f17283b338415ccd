"""What a run notes at equal steps of time: bytes that wait in ports, bytes that links have carried,
the state of TCP senders. Both clocks: the virtual one reads the model, the live one `TCP_INFO`."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean, quoted
from loomnet.base.units import Time
from loomnet.plans.model import Plan


class SenderState(NamedTuple):
    """One TCP sender at one time: bytes acknowledged since its flow began, congestion window in
    bytes, round-trip times (0: none measured yet)."""

    at_ps: int
    acked: int
    cwnd: int
    srtt_ps: int
    min_rtt_ps: int


LEAST_STEP = Time("1 ns")
# Of all series together, of about a hundred bytes each; beyond it the step doubles.
MOST_ENTRIES = 4_000_000


@dataclass
class Samples:
    """`every_ps`: the step; it has doubled, once or more, where a run outlasted MOST_ENTRIES.
    `senders[i]`: of flow i, while it had bytes to send. `queues[name]`: (time, bytes that waited in
    the port which sends into that direction of a link). `sent[name]`: (time, bytes of frames that
    the direction has carried by then, without preambles and gaps)."""

    every_ps: int
    senders: dict[int, list[SenderState]] = field(default_factory=dict)
    queues: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    sent: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    def queue_seconds(self, name: str, rate_bps: int, first_ps: int = 0,
                      last_ps: int = 2**63) -> list[float]:
        """How long a packet that arrived at each sample would have waited there."""
        return [size * 8 / rate_bps for at, size in self.queues[name] if first_ps <= at < last_ps]


class Sampler:
    """What `lab.run(…, sample="10 ms", queues=["a->b"], links=["a->*"])` asks for, and where it is
    gathered: of the directions in `queues` the bytes that wait, of those in `links`, which may be
    globs, also the bytes that were sent.

    Raises UsageError for a step that is no time or a direction that the plan does not have.
    """

    def __init__(self, every: Time, names: list[str], plan: Plan, links: Sequence[str] = ()
                 ) -> None:
        if every < LEAST_STEP:
            raise UsageError(f"run: sample={every} must be {LEAST_STEP} or more")
        self.samples = Samples(every.count)
        self.halves: list[int] = []
        known = {half.name: half.number for link in plan.links if names or links
                 for half in (link.forward, link.backward)}
        whole = _matching(links, known)
        self.links = [known[name] for name in whole]
        self.samples.sent = {name: [] for name in whole}
        for name in dict.fromkeys([*names, *whole]):
            if name not in known:
                raise UsageError(f'run: queues: no direction "{name}"{did_you_mean(name, known)}')
            self.halves.append(known[name])
            self.samples.queues[name] = []
        self.due_ps = 0  # of the next sample, job time
        self._kept = 0  # entries of all series

    @classmethod
    def of(cls, options: Mapping[str, Any], plan: Plan) -> Sampler | None:
        """None where a run's options ask for nothing."""
        every, queues = options.get("sample"), options.get("queues", ())
        links = options.get("links", ())
        if every is None:
            for name, asked in (("queues", queues), ("links", links)):
                if asked:
                    raise UsageError(f"run: {name}= needs sample=, the time between two samples; "
                                     'give sample="10 ms" too')
            return None
        return cls(Time.given("run: sample", every), _directions("queues", queues), plan,
                   _directions("links", links))

    def take(self, at_ps: int, queued: list[int],
             senders: Mapping[int, tuple[int, int, int, int]], sent: Sequence[int] = ()) -> None:
        """One look: bytes per half, and per flow (acked, cwnd, srtt, min rtt); `sent`: bytes per
        half of `links`."""
        for name, size in zip(self.samples.queues, queued, strict=True):
            self.samples.queues[name].append((at_ps, size))
        for flow, state in senders.items():
            self.samples.senders.setdefault(flow, []).append(SenderState(at_ps, *state))
        for name, size in zip(self.samples.sent, sent, strict=True):
            self.samples.sent[name].append((at_ps, size))
        self._kept += len(self.halves) + len(self.links) + len(senders)
        if self._kept > MOST_ENTRIES:
            self._thin()
        self.due_ps = (at_ps // self.samples.every_ps + 1) * self.samples.every_ps

    def _thin(self) -> None:
        """Doubles the step, and keeps of every series what lies on it."""
        samples = self.samples
        samples.every_ps *= 2
        step = samples.every_ps

        def first_of_steps(series: list[Any], at: Callable[[Any], int]) -> list[Any]:
            return [each for before, each in zip([None, *series], series, strict=False)
                    if before is None or at(before) // step != at(each) // step]

        for series in (samples.queues, samples.sent):
            for name, looks in series.items():
                series[name] = first_of_steps(looks, lambda each: each[0])
        for flow, states in samples.senders.items():
            samples.senders[flow] = first_of_steps(states, lambda each: each.at_ps)
        self._kept = sum(map(len, [*samples.queues.values(), *samples.sent.values()]))
        self._kept += sum(map(len, samples.senders.values()))


def _directions(option: str, given: Any) -> list[str]:
    """Each once: a direction named twice has one queue. Raises UsageError."""
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, Iterable):
        raise UsageError(f'run: {option}={quoted(given)} is no list of directions, as ["a->b"]')
    names = list(names)
    if not all(isinstance(name, str) for name in names):
        raise UsageError(f'run: {option}={quoted(given)} is no list of directions, as ["a->b"]')
    return list(dict.fromkeys(names))


def _matching(patterns: Sequence[str], known: Iterable[str]) -> list[str]:
    """The directions that the globs stand for, each once. Raises UsageError."""
    names = list(known)
    found: dict[str, None] = {}
    for pattern in patterns:
        fit = fnmatch.filter(names, pattern)
        if not fit:
            raise UsageError(f'run: links: no direction "{pattern}"'
                             f"{did_you_mean(pattern, names)}")
        found |= dict.fromkeys(fit)
    return list(found)
