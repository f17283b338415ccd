"""What became of the packets: every object's counters of a run, and among them the drops by
reason."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

# "link a->b", "switch NAME", "panel NAME", "nic NAME" or, live, "engine sockets" -> counter ->
# value
Totals = Mapping[str, Mapping[str, int]]
COUNTERS_VERSION = 1
# A NIC's own drops, which are named by what was missing.
_NIC_DROPS = frozenset(
    ("kernel_queue_full", "kernel_absent", "transport_absent", "port_down", "placement_refused")
)


@dataclass(frozen=True)
class Drop:
    """Packets that one kind of object dropped for one reason."""

    where: str  # link, switch, panel, nic, engine
    reason: str
    packets: int
    objects: int  # how many objects dropped for this reason
    most: str  # the object that dropped most

    def row(self) -> dict[str, object]:
        return {
            "where": self.where,
            "reason": self.reason,
            "packets": self.packets,
            "objects": self.objects,
            "most at": self.most,
        }


def drop_reason(where: str, counter: str) -> str | None:
    """The reason that a counter's name states, or None where it counts no drops."""
    if counter.startswith("drop_"):
        return counter.removeprefix("drop_")
    if counter.endswith("_dropped"):
        return counter.removesuffix("_dropped")
    return counter if where == "nic" and counter in _NIC_DROPS else None


def drops(totals: Totals) -> list[Drop]:
    """Every reason with at least one dropped packet; links first, the most frequent first."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    for name, counters in totals.items():
        where, _, thing = name.partition(" ")
        for counter, value in counters.items():
            reason = drop_reason(where, counter)
            if reason is not None and value:
                found.setdefault((where, reason), {})[thing] = value
    rows = [
        Drop(where, reason, sum(at.values()), len(at), max(sorted(at), key=lambda thing: at[thing]))
        for (where, reason), at in found.items()
    ]
    order = {"link": 0, "switch": 1, "panel": 2, "nic": 3}
    return sorted(rows, key=lambda d: (order.get(d.where, 4), -d.packets, d.reason))


def counters_json(scenario: str, runs: Mapping[str | None, Totals]) -> str:
    """counters.json: per run (by label, or the scenario's name without one) every object's counters
    that are not zero, and the drops. Equal content gives equal bytes."""
    named = {label or scenario: totals for label, totals in runs.items()}
    content = {
        "counters_version": COUNTERS_VERSION,
        "scenario": scenario,
        "runs": {
            name: {"objects": {}, "drops": [drop.row() for drop in drops(totals)]}
            for name, totals in named.items()
        },
    }
    text = json.dumps(content, sort_keys=True, indent=1, ensure_ascii=False) + "\n"
    # json indents in Python, which is slow for the objects of a large fabric.
    first, *others = text.split(_NO_OBJECTS)
    objects = [_objects(named[name]) for name in sorted(named)]
    return first + "".join(map("".join, zip(objects, others, strict=True)))


_NO_OBJECTS = '\n   "objects": {}'


def _objects(totals: Totals) -> str:
    """As json.dumps would write them at their place, keys in order."""
    key = functools.cache(partial(json.dumps, ensure_ascii=False))
    rows = [
        f"    {key(name)}: "
        + (
            "{}"
            if not counters
            else "{\n"
            + ",\n".join(
                [f"     {key(counter)}: {counters[counter]}" for counter in sorted(counters)]
            )
            + "\n    }"
        )
        for name, counters in sorted(totals.items())
    ]
    inside = "{\n" + ",\n".join(rows) + "\n   }" if rows else "{}"
    return _NO_OBJECTS.replace("{}", inside)
