"""Which settings each direction of a fabric's links has: most links of a fabric are alike, so that
each kind of direction is worked out once."""

from __future__ import annotations

from typing import Any

import numpy

from loomnet.base.units import Time
from loomnet.fabrics.link_settings import (
    LinkDefaults,
    half_settings,
    panel_settings,
    tier_settings,
)
from loomnet.fabrics.links import HalfLink
from loomnet.fabrics.topology import ClosTopology, Topology
from loomnet.plans.columns import Links


class HalfKinds:
    """`settings`: what HalfLinkPlan has beside its number, name and ends, of each kind."""

    def __init__(self, rtt: Time, frame: int, defaults: LinkDefaults) -> None:
        self._rtt, self._frame, self._defaults = rtt, frame, defaults
        self.settings: list[dict[str, Any]] = []
        # Of a regular fabric: the kinds of links as they were built, by tier and direction, and of
        # each link that is not like the others of its tier.
        self.tiers = numpy.empty((0, 2), numpy.int64)
        self.own: dict[int, tuple[int, int]] = {}
        self._known: dict[tuple[Any, ...], int] = {}

    def add(self, settings: dict[str, Any], **ends: bool) -> int:
        """The number of one more kind."""
        self.settings.append({"glass": False, **settings, **ends})
        return len(self.settings) - 1

    def of(
        self,
        spec: HalfLink,
        back: HalfLink,
        where: str,
        *,
        last_hop: bool,
        from_host: bool,
        glass: bool = False,
        patched: bool = False,
    ) -> int:
        """The kind of a direction; `back` is the other one. `glass`: a panel sends it, `patched`:
        or it ends at one."""
        key = (spec, back, last_hop, from_host, glass, patched)
        if key not in self._known:
            settings = (
                panel_settings(
                    spec,
                    self._rtt,
                    self._frame,
                    from_host=from_host,
                    defaults=self._defaults,
                    where=where,
                )
                if patched
                else half_settings(
                    spec,
                    back,
                    self._rtt,
                    self._frame,
                    last_hop=last_hop,
                    from_host=from_host,
                    where=where,
                    defaults=self._defaults,
                )
            )
            self._known[key] = self.add(settings, last_hop=last_hop, glass=glass)
        return self._known[key]

    def add_regular(self, topology: ClosTopology) -> None:
        """The kinds of a regular fabric's links: those of its tiers, and the others."""
        shape, fabric = topology.shape, topology.fabric
        tiers = (0, shape.leaf_link(0, 0, 0), shape.agg_link(0, 0, 0))[: len(fabric.specs)]
        # A part need not have these links.
        firsts = None if topology.partial else [fabric.link(each).halves[0][0] for each in tiers]
        made = tier_settings(fabric, self._rtt, self._frame, self._defaults, firsts)
        self.tiers = numpy.array(
            [
                [
                    self.add(half, last_hop=tier == 0 and towards == 1)
                    for towards, half in enumerate(halves)
                ]
                for tier, halves in enumerate(made)
            ]
        )
        for number, (ahead, back) in fabric.own.items():
            low = shape.link_tier(number) == 0
            (name, _), (other, _) = fabric.link(number).halves
            self.own[number] = (
                self.of(ahead, back, name, last_hop=False, from_host=low),
                self.of(back, ahead, other, last_hop=low, from_host=False),
            )


def links_of(topology: Topology, kinds: HalfKinds) -> Links:
    """Every link that is there, with its kinds."""
    if isinstance(topology, ClosTopology):
        return _regular_links(topology, kinds)
    rows = numpy.array(
        [(i, a.node, a.port, b.node, b.port) for i, (a, b) in enumerate(topology.ends)], numpy.int64
    ).reshape(-1, 5)
    planes = [-1 if plane is None else plane for plane in topology.plane]
    found = [_kinds_of(topology, link, kinds) for link in range(len(rows))]

    def names(number: int) -> tuple[str, str]:
        (ahead, _), (back, _) = topology.links[number].halves
        return ahead, back

    return Links(
        rows,
        numpy.array(planes, numpy.int64),
        numpy.array(found).reshape(-1, 2),
        kinds.settings,
        names,
    )


def _kinds_of(topology: Topology, link: int, kinds: HalfKinds) -> tuple[int, int]:
    made, ends = topology.links[link], [end.node for end in topology.ends[link]]
    hosts, glass = ([each(node) for node in ends] for each in (topology.is_host, topology.is_panel))
    (ahead, first), (back, second) = made.halves
    patched = any(glass)
    return (
        kinds.of(
            first,
            second,
            ahead,
            last_hop=hosts[1],
            from_host=hosts[0],
            glass=glass[0],
            patched=patched,
        ),
        kinds.of(
            second,
            first,
            back,
            last_hop=hosts[0],
            from_host=hosts[1],
            glass=glass[1],
            patched=patched,
        ),
    )


def _regular_links(topology: ClosTopology, kinds: HalfKinds) -> Links:
    shape, rows = topology.shape, topology.part.wiring()
    planes, rest = numpy.divmod(rows[:, 0], shape.links_per_plane)
    hosts, leaves, _ = shape.links_of_tiers
    kinds.add_regular(topology)
    found = kinds.tiers[(rest >= hosts).astype(numpy.int64) + (rest >= hosts + leaves)]
    for number, own in kinds.own.items():
        if topology.present(number):
            found[numpy.searchsorted(rows[:, 0], number)] = own

    called: dict[int, str] = {}

    def name(node: int) -> str:
        if node not in called:
            called[node] = shape.name(node)
        return called[node]

    def names(number: int) -> tuple[str, str]:
        (low, _), (high, _) = shape.ends(number)
        return f"{name(low)}->{name(high)}", f"{name(high)}->{name(low)}"

    return Links(rows, planes, found, kinds.settings, names)
