"""How much the uplinks of a leaf have to spare, which tells MRC whether a lossy path can be left
alone."""

from __future__ import annotations

from loomnet.fabrics.topology import ClosTopology
from loomnet.plans.model import Plan


class LeafSpares:
    """What the uplinks of leaves carry, as a share of what the leaves' hosts can send: 1 where they
    are as fast together, and for a leaf without uplinks. Each leaf is looked at once."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._found: dict[int, float] = {}  # by leaf

    def of_host(self, host: int, plane: int) -> float:
        """The share of the leaf that the host has in this plane."""
        leaf = self._plan.topology.leaf_of(host, plane).node
        if leaf not in self._found:
            self._found[leaf] = self._of_leaf(leaf)
        return self._found[leaf]

    def _of_leaf(self, leaf: int) -> float:
        topology = self._plan.topology
        if isinstance(topology, ClosTopology):  # not all of its links need be there
            shape = topology.shape
            if shape.leaves == 1:
                return 1.0  # its uplinks lead nowhere
            rates = [
                count * spec.rate.count
                for count, spec in zip(
                    (shape.hosts_per_leaf, shape.aggs_per_pod), topology.fabric.specs, strict=False
                )
            ]
            for tier, changed in topology.own_at(leaf):
                rates[tier] += changed
            return rates[1] / rates[0]
        rates = {False: 0, True: 0}
        for _, link, far in topology.neighbours(leaf):
            if self._reaches_a_host(far, leaf):
                rates[topology.is_host(far)] += self._plan.links[link].forward.rate_bps
        return rates[False] / rates[True] if rates[False] and rates[True] else 1.0

    def _reaches_a_host(self, node: int, leaf: int) -> bool:
        """Whether a host can be reached from a neighbour of a leaf, not through the leaf: a switch
        that leads nowhere is no uplink."""
        topology, seen, todo = self._plan.topology, {leaf, node}, [node]
        while todo:
            at = todo.pop()
            if topology.is_host(at):
                return True
            for _, _, far in topology.neighbours(at):
                if far not in seen:
                    seen.add(far)
                    todo.append(far)
        return False
