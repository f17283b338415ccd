"""What a mixture of experts was seen to do: its iterations by what they were spent on, and what the
controllers of its circuits did."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class ExpertRound(NamedTuple):
    """An iteration. Times in ps since the job's begin; those that regions spend are means over
    regions, `exposed_most_ps` the region's with the most. `exposed_ps`: waiting for circuits with
    everything else there; `exchanging_ps`: in all-to-alls, that waiting among it. Bytes of experts
    between servers, by circuits and by wires."""

    begin_ps: int
    end_ps: int
    exposed_ps: int
    exposed_most_ps: int
    exchanging_ps: int
    computing_ps: int
    optical_bytes: int
    electrical_bytes: int


class RegionNote(NamedTuple):
    """An event of a region's controller: demand, drain, apply, lit, release or fail. `key`:
    iteration, layer, micro-batch, whether backward, whether guessed before the gate."""

    at_ps: int
    region: int
    generation: int
    key: tuple[int, int, int, bool, bool]
    event: str
    changed: int
    dark_ps: int

    def row(self) -> dict[str, Any]:
        """As a line of circuits.jsonl."""
        iteration, layer, micro_batch, backward, guessed = self.key
        return {"t_ns": self.at_ps // 1000, "region": self.region, "gen": self.generation,
                "key": {"iteration": iteration, "layer": layer, "micro_batch": micro_batch,
                        "backward": backward, "guessed": guessed},
                "event": self.event, "n_changed": self.changed, "dark_ns": self.dark_ps // 1000}


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


@dataclass
class ExpertRounds:
    """Of a whole job. `patches`: requests that reached panels; `maps`: distinct circuit maps of the
    region that had the most. `kept`: the first 4,096 maps of region 0, the one before the job among
    them. `left_out`: events beyond those that each region keeps."""

    rounds: list[ExpertRound] = field(default_factory=list)
    events: list[RegionNote] = field(default_factory=list)
    spans: list[RegionSpan] = field(default_factory=list)
    kept: list[CircuitMap] = field(default_factory=list)
    regions: int = 0
    patches: int = 0
    maps: int = 0
    left_out: int = 0

    def figures(self) -> Iterator[tuple[str, float | None, str, str | None]]:
        """(name, value, unit, why there is none)."""
        none = None if self.rounds else "no iteration has ended"
        count = max(len(self.rounds), 1)
        lasted = sum(each.end_ps - each.begin_ps for each in self.rounds)

        def mean(name: str) -> float | None:
            return None if none else sum(getattr(each, name) for each in self.rounds) / count

        def part(value: float, whole: float) -> float | None:
            return value / whole if whole and not none else None

        for figure, name in (("exposed_s", "exposed_ps"), ("exposed_most_s", "exposed_most_ps"),
                             ("all_to_all_s", "exchanging_ps"), ("computing_s", "computing_ps")):
            value = mean(name)
            yield figure, None if value is None else value / 1e12, "s", none
        yield "all_to_all_share", part(sum(each.exchanging_ps for each in self.rounds), lasted), \
            "ratio", none
        optical = sum(each.optical_bytes for each in self.rounds)
        carried = optical + sum(each.electrical_bytes for each in self.rounds)
        yield "circuit_share", part(optical, carried), "ratio", \
            none or (None if carried else "nothing went between servers")
        yield "patches", float(self.patches), "requests", None
        yield "circuit_maps", float(self.maps), "maps", None

    def lines(self) -> bytes:
        """The controllers' events as JSON lines, in the order of time."""
        rows = (json.dumps(each.row()) for each in sorted(self.events, key=lambda each: each.at_ps))
        return ("\n".join(rows) + "\n").encode() if self.events else b""
