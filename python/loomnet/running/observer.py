"""Reads what senders and their congestion controls hold, for the series that a run is asked for."""

from __future__ import annotations

import heapq
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

import loomnet._core as _core
from loomnet.measures.observed import Observed
from loomnet.running.engine import Engine


class ObservedClock(Protocol):
    """What an observer asks of the clock."""

    @property
    def engine(self) -> Engine: ...
    @property
    def now_ps(self) -> int: ...
    def held(self) -> AbstractContextManager[None]:
        """While it lasts no time passes, and the engine's objects may be touched."""
        ...
    def probe(self, probe: _core.FlowProbe) -> Any:
        """What the probe finds now: an array of rows by names."""
        ...


class Observer:
    """Fills `observed`. The engine notes its queue pairs from when this is made."""

    def __init__(self, clock: ObservedClock, observed: Observed) -> None:
        self._clock, self._observed = clock, observed
        self._pairs = clock.engine.note_queue_pairs()
        self._seen = 0  # pairs of the engine's list that were there at the last look
        self._later: list[tuple[int, int]] = []  # a heap of (time, number) of pairs not connected
        self._probe: _core.FlowProbe | None = None
        self._names: list[str] = []  # of the probe
        self._columns: list[int] = []  # of the probe that are kept, in the order of `wanted`
        self._moved: list[int] = []  # columns that are above zero once a sender has sent
        self._where: list[str] = []  # of each row of the probe
        self._keys = np.empty((0, 0), np.int64)  # rows of the probe by columns: the series

    def take(self, at_ps: int) -> None:
        """Notes what every sender holds that has sent."""
        for number in range(self._seen, len(self._pairs)):
            heapq.heappush(self._later, (self._pairs[number][3], number))
        self._seen = len(self._pairs)
        if self._later and self._later[0][0] <= self._clock.now_ps:
            self._attach()
        if self._probe is None:
            return
        values = self._clock.probe(self._probe)
        rows = ((values[:, self._moved] > 0).any(axis=1) if self._moved
                else np.ones(len(values), bool))
        self._observed.take(at_ps, self._keys[rows].ravel(),
                            values[rows][:, self._columns].ravel())

    def _attach(self) -> None:
        """Queue pairs that are connected by now join the probe."""
        engine, first, numbers = self._clock.engine, len(self._where), []
        with self._clock.held():
            while self._later and self._later[0][0] <= engine.network.now_ps:
                numbers.append(heapq.heappop(self._later)[1])
            senders = [(engine.node(self._pairs[number][0]), self._pairs[number][2])
                       for number in sorted(numbers)]
            if self._probe is None:
                self._probe = _core.FlowProbe(engine.network, senders)
            else:
                self._probe.add(engine.network, senders)
        pairs = [self._pairs[number] for number in sorted(numbers)]
        rows = self._probe.rows(first)
        before = rows[0][0] if rows else 0
        parts = {pair for pair, part in rows if part}
        called = engine.plan.topology.names
        for pair, part in rows:
            source, destination, number, _ = pairs[pair - before]
            plane = f" plane {part}" if pair in parts else ""
            self._where.append(f"{called[source]}->{called[destination]} qp {number}{plane}")
        names = self._probe.names
        wanted = self._observed.choose(names, complete=not self._later)
        if names != self._names:
            self._names, first = names, 0
            self._columns = [names.index(name) for name in wanted]
            self._moved = [names.index(name) for name in ("acked", "in_flight") if name in names]
            self._keys = np.empty((0, len(wanted)), np.int64)
        keys = [self._observed.key(where, name) for where in self._where[first:] for name in wanted]
        self._keys = np.concatenate(
            [self._keys, np.array(keys, np.int64).reshape(-1, len(wanted))])
