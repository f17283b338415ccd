"""The part of a regular Clos that traffic among some of its hosts can meet, by arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy

from loomnet.fabrics.clos_shape import Clos


def touched(shape: Clos, hosts: Iterable[int]) -> Touched:
    """What traffic among these hosts can meet: their leaves, with two leaves or more every T1
    above them, with two pods or more every core."""
    ordered = sorted(set(hosts))
    leaves = sorted({shape.leaf_index(host) for host in ordered})
    pods = sorted({leaf // shape.leaves_per_pod for leaf in leaves})
    return Touched(
        shape,
        ordered,
        leaves,
        pods,
        shape.aggs_per_pod if len(leaves) > 1 else 0,
        shape.cores if len(pods) > 1 else 0,
    )


def whole(shape: Clos) -> Touched:
    """All of it, whatever traffic there is."""
    return Touched(
        shape,
        range(shape.hosts),
        range(shape.leaves),
        range(shape.pods),
        shape.aggs_per_pod,
        shape.cores,
    )


class Touched:
    """A part of a shape, in the numbers of the whole; the same part in every plane."""

    def __init__(
        self,
        shape: Clos,
        hosts: Sequence[int],
        leaves: Sequence[int],
        pods: Sequence[int],
        ups: int,
        cores: int,
    ) -> None:
        self.shape, self.hosts, self.leaves, self.pods = shape, hosts, leaves, pods
        self.ups, self.cores = range(ups), range(cores)
        self.core_ups = range(shape.cores_per_agg if cores else 0)
        self.aggs = [pod * shape.aggs_per_pod + up for pod in pods for up in self.ups]
        self._set = set(hosts), set(leaves), set(self.aggs)

    @cached_property
    def _hosts_on(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for host in self.hosts:
            found.setdefault(self.shape.leaf_index(host), []).append(host)
        return found

    @cached_property
    def _leaves_in(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for leaf in self.leaves:
            found.setdefault(leaf // self.shape.leaves_per_pod, []).append(leaf)
        return found

    def downlinks(self, leaf: int) -> list[int]:
        """Places of the hosts of a leaf (index), which are its ports to them."""
        return [self.shape.downlink(host) for host in self._hosts_on.get(leaf, ())]

    def leaves_in(self, pod: int) -> list[int]:
        """The leaves (indices) of a pod."""
        return self._leaves_in.get(pod, [])

    @property
    def switches(self) -> list[int]:
        """Node numbers, in order."""
        shape, found = self.shape, []
        for plane in range(shape.planes):
            found += [shape.leaf(plane, leaf) for leaf in self.leaves]
            found += [shape.agg(plane, agg) for agg in self.aggs]
            found += [shape.core(plane, core) for core in self.cores]
        return found

    @property
    def links(self) -> list[int]:
        """Link numbers, in order."""
        shape, found = self.shape, []
        for plane in range(shape.planes):
            found += [shape.host_link(plane, host) for host in self.hosts]
            found += [shape.leaf_link(plane, leaf, up) for leaf in self.leaves for up in self.ups]
            found += [shape.agg_link(plane, agg, up) for agg in self.aggs for up in self.core_ups]
        return found

    def wiring(self) -> numpy.ndarray:
        """Rows of link, node, port, node, port, the lower tier first, in order of the links."""
        return numpy.concatenate(
            [rows for plane in range(self.shape.planes) for rows in self._wired(plane)]
        )

    def _wired(self, plane: int) -> Iterator[numpy.ndarray]:
        shape = self.shape
        hosts = numpy.array(self.hosts, dtype=numpy.int64)
        down, leaf = (
            (hosts // shape.leaves, hosts % shape.leaves)
            if shape.order == "spread"
            else (hosts % shape.hosts_per_leaf, hosts // shape.hosts_per_leaf)
        )
        yield _rows(
            shape.host_link(plane, 0) + hosts, hosts, plane, shape.leaf(plane, 0) + leaf, down
        )
        low, up = _pairs(self.leaves, self.ups)
        pod, down = numpy.divmod(low, shape.leaves_per_pod)
        yield _rows(
            shape.leaf_link(plane, 0, 0) + low * shape.aggs_per_pod + up,
            shape.leaf(plane, 0) + low,
            shape.hosts_per_leaf + up,
            shape.agg(plane, 0) + pod * shape.aggs_per_pod + up,
            down,
        )
        low, up = _pairs(self.aggs, self.core_ups)
        pod, which = numpy.divmod(low, shape.aggs_per_pod)
        yield _rows(
            shape.agg_link(plane, 0, 0) + low * shape.cores_per_agg + up,
            shape.agg(plane, 0) + low,
            shape.leaves_per_pod + up,
            shape.core(plane, 0) + which * shape.cores_per_agg + up,
            pod,
        )

    def has(self, link: int) -> bool:
        shape = self.shape
        rest = link % shape.links_per_plane
        if rest < shape.hosts:
            return rest in self._set[0]
        rest -= shape.hosts
        if rest < shape.leaves * shape.aggs_per_pod:
            return bool(self.ups) and rest // shape.aggs_per_pod in self._set[1]
        agg = (rest - shape.leaves * shape.aggs_per_pod) // shape.cores_per_agg
        return bool(self.cores) and agg in self._set[2]

    def neighbours(self, node: int) -> list[tuple[int, int, int]]:
        """(port, link, node at its far end) of the links that are there, in port order."""
        shape = self.shape
        tier, plane, index = shape.place(node)
        if tier == "host":
            leaf = shape.leaf_index(index)
            return [
                (p, shape.host_link(p, index), shape.leaf(p, leaf)) for p in range(shape.planes)
            ]
        if tier == "leaf":
            pod = index // shape.leaves_per_pod * shape.aggs_per_pod
            down = [
                (shape.downlink(host), shape.host_link(plane, host), host)
                for host in self._hosts_on.get(index, ())
            ]
            first = shape.leaf_link(plane, index, 0)
            agg = shape.agg(plane, pod)
            return down + [(shape.hosts_per_leaf + up, first + up, agg + up) for up in self.ups]
        if tier == "agg":
            pod, which = divmod(index, shape.aggs_per_pod)
            base = pod * shape.leaves_per_pod
            low = [
                (leaf - base, shape.leaf_link(plane, leaf, which), shape.leaf(plane, leaf))
                for leaf in self._leaves_in.get(pod, ())
            ]
            first = shape.agg_link(plane, index, 0)
            core = shape.core(plane, which * shape.cores_per_agg)
            return low + [
                (shape.leaves_per_pod + up, first + up, core + up) for up in self.core_ups
            ]
        which, up = divmod(index, shape.cores_per_agg)
        aggs = [(pod, pod * shape.aggs_per_pod + which) for pod in self.pods]
        return [(pod, shape.agg_link(plane, agg, up), shape.agg(plane, agg)) for pod, agg in aggs]


def _pairs(low: Sequence[int], ups: Sequence[int]) -> tuple[numpy.ndarray, numpy.ndarray]:
    return (
        numpy.repeat(numpy.array(low, dtype=numpy.int64), len(ups)),
        numpy.tile(numpy.arange(len(ups), dtype=numpy.int64), len(low)),
    )


def _rows(*columns: Any) -> numpy.ndarray:
    return numpy.stack(numpy.broadcast_arrays(*columns), axis=1).astype(numpy.int64)
