"""Flows that waited for a retransmission timeout: how long, and for which of them that was most of
their time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loomnet.base.number_text import number_text

if TYPE_CHECKING:
    from loomnet.measures.flow_rows import FlowRows

MOST_OF_IT = 0.5  # of a flow's time; of less a timeout is no more than a part of the story
NONE = "no retransmission timeout ran out in this run"


@dataclass(frozen=True)
class Waiting:
    """A flow that waited for its timeouts: hosts by number, all its waits in picoseconds."""

    source: int
    destination: int
    waited_ps: int


def waiting_of(flows: FlowRows, waits: Mapping[int, int], end_ps: int) -> list[Waiting]:
    """Those of which the waits were most of their time, the longest first. `waits`: picoseconds by
    the flow's place in `flows`; `end_ps`: the job's end, up to which a flow lasted that has no
    end."""
    found = []
    for place, waited in waits.items():
        flow = flows[place]
        took = (end_ps if flow.end_ps is None else flow.end_ps) - flow.start_ps
        if waited >= MOST_OF_IT * took:
            found.append(Waiting(flow.source, flow.destination, waited))
    return sorted(found, key=lambda each: (-each.waited_ps, each.source, each.destination))


def in_words(found: list[Waiting], names: Sequence[str]) -> str:
    """ "1 flow waited 4.295 s for its timeout (h6->h1)"; nothing where none did."""
    if not found:
        return ""
    longest = found[0]
    said = number_text(longest.waited_ps / 1e12, "s")
    pair = f"{names[longest.source]}->{names[longest.destination]}"
    if len(found) == 1:
        return f"1 flow waited {said} for its timeout ({pair})"
    return f"{len(found)} flows waited for their timeouts, up to {said} ({pair})"
