"""What a mixture of experts was seen to do: its iterations by what they were spent on, and what the
controllers of its circuits did."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from loomnet.base.names import how_many
from loomnet.base.table import Table
from loomnet.measures.gate_trace import GateTrace
from loomnet.measures.region_events import RegionEvents

_UNMEASURED = "the compute and the bytes of real ranks are not told apart"


class ExpertRound(NamedTuple):
    """An iteration. Times in ps since the job's begin. `exposed_ps`: what waits for circuits cost
    it: those in its longest chain of work, in which a stage waits for another one that waited; of
    real ranks, whose chains are not known, `waiting_most_ps`. Of a region, and means over regions:
    `waiting_ps`: waiting for circuits with everything else there (`waiting_most_ps`: of the region
    with the most); `exchanging_ps`: in all-to-alls, that waiting among it. Bytes of experts between
    servers, by circuits and by wires. None: not measured, as of real ranks."""

    begin_ps: int
    end_ps: int
    exposed_ps: int
    waiting_ps: int
    waiting_most_ps: int
    exchanging_ps: int | None
    computing_ps: int | None
    optical_bytes: int | None
    electrical_bytes: int | None


class RegionWait(NamedTuple):
    """An all-to-all of real ranks that its region's controller heard of. `phase`: 0 dispatch, 1
    combine, 2 and 3 the gradients of combine and dispatch; `at_ps`: when the last rank had asked,
    from the beginning of the job's first iteration; `exposed_ps`: from then until its circuits were
    there."""

    region: int
    iteration: int
    layer: int
    micro_batch: int
    phase: int
    at_ps: int
    exposed_ps: int


class RegionSpan(NamedTuple):
    """A part of region 0's time line: attention, dispatch, experts, combine or blocked."""

    step: str
    backward: bool
    layer: int
    micro_batch: int
    iteration: int
    begin_ps: int
    end_ps: int


class CircuitMap(NamedTuple):
    """Circuits between servers of region 0 from a request on, by server and server; they have light
    from `lit_ps` on."""

    at_ps: int
    lit_ps: int
    circuits: tuple[tuple[int, ...], ...]


def kept_maps(
    rows: Iterable[tuple[int, int, Sequence[int]]], origin_ps: int, servers: int
) -> list[CircuitMap]:
    """Of the engine's rows: when, when lit, and by port of the region the port it is joined to."""
    found = []
    for at, lit, peers in rows:
        alpha = len(peers) // servers
        joined = [[0] * servers for _ in range(servers)]
        for port, peer in enumerate(peers):
            if peer >= 0:
                joined[port // alpha][peer // alpha] += 1
        found.append(CircuitMap(at - origin_ps, lit - origin_ps, tuple(map(tuple, joined))))
    return found


@dataclass(repr=False)
class ExpertRounds:
    """Of a whole job. `patches`: requests that reached panels; `maps`: distinct circuit maps of the
    region that had the most. `kept`: the first 4,096 maps of region 0, the one before the job among
    them. `left_out`: events beyond those that each region keeps. `rotates`: circuits rotate by the
    clock, and no controller asks for them."""

    rounds: list[ExpertRound] = field(default_factory=list)
    events: RegionEvents = field(default_factory=RegionEvents)
    spans: list[RegionSpan] = field(default_factory=list)
    waits: list[RegionWait] = field(default_factory=list)
    kept: list[CircuitMap] = field(default_factory=list)
    regions: int = 0
    patches: int = 0
    maps: int = 0
    left_out: int = 0
    rotates: bool = False
    gates: GateTrace | None = None

    def __repr__(self) -> str:
        return (
            f"ExpertRounds({how_many(len(self.rounds), 'iteration')} in "
            f"{how_many(self.regions, 'region')}, "
            f"{how_many(self.patches, 'request')} to panels; "
            "rounds, events, spans, waits and kept have them)"
        )

    def _repr_html_(self) -> str:
        """In a notebook: the figures of the whole job."""
        table = Table(
            ("figure", "value", "unit", "reason"),
            (
                dict(zip(("figure", "value", "unit", "reason"), row, strict=True))
                for row in self.figures()
            ),
        )
        return f"<p>{html.escape(repr(self))}</p>{table._repr_html_()}"

    def figures(self) -> Iterator[tuple[str, float | None, str, str | None]]:
        """(name, value, unit, why there is none)."""
        none = None if self.rounds else "no iteration has ended"
        lasted = sum(each.end_ps - each.begin_ps for each in self.rounds)

        def total(name: str) -> float | None:
            """None where an iteration has no such number."""
            values = [getattr(each, name) for each in self.rounds]
            return None if None in values else float(sum(values))

        def row(
            figure: str, value: float | None, whole: float, unit: str, why: str
        ) -> tuple[str, float | None, str, str | None]:
            if none or value is None:
                return figure, None, unit, none or _UNMEASURED
            return (figure, value / whole, unit, None) if whole else (figure, None, unit, why)

        for figure, name in (
            ("exposed_s", "exposed_ps"),
            ("waiting_s", "waiting_ps"),
            ("waiting_most_s", "waiting_most_ps"),
            ("all_to_all_s", "exchanging_ps"),
            ("computing_s", "computing_ps"),
        ):
            yield row(figure, total(name), 1e12 * max(len(self.rounds), 1), "s", "")
        yield row(
            "all_to_all_share",
            total("exchanging_ps"),
            lasted,
            "ratio",
            "the iterations took no time",
        )
        optical, wires = total("optical_bytes"), total("electrical_bytes")
        yield row(
            "circuit_share",
            optical,
            (optical or 0) + (wires or 0),
            "ratio",
            "nothing went between servers",
        )
        rotor = "circuits rotate by the clock: nothing asks for them" if self.rotates else None
        yield "patches", None if rotor else float(self.patches), "requests", rotor
        yield "circuit_maps", None if rotor else float(self.maps), "maps", rotor
