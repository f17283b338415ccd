"""Expected capacity under faults, by max-min from the fabric: what a transport that sprays over all
planes and leaves bad paths alone can still carry, as a share of the healthy fabric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from loomnet.faults.timetable import LinkState
from loomnet.jobs.edges import Edge
from loomnet.plans.model import Plan

Subflow = tuple[int, tuple[int, ...]]  # edge index, half-links crossed


def max_min(subflows: list[Subflow], capacity: Mapping[int, float]) -> list[float]:
    """Max-min fair rate of each subflow by progressive filling; units are those of `capacity`."""
    left = dict(capacity)
    rate = [0.0] * len(subflows)
    active = set(range(len(subflows)))
    while active:
        load: dict[int, int] = {}
        for i in active:
            for half in subflows[i][1]:
                load[half] = load.get(half, 0) + 1
        step = min(left[half] / count for half, count in load.items())
        for i in active:
            rate[i] += step
        full = set()
        for half, count in load.items():
            left[half] -= step * count
            if left[half] <= 1e-9 * max(capacity[half], 1.0):
                full.add(half)
        active = {i for i in active if full.isdisjoint(subflows[i][1])}
    return rate


def edge_rates(
    plan: Plan,
    edges: list[Edge],
    states: Mapping[int, LinkState] | None = None,
    dead: frozenset[int] = frozenset(),
) -> list[float]:
    """Bits per second of each edge, sprayed over its planes and paths.

    A path over a link that is down, or that loses packets while the same plane has a clean path, is
    left alone; where no clean path is left (a NIC link), loss costs its share of the rate. An edge
    from a host to itself has a share of the host's local link and loads no other.
    """
    states = states or {}
    capacity: dict[int, float] = {}
    for link in plan.links:
        for half in (link.forward, link.backward):
            state = states.get(half.number, LinkState())
            capacity[half.number] = half.rate_bps * state.share * (1 - state.loss)
    subflows: list[Subflow] = []
    for index, (source, destination) in enumerate(edges):
        if source == destination:
            local = -1 - source  # no half-link has a number below 0
            capacity[local] = plan.hosts[source].local_rate_bps
            subflows.append((index, (local,)))
            continue
        for plane in range(plan.planes):
            routes = [
                route
                for route in _routes(plan, source, destination, plane)
                if all(_up(plan, half, states, dead) for half in route)
            ]
            clean = [
                route
                for route in routes
                if not any(half in states and states[half].loss > 0 for half in route)
            ]
            subflows += [(index, route) for route in clean or routes]
    rates = [0.0] * len(edges)
    for (index, _), rate in zip(subflows, max_min(subflows, capacity), strict=True):
        rates[index] += rate
    return rates


def expected_capacity(
    plan: Plan,
    edges: list[Edge],
    states: Mapping[int, LinkState],
    dead: frozenset[int] = frozenset(),
    *,
    of: Literal["slowest", "mean"] = "slowest",
    others: Sequence[Edge] = (),
) -> float:
    """Share of the healthy capacity left to this traffic. `slowest`: of a synchronous collective,
    which runs at the pace of its slowest edge; `mean`: of independent flows. `others`: edges of the
    run's other jobs, taken to send all the time. NaN without edges, and where a panel's circuits,
    which change as the run goes on, decide what a path is.

    A mean is over the edges between hosts: what local links carry, which is far more and which no
    fault touches, would hide what those lose."""
    if not edges or plan.panels:
        return float("nan")
    if of == "mean":
        edges = [edge for edge in edges if edge[0] != edge[1]]
        if not edges:
            return 1.0
    together = [*edges, *others]
    after = edge_rates(plan, together, states, dead)[:len(edges)]
    before = edge_rates(plan, together)[:len(edges)]
    if of == "slowest":
        return min(after) / min(before)
    return sum(after) / sum(before)


def _routes(plan: Plan, source: int, destination: int, plane: int) -> list[tuple[int, ...]]:
    """Half-links of every path the row template of this pair can name."""
    addresses, topology = plan.addresses, plan.topology
    first = topology.leaf_of(source, plane).node
    last = topology.leaf_of(destination, plane).node
    paths = addresses.paths(source, destination, plane)
    chains = [addresses.switches_on(first, last, uplink) for uplink in paths.uplinks]
    return [
        tuple(
            _half(plan, a, b) for a, b in zip([source, *chain], [*chain, destination], strict=True)
        )
        for chain in chains
    ]


def _half(plan: Plan, source: int, target: int) -> int:
    link = plan.topology.link_between(source, target)
    return 2 * link + (plan.topology.ends[link][0].node != source)


def _up(plan: Plan, half: int, states: Mapping[int, LinkState], dead: frozenset[int]) -> bool:
    spec = plan.half(half)
    return (half not in states or states[half].up) and not dead & {spec.source, spec.target}
