"""Senders under way as rows of numbers, and what a caller or a controller has them send by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import loomnet._core as _core
from loomnet.base.errors import PluginError, UnitError, UsageError
from loomnet.base.names import quoted
from loomnet.base.units import Quantity, Rate, Size
from loomnet.faults.timetable import SendersChange
from loomnet.running.engine import QueuePair
from loomnet.running.observer import ObservedClock
from loomnet.running.play import Play
from loomnet.running.traffic import FlowTraffic
from loomnet.running.traffic_play import TrafficPlay

# What every row has before what its sender shows of itself: job and number of the flow, its hosts,
# and the part of its queue pair (RoCE: one for each plane).
KEYS = ("job", "flow", "source", "destination", "part")
# Columns that rows of each transport have, NaN where a sender has no such value.
COMMON = ("acked", "in_flight", "cwnd", "pacing_bps", "srtt_ps", "min_rtt_ps")
NO_FLOW = -1
# Least and most of what can be set beside 0, as core/bindings/network.cpp has them, and in words.
WINDOWS = (0.0, 9e15, "a window of 0 to 9e15 bytes", Size)
RATES = (1.0, 9.2e18, "a rate of 1 bit/s to 9.2e18, nor 0: not paced", Rate)
Limit = float | str | Size | Rate
Limits = Sequence[Limit] | np.ndarray | Limit | None


class SenderRows:
    """Looks at the senders of a run. Of jobs of flows each flow from its start to its end; of other
    jobs, where `pairs` is what the engine notes of queue pairs, each one that has sent something,
    while its job plays: its `flow` is -1."""

    def __init__(
        self, clock: ObservedClock, plays: Sequence[Play], pairs: Sequence[QueuePair] = ()
    ) -> None:
        self._clock, self._plays, self._pairs = clock, plays, pairs
        self._sending: list[tuple[Any, ...]] = []  # what the probe looks at, as _under_way() has it
        self._probe: _core.FlowProbe | None = None
        self._names = list(COMMON)  # of what senders have shown so far
        self._expected = False
        self._windowless = False  # whether a sender of the rows last given has no window
        self._senders = np.empty((0, 3), np.int64)  # of the rows of the probe
        self._shown: dict[int, np.ndarray] = {}  # senders of the rows last given, by controller
        self._dtype = np.dtype([(name, np.int64) for name in KEYS])
        self._keys = np.empty(0, self._dtype)
        self._before = np.empty(0)  # of each row: what had been acknowledged when its flow began

    def _expect(self) -> None:
        """Rows have what the flows of jobs that begin at once will show, before any has begun."""
        self._expected = True
        senders = [
            play.traffic.sender(0)
            for play in self._plays
            if not play.asked.start_ps
            and isinstance(play, TrafficPlay)
            and isinstance(play.traffic, FlowTraffic)
        ]
        self._know(_core.FlowProbe(self._clock.engine.network, senders).names)

    def _know(self, names: Sequence[str]) -> None:
        self._names += [name for name in names if name not in self._names]

    def look(self, who: int = 0) -> np.ndarray:
        """A structured array: KEYS as int64, then what senders show as float64, NaN: nothing."""
        with self._clock.held():
            if not self._expected:
                self._expect()
            sending = self._under_way()
            if sending != self._sending or self._probe is None:
                self._probe = self._attach(sending)
        found = np.empty(len(self._keys), self._dtype)
        for name in self._names:
            found[name] = np.nan
        for name in KEYS:
            found[name] = self._keys[name]
        for name, column in zip(self._probe.names, self._clock.probe(self._probe).T, strict=True):
            found[name] = column
        found["acked"] -= self._before
        shown = self._senders
        if (other := found["flow"] == NO_FLOW).any():
            sent = np.zeros(len(found), bool)
            for name in ("acked", "in_flight"):
                sent |= found[name] > 0
            shown, found = shown[sent | ~other], found[sent | ~other]
        self._shown[who] = shown
        self._windowless = bool(np.isnan(found["cwnd"]).any())
        return found

    def carry_out(self, change: SendersChange) -> None:
        """What a controller asks. Raises PluginError."""
        refused = None
        try:
            self.limit("change.senders", change.rows, change.cwnd, change.pacing, change.controller)
        except UsageError as error:
            refused = f"{error}{change.place}"
        if refused is not None:
            raise PluginError(refused)

    def limit(self, where: str, rows: Any, cwnd: Limits, pacing: Limits, who: int = 0) -> None:
        """Sets what senders of rows of the last look may send by, now; `where`: for errors. Raises
        UsageError."""
        shown = self._shown.get(who)
        if shown is None:
            raise UsageError(f"{where}: rows: nobody has looked: call view.senders() first")
        if not isinstance(rows, slice):
            rows = np.atleast_1d(np.asarray(rows))
            if not len(rows):
                rows = rows.astype(np.int64)
            if rows.dtype.kind not in "biu" or (rows.dtype.kind == "b" and len(rows) != len(shown)):
                raise UsageError(
                    f"{where}: rows: give numbers of rows, a slice, or a mask of as "
                    f"many bools as the last look had rows, {len(shown)}"
                )
        try:
            chosen = shown[rows]
            if not isinstance(rows, slice) and rows.dtype.kind != "b":
                rows = np.arange(len(shown))[rows]  # those counted from the end, too
                if (again := rows[np.flatnonzero(np.bincount(rows, minlength=1)[rows] > 1)]).size:
                    raise UsageError(
                        f"{where}: rows: row {again[0]} is given more than once; give "
                        "each one time, with the limit that it is to have"
                    )
        except (IndexError, TypeError, ValueError) as error:
            raise UsageError(
                f"{where}: rows: the last look had {len(shown)} rows: {error}"
            ) from None
        limits = [
            None if each is None else _limits(f"{where}: {name}", each, len(chosen), bounds)
            for name, each, bounds in (("cwnd", cwnd, WINDOWS), ("pacing", pacing, RATES))
        ]
        try:
            with self._clock.held():
                self._clock.engine.network.set_limits(chosen, *limits)
        except ValueError as error:
            raise UsageError(f"{where}: {error}") from None
        if cwnd is not None and self._windowless:
            self._probe = None  # a sender that had no window shows one from now on

    def _under_way(self) -> list[tuple[Any, ...]]:
        """Job, flow, source, destination, sender and queue pair of each."""
        found: list[tuple[Any, ...]] = []
        others: dict[int, int] = {}
        for job, play in enumerate(self._plays):
            if play.ended is not None:
                continue
            if isinstance(play, TrafficPlay) and isinstance(play.traffic, FlowTraffic):
                found += [(job, *each) for each in play.traffic.sending()]
            else:
                others[play.asked.number] = job
        engine, now = self._clock.engine, self._clock.now_ps
        return found + [
            (
                others[pair.job],
                NO_FLOW,
                pair.source,
                pair.destination,
                engine.node(pair.source),
                pair.number,
            )
            for pair in self._pairs
            if pair.job in others and pair.begins_ps <= now
        ]

    def _attach(self, sending: list[tuple[Any, ...]]) -> _core.FlowProbe:
        """A probe of these senders. Sets the columns that do not change between two looks."""
        self._sending = sending
        probe = _core.FlowProbe(
            self._clock.engine.network, [(node, number) for *_, node, number in sending]
        )
        keys = [(name, np.int64) for name in KEYS]
        self._know(probe.names)  # they stay when the last flow that has them has ended
        self._dtype = np.dtype([*keys, *((name, np.float64) for name in self._names)])
        rows = probe.rows()
        self._keys = np.array([(*sending[at][:4], part) for at, part in rows], keys)
        # A queue pair carries a flow of each round, one after another.
        self._before = np.array([self._acked_before(sending[at], part) for at, part in rows])
        self._senders = np.array([(*sending[at][4:], part) for at, part in rows], np.int64).reshape(
            -1, 3
        )
        return probe

    def _acked_before(self, row: tuple[Any, ...], part: int) -> int:
        """Bytes that the row's queue pair had sent when its flow began."""
        job, flow, *_ = row
        if flow == NO_FLOW:
            return 0
        play = self._plays[job]
        assert isinstance(play, TrafficPlay) and isinstance(play.traffic, FlowTraffic)
        return play.traffic.core.acked_before(flow, part)


def _limits(
    where: str, given: Any, count: int, bounds: tuple[float, float, str, type[Quantity]]
) -> np.ndarray:
    """A limit for each row; NaN: as it is. 0 is one of both kinds."""
    least, most, what, quantity = bounds
    try:
        plain = np.asarray(given)
        if plain.dtype.kind in "OU":
            counts = [
                quantity.given(where, each).count if isinstance(each, (str, Quantity)) else each
                for each in plain.flat
            ]
            plain = np.array(counts).reshape(plain.shape)
        if plain.dtype.kind not in "iuf":  # numpy would make numbers of bools and dates, too
            raise TypeError
        limits = np.broadcast_to(plain.astype(np.float64), count)
    except UnitError:
        raise
    except (TypeError, ValueError):
        raise UsageError(
            f"{where}: {quoted(given)} is not a number or a {quantity.kind}, nor one for each "
            f"of {count} rows"
        ) from None
    wrong = ~(np.isnan(limits) | (limits == 0) | ((limits >= least) & (limits <= most)))
    if wrong.any():
        raise UsageError(f"{where}: {limits[wrong][0]:g} is not {what}; NaN leaves it as it is")
    return limits
