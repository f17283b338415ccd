"""Every shortest way between two leaves of a plane, found in the graph itself: what a sender that
writes its packets' ways may choose from, whatever built the fabric."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from loomnet.base.errors import AddressError
from loomnet.fabrics.topology import Topology

Chain = tuple[int, ...]  # nodes of switches
MOST_WAYS = 2048  # between two leaves in a plane: eleven bits of an entropy value number them


class PathSets:
    """The switches between two leaves, of every shortest way, numbered alike in both directions.

    Leaves with the same neighbours at the same ports are alike: a way between two of them differs
    from another such way in its ends alone. So a fabric's ways are as many as those between its
    pods, and each is kept once."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._around: dict[int, tuple[int, ...]] = {}  # switches next to a switch, in port order
        self._kind_of: dict[tuple[int, ...], int] = {}  # by the neighbours of a leaf
        self._near: list[tuple[int, ...]] = []  # of each kind
        self._hops: dict[int, dict[int, int]] = {}  # of a kind: hops to a neighbour of its leaves
        self._between: dict[tuple[int, int], tuple[Chain, ...]] = {}

    def switches(self, first: int, last: int) -> int:
        """How many switches the ways from `first` to `last` cross, both of them too."""
        if first == last:
            return 1
        if last in self._next_to(first):
            return 2
        hops = self._hops_to(self._kind(last))
        return 3 + min(hops[node] for node in self._next_to(first) if node in hops)

    def kinds(self, leaves: Iterable[int]) -> list[tuple[int, int]]:
        """A pair of leaves for each two kinds of leaves among these."""
        one: dict[int, list[int]] = {}
        for leaf in leaves:
            known = one.setdefault(self._kind(leaf), [])
            if len(known) < 2 and leaf not in known:
                known.append(leaf)
        firsts = [known[0] for known in one.values()]
        pairs = [(a, b) for at, a in enumerate(firsts) for b in firsts[at + 1 :]]
        return pairs + [(known[0], known[1]) for known in one.values() if len(known) > 1]

    def between(self, first: int, last: int) -> tuple[Chain, ...]:
        """The switches between two leaves, without the two, of each way. Raises AddressError where
        the ways are more than an entropy value can number."""
        if first == last or last in self._next_to(first):
            return ((),)
        here, there = self._kind(first), self._kind(last)
        key = min(here, there), max(here, there)
        if key not in self._between:
            ends = (first, last) if here <= there else (last, first)
            self._between[key] = self._found(*ends)
        found = self._between[key]
        return found if here <= there else self._backwards(key)

    def _backwards(self, key: tuple[int, int]) -> tuple[Chain, ...]:
        turned = key[1], key[0]
        if turned not in self._between:
            self._between[turned] = tuple(chain[::-1] for chain in self._between[key])
        return self._between[turned]

    def _next_to(self, switch: int) -> tuple[int, ...]:
        if switch not in self._around:
            topology = self._topology
            self._around[switch] = tuple(
                far
                for _, _, far in topology.neighbours(switch)
                if not topology.is_host(far) and not topology.is_panel(far)
            )
        return self._around[switch]

    def _kind(self, leaf: int) -> int:
        near = self._next_to(leaf)
        if near not in self._kind_of:
            self._kind_of[near] = len(self._near)
            self._near.append(near)
        return self._kind_of[near]

    def _hops_to(self, kind: int) -> dict[int, int]:
        """Of each switch of the plane: hops to the nearest neighbour of this kind's leaves."""
        if kind not in self._hops:
            hops = dict.fromkeys(self._near[kind], 0)
            todo = deque(hops)
            while todo:
                node = todo.popleft()
                for far in self._next_to(node):
                    if far not in hops:
                        hops[far] = hops[node] + 1
                        todo.append(far)
            self._hops[kind] = hops
        return self._hops[kind]

    def _found(self, first: int, last: int) -> tuple[Chain, ...]:
        hops = self._hops_to(self._kind(last))
        reached = [node for node in self._next_to(first) if node in hops]
        least = min(hops[node] for node in reached)
        count: dict[int, int] = {}

        def ways(node: int) -> int:
            """From here on."""
            if node not in count:
                count[node] = (
                    1
                    if hops[node] == 0
                    else sum(
                        ways(far) for far in self._next_to(node) if hops.get(far) == hops[node] - 1
                    )
                )
            return count[node]

        starts = [node for node in reached if hops[node] == least]
        total = sum(ways(node) for node in starts)
        if total > MOST_WAYS:
            names = self._topology.names
            raise AddressError(
                f"{total} shortest ways lead from {names[first]} to {names[last]}, and an entropy "
                f'value numbers {MOST_WAYS}; give transport="roce" or "tcp", or more planes '
                "of fewer switches"
            )

        def walk(chain: Chain) -> Iterator[Chain]:
            node = chain[-1]
            if hops[node] == 0:
                yield chain
                return
            for far in self._next_to(node):
                if hops.get(far) == hops[node] - 1:
                    yield from walk((*chain, far))

        return tuple(chain for start in starts for chain in walk((start,)))
