"""Fabrics drawn at random: a list of calls, of which the first makes a fabric and the others are
methods of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from random import Random
from typing import Any

import networkx

import loomnet as ln
from loomnet.fabrics.links import HalfLink
from loomnet.measures.lone_ways import LoneWays
from loomnet.plans.model import Plan

from .drafts import Draft, Draw, a_rate, a_size, a_time, draft, mapped, sometimes

Calls = tuple[Draft, ...]
KINDS = (
    "star",
    "star",
    "rails",
    "dumbbell",
    "two_tier",
    "two_tier",
    "three_tier",
    "fat_tree",
    "irregular",
    "irregular",
)
# By these all traffic of two hosts goes one way: nothing is chosen by a hash or a turn.
ONE_PATH = ("star", "dumbbell")
OF_SUMS = ("star", "two_tier", "three_tier")  # those whose switches sum in random worlds
PAYLOADS = ("256 B", "1024 B", "2048 B", "4096 B")
DEFAULTS = {each.name: each.default for each in dataclasses.fields(HalfLink)}


def build(calls: Calls) -> ln.Fabric:
    if calls[0].name == "from_networkx":
        return _through_networkx(calls)
    fabric = calls[0].make(ln)
    for call in calls[1:]:
        call.make(fabric)
    return fabric


def far(calls: Calls, draw: Draw) -> Calls:
    """The same with links of a continent, at which TCP begins later than MRC and RoCE do."""
    return (*calls, draft("override", "*--*", delay=ln.Time(draw.choice(("1 ms", "3 ms")))))


def a_fabric(
    draw: Draw,
    kinds: Sequence[str] = KINDS,
    *,
    settings: bool = True,
    ranks: int = 2,
    simple: bool = False,
) -> Calls:
    """`ranks`: hosts that there are at least. `settings`: links may differ, and have queues of
    their own. `simple`: equal links, one rank on a host."""
    kind = draw.choice(kinds)
    common: dict[str, Any] = {
        "rate": a_rate(draw),
        "delay": a_time(draw, 1e3, 2e8 if sometimes(draw, 0.1) else 1e7),
    }
    if settings and sometimes(draw, 0.2):
        common["pfc"] = draw.choice((True, False))
    payload = ln.Size(draw.choice(PAYLOADS))
    if not simple and kind != "irregular" and sometimes(draw, 0.12):
        common |= {
            "ranks_per_host": draw.choice((2, 4)),
            "local_link": a_rate(draw, 1e10, 8e12),
            "local_delay": a_time(draw, 1e4, 2e6),
        }
    up: dict[str, Any] = {}
    if not simple and sometimes(draw, 0.4):
        up = {"uplink_rate": a_rate(draw), "uplink_delay": a_time(draw, 1e3, 1e7)}
    if kind == "irregular":
        calls = _irregular(draw, common, payload, max(ranks, draw.randint(2, 8)), mixed=not simple)
    else:
        calls = (_regular(draw, kind, common | {"payload": payload}, up, ranks),)
    if settings:
        calls += _settings(draw, calls)
    return calls


def _regular(
    draw: Draw, kind: str, common: dict[str, Any], up: dict[str, Any], ranks: int
) -> Draft:
    planes = draw.choice((1, 1, 1, 2, 3, 4))
    if kind in ("star", "rails"):
        return draft(
            "star",
            hosts=max(ranks, draw.randint(2, 8)),
            planes=1 if kind == "star" else draw.choice((2, 4)),
            **common,
        )
    if kind == "dumbbell":
        left = draw.randint(1, 4)
        return draft(
            "dumbbell",
            left=left,
            right=max(ranks - left, draw.randint(1, 4)),
            bottleneck=a_rate(draw) if up else None,
            **common,
        )
    if kind == "two_tier":
        leaves = draw.randint(1, 4)
        return draft(
            "clos.two_tier",
            planes=planes,
            leaves=leaves,
            spines=draw.randint(1, 4),
            hosts_per_leaf=max(-(-ranks // leaves), draw.randint(2, 3)),
            order=draw.choice(("spread", "block")),
            **common,
            **up,
        )
    if kind == "three_tier":
        leaves = draw.randint(1, 2)
        return draft(
            "clos.three_tier",
            planes=draw.choice((1, 1, 2, 3)),
            pods=2,
            leaves_per_pod=leaves,
            aggs_per_pod=draw.randint(1, 2),
            cores_per_agg=draw.randint(1, 2),
            hosts_per_leaf=max(-(-ranks // (2 * leaves)), draw.randint(1, 2)),
            order=draw.choice(("spread", "block")),
            **common,
            **up,
        )
    return draft("clos.fat_tree", 4, **common)


def _irregular(
    draw: Draw, common: dict[str, Any], payload: ln.Size, hosts: int, *, mixed: bool
) -> Calls:
    """Switches joined at random, so that the longest way passes four of them at most, with hosts
    anywhere."""
    planes = draw.choice((1, 1, 2))
    names = [f"h{i}" for i in range(hosts)]
    calls = [
        draft("Fabric", "irregular", payload=payload),
        *(draft("add_host", name) for name in names),
    ]

    def link(a: str, b: str) -> Draft:
        own = (
            {"rate": a_rate(draw), "delay": a_time(draw, 1e3, 1e7)}
            if mixed and sometimes(draw, 0.4)
            else {}
        )
        return draft("add_link", a, b, **{**common, **own})

    for plane in range(planes):
        graph = networkx.Graph()
        switches = [f"p{plane}.s{i}" for i in range(draw.randint(1, 6))]
        graph.add_node(switches[0])
        for i, switch in enumerate(switches[1:], 1):
            graph.add_edge(switch, switches[draw.randrange(min(i, 2))])
        for _ in range(draw.randrange(3) if len(switches) > 2 else 0):
            graph.add_edge(*draw.sample(switches, 2))
        calls += [draft("add_switch", name, plane=plane) for name in switches]
        calls += [link(a, b) for a, b in graph.edges]
        homes = {name: draw.choice(switches) for name in names}
        calls += [link(name, homes[name]) for name in names]
    return tuple(calls)


def _settings(draw: Draw, calls: Calls) -> Calls:
    """Overrides of links, all together or one direction."""
    found: list[Draft] = []
    halves = build(calls).half_names()
    for _ in range(draw.choice((0, 0, 1, 1, 2))):
        pattern = draw.choice(("*--*", draw.choice(halves), draw.choice(halves)))
        change = draw.choice(
            (
                {"rate": a_rate(draw)},
                {"delay": a_time(draw, 1e3, 2e7)},
                {"data_limit": a_size(draw, 20_000, 500_000)},
                {"ecn": draw.choice((True, False, ln.Ecn(ln.Size("20 kB"), ln.Size("80 kB"))))},
                {"trim": False},
                {"trim_victim": draw.choice(("arriving", "coin"))},
                {"control_share": 0.5},
            )
        )
        found.append(draft("override", pattern, **change))
    if sometimes(draw, 0.15):  # of the whole fabric: ports under PFC have no other discipline
        queue = draw.choice(("fifo", "codel", "fq", "fq_codel"))
        found.append(draft("override", "*--*", queue=queue, pfc=False))
    elif sometimes(draw, 0.05):
        found.append(draft("override", "*--*", queue="laggard_first"))
    return tuple(found)


# --- other ways to the same fabric ----------------------------------------------------------------
def planes_unlike(fabric: ln.Fabric, plan: Plan) -> bool:
    """Whether a plane's ways between the first two hosts are half as long again as another's."""
    crossed = _crossed(fabric, plan, fabric.payload.count)
    return max(crossed) > 1.5 * min(crossed)


def shortest_ps(fabric: ln.Fabric, plan: Plan) -> int:
    """How long a short packet takes between the first two hosts by the fastest plane."""
    return min(_crossed(fabric, plan, 100))


def _crossed(fabric: ln.Fabric, plan: Plan, size: int) -> list[int]:
    ways = LoneWays(plan)
    return [ways.of(0, 1, plane).crossing_ps(size) for plane in range(fabric.planes)]


def longest_ps(fabric: ln.Fabric, size: int) -> float:
    """Time of a frame of so many bytes on the slowest link of a host."""
    slowest = min(
        link.forward.rate.count for host in fabric.hosts for link in fabric.links_of(host)
    )
    return size * 8e12 / slowest


def longest_anywhere_ps(fabric: ln.Fabric, size: int) -> float:
    """Time of a frame of so many bytes on the slowest link of all, those between switches too."""
    halves = (half for link in fabric.all_links() for half in (link.forward, link.backward))
    return size * 8e12 / min(half.rate.count for half in halves)


def by_hand(calls: Calls) -> Calls:
    """The fabric of a builder node by node and link by link."""
    made = build(calls[:1])
    found = [draft("Fabric", made.name, payload=made.payload)]
    for host in made.hosts.values():
        several = host.ranks > 1
        found.append(
            draft(
                "add_host",
                host.name,
                role=host.role,
                ranks=host.ranks,
                local_link=host.local.rate if several else None,
                local_delay=host.local.delay if several else None,
            )
        )
    found += [draft("add_switch", each.name, plane=each.plane) for each in made.switches.values()]
    for link in made.all_links():
        assert link.forward == link.backward
        own = {
            name: getattr(link.forward, name)
            for name, usual in DEFAULTS.items()
            if name not in ("rate", "delay", "queue_options")
            and getattr(link.forward, name) != usual
        }
        found.append(
            draft(
                "add_link", link.a, link.b, rate=link.forward.rate, delay=link.forward.delay, **own
            )
        )
    return (*found, *calls[1:])


def through_networkx(calls: Calls) -> Calls:
    """The fabric of a builder as a graph that from_networkx reads."""
    made = build(calls[:1])
    pfc = {link.forward.pfc for link in made.all_links()} - {None}
    return (
        draft("from_networkx", calls[0], payload=made.payload),
        *(draft("override", "*--*", pfc=each) for each in pfc),
        *calls[1:],
    )


def _through_networkx(calls: Calls) -> ln.Fabric:
    made = build((calls[0].given[0],))
    graph = networkx.Graph(name=made.name)
    for host in made.hosts.values():
        several = host.ranks > 1
        graph.add_node(
            host.name,
            kind="host",
            role=host.role,
            ranks=host.ranks,
            **({"local_link": host.local.rate, "local_delay": host.local.delay} if several else {}),
        )
    for switch in made.switches.values():
        graph.add_node(switch.name, kind="switch", plane=switch.plane)
    for link in made.all_links():
        graph.add_edge(link.a, link.b, rate=link.forward.rate, delay=link.forward.delay)
    fabric = ln.from_networkx(graph, payload=calls[0].values["payload"])
    for call in calls[1:]:
        call.make(fabric)
    return fabric


def apart(calls: Calls) -> Calls:
    """The same with links that are up to 2 ns longer, each by its own, so that packets of two links
    hardly ever come in one picosecond."""
    halves = [half for link in build(calls).all_links() for half in link.halves]
    return (
        *calls,
        *(
            draft(
                "override", name, delay=ln.Time.of(half.delay.count + Random(name).randint(1, 2000))
            )
            for name, half in halves
        ),
    )


def renamed(calls: Any, names: dict[str, str]) -> Any:
    """With other names of nodes wherever one stands, alone or in the name of a link."""

    def change(leaf: Any) -> Any:
        if not isinstance(leaf, str):
            return leaf
        for mark in ("--", "->"):
            if mark in leaf:
                a, _, b = leaf.partition(mark)
                return f"{names.get(a, a)}{mark}{names.get(b, b)}"
        return names.get(leaf, leaf)

    return mapped(calls, change)
