"""Expected capacity under faults: what the damaged fabric can still carry of a job's traffic, as a
share of what the healthy one can, from volumes over links.

Traffic may be divided over all planes and over all shortest ways in each, as suits the job best.
So the share is in [0, 1] for one job and one more fault never raises it; no transport can do better
while its switches keep their routes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy

from loomnet.faults.linear_program import Optimum, Program, TooLarge, maximize
from loomnet.faults.timetable import LinkState
from loomnet.jobs.edges import Edge
from loomnet.plans.model import Plan

_DIGITS = 9  # that the linear programs are exact to
_FLOOR = 1 - 1e-11  # of a rate that was found, so that rounding leaves room for it
_MOST_LEVELS = 8  # a regular fabric has two or three
_OWN, _OTHER, _LINK, _NODE, _WHOLE = range(5)  # what a constraint is of
NO_STATES: Mapping[int, LinkState] = {}


def edge_rates(
    plan: Plan,
    edges: Sequence[Edge],
    states: Mapping[int, LinkState] = NO_STATES,
    dead: frozenset[int] = frozenset(),
) -> list[float]:
    """Bits per second of each edge where all send at once: max-min fair shares, of edges and not of
    paths, each divided over its planes and shortest ways as suits all. An edge from a host to
    itself has a share of the host's local link and loads no other. Raises TooLarge."""
    traffic = _Traffic(plan, edges, (), states, dead)
    rate_of = dict(zip(traffic.pairs, traffic.levels(), strict=True))
    return [rate_of[edge, True] for edge in edges]


def expected_capacity(
    plan: Plan,
    edges: Sequence[Edge],
    states: Mapping[int, LinkState],
    dead: frozenset[int] = frozenset(),
    *,
    of: Literal["slowest", "mean"] = "slowest",
    others: Sequence[Edge] = (),
) -> float:
    """Share of the healthy capacity left to this traffic. `slowest`: of a synchronous collective,
    whose edges all carry equal volumes: before over after of the time at the link that is fullest
    for its rate. `mean`: of independent flows, what fits of the rates that they have in the healthy
    fabric. `others`: edges of the run's other jobs, taken to send all the time. NaN without edges,
    where a panel's circuits, which change as the run goes on, decide what a path is, and where the
    traffic of a large fabric has too many parts of which no two are alike.

    A mean is over the edges between hosts: what local links carry, which is far more and which no
    fault touches, would hide what those lose."""
    if not edges or plan.panels:
        return float("nan")
    if of == "mean":
        edges = [edge for edge in edges if edge[0] != edge[1]]
        if not edges:
            return 1.0
    healthy = _Traffic(plan, edges, others, NO_STATES, frozenset())
    damaged = _Traffic(plan, edges, others, states, dead)
    try:
        if of == "slowest":
            share = damaged.slowest() / healthy.slowest()
        else:
            share = damaged.carried(healthy.levels())
    except TooLarge:
        return float("nan")
    return round(min(max(share, 0.0), 1.0), _DIGITS)


def sum_capacity(plan: Plan, hosts: Sequence[int], states: Mapping[int, LinkState],
                 dead: frozenset[int] = frozenset()) -> float:
    """As expected_capacity, of sums that switches make: in each plane a tree of all these hosts,
    the last of which it leads to, carries every sum once up and once down. So a plane is worth what
    its slowest host has there, in its slower direction; one that has lost a host is worth nothing.
    """
    if plan.panels or not hosts:
        return float("nan")
    after, before = (_Trees(plan, *changed).rate(hosts)
                     for changed in ((states, dead), (NO_STATES, frozenset[int]())))
    return round(min(after / before, 1.0), _DIGITS) if before > 0 else float("nan")


class _Trees:
    """What trees of a damaged fabric carry, in bits per second."""

    def __init__(self, plan: Plan, states: Mapping[int, LinkState], dead: frozenset[int]) -> None:
        self._plan, self._states, self._dead = plan, states, dead
        self._widest: dict[tuple[int, int], float] = {}

    def rate(self, hosts: Sequence[int]) -> float:
        """Of the trees of all planes together."""
        topology, total = self._plan.topology, 0.0
        for plane in range(self._plan.planes):
            if not all(topology.in_planes(host) for host in hosts):
                continue
            root = topology.leaf_of(hosts[-1], plane).node
            total += min(min(self._slower(host, topology.leaf_of(host, plane).node),
                             self._way(topology.leaf_of(host, plane).node, root))
                         for host in hosts)
        return total

    def _way(self, node: int, root: int) -> float:
        """Of the widest shortest way: each switch has one way up, which sums and results share."""
        if node == root:
            return float("inf")
        if (node, root) not in self._widest:
            far = [self._plan.topology.far(node, port).node
                   for port in self._plan.routes.ports_towards(node, root)]
            self._widest[node, root] = max(
                (min(self._slower(node, each), self._way(each, root)) for each in far), default=0.0)
        return self._widest[node, root]

    def _slower(self, a: int, b: int) -> float:
        link = self._plan.topology.link_between(a, b)
        return min(left_of(self._plan, half, self._states, self._dead)
                   for half in (2 * link, 2 * link + 1))


