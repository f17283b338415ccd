"""A fabric that is a Clos: known by its shape; nodes and links are listed only when asked for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from loomnet.base.errors import FabricError
from loomnet.base.units import Size
from loomnet.fabrics.clos_shape import Clos
from loomnet.fabrics.links import HalfLink, Link
from loomnet.fabrics.model import Fabric, check_ports
from loomnet.fabrics.nodes import ONE_RANK, Host, LocalRanks, Switch

# Listing a link costs about a kilobyte; beyond this many the answer is describe().
MOST_LISTED = 400_000
_LISTED = ("hosts", "switches", "_links")
_GLOB = set("*?[")


class ClosFabric(Fabric):
    """`specs`: both directions of a link, by tier (host–leaf, leaf–T1, T1–core). `local`: the ranks
    of every host. Adding a node or a link makes it an ordinary fabric; overrides keep its
    addresses."""

    def __init__(
        self,
        name: str,
        shape: Clos,
        specs: tuple[HalfLink, ...],
        *,
        radix: int | None = None,
        payload: Size | str = "2048 B",
        local: LocalRanks = ONE_RANK,
    ) -> None:
        super().__init__(name, payload=payload)
        check_ports("radix", radix)
        for listed in _LISTED:
            del self.__dict__[listed]
        self.shape, self.specs, self.radix, self.uniform = shape, specs, radix, True
        self.local = local

    def __getattr__(self, name: str) -> Any:
        # Reached only while the lists have not been made.
        if name not in _LISTED or "shape" not in self.__dict__ or self.shape is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self._list()
        return self.__dict__[name]

    @property
    def listed(self) -> bool:
        return "_links" in self.__dict__

    def _list(self) -> None:
        shape = self.shape
        assert shape is not None
        if shape.links > MOST_LISTED:
            raise FabricError(
                f"{self.name} has {shape.links:,} links, too many to list: use describe(), name "
                "single links, or run a job on some of its hosts (ranks=)"
            )
        self.hosts = {f"h{i}": Host(f"h{i}", "rank", shape.planes, self.local)
                      for i in range(shape.hosts)}
        self.switches = {}
        for plane in range(shape.planes):
            for index in range(shape.switches_per_plane):
                name = shape.name(shape.leaf(plane, index))
                self.switches[name] = Switch(name, plane, self.radix)
        self._links = {}
        for number in range(shape.links):
            link = self.link(number)
            self._links[frozenset((link.a, link.b)), link.number] = link

    def link(self, number: int) -> Link:
        """A link by its number, whether the links are listed or not."""
        assert self.shape is not None
        (a, _), (b, _) = self.shape.ends(number)
        spec = self.specs[self.shape.link_tier(number)]
        return Link(self.shape.name(a), self.shape.name(b), spec, spec)

    # --- what needs no list -----------------------------------------------------------------------
    @property
    def planes(self) -> int:
        return self.shape.planes if self.shape else super().planes

    @property
    def ranks(self) -> list[str]:
        return super().ranks if self.listed else [f"h{i}" for i in self.rank_numbers]

    @property
    def rank_numbers(self) -> list[int]:
        if self.listed or self.shape is None:
            return super().rank_numbers
        return list(range(self.shape.hosts))

    def places(self, hosts: Iterable[int]) -> list[int]:
        if self.listed or self.shape is None:
            return super().places(hosts)
        return [host for host in hosts for _ in range(self.local.count)]

    def host_number(self, name: str) -> int | None:
        if self.listed or self.shape is None:
            return super().host_number(name)
        node = self.shape.node(name)
        return node if node is not None and node < self.shape.hosts else None

    def host_name(self, number: int) -> str:
        return super().host_name(number) if self.listed else f"h{number}"

    @property
    def counts(self) -> tuple[int, int, int]:
        shape = self.shape
        return (shape.hosts, shape.switches, shape.links) if shape else super().counts

    def match(self, pattern: str) -> list[tuple[Link, int]]:
        mark = "->" if isinstance(pattern, str) and "->" in pattern else "--"
        single = isinstance(pattern, str) and mark in pattern and not _GLOB & set(pattern)
        if single and not self.listed and self.shape:
            a, _, b = pattern.partition(mark)
            ends = self.shape.node(a), self.shape.node(b)
            if ends[0] is not None and ends[1] is not None:
                number = self.shape.link_between(ends[0], ends[1])
                if number is not None:
                    link = self.link(number)
                    return [(link, 0 if mark == "--" else 1 if link.a == a else -1)]
        return super().match(pattern)

    def match_switches(self, pattern: str) -> list[str]:
        single = isinstance(pattern, str) and not _GLOB & set(pattern)
        if single and not self.listed and self.shape:
            node = self.shape.node(pattern)
            if node is not None and node >= self.shape.hosts:
                return [pattern]
        return super().match_switches(pattern)

    @property
    def programs(self) -> dict[str, str]:
        return super().programs if self.listed else {}

    @property
    def local_ranks(self) -> dict[LocalRanks, int]:
        if self.listed or self.shape is None:
            return super().local_ranks
        return {self.local: self.shape.hosts} if self.local.count > 1 else {}

    def check(self) -> Fabric:
        shape = self.shape
        if shape is None or not self.uniform:
            return super().check()
        for tier, node in (
            ("leaf", shape.leaf(0, 0)),
            ("T1", shape.agg(0, 0)),
            ("core", shape.core(0, 0)),
        ):
            if tier == "core" and not shape.cores:
                continue
            used = shape.ports(node)
            if self.radix is not None and used > self.radix:
                raise FabricError(
                    f"{shape.name(node)} has {self.radix} ports but {used} links: "
                    f"raise radix= or remove {used - self.radix}"
                )
        return self

    # --- changes ----------------------------------------------------------------------------------
    def override(self, pattern: str, **overrides: Any) -> Fabric:
        self._links  # noqa: B018 (lists them, so that they can differ)
        self.uniform = False
        return super().override(pattern, **overrides)

    def _fresh(self, name: str) -> None:
        self._irregular()
        super()._fresh(name)

    def add_panel(self, name: str, **values: Any) -> str:
        added = super().add_panel(name, **values)
        # The Clos gave its hosts a port for each plane; each link to a panel is one more.
        self.hosts = {host.name: replace(host, ports=None) if host.ports == self.planes else host
                      for host in self.hosts.values()}
        return added

    def add_link(self, a: str, b: str, **values: Any) -> str:
        self._irregular()
        return super().add_link(a, b, **values)

    def add_host(self, name: str | None = None, **values: Any) -> str:
        self._irregular()
        return super().add_host(name, **values)

    def _irregular(self) -> None:
        if self.shape is not None:
            self._links  # noqa: B018
            self.shape, self.uniform = None, False
