"""Reads what senders and their congestion controls hold, for the series that a run is asked for."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

import loomnet._core as _core
from loomnet.measures.observed import Observed
from loomnet.running.engine import Engine
from loomnet.running.engine_numbers import EngineNode


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


class Sending(Protocol):
    """What an observer asks of traffic whose queue pairs carry one flow each."""

    def ended_senders(self) -> list[tuple[EngineNode, int]]: ...


class Observer:
    """Fills `observed`. The engine notes its queue pairs from when this is made."""

    def __init__(self, clock: ObservedClock, observed: Observed) -> None:
        self._clock, self._observed = clock, observed
        self._pairs = clock.engine.note_queue_pairs()
        self._seen = 0  # pairs of the engine's list that were there at the last look
        self._later: list[tuple[int, int]] = []  # a heap of (time, number) of pairs yet to begin
        self._connected_ps = 0  # when the last job starts
        self._probe: _core.FlowProbe | None = None
        self._names: list[str] = []  # of the probe
        self._columns: list[int] = []  # of the probe that are kept, in the order of `wanted`
        self._moved: list[int] = []  # columns that are above zero once a sender has sent
        self._where: list[str] = []  # of each row of the probe
        self._reads = np.empty(0, bool)  # rows of the probe that are noted
        self._rows_of: dict[tuple[EngineNode, int], list[int]] = {}  # by host and queue pair
        self._keys = np.empty((0, 0), np.int64)  # rows of the probe by columns: the series

    def take(self, at_ps: int, flying: Iterable[Sending] = ()) -> None:
        """Notes what every sender holds that has sent. Of `flying`, whose queue pairs carry one
        flow each, none that has ended is read again after this."""
        for number in range(self._seen, len(self._pairs)):
            heapq.heappush(self._later, (self._pairs[number].begins_ps, number))
            self._connected_ps = max(self._connected_ps, self._pairs[number].connected_ps)
        self._seen = len(self._pairs)
        if self._later and self._later[0][0] <= self._clock.now_ps:
            self._attach()
        if self._probe is None:
            return
        values = self._clock.probe(self._probe)
        rows = (
            (values[:, self._moved] > 0).any(axis=1) if self._moved else np.ones(len(values), bool)
        )
        rows &= self._reads
        self._observed.take(at_ps, self._keys[rows].ravel(), values[rows][:, self._columns].ravel())
        for traffic in flying:
            with self._clock.held():
                ended = traffic.ended_senders()
            for sender in ended:
                self._reads[self._rows_of.pop(sender, [])] = False
        if 2 * np.count_nonzero(self._reads) < len(self._reads):
            self._leave_out()

    def _leave_out(self) -> None:
        """The probe goes on without the rows that are not read, so that a look costs as much as
        there are senders under way."""
        left = np.flatnonzero(self._reads).tolist()
        place = {row: number for number, row in enumerate(left)}
        self._rows_of = {
            sender: [place[row] for row in rows] for sender, rows in self._rows_of.items()
        }
        self._where = [self._where[row] for row in left]
        self._reads, self._names, self._probe = self._reads[left], [], None
        if left:
            with self._clock.held():
                self._probe = _core.FlowProbe(self._clock.engine.network, list(self._rows_of))
            self._number(0, complete=False)

    def _attach(self) -> None:
        """Queue pairs that have begun by now join the probe."""
        engine, first, numbers = self._clock.engine, len(self._where), []
        with self._clock.held():
            while self._later and self._later[0][0] <= engine.network.now_ps:
                numbers.append(heapq.heappop(self._later)[1])
            pairs = [self._pairs[number] for number in sorted(numbers)]
            senders = [(engine.node(pair.source), pair.number) for pair in pairs]
            if self._probe is None:
                self._probe = _core.FlowProbe(engine.network, senders)
            else:
                self._probe.add(engine.network, senders)
        rows = self._probe.rows(first)
        before = rows[0][0] if rows else 0
        parts = {pair for pair, part in rows if part}
        called = engine.plan.topology.names
        for row, (pair, part) in enumerate(rows, first):
            end = pairs[pair - before]
            self._rows_of.setdefault(senders[pair - before], []).append(row)
            plane = f" plane {part}" if pair in parts else ""
            self._where.append(
                f"{called[end.source]}->{called[end.destination]} qp {end.number}{plane}"
            )
        self._reads = np.concatenate([self._reads, np.ones(len(rows), bool)])
        # A job's queue pairs have the same names: no job that starts later has others.
        self._number(first, complete=self._connected_ps <= engine.network.now_ps)

    def _number(self, first: int, *, complete: bool) -> None:
        """Finds the columns that are wanted, and the series of the rows from `first` on."""
        assert self._probe is not None
        names = self._probe.names
        wanted = self._observed.choose(names, complete=complete)
        if names != self._names:
            self._names, first = names, 0
            self._columns = [names.index(name) for name in wanted]
            self._moved = [names.index(name) for name in ("acked", "in_flight") if name in names]
            self._keys = np.empty((0, len(wanted)), np.int64)
        keys = [self._observed.key(where, name) for where in self._where[first:] for name in wanted]
        self._keys = np.concatenate([self._keys, np.array(keys, np.int64).reshape(-1, len(wanted))])
