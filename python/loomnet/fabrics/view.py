"""What a fabric's numbering, its description and its drawing read of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Protocol

from loomnet.base.units import Size
from loomnet.fabrics.clos_shape import Clos
from loomnet.fabrics.links import HalfLink, Link
from loomnet.fabrics.nodes import Host, LocalRanks, Switch
from loomnet.fabrics.panels import Panel


class FabricView(Protocol):
    """A fabric, to be read. `shape`: the arithmetic of a regular one. `uniform`: whether its links
    are as they were built. `notes`: rows that describe() shows besides. `passed`: what of its
    source has no effect."""

    payload: Size
    shape: Clos | None
    uniform: bool
    notes: dict[str, tuple[float, str]]
    passed: list[str]
    panels: dict[str, Panel]

    @property
    def name(self) -> str: ...
    @property
    def hosts(self) -> Mapping[str, Host]: ...
    @property
    def switches(self) -> Mapping[str, Switch]: ...
    @property
    def programs(self) -> Mapping[str, str]: ...
    @property
    def local_ranks(self) -> Mapping[LocalRanks, int]: ...
    @property
    def counts(self) -> tuple[int, int, int]: ...
    @property
    def planes(self) -> int: ...
    @property
    def half_counts(self) -> Counter[HalfLink]: ...
    def all_links(self) -> list[Link]: ...
    def links_of(self, node: str) -> list[Link]: ...
    def plane_of(self, link: Link) -> int | None: ...
    def check(self) -> FabricView: ...
    def match(self, pattern: str) -> list[tuple[Link, int]]: ...
    def match_switches(self, pattern: str) -> list[str]: ...


class ClosView(FabricView, Protocol):
    """A regular fabric. `specs`: both directions of a link, by tier; `own`: of links that are not
    like the others of their tier, by number, what each direction is."""

    specs: tuple[HalfLink, ...]
    local: LocalRanks  # of every host
    own: dict[int, tuple[HalfLink, HalfLink]]

    def link(self, number: int) -> Link: ...