def left_of(plan: Plan, half: int, states: Mapping[int, LinkState], dead: frozenset[int]) -> float:
    """Bits per second that one direction of a link still delivers."""
    spec, state = plan.half(half), states.get(half, LinkState())
    if not state.up or dead & {spec.source, spec.target}:
        return 0.0
    return spec.rate_bps * state.share * (1 - state.loss)


class _Traffic:
    """Edges over a fabric as a linear program. A variable is what an edge sends into a plane, or
    what one direction of a link carries towards one leaf. Rates are in units of the fastest link.
    """

    def __init__(self, plan: Plan, own: Sequence[Edge], others: Sequence[Edge],
                 states: Mapping[int, LinkState], dead: frozenset[int]) -> None:
        self._plan, self._states, self._dead = plan, states, dead
        counted = Counter([(edge, True) for edge in own] + [(edge, False) for edge in others])
        self.pairs = list(counted)
        self._times = numpy.array(list(counted.values()), dtype=float)
        self._is_own = numpy.array([mine for _, mine in self.pairs])
        self._rows: list[int] = []
        self._columns: list[int] = []
        self._values: list[float] = []
        self._variables = 0
        self._limits: list[float] = [0.0] * len(self.pairs)  # a row for each edge comes first
        self._marks = [_OWN if mine else _OTHER for _, mine in self.pairs]
        self._link_row: dict[int, int] = {}
        self._around: dict[int, dict[int, tuple[int, int]]] = {}
        self._unit = float(max((max(link.forward.rate_bps, link.backward.rate_bps)
                                for link in plan.links), default=1))
        self._spread()

    # --- the program ------------------------------------------------------------------------------
    def _spread(self) -> None:
        plan = self._plan
        towards: dict[tuple[int, int], dict[int, int]] = {}  # plane and leaf: row of each switch
        for number, ((source, destination), _) in enumerate(self.pairs):
            if source == destination:
                rate = plan.hosts[source].local_rate_bps
                self._variable([(number, -1.0), (self._capacity(-1 - source, rate), 1.0)])
                continue
            if not plan.joined(source, destination):
                continue
            for plane in range(plan.planes):
                up = self._leaving(source, self._neighbours(source)[plane][0])
                down = self._leaving(destination, self._neighbours(destination)[plane][0]) ^ 1
                first, last = (plan.topology.leaf_of(host, plane).node
                               for host in (source, destination))
                if not (self._alive(up) and self._alive(down)):
                    continue
                entries = [(number, -1.0), (self._half(up), 1.0), (self._half(down), 1.0)]
                if first != last:
                    row_of = towards.setdefault((plane, last), {})
                    entries.append((self._reach(row_of, first, last), 1.0))
                self._variable(entries)

    def _reach(self, row_of: dict[int, int], first: int, last: int) -> int:
        """The row by which all that comes to the switch `first` leaves it towards the leaf `last`,
        on shortest ways of the healthy fabric."""
        todo = [] if first in row_of else [first]
        if todo:
            row_of[first] = self._row(0.0, _NODE)
        while todo:
            node = todo.pop()
            for port in self._plan.routes.ports_towards(node, last):
                link, far = self._neighbours(node)[port]
                half = self._leaving(node, link)
                if not self._alive(half):
                    continue
                entries = [(row_of[node], -1.0), (self._half(half), 1.0)]
                if far != last:
                    if far not in row_of:
                        row_of[far] = self._row(0.0, _NODE)
                        todo.append(far)
                    entries.append((row_of[far], 1.0))
                self._variable(entries)
        return row_of[first]

    def _neighbours(self, node: int) -> dict[int, tuple[int, int]]:
        if node not in self._around:
            self._around[node] = {port: (link, far) for port, link, far
                                  in self._plan.topology.neighbours(node)}
        return self._around[node]

    def _leaving(self, node: int, link: int) -> int:
        """The direction of a link that leaves this end of it; the other one is numbered next to
        it."""
        return 2 * link + (self._plan.topology.ends[link][0].node != node)

    def _alive(self, half: int) -> bool:
        state = self._states.get(half)
        if state is not None and not state.up:
            return False
        if not self._dead:
            return True
        spec = self._plan.half(half)
        return not self._dead & {spec.source, spec.target}

    def _half(self, half: int) -> int:
        return self._capacity(half, left_of(self._plan, half, self._states, self._dead))

    def _capacity(self, link: int, rate_bps: float) -> int:
        if link not in self._link_row:
            self._link_row[link] = self._row(rate_bps / self._unit, _LINK)
        return self._link_row[link]

    def _row(self, limit: float, mark: int) -> int:
        self._limits.append(limit)
        self._marks.append(mark)
        return len(self._limits) - 1

    def _variable(self, entries: Iterable[tuple[int, float]]) -> None:
        for row, value in entries:
            self._rows.append(row)
            self._columns.append(self._variables)
            self._values.append(value)
        self._variables += 1

    # --- optima -----------------------------------------------------------------------------------
    def _maximize(self, rates: numpy.ndarray, limits: numpy.ndarray, floors: numpy.ndarray,
                  *, sum_of: bool = False) -> Optimum:
        """The largest common rate of the edges in the mask `rates`, or the sum of what they carry,
        where each carries `floors` at least and, of a sum, `limits` at most."""
        edges, first = len(self.pairs), self._variables
        common, whole = first, first + 1
        each = numpy.arange(edges)
        rows, columns = list(self._rows), list(self._columns)
        values, bounds, marks = list(self._values), list(self._limits), list(self._marks)

        def add(to_rows: numpy.ndarray, column: int, with_values: numpy.ndarray) -> None:
            rows.extend(to_rows.tolist())
            columns.extend([column] * len(to_rows))
            values.extend(with_values.tolist())

        # Floors are reached where the variable `whole` is 1, which it is in the first optimum.
        kept = floors > 0
        add(each[kept], whole, (floors * self._times)[kept])
        add(numpy.array([len(bounds)]), whole, numpy.ones(1))
        bounds.append(1.0)
        marks.append(_WHOLE)
        target = numpy.zeros(first + 2)
        if sum_of:
            # A variable for each edge whose sum counts: what it carries, up to its limit.
            counted = each[rates]
            target = numpy.zeros(first + 2 + len(counted))
            for at, edge in enumerate(counted.tolist()):
                add(numpy.array([edge, len(bounds)]), first + 2 + at, numpy.ones(2))
                bounds.append(float(limits[edge] * self._times[edge]))
                marks.append(_OWN)
                target[first + 2 + at] = 1
            add(numpy.array([len(bounds)]), common, numpy.ones(1))  # not used: 0 in any optimum
            bounds.append(0.0)
            marks.append(_WHOLE)
        else:
            add(each[rates], common, self._times[rates])
            target[common] = 1
        begin = numpy.zeros(len(target))
        begin[whole] = 1
        program = Program(numpy.array(rows), numpy.array(columns), numpy.array(values),
                          numpy.array(bounds), numpy.array(marks), len(target))
        return maximize(program, begin, target)

    def slowest(self) -> float:
        """The rate of the job's slowest edge, all edges of the run sending."""
        return min(level for level, own in zip(self.levels(until_own=True), self._is_own,
                                               strict=True) if own)

    def levels(self, *, until_own: bool = False) -> list[float]:
        """Max-min fair rate of each edge: the common rate of all grows until it is the most that
        some can have, then that of the others, and so on _MOST_LEVELS times: edges that could have
        still more have the last rate. `until_own`: up to the first of the job's own, however often.
        """
        edges = len(self.pairs)
        found = numpy.zeros(edges)
        grows = numpy.ones(edges, dtype=bool)
        none = numpy.zeros(edges)
        while grows.any() and (until_own or len(set(found.tolist())) <= _MOST_LEVELS):
            best = self._maximize(grows, none, numpy.where(grows, 0.0, found * _FLOOR))
            held = grows & (best.prices[:edges] > 1e-9 / edges)
            found[grows] = best.value
            if not held.any():
                break
            grows &= ~held
            if until_own and (held & self._is_own).any():
                break
        return (found * self._unit).tolist()

    def carried(self, healthy: Sequence[float]) -> float:
        """What fits of the rates `healthy` of the job's own edges, as a share of their sum. Other
        jobs' edges have their fair rates."""
        limits, own = numpy.array(healthy) / self._unit, self._is_own
        floors = numpy.zeros(len(own))
        if not own.all():
            floors = numpy.where(own, 0.0, numpy.array(self.levels()) / self._unit * _FLOOR)
        best = self._maximize(own, limits, floors, sum_of=True)
        return best.value / float((limits * self._times)[own].sum())
