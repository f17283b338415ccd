"""What a report keeps of a fabric, so that two runs tell whether theirs were alike: counts, the
settings of its links as they were given, and a digest of how they are laid."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import fields
from typing import TYPE_CHECKING, Any, cast

from loomnet.base.names import how_many
from loomnet.fabrics.links import HalfLink

if TYPE_CHECKING:
    from loomnet.fabrics.view import ClosView, FabricView

MOST_SHOWN = 4  # values of one setting
MOST_DIGESTED = 20_000  # links of an irregular fabric
DEFAULT = "default"


def facts_of(fabric: FabricView) -> dict[str, str]:
    """Facts by name, as text: `hosts`, `switches` and `links`, `link rate`, `link delay` and each
    other setting that some link was given, `switch programs`, and `wiring`, which differs where
    another link has the setting or joins other nodes."""
    hosts, switches, links = fabric.counts
    kinds = fabric.half_counts
    found = {
        "hosts": str(hosts),
        "switches": str(switches),
        "links": str(links),
        "payload": str(fabric.payload),
    }
    for each in fields(HalfLink):
        values: Counter[str] = Counter()
        for half, count in kinds.items():
            values[_text(getattr(half, each.name))] += count
        if set(values) - {_text(each.default)}:
            found[f"link {each.name}"] = _counted(values)
    if programs := Counter(fabric.programs.values()):
        found["switch programs"] = _counted(
            Counter({str(program): count for program, count in programs.items()})
        )
    found["wiring"] = _digest(fabric, list(kinds))
    return found


def _text(value: Any) -> str:
    if value is None or value == ():
        return DEFAULT
    if isinstance(value, tuple):
        return ", ".join(f"{name}={number}" for name, number in value)
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _counted(values: Counter[str]) -> str:
    """ "25 Gb/s"; "10 Gb/s of 4, 25 Gb/s of 12" where there are several."""
    if len(values) == 1:
        return next(iter(values))
    shown = sorted(values.items(), key=lambda each: (-each[1], each[0]))
    more = len(shown) - MOST_SHOWN
    return ", ".join(
        [f"{value} of {count}" for value, count in shown[:MOST_SHOWN]]
        + ([how_many(more, "other value")] if more > 0 else [])
    )


def _digest(fabric: FabricView, kinds: list[HalfLink]) -> str:
    """Eight hexadecimal digits of which nodes are joined and which links are alike. Which settings
    each kind of link has is no part of it."""
    said, number = hashlib.sha256(), {half: place for place, half in enumerate(kinds)}

    def alike(halves: tuple[HalfLink, HalfLink]) -> list[int]:
        return [number.get(half, -1) for half in halves]

    if fabric.shape is not None:
        said.update(repr(fabric.shape).encode())
        for link, halves in sorted(cast("ClosView", fabric).own.items()):
            said.update(f"{link} {alike(halves)}\n".encode())
    elif fabric.counts[2] <= MOST_DIGESTED:
        for link in fabric.all_links():
            said.update(f"{link.name} {alike((link.forward, link.backward))}\n".encode())
    return said.hexdigest()[:8]
