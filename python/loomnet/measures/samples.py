"""What a run notes at equal steps of time: bytes that wait in ports, bytes that links have carried,
the state of TCP senders. Both clocks: the virtual one reads the model, the live one `TCP_INFO`."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean, quoted
from loomnet.base.units import Time
from loomnet.measures.columns import Column, Columns, first_of_steps
from loomnet.plans.model import Plan

LEAST_STEP = Time("1 ns")
# Of all series together, of about a hundred bytes each; beyond it the step doubles.
MOST_ENTRIES = 4_000_000


_SENDER = ("at_ps", "acked", "cwnd", "srtt_ps", "min_rtt_ps")


class Samples:
    """`every_ps`: the step; it has doubled, once or more, where a run outlasted MOST_ENTRIES."""

    def __init__(self, every_ps: int, queues: Sequence[str] = (), sent: Sequence[str] = ()) -> None:
        """Names of the directions whose queues, and whose bytes, are sampled."""
        self.every_ps = every_ps
        self._queued, self._carried = (
            {name: number for number, name in enumerate(names)} for names in (queues, sent)
        )
        self._queues, self._sent = (
            Columns(("at_ps", np.int64), ("bytes", np.int64, (len(names),)))
            for names in (self._queued, self._carried)
        )
        self._senders = Columns(("flow", np.int64), *((name, np.int64) for name in _SENDER))

    def take(self, at_ps: int, queued: Sequence[int], sent: Sequence[int]) -> None:
        """Bytes that wait, and that have been carried, by direction."""
        if self._queued:
            self._queues.add(1, at_ps=at_ps, bytes=queued)
        if self._carried:
            self._sent.add(1, at_ps=at_ps, bytes=sent)

    def take_sender(
        self, flow: int, at_ps: int, acked: int, cwnd: int, srtt_ps: int, min_rtt_ps: int
    ) -> None:
        """A TCP sender: bytes acknowledged since its flow began, congestion window in bytes,
        round-trip times (0: none measured yet)."""
        self._senders.add(
            1,
            flow=flow,
            at_ps=at_ps,
            acked=acked,
            cwnd=cwnd,
            srtt_ps=srtt_ps,
            min_rtt_ps=min_rtt_ps,
        )

    @property
    def queues(self) -> dict[str, Column]:
        """By direction, int64[n, 2]: time, bytes that waited in the port which sends into it."""
        return _by_name(self._queues, self._queued)

    @property
    def sent(self) -> dict[str, Column]:
        """By direction, int64[n, 2]: time, bytes of frames that it has carried by then, without
        preambles and gaps."""
        return _by_name(self._sent, self._carried)

    @property
    def senders(self) -> dict[int, Any]:
        """By flow, while it had bytes to send: a record array of at_ps, acked, cwnd, srtt_ps and
        min_rtt_ps, as take_sender() has them."""
        rows = self._senders.rows
        order = np.argsort(rows["flow"], kind="stable")
        flows, begins = np.unique(rows["flow"][order], return_index=True)
        return {
            flow: rows[part].view(np.recarray)
            for flow, part in zip(flows.tolist(), np.split(order, begins[1:]), strict=False)
        }

    @property
    def entries(self) -> int:
        """Numbers that are kept."""
        return (
            len(self._queues) * len(self._queued)
            + len(self._sent) * len(self._carried)
            + len(self._senders)
        )

    def thin(self) -> None:
        """Doubles the step, and keeps of every series what lies on it."""
        self.every_ps *= 2
        for looks in (self._queues, self._sent):
            looks.keep(first_of_steps(looks["at_ps"], self.every_ps))
        self._senders.keep(
            first_of_steps(self._senders["at_ps"], self.every_ps, self._senders["flow"])
        )

    def queue_seconds(
        self, name: str, rate_bps: int, first_ps: int = 0, last_ps: int = 2**63 - 1
    ) -> list[float]:
        """How long a packet that arrived at each sample would have waited there."""
        at, size = self.queues[name].T
        within = (first_ps <= at) & (at < last_ps)
        return [each * 8 / rate_bps for each in size[within].tolist()]


def _by_name(looks: Columns, names: Mapping[str, int]) -> dict[str, Column]:
    return {
        name: np.column_stack((looks["at_ps"], looks["bytes"][:, number]))
        for name, number in names.items()
    }


class Sampler:
    """What `lab.run(…, sample="10 ms", queues=["a->b"], links=["a->*"])` asks for, and where it is
    gathered: of the directions in `queues` the bytes that wait, of those in `links`, which may be
    globs, also the bytes that were sent.

    Raises UsageError for a step that is no time or a direction that the plan does not have.
    """

    def __init__(
        self, every: Time, names: list[str], plan: Plan, links: Sequence[str] = ()
    ) -> None:
        if every < LEAST_STEP:
            raise UsageError(f"run: sample={every} must be {LEAST_STEP} or more")
        known = plan.links.half_numbers() if names or links else {}
        whole = _matching(links, known)
        queues = list(dict.fromkeys([*names, *whole]))
        for name in queues:
            if name not in known:
                raise UsageError(f'run: queues: no direction "{name}"{did_you_mean(name, known)}')
        self.samples = Samples(every.count, queues, whole)
        self.halves = [known[name] for name in queues]
        self.links = [known[name] for name in whole]
        self.due_ps = 0  # of the next sample, job time

    @classmethod
    def of(cls, options: Mapping[str, Any], plan: Plan) -> Sampler | None:
        """None where a run's options ask for nothing."""
        every, queues = options.get("sample"), options.get("queues", ())
        links = options.get("links", ())
        if every is None:
            for name, asked in (("queues", queues), ("links", links)):
                if asked:
                    raise UsageError(
                        f"run: {name}= needs sample=, the time between two samples; "
                        'give sample="10 ms" too'
                    )
            return None
        return cls(
            Time.given("run: sample", every),
            _directions("queues", queues),
            plan,
            _directions("links", links),
        )

    def take(
        self,
        at_ps: int,
        queued: list[int],
        senders: Mapping[int, tuple[int, int, int, int]],
        sent: Sequence[int] = (),
    ) -> None:
        """One look: bytes per half, and per flow (acked, cwnd, srtt, min rtt); `sent`: bytes per
        half of `links`."""
        samples = self.samples
        samples.take(at_ps, queued, sent)
        for flow, state in senders.items():
            samples.take_sender(flow, at_ps, *state)
        if samples.entries > MOST_ENTRIES:
            samples.thin()
        self.due_ps = (at_ps // samples.every_ps + 1) * samples.every_ps


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
            raise UsageError(f'run: links: no direction "{pattern}"{did_you_mean(pattern, names)}')
        found |= dict.fromkeys(fit)
    return list(found)
