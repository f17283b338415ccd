"""Optical patch panels as the user states them: their circuits, and what a panel's links may be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from loomnet.base.errors import FabricError
from loomnet.base.names import did_you_mean, quoted
from loomnet.base.units import Time
from loomnet.fabrics.links import HalfLink, Link
from loomnet.fabrics.panel_drawing import panel_svg

# An end of a circuit is a host, which takes its next free port at the panel; a host and the number
# of one of its links to the panel, as "h0:1"; or the number of a port of the panel.
CircuitEnd = str | int
Circuit = tuple[CircuitEnd, CircuitEnd]
NO_CIRCUIT = -1
# Where a panel runs on the live clock. On the virtual clock all panels run in the engine.
PLACEMENTS = ("engine", "xdp", "tc")
# The directions in which a host's port needs light to have carrier; "none": it always has carrier.
CARRIERS = ("both", "rx", "none")


@dataclass(eq=False)
class Panel:
    """An optical patch panel. Light that comes in by a port leaves by the port that a circuit joins
    it to, without a queue. Light of a port without a circuit is lost (`drop_unmapped`). `ports`:
    None for as many as it has links. `profile` and `carrier` are as Fabric.add_panel() takes
    them."""

    name: str
    ports: int | None = None
    profile: str = "ideal"
    carrier: str = "both"
    placement: str = "engine"
    first: tuple[Circuit, ...] = field(default=(), repr=False)  # circuits when a run begins
    # Gives the links of a node by its name; None while the panel belongs to no fabric.
    links_of: Callable[[str], list[Link]] | None = field(default=None, repr=False)

    def circuits(self, pairs: Iterable[Circuit]) -> Panel:
        """Patches these circuits, and no others, before a run begins; by default there are none.
        Returns itself. A pair is of hosts, [("h0", "h1")]: each takes its next free port at the
        panel. "h0:1" is the second of h0's links to the panel, and a number is a port of the
        panel, in the order of its links from 0. Ends are checked when the fabric is."""
        self.first = circuit_list(f"panel {self.name}: circuits", pairs)
        return self

    def _repr_svg_(self) -> str:
        """In a notebook: its hosts and the circuits that a run begins with."""
        ports = Ports(self, [] if self.links_of is None else self.links_of(self.name))
        try:
            table = ports.table(self.first)
        except FabricError as error:  # the fabric is not complete yet
            return panel_svg(self.name, ports.hosts, (), str(error))
        joined = sum(0 <= far for far in table) // 2
        return panel_svg(
            self.name,
            ports.hosts,
            table,
            f"{ports.size} ports, {joined} circuits, profile {self.profile}",
        )


def check_switching(name: str, profile: Any, carrier: Any, placement: Any) -> None:
    """Raises FabricError unless all are known names."""
    # imported here, because only a fabric with panels needs the engine
    import loomnet._core as _core

    if isinstance(profile, str) and profile[:1].isdigit():
        Time.given(f"panel {name}: profile", profile)
        profile = "ideal"
    for setting, value, known in (
        ("profile", profile, _core.panel_profiles()),
        ("carrier", carrier, CARRIERS),
        ("placement", placement, PLACEMENTS),
    ):
        if value not in known:
            hint = did_you_mean(value, known) if isinstance(value, str) else ""
            raise FabricError(
                f"panel {name}: {setting}: {quoted(value)} is none of {', '.join(known)}{hint}"
            )


def switching(profile: str) -> dict[str, Any]:
    """The profile for the engine: its name, or the dark time where one was given in its place."""
    if profile[:1].isdigit():
        return {"profile": "ideal", "dark_ps": Time(profile).count}
    return {"profile": profile}


def circuit_list(where: str, pairs: Any) -> tuple[Circuit, ...]:
    """The circuits as a list of pairs. Raises FabricError for any other value."""
    if isinstance(pairs, (str, bytes)) or not isinstance(pairs, Iterable):
        raise FabricError(f'{where}: {quoted(pairs)} is not a list of pairs, [("h0", "h1"), …]')
    found = []
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not all(map(_is_end, pair)):
            raise FabricError(f'{where}: {quoted(pair)} is not a pair of ends, ("h0", "h1")')
        found.append((pair[0], pair[1]))
    return tuple(found)


def _is_end(value: Any) -> bool:
    return isinstance(value, str) or type(value) is int


class Ports:
    """A panel's ports in the order of its links, with the host and the rate of each."""

    def __init__(self, panel: Panel, links: Sequence[Link]) -> None:
        self.panel = panel
        self.hosts = [link.a if link.b == panel.name else link.b for link in links]
        self.rates = [link.forward.rate for link in links]
        self.size = len(links) if panel.ports is None else panel.ports

    def table(self, pairs: Iterable[Circuit], before: Sequence[int] = ()) -> list[int]:
        """For each port the port that it is patched to, or NO_CIRCUIT. Pairs of hosts that the
        table `before` joins keep their ports. Raises FabricError."""
        where = f"panel {self.panel.name}: circuit"
        table = [NO_CIRCUIT] * self.size
        asked = list(pairs)
        named: list[list[int | None]] = [
            [self._named(where, end) for end in pair] for pair in asked
        ]
        for pair, ports in zip(asked, named, strict=True):
            for end, port in zip(pair, ports, strict=True):
                self._take(where, table, end, port)
        free = [port == NO_CIRCUIT for port in table]
        table = [NO_CIRCUIT] * self.size
        for pair, ports in zip(asked, named, strict=True):
            if ports == [None, None] and (kept := self._kept(pair, before, free)) is not None:
                ports[:] = kept
                free[kept[0]] = free[kept[1]] = False
        for pair, ports in zip(asked, named, strict=True):
            for i, end in enumerate(pair):
                if ports[i] is None:
                    ports[i] = self._next(where, pair, end, free)
            self._join(where, table, pair, ports)
        return table

    def _named(self, where: str, end: CircuitEnd) -> int | None:
        """The port that an end names; None where it names a host alone, which may take any port."""
        if isinstance(end, int):
            if not 0 <= end < len(self.hosts):
                raise FabricError(
                    f"{where}: port {end} of {self.panel.name} has no link; it has "
                    f"links at ports 0 to {len(self.hosts) - 1}"
                )
            return end
        host, colon, number = end.partition(":")
        mine = [port for port, name in enumerate(self.hosts) if name == host]
        if not mine:
            raise FabricError(
                f'{where}: "{host}" has no link to {self.panel.name}'
                f"{did_you_mean(host, dict.fromkeys(self.hosts))}"
            )
        if not colon:
            return None
        if not (number.isdecimal() and len(number) < 10 and int(number) < len(mine)):
            raise FabricError(
                f'{where}: "{end}": {host} has links 0 to {len(mine) - 1} to {self.panel.name}'
            )
        return mine[int(number)]

    def _take(self, where: str, table: list[int], end: CircuitEnd, port: int | None) -> None:
        if port is None:
            return
        if table[port] != NO_CIRCUIT:
            raise FabricError(f"{where}: {quoted(end)} is in two circuits; a port is in one")
        table[port] = port

    def _kept(self, pair: Circuit, before: Sequence[int], free: list[bool]) -> list[int] | None:
        for port, other in enumerate(before):
            if (
                other != NO_CIRCUIT
                and free[port]
                and free[other]
                and ((self.hosts[port], self.hosts[other]) == pair)
            ):
                return [port, other]
        return None

    def _next(self, where: str, pair: Circuit, end: CircuitEnd, free: list[bool]) -> int:
        for port, host in enumerate(self.hosts):
            if host == end and free[port]:
                free[port] = False
                return port
        raise FabricError(
            f"{where} {pair[0]}-{pair[1]}: {end} has {self.hosts.count(str(end))} "
            f"ports at {self.panel.name}, and other circuits have them all"
        )

    def _join(self, where: str, table: list[int], pair: Circuit, ports: list[int | None]) -> None:
        a, b = ports
        assert a is not None and b is not None
        if self.hosts[a] == self.hosts[b]:
            raise FabricError(f"{where} {pair[0]}-{pair[1]}: it joins {self.hosts[a]} to itself")
        if self.rates[a] != self.rates[b]:
            raise FabricError(
                f"{where} {pair[0]}-{pair[1]}: the links' rates are {self.rates[a]} "
                f"and {self.rates[b]}; light has one rate from end to end"
            )
        table[a], table[b] = b, a


def check_link(link: Link) -> None:
    """Raises FabricError for settings that a panel's link cannot have."""
    if link.forward.rate != link.backward.rate:
        raise FabricError(
            f"link {link.name}: rates {link.forward.rate} and {link.backward.rate}: "
            "a panel's links have one rate both ways"
        )
    for name, half in link.halves:
        plain = HalfLink(half.rate, half.delay)
        for setting in (
            "pfc",
            "queue",
            "data_limit",
            "control_limit",
            "control_share",
            "ecn",
            "trim",
            "trim_victim",
        ):
            if getattr(half, setting) != getattr(plain, setting):
                raise FabricError(
                    f"link {name}: {setting}: a panel has no queue; its links take "
                    "rate and delay alone"
                )
