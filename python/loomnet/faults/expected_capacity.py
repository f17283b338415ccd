"""Expected capacity under faults: what the damaged fabric can still carry of a job's traffic, as a
share of what the healthy one can, from volumes over links.

Traffic may be divided over all planes and over all shortest ways in each, as suits the job best.
So the share is in [0, 1] for one job and one more fault never raises it; no transport can do better
while its switches keep their routes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy

from loomnet.faults.timetable import LinkState
from loomnet.faults.ways import ways_of
from loomnet.jobs.edges import Edge
from loomnet.plans.model import Plan

if TYPE_CHECKING:
    from loomnet.faults.linear_program import Optimum

Numbers = numpy.ndarray

_DIGITS = 9  # that the linear programs are exact to
_FLOOR = 1 - 1e-11  # of a rate that was found, so that rounding leaves room for it
_FULL = 1 - 1e-9  # share of a rate at which nothing more fits
_PRICE = 1e-9  # smaller ones are within the solver's tolerance; those of all edges sum to 1
_MOST_LEVELS = 8  # a regular fabric has two or three
_OWN, _OTHER, _LINK, _NODE = range(4)  # what a constraint is of
NO_STATES: Mapping[int, LinkState] = {}


def edge_rates(
    plan: Plan,
    edges: Sequence[Edge],
    states: Mapping[int, LinkState] = NO_STATES,
    dead: frozenset[int] = frozenset(),
) -> list[float]:
    """Bits per second of each edge where all send at once: max-min fair shares, of edges and not of
    paths, each divided over its planes and shortest ways as suits all. An edge from a host to
    itself has a share of the host's local link and loads no other. Raises Unsolved."""
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
    solver of linear programs does not vouch for its result.

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
    # Here, since most runs have no faults and no use for its solver.
    from loomnet.faults.linear_program import Unsolved

    try:
        if of == "slowest":
            share = damaged.slowest() / healthy.slowest()
        else:
            share = damaged.carried(healthy.levels())
    except Unsolved:
        return float("nan")
    return round(min(max(share, 0.0), 1.0), _DIGITS)


def sum_capacity(
    plan: Plan,
    hosts: Sequence[int],
    states: Mapping[int, LinkState],
    dead: frozenset[int] = frozenset(),
) -> float:
    """As expected_capacity, of sums that switches make: in each plane a tree of all these hosts,
    the last of which it leads to, carries every sum once up and once down. So a plane is worth what
    its slowest host has there, in its slower direction; one that has lost a host is worth nothing.
    """
    if plan.panels or not hosts:
        return float("nan")
    after, before = (
        _Trees(plan, *changed).rate(hosts)
        for changed in ((states, dead), (NO_STATES, frozenset[int]()))
    )
    return round(min(after / before, 1.0), _DIGITS) if before > 0 else float("nan")


