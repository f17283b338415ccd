"""Reads what senders and their congestion controls hold, for the series that a run is asked for."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

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
        self._next_ps = -1  # when another pair of the list is connected; -1: none will be
        self._probe: _core.FlowProbe | None = None
        self._columns: list[tuple[str, int]] = []
        self._moved: list[int] = []  # columns that are above zero once a sender has sent
        self._where: list[str] = []  # of each row of the probe

    def take(self, at_ps: int) -> None:
        """Notes what every sender holds that has sent."""
        if self._seen < len(self._pairs) or 0 <= self._next_ps <= self._clock.now_ps:
            self._attach()
        if self._probe is None:
            return
        for where, row in zip(self._where, self._clock.probe(self._probe).tolist(), strict=True):
            if self._moved and not any(row[column] > 0 for column in self._moved):
                continue
            for name, column in self._columns:
                value = row[column]
                if value == value:  # no sender of its kind has such a value: NaN
                    self._observed.add(at_ps, where, name, value)

    def _attach(self) -> None:
        engine, self._seen = self._clock.engine, len(self._pairs)
        with self._clock.held():
            now = engine.network.now_ps
            pairs = [pair for pair in self._pairs if pair[3] <= now]
            self._next_ps = min((pair[3] for pair in self._pairs if pair[3] > now), default=-1)
            self._probe = _core.FlowProbe(
                engine.network, [(engine.node(source), number) for source, _, number, _ in pairs])
        names = self._probe.names
        wanted = self._observed.choose(names, complete=self._next_ps < 0)
        self._columns = [(name, names.index(name)) for name in wanted]
        self._moved = [names.index(name) for name in ("acked", "in_flight") if name in names]
        called, rows = engine.plan.topology.names, self._probe.rows
        parts = {pair for pair, part in rows if part}
        self._where = []
        for pair, part in rows:
            source, destination, number, _ = pairs[pair]
            plane = f" plane {part}" if pair in parts else ""
            self._where.append(f"{called[source]}->{called[destination]} qp {number}{plane}")
