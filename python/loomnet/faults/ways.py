"""By which links traffic goes on from a switch to a leaf in the healthy fabric, for the linear
programs of expected capacity. Switches of a regular Clos that play the same part are one there:
of the published fabric's 256 uplinks of a leaf those that nothing has happened to are one link with
the capacity of them all. An optimum in which alike switches carry alike always exists."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

from loomnet.fabrics.clos_shape import Clos
from loomnet.fabrics.topology import ClosTopology
from loomnet.plans.model import Plan


class Hop(NamedTuple):
    """`half`: a direction of a link, which stands for `times` directions like it."""

    half: int
    times: int
    far: int  # node


class Ways(Protocol):
    def onward(self, node: int, last: int) -> Iterator[Hop]:
        """What a switch sends to the leaf `last` leaves it by these."""
        ...


def ways_of(
    plan: Plan, touched: Iterable[int], dead: frozenset[int], left: Callable[[int], float]
) -> Ways:
    """`touched`: links with a state of their own. `left`: what a direction of a link carries."""
    topology = plan.topology
    if isinstance(topology, ClosTopology):
        links = filter(topology.present, {*topology.fabric.own, *touched})
        return _Columns(topology.shape, links, dead, left)
    return _EveryLink(plan)


class _EveryLink:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._around: dict[int, dict[int, tuple[int, int]]] = {}

    def onward(self, node: int, last: int) -> Iterator[Hop]:
        topology = self._plan.topology
        if node not in self._around:
            self._around[node] = {
                port: (link, far) for port, link, far in topology.neighbours(node)
            }
        for port in self._plan.routes.ports_towards(node, last):
            link, far = self._around[node][port]
            yield Hop(2 * link + (topology.ends[link][0].node != node), 1, far)


class _Columns:
    """A column of a plane: the switches above its leaves that the uplinks of one number lead to, a
    T1 in each pod and the cores above those. Columns are alike whose links and switches are; so
    are cores of one column."""

    def __init__(
        self,
        shape: Clos,
        touched: Iterable[int],
        dead: frozenset[int],
        left: Callable[[int], float],
    ) -> None:
        self._shape = shape
        changed: dict[tuple[int, int], dict[tuple[int, ...], float]] = defaultdict(dict)
        for link in touched:
            if (tier := shape.link_tier(link)) > 0:
                (low, _), (high, _) = shape.ends(link)
                _, plane, above = shape.place(high)
                column, up = (
                    (above % shape.aggs_per_pod, -1)
                    if tier == 1
                    else divmod(above, shape.cores_per_agg)
                )
                below = shape.place(low)[2]
                at = below if tier == 1 else below // shape.aggs_per_pod
                for way in (0, 1):
                    changed[plane, column][up, at, way] = left(2 * link + way)
        for node in dead:
            tier, plane, index = shape.place(node)
            if tier == "agg":
                pod, column = divmod(index, shape.aggs_per_pod)
                changed[plane, column][-1, pod, 2] = 0
            elif tier == "core":
                column, up = divmod(index, shape.cores_per_agg)
                changed[plane, column][up, -1, 2] = 0
        # Of each plane the first column of each kind, with how many are like it; of each of those
        # the same of its cores.
        self._columns = [
            _alike(
                shape.aggs_per_pod,
                lambda column, plane=plane: frozenset(changed.get((plane, column), {}).items()),
            )
            for plane in range(shape.planes)
        ]
        self._cores = {
            (plane, column): _alike(shape.cores_per_agg, _by_core(changed.get((plane, column), {})))
            for plane, columns in enumerate(self._columns)
            for column in columns
        }

    def onward(self, node: int, last: int) -> Iterator[Hop]:
        shape = self._shape
        tier, plane, index = shape.place(node)
        target = shape.place(last)[2]
        pod = target // shape.leaves_per_pod
        if tier == "leaf":
            first = shape.agg(plane, index // shape.leaves_per_pod * shape.aggs_per_pod)
            for column, times in self._columns[plane].items():
                yield Hop(2 * shape.leaf_link(plane, index, column), times, first + column)
        elif tier == "agg":
            own_pod, column = divmod(index, shape.aggs_per_pod)
            times = self._columns[plane][column]
            if own_pod == pod:
                yield Hop(2 * shape.leaf_link(plane, target, column) + 1, times, last)
                return
            first = shape.core(plane, column * shape.cores_per_agg)
            for up, cores in self._cores[plane, column].items():
                yield Hop(2 * shape.agg_link(plane, index, up), times * cores, first + up)
        else:
            column, up = divmod(index, shape.cores_per_agg)
            agg = pod * shape.aggs_per_pod + column
            times = self._columns[plane][column] * self._cores[plane, column][up]
            yield Hop(2 * shape.agg_link(plane, agg, up) + 1, times, shape.agg(plane, agg))


def _by_core(changed: Mapping[tuple[int, ...], float]) -> Callable[[int], object]:
    by_core: dict[int, set[tuple[tuple[int, ...], float]]] = defaultdict(set)
    for (up, *at), left in changed.items():
        by_core[up].add((tuple(at), left))
    return lambda up: frozenset(by_core.get(up, ()))


def _alike(count: int, kind: Callable[[int], object]) -> dict[int, int]:
    """The first number of each kind, and how many there are of it."""
    first: dict[object, int] = {}
    found: dict[int, int] = defaultdict(int)
    for number in range(count):
        found[first.setdefault(kind(number), number)] += 1
    return dict(found)