class _Trees:
    """What trees of a damaged fabric carry, in bits per second."""

    def __init__(self, plan: Plan, states: Mapping[int, LinkState], dead: frozenset[int]) -> None:
        self._plan, self._states, self._dead = plan, states, dead
        self._widest: dict[tuple[int, int], float] = {}

    def rate(self, hosts: Sequence[int]) -> float:
        """What the trees of all planes carry together between these hosts, in bits per second."""
        topology, total = self._plan.topology, 0.0
        for plane in range(self._plan.planes):
            if not all(topology.in_planes(host) for host in hosts):
                continue
            root = topology.leaf_of(hosts[-1], plane).node
            total += min(
                min(
                    self._slower(host, topology.leaf_of(host, plane).node),
                    self._way(topology.leaf_of(host, plane).node, root),
                )
                for host in hosts
            )
        return total

    def _way(self, node: int, root: int) -> float:
        """The rate of the widest of the shortest ways up to the tree's root: each switch has one
        way up, which sums and results share."""
        if node == root:
            return float("inf")
        if (node, root) not in self._widest:
            far = [
                self._plan.topology.far(node, port).node
                for port in self._plan.routes.ports_towards(node, root)
            ]
            self._widest[node, root] = max(
                (min(self._slower(node, each), self._way(each, root)) for each in far), default=0.0
            )
        return self._widest[node, root]

    def _slower(self, a: int, b: int) -> float:
        link = self._plan.topology.link_between(a, b)
        return min(
            left_of(self._plan, half, self._states, self._dead) for half in (2 * link, 2 * link + 1)
        )


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

    def __init__(
        self,
        plan: Plan,
        own: Sequence[Edge],
        others: Sequence[Edge],
        states: Mapping[int, LinkState],
        dead: frozenset[int],
    ) -> None:
        self._plan, self._states, self._dead = plan, states, dead
        counted = Counter([(edge, True) for edge in own] + [(edge, False) for edge in others])
        self.pairs = list(counted)
        self._times = numpy.array(list(counted.values()), dtype=float)
        self._is_own = numpy.array([mine for _, mine in self.pairs], dtype=bool)
        self._rows: list[Numbers] = []  # entries of the program, a block after the other
        self._columns: list[Numbers] = []
        self._values: list[Numbers] = []
        self._variables = 0
        self._limits: list[float] = [0.0] * len(self.pairs)  # a row for each edge comes first
        self._marks = [_OWN if mine else _OTHER for _, mine in self.pairs]
        self._link_row: dict[int, int] = {}
        self._left_by: dict[int, set[int]] = defaultdict(set)  # node: rows of links
        self._reached_by: dict[int, set[int]] = defaultdict(set)
        # Sets of edges with the most that those of one number can have together: the number of
        # each edge, -1: none, and the rate of each number.
        self._cuts: list[tuple[Numbers, Numbers]] = []
        self._ways = ways_of(plan, {half // 2 for half in states}, dead, self._left)
        self._unit = float(plan.links.column("rate_bps").max(initial=1))
        self._spread()

    # --- the program ------------------------------------------------------------------------------
    def _spread(self) -> None:
        plan, topology = self._plan, self._plan.topology
        ends = numpy.array([edge for edge, _ in self.pairs])
        within = ends[:, 0] == ends[:, 1]
        local = [
            self._capacity(-1 - host, plan.hosts[host].local_rate_bps)
            for host in ends[within, 0].tolist()
        ]
        self._add([numpy.flatnonzero(within), numpy.array(local, dtype=int)], [-1.0, 1.0])
        hosts, place = numpy.unique(ends, return_inverse=True)
        joined = numpy.array([topology.in_planes(host) for host in hosts.tolist()])
        source, destination = place.reshape(ends.shape).T
        across = ~within & joined[source] & joined[destination]
        rates = numpy.zeros((2, len(hosts)))  # of all planes, out of a host and into it
        leaves = numpy.full((plan.planes, len(hosts)), -1)
        for plane in range(plan.planes):
            # Of each host: the rows of its two directions in this plane, and its leaf.
            up, down = numpy.full((2, len(hosts)), -1)
            leaf = leaves[plane]
            for at in numpy.flatnonzero(joined).tolist():
                host = int(hosts[at])
                link, leaf[at] = topology.ports[host][plane], topology.leaf_of(host, plane).node
                # The direction that leaves the host; the other one is numbered next to it.
                half = 2 * link + (topology.ends[link][0].node != host)
                up[at], down[at] = self._half(half), self._half(half ^ 1)
                rates[:, at] += [
                    self._limits[row] if row >= 0 else 0.0 for row in (up[at], down[at])
                ]
            number = numpy.flatnonzero(across & (up[source] >= 0) & (down[destination] >= 0))
            first, last = leaf[source[number]], leaf[destination[number]]
            self._add(
                [number, up[source[number]], down[destination[number]], self._between(first, last)],
                [-1.0, 1.0, 1.0, 1.0],
            )
        self._cuts = [
            (numpy.where(across, end, -1), rate)
            for end, rate in zip((source, destination), rates, strict=True)
        ]
        self._cuts += self._leaf_cuts(leaves, source, destination, across)

    def _leaf_cuts(
        self, leaves: Numbers, source: Numbers, destination: Numbers, across: Numbers
    ) -> list[tuple[Numbers, Numbers]]:
        """As _cuts, of what leaves the leaves of a host, which are those of all hosts beside it,
        and of what comes to them."""
        beyond = across & (leaves[:, source] != leaves[:, destination]).all(axis=0)
        of_leaves, group = numpy.unique(leaves, axis=1, return_inverse=True)
        found = []
        for end, rows in ((source, self._left_by), (destination, self._reached_by)):
            rate = [
                sum(self._limits[row] for leaf in each for row in rows.get(leaf, ()))
                for each in of_leaves.T.tolist()
            ]
            found.append((numpy.where(beyond, group.reshape(-1)[end], -1), numpy.array(rate)))
        return found

    def _between(self, first: Numbers, last: Numbers) -> Numbers:
        """The row of what comes to each leaf `first` for the leaf `last`; -1 where it is there."""
        pairs, which = numpy.unique(numpy.stack([first, last], axis=1), axis=0, return_inverse=True)
        towards: dict[int, dict[int, int]] = {}  # leaf: row of each switch
        hops: list[tuple[int, int, int]] = []  # rows of a switch, of a link from it, of its far end
        rows = [
            self._reach(towards.setdefault(there, {}), hops, here, there) if here != there else -1
            for here, there in pairs.tolist()
        ]
        if hops:
            self._add(numpy.array(hops).T, [-1.0, 1.0, 1.0])
        return numpy.array(rows, dtype=int)[which.reshape(-1)]

    def _reach(
        self, row_of: dict[int, int], hops: list[tuple[int, int, int]], first: int, last: int
    ) -> int:
        """The row by which all that comes to the switch `first` leaves it towards the leaf `last`,
        on shortest ways of the healthy fabric."""
        todo = [] if first in row_of else [first]
        if todo:
            row_of[first] = self._row(0.0, _NODE)
        while todo:
            node = todo.pop()
            for leaving, times, far in self._ways.onward(node, last):
                half = self._half(leaving, times)
                if half < 0:
                    continue
                self._left_by[node].add(half)
                self._reached_by[far].add(half)
                if far != last and far not in row_of:
                    row_of[far] = self._row(0.0, _NODE)
                    todo.append(far)
                hops.append((row_of[node], half, row_of[far] if far != last else -1))
        return row_of[first]

    def _alive(self, half: int) -> bool:
        state = self._states.get(half)
        if state is not None and not state.up:
            return False
        if not self._dead:
            return True
        spec = self._plan.half(half)
        return not self._dead & {spec.source, spec.target}

    def _half(self, half: int, times: int = 1) -> int:
        """The row of what so many directions of links like this one carry together; -1 where they
        are down."""
        if half in self._link_row:
            return self._link_row[half]
        if not self._alive(half):
            return -1
        return self._capacity(half, times * self._left(half))

    def _left(self, half: int) -> float:
        return left_of(self._plan, half, self._states, self._dead)

    def _capacity(self, link: int, rate_bps: float) -> int:
        if link not in self._link_row:
            self._link_row[link] = self._row(rate_bps / self._unit, _LINK)
        return self._link_row[link]

    def _row(self, limit: float, mark: int) -> int:
        self._limits.append(limit)
        self._marks.append(mark)
        return len(self._limits) - 1

    def _add(self, rows: Sequence[Numbers] | Numbers, values: Sequence[float]) -> None:
        """Variables, each with these values in its row of each array; row -1 is none."""
        block = numpy.array(rows)
        entry, at = numpy.nonzero(block >= 0)
        self._rows.append(block[entry, at])
        self._columns.append(self._variables + at)
        self._values.append(numpy.array(values)[entry])
        self._variables += block.shape[1]

    # --- optima -----------------------------------------------------------------------------------
    def _maximize(self, rates: Numbers, floors: Numbers, limits: Numbers | None = None) -> Optimum:
        """The largest rate that all edges of the mask `rates` can have beyond their `floors`, where
        every edge of the run has its floor; with `limits`, the largest sum of what each of those
        edges has beyond its floor, up to its limit."""
        from loomnet.faults.linear_program import Program, maximize

        counted = numpy.flatnonzero(rates)
        variables = self._variables
        bounds = numpy.array(self._limits)
        marks = numpy.array(self._marks)
        bounds[: len(self.pairs)] = -floors * self._times
        rows, columns, values = [*self._rows, counted], list(self._columns), list(self._values)
        if limits is None:
            columns.append(numpy.full(len(counted), variables))
            values.append(self._times[counted])
            variables += 1
        else:
            # A variable for each such edge, and a row that is its limit.
            own = variables + numpy.arange(len(counted))
            rows.append(len(bounds) + numpy.arange(len(counted)))
            columns += [own, own]
            values += [numpy.ones(len(counted))] * 2
            bounds = numpy.r_[bounds, (limits * self._times)[counted]]
            marks = numpy.r_[marks, numpy.full(len(counted), _OWN)]
            variables += len(counted)
        target = numpy.zeros(variables)
        target[self._variables :] = 1
        program = Program(
            numpy.concatenate(rows),
            numpy.concatenate(columns),
            numpy.concatenate(values),
            bounds,
            marks,
            variables,
        )
        return maximize(program, target)

    def slowest(self) -> float:
        """The rate of the job's slowest edge, all edges of the run sending."""
        return min(
            level
            for level, own in zip(self.levels(until_own=True), self._is_own, strict=True)
            if own
        )

    def levels(self, *, until_own: bool = False) -> list[float]:
        """Max-min fair rate of each edge: the common rate of all grows until it is the most that
        some can have, then that of the others, and so on _MOST_LEVELS times: edges that could have
        still more have the last rate. `until_own`: up to the first of the job's own, however often.
        """
        edges = len(self.pairs)
        found = numpy.zeros(edges)
        grows = numpy.ones(edges, dtype=bool)
        while grows.any() and (until_own or len(set(found.tolist())) <= _MOST_LEVELS):
            best = self._maximize(grows, numpy.where(grows, 0.0, found * _FLOOR))
            # A program has prices of one bottleneck where several are full at once.
            found[grows] = best.value
            held = grows & ((best.prices[:edges] > _PRICE) | self._in_full_cuts(found))
            if not held.any():
                break
            grows &= ~held
            if until_own and (held & self._is_own).any():
                break
        return (found * self._unit).tolist()

    def _in_full_cuts(self, rates: Numbers) -> Numbers:
        full = numpy.zeros(len(rates), dtype=bool)
        for number, most in self._cuts:
            inside = number >= 0
            load = numpy.bincount(number[inside], (rates * self._times)[inside], len(most))
            full[inside] |= (load >= most * _FULL)[number[inside]]
        return full

    def carried(self, healthy: Sequence[float]) -> float:
        """What fits of the rates `healthy` of the job's own edges, as a share of their sum. Other
        jobs' edges have their fair rates."""
        limits, own = numpy.array(healthy) / self._unit, self._is_own
        floors = numpy.zeros(len(own))
        if not own.all():
            floors = numpy.where(own, 0.0, numpy.array(self.levels()) / self._unit * _FLOOR)
        best = self._maximize(own, floors, limits)
        return best.value / float((limits * self._times)[own].sum())
