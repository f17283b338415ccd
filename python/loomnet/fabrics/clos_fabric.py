"""A fabric that is a Clos: known by its shape; nodes and links are listed only when asked for."""

from __future__ import annotations

import fnmatch
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from loomnet.base.errors import FabricError, UsageError
from loomnet.base.names import did_you_mean
from loomnet.base.units import Size
from loomnet.fabrics.clos_shape import Clos
from loomnet.fabrics.links import HalfLink, Link, changed
from loomnet.fabrics.model import Fabric, check_ports
from loomnet.fabrics.nodes import ONE_RANK, Host, LocalRanks, Switch

if TYPE_CHECKING:
    import numpy

# Listing a link costs about a kilobyte; beyond this many the answer is describe().
MOST_LISTED = 400_000
_LISTED = ("hosts", "switches", "_links")
_GLOB = set("*?[")


class ClosFabric(Fabric):
    """`specs`: both directions of a link, by tier (host–leaf, leaf–T1, T1–core). `local`: the ranks
    of every host. `own`: of links that were overridden, by number, what each direction is. Adding a
    node or a link makes it an ordinary fabric."""

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
        self.own: dict[int, tuple[HalfLink, HalfLink]] = {}

    def __getattr__(self, name: str) -> Any:
        # Reached only while this list has not been made.
        shape = self.__dict__.get("shape")
        if name not in _LISTED or shape is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if name == "hosts":
            found: Any = {
                host: Host(host, "rank", shape.planes, self.local)
                for host in map(shape.name, range(shape.hosts))
            }
        elif name == "switches":
            found = {
                switch: Switch(switch, plane, self.radix)
                for plane in range(shape.planes)
                for index in range(shape.switches_per_plane)
                for switch in [shape.name(shape.leaf(plane, index))]
            }
        else:
            found = self._listed_links(shape)
        self.__dict__[name] = found
        return found

    @property
    def listed(self) -> bool:
        return "_links" in self.__dict__

    def _listed_links(self, shape: Clos) -> dict[tuple[frozenset[str], int], Link]:
        if shape.links > MOST_LISTED:
            raise FabricError(
                f"{self.name} has {shape.links:,} links, too many to list: use describe(), name "
                "single links, or run a job on some of its hosts (ranks=)"
            )
        links = map(self._made, range(shape.links))
        return {(frozenset((link.a, link.b)), link.number): link for link in links}

    def _made(self, number: int) -> Link:
        assert self.shape is not None
        (a, _), (b, _) = self.shape.ends(number)
        spec = self.specs[self.shape.link_tier(number)]
        return Link(self.shape.name(a), self.shape.name(b), *self.own.get(number, (spec, spec)))

    def link(self, number: int) -> Link:
        """A link by its number, whether the links are listed or not."""
        made = self._made(number)
        return self._links[frozenset((made.a, made.b)), 0] if self.listed else made

    # --- what needs no list -----------------------------------------------------------------------
    @property
    def planes(self) -> int:
        return self.shape.planes if self.shape else super().planes

    @property
    def ranks(self) -> list[str]:
        return super().ranks if self.shape is None else [f"h{i}" for i in self.rank_numbers]

    @property
    def rank_numbers(self) -> list[int]:
        if self.shape is None:
            return super().rank_numbers
        return list(range(self.shape.hosts))

    def places(self, hosts: Iterable[int]) -> list[int]:
        if self.shape is None:
            return super().places(hosts)
        return [host for host in hosts for _ in range(self.local.count)]

    def host_number(self, name: str) -> int | None:
        if self.shape is None:
            return super().host_number(name)
        node = self.shape.node(name)
        return node if node is not None and node < self.shape.hosts else None

    def host_name(self, number: int) -> str:
        return super().host_name(number) if self.shape is None else f"h{number}"

    @property
    def counts(self) -> tuple[int, int, int]:
        shape = self.shape
        return (shape.hosts, shape.switches, shape.links) if shape else super().counts

    def match(self, pattern: str) -> list[tuple[Link, int]]:
        mark = "->" if isinstance(pattern, str) and "->" in pattern else "--"
        shape = self.shape
        if shape is None or not isinstance(pattern, str) or pattern.count(mark) != 1:
            return super().match(pattern)
        found = (
            self._match_all(shape, pattern, mark)
            if _GLOB & set(pattern)
            else self._match_one(shape, pattern, mark)
        )
        if found:
            return found
        if shape.links <= MOST_LISTED:
            return super().match(pattern)  # which raises with the nearest names
        unknown = next(
            (
                end
                for end in pattern.split(mark)
                if not _GLOB & set(end) and shape.node(end) is None
            ),
            None,
        )
        raise UsageError(
            f'no link "{pattern}"'
            + (
                ""
                if unknown is None
                else f'; no node "{unknown}"'
                f"{did_you_mean(unknown, map(shape.name, range(shape.nodes)))}"
            )
        )

    def _match_one(self, shape: Clos, pattern: str, mark: str) -> list[tuple[Link, int]]:
        a, b = (shape.node(end) for end in pattern.split(mark))
        number = None if a is None or b is None else shape.link_between(a, b)
        if number is None:
            return []
        link = self.link(number)
        return [(link, 0 if mark == "--" else 1 if pattern.startswith(f"{link.a}->") else -1)]

    def _match_all(self, shape: Clos, pattern: str, mark: str) -> list[tuple[Link, int]]:
        """Each end by itself: no name of a node has the mark in it."""
        import numpy

        from loomnet.fabrics.clos_part import whole

        first, last = (_named(shape, end) for end in pattern.split(mark))
        rows = whole(shape).wiring()
        ahead = first[rows[:, 1]] & last[rows[:, 3]]
        back = last[rows[:, 1]] & first[rows[:, 3]]
        one_way = mark == "->"
        return [
            (
                self.link(int(rows[at, 0])),
                0 if not one_way or ahead[at] == back[at] else 1 if ahead[at] else -1,
            )
            for at in numpy.flatnonzero(ahead | back)
        ]

    def links_of(self, node: str) -> list[Link]:
        number = None if self.shape is None else self.shape.node(node)
        if self.shape is None or number is None:
            return super().links_of(node)
        return [
            self.link(self.shape.link_at(number, port)) for port in range(self.shape.ports(number))
        ]

    @property
    def half_counts(self) -> Counter[HalfLink]:
        """How many directions of switches' links are alike, of each kind."""
        shape = self.shape
        if shape is None:
            return super().half_counts
        found = Counter(
            {
                spec: 2 * shape.planes * links
                for spec, links in zip(self.specs, shape.links_of_tiers, strict=False)
            }
        )
        for number, halves in self.own.items():
            found[self.specs[shape.link_tier(number)]] -= 2
            found.update(halves)
        return +found

    def match_switches(self, pattern: str) -> list[str]:
        single = isinstance(pattern, str) and not _GLOB & set(pattern)
        if single and self.shape:
            node = self.shape.node(pattern)
            if node is not None and node >= self.shape.hosts:
                return [pattern]
        return super().match_switches(pattern)

    @property
    def programs(self) -> dict[str, str]:
        return super().programs if "switches" in self.__dict__ else {}

    @property
    def local_ranks(self) -> dict[LocalRanks, int]:
        if self.shape is None:
            return super().local_ranks
        return {self.local: self.shape.hosts} if self.local.count > 1 else {}

    def check(self) -> Fabric:
        shape = self.shape
        if shape is None:
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
        shape = self.shape
        if shape is None:
            return super().override(pattern, **overrides)
        for link, direction in self.match(pattern):
            a, b = shape.node(link.a), shape.node(link.b)
            assert a is not None and b is not None
            number = shape.link_between(a, b)
            assert number is not None
            if direction >= 0:
                link.forward = changed(link.forward, overrides, pattern)
            if direction <= 0:
                link.backward = changed(link.backward, overrides, pattern)
            self.own[number] = link.forward, link.backward
        self.uniform = False
        return self

    def _fresh(self, name: str) -> None:
        self._irregular()
        super()._fresh(name)

    def add_panel(self, name: str, **values: Any) -> str:
        added = super().add_panel(name, **values)
        # The Clos gave its hosts a port for each plane; each link to a panel is one more.
        self.hosts = {
            host.name: replace(host, ports=None) if host.ports == self.planes else host
            for host in self.hosts.values()
        }
        return added

    def add_link(self, a: str, b: str, **values: Any) -> str:
        self._irregular()
        return super().add_link(a, b, **values)

    def add_host(self, name: str | None = None, **values: Any) -> str:
        self._irregular()
        return super().add_host(name, **values)

    def _irregular(self) -> None:
        if self.shape is not None:
            for listed in _LISTED:
                getattr(self, listed)
            self.shape, self.uniform = None, False


def _named(shape: Clos, pattern: str) -> numpy.ndarray:
    """Of each node, whether a glob stands for its name."""
    import numpy

    matches = re.compile(fnmatch.translate(pattern)).match
    return numpy.fromiter(
        (matches(shape.name(node)) is not None for node in range(shape.nodes)), bool, shape.nodes
    )
