"""The fabric as the user states it: hosts, switches, links, and checks before anything starts."""

from __future__ import annotations

import fnmatch
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from loomnet.base.arguments import checked_call
from loomnet.base.errors import FabricError, UsageError
from loomnet.base.names import did_you_mean, how_many, in_quotes, quoted
from loomnet.base.table import Table
from loomnet.base.units import Rate, Size, Time
from loomnet.fabrics.checks import check_fabric
from loomnet.fabrics.clos_shape import Clos
from loomnet.fabrics.links import HalfLink, Link, changed
from loomnet.fabrics.nodes import FORWARD, PLACEMENTS, Host, LocalRanks, Switch, check_role
from loomnet.fabrics.panels import Panel, check_link, check_switching
from loomnet.fabrics.program_options import program_options

MAX_PLANES = 8  # three bits of an entropy value name the plane
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*")
_PLANE = re.compile(r"p([0-9]+)\..+")
_MOST_PORTS = 1 << 20
_MOST_NAME = 100  # characters of a fabric's name


class Fabric:
    """Hosts, switches and links under construction; every adder returns the name it added.

    Raises FabricError with the name at fault. `payload` is the RDMA payload per packet.
    """

    @checked_call
    def __init__(self, name: str = "fabric", *, payload: Size | str = "2048 B") -> None:
        self.name = name
        self.payload = Size.given("Fabric.payload", payload)
        if not 256 <= self.payload.bytes <= 4096 or self.payload.bytes & (self.payload.bytes - 1):
            raise FabricError(f"payload {self.payload} must be 256, 512, 1024, 2048 or 4096 B")
        self.hosts: dict[str, Host] = {}
        self.switches: dict[str, Switch] = {}
        self.panels: dict[str, Panel] = {}
        # By the two nodes and the number among their links.
        self._links: dict[tuple[frozenset[str], int], Link] = {}
        # The arithmetic of a regular fabric, and whether its links still are as it was built.
        self.shape: Clos | None = None
        self.uniform = False
        # What describe() says beside: how a file was read.
        self.notes: dict[str, tuple[float, str]] = {}
        self.roles_from_graph = False  # whether a graph's attribute `role` gave hosts theirs
        self.passed: list[str] = []  # what of a file or graph has no effect, and how often

    @property
    def name(self) -> str:
        """One line of 1 to 100 printable characters."""
        return self._name

    @name.setter
    def name(self, value: str) -> None:
        if not 1 <= len(_text("Fabric.name", value)) <= _MOST_NAME or not value.isprintable():
            raise FabricError(
                f"Fabric.name: {quoted(value)} is not one line of 1 to {_MOST_NAME} "
                "printable characters"
            )
        self._name = value

    # --- construction ---------------------------------------------------------------------------
    @checked_call
    def add_host(
        self,
        name: str | None = None,
        *,
        role: str = "rank",
        ports: int | None = None,
        ranks: int = 1,
        local_link: Rate | str | None = None,
        local_delay: Time | str | None = None,
    ) -> str:
        """Adds a host, by default the next of h0, h1, ….

        A job has up to `ranks` ranks on it, which reach one another by the host's local link and
        never by a port of its NIC. All of them share that link; its rate `local_link` is by default
        "900 GB/s", that of a GPU's NVLink 4, and `local_delay` "1 us", after which a GPU sees a
        peer's copy of few bytes."""
        name = f"h{len(self.hosts)}" if name is None else name
        self._fresh(name)
        local = LocalRanks.given(f"host {name}: ", ranks, local_link, local_delay)
        check_role(name, role, ranks)
        check_ports(f"host {name}: ports", ports)
        self.hosts[name] = Host(name, role, ports, local)
        return name

    @checked_call
    def add_switch(
        self,
        name: str,
        *,
        plane: int | None = None,
        ports: int | None = None,
        placement: str = "xdp",
    ) -> str:
        """Adds a switch; its plane is read from a name of the form p<plane>.… unless given."""
        self._fresh(name)
        _check_placement(f"switch {name}", placement)
        if plane is None:
            match = _PLANE.fullmatch(name)
            plane = int(match.group(1)[:9]) if match else 0
        if type(plane) is not int or not 0 <= plane < MAX_PLANES:
            raise FabricError(
                f"switch {name}: plane {quoted(plane)} is not within 0 … {MAX_PLANES - 1}"
            )
        check_ports(f"switch {name}: ports", ports)
        self.switches[name] = Switch(name, plane, ports, placement)
        return name

    @checked_call
    def add_panel(
        self,
        name: str,
        *,
        ports: int | None = None,
        profile: str = "ideal",
        carrier: str = "both",
        placement: str = "engine",
    ) -> str:
        """Adds an optical circuit switch, which joins hosts by circuits; see
        `panel(name).circuits`.

        Args:
            name: of the node.
            ports: how many it has; None: as many as links.
            profile: how long ports are dark that change their circuit, and how long transceivers
                take to find the light again: "ideal" (not at all), "sim25" (25 ms, as in the
                simulations of MixNet, SIGCOMM 2025), "polatis" and "polatis+nic" (its prototype),
                "calient", "telescent", "infocus128", "rotor10us", "lightmatter32"; or a time,
                "1 ms".
            carrier: which light gives a host's port carrier: "both" directions, "rx" its own
                receive direction; "none": carrier never goes.
            placement: on the live clock: "engine", in memory; "xdp", a namespace of its own with
                the panel's program in the kernel; or "tc", the same between hosts' own veths, for
                bulk TCP of their kernels: links have no rate and no delay then.
        """
        self._fresh(name)
        check_ports(f"panel {name}: ports", ports)
        check_switching(name, profile, carrier, placement)
        self.panels[name] = Panel(name, ports, profile, carrier, placement, links_of=self.links_of)
        return name

    @checked_call
    def panel(self, name: str) -> Panel:
        """A panel that add_panel added. Raises FabricError for a name that none has."""
        if name not in self.panels:
            raise FabricError(f'no panel "{_text("panel", name)}"{did_you_mean(name, self.panels)}')
        return self.panels[name]

    @checked_call
    def add_link(
        self, a: str, b: str, *, rate: Rate | str, delay: Time | str, **overrides: Any
    ) -> str:
        """Links two nodes, full duplex: two switches, a host and a switch, or a host and a panel,
        which several links may join: h0--ocs0, h0--ocs0:1 and so on. A panel's link takes rate and
        delay alone; light on it is clocked by the sending host. `overrides`: data_limit,
        control_limit, control_share, ecn (True, False or ln.Ecn(low, high)), trim, trim_victim,
        pfc, queue and the options of that queue discipline.

        `queue` names how a switch port of the link queues. "priority" (default): control before
        data, ECN by RED, trimming, PFC. "fifo": one queue, tail drop at data_limit, ECN as above.
        "laggard_first": as "priority", without trimming, but of each ring the rearmost sender's
        data goes first, by whole steps or by `parts` of one: an oracle, since it reads what no
        switch sees. Other data keeps its place.
        "codel": CoDel (RFC 8289; `target` 5 ms, `interval` 100 ms). "fq": deficit round robin over
        flows (`flows` 1024, `quantum` 1514 B). "fq_codel": CoDel in each of them (RFC 8290). With
        CoDel, ECN-capable packets are marked instead of dropped unless ecn=False. All but the first
        do not trim, and hold 5 bandwidth-delay products by default where PFC does not hold data;
        the last three and "fifo" do not run under PFC."""
        for end in (a, b):
            _text("add_link", end)
            if end not in self.hosts and end not in self.switches and end not in self.panels:
                known = [*self.hosts, *self.switches, *self.panels]
                raise FabricError(f'link {a}--{b}: no node "{end}"{did_you_mean(end, known)}')
        if a == b:
            raise FabricError(f"link {a}--{b}: it joins {a} to itself; a link has two ends")
        if a in self.hosts and b in self.hosts:
            raise FabricError(f"link {a}--{b}: it joins two hosts; put a switch between them")
        patched = a in self.panels or b in self.panels
        if patched and a not in self.hosts and b not in self.hosts:
            raise FabricError(f"link {a}--{b}: a panel joins hosts; link switches to one another")
        ends, number = frozenset((a, b)), 0
        while patched and (ends, number) in self._links:
            number += 1
        if (ends, number) in self._links:
            raise FabricError(f"link {a}--{b} exists already; a second path needs a second switch")
        where = f"link {a}--{b}"
        half = HalfLink(Rate.given(f"{where}: rate", rate), Time.given(f"{where}: delay", delay))
        half = changed(half, overrides, where)
        link = Link(a, b, half, half, number)
        if patched:
            check_link(link)
        self._links[ends, number] = link
        return link.name

    @checked_call
    def override(self, pattern: str, **overrides: Any) -> Fabric:
        """Changes settings of links that match: rate, delay, and those that add_link takes."""
        for link, direction in self.match(pattern):
            if direction >= 0:
                link.forward = changed(link.forward, overrides, pattern)
            if direction <= 0:
                link.backward = changed(link.backward, overrides, pattern)
        return self

    @checked_call
    def place(self, pattern: str, placement: str) -> Fabric:
        """Says where the switches that a name or glob stands for run on the live clock: "xdp"
        (default) in the kernel, "engine" in memory. Returns itself."""
        _check_placement(f"place {_text('place', pattern)}", placement)
        for name in self.match_switches(pattern):
            self.switches[name] = replace(self.switches[name], placement=placement)
        return self

    @checked_call
    def program(self, pattern: str, program: str | Path = FORWARD, /, **options: Any) -> Fabric:
        """Says which switch program the switches run that a name or glob stands for, on both
        clocks, and with which options. Every other switch runs "forward". `program`: a name, or the
        path of a C file ("./heavy.c"), from the folder of the file that says it; it is compiled
        here. Returns itself. Raises FabricError, UsageError."""
        where = f"program {_text('program', pattern)}"
        program = str(program) if isinstance(program, Path) else program
        if not isinstance(program, str):
            raise FabricError(f"{where}: {quoted(program)} is not the name of a switch program")
        names = self.match_switches(pattern)
        if program.endswith(".c"):
            from loomnet.programs.c_file import c_program  # which knows of compilers and users

            program = c_program(where, program).name
        options = program_options(where, program, options)
        given = tuple(sorted(options.items()))
        for name in names:
            self.switches[name] = replace(self.switches[name], program=program, options=given)
        return self

    @property
    def programs(self) -> dict[str, str]:
        """Switches that run another program than "forward": name -> program."""
        return {
            name: switch.program
            for name, switch in self.switches.items()
            if switch.program != FORWARD
        }

    @property
    def local_ranks(self) -> dict[LocalRanks, int]:
        """How many hosts have which ranks on them, of the hosts that may have several."""
        return dict(Counter(host.local for host in self.hosts.values() if host.ranks > 1))

    def _fresh(self, name: str) -> None:
        if not _NAME.fullmatch(_text("node", name)):
            raise FabricError(
                f"{quoted(name)} is not a node name: a letter, then letters, digits "
                "and _, with single dots between them"
            )
        if name in self.hosts or name in self.switches or name in self.panels:
            raise FabricError(f"node {name} exists already")

    # --- reading --------------------------------------------------------------------------------
    @property
    def counts(self) -> tuple[int, int, int]:
        """Hosts, switches and links."""
        return len(self.hosts), len(self.switches), len(self._links)

    @property
    def rank_numbers(self) -> list[int]:
        """Numbers of the hosts that may run a rank."""
        return [i for i, host in enumerate(self.hosts.values()) if host.role == "rank"]

    def places(self, hosts: Iterable[int]) -> list[int]:
        """Where ranks of a job are when these hosts (numbers) are filled in order: the host of
        each."""
        listed = list(self.hosts.values())
        return [host for host in hosts for _ in range(listed[host].ranks)]

    def host_number(self, name: str) -> int | None:
        """A host's number; None where there is no such host."""
        return next((i for i, host in enumerate(self.hosts) if host == name), None)

    def host_name(self, number: int) -> str:
        return list(self.hosts)[number]

    def match(self, pattern: str) -> list[tuple[Link, int]]:
        """Links that `a--b` or `a->b` (globs allowed) names, with 0 for both directions, +1 for
        a->b as built and -1 for the reverse. Raises UsageError with the three nearest names."""
        found: list[tuple[Link, int]] = []
        _text("link", pattern)
        one_way = "->" in pattern
        if not one_way and "--" not in pattern:
            raise UsageError(
                f'"{pattern}" is not a link name: write a--b (both ways) or a->b'
                f"{did_you_mean(pattern, self.link_names())}"
            )
        for link in self._links.values():
            mark = "->" if one_way else "--"
            ahead = fnmatch.fnmatchcase(f"{link.a}{mark}{link.b}{link.suffix}", pattern)
            back = fnmatch.fnmatchcase(f"{link.b}{mark}{link.a}{link.suffix}", pattern)
            if one_way and ahead != back:
                found.append((link, 1 if ahead else -1))
            elif ahead or back:
                found.append((link, 0))
        if not found:
            names = self.half_names() if one_way else self.link_names()
            raise UsageError(f'no link "{pattern}"{did_you_mean(pattern, names)}')
        return found

    def match_switches(self, pattern: str) -> list[str]:
        """Switches that a name or glob stands for. Raises UsageError with the three nearest."""
        _text("switch", pattern)
        found = [name for name in self.switches if fnmatch.fnmatchcase(name, pattern)]
        if not found and pattern in self.hosts:
            raise UsageError(
                f'no switch "{pattern}": it is a host, whose links go down by '
                f'ln.down("{pattern}--*", …)'
            )
        if not found:
            raise UsageError(f'no switch "{pattern}"{did_you_mean(pattern, self.switches)}')
        return found

    def all_links(self) -> list[Link]:
        """Every link, in the order of construction: the index is the link's number."""
        return list(self._links.values())

    def link_names(self) -> list[str]:
        return [link.name for link in self._links.values()]

    def half_names(self) -> list[str]:
        return [name for link in self._links.values() for name, _ in link.halves]

    @property
    def planes(self) -> int:
        """Number of planes: one more than the highest plane of a switch."""
        return 1 + max((switch.plane for switch in self.switches.values()), default=-1)

    @property
    def ranks(self) -> list[str]:
        """Hosts that may run a rank, in order."""
        return [host.name for host in self.hosts.values() if host.role == "rank"]

    def links_of(self, node: str) -> list[Link]:
        return [link for link in self._links.values() if node in (link.a, link.b)]

    @property
    def links(self) -> Table:
        """One row per link: name, both ends, plane (None: a panel's), rate and delay (both ways if
        unequal)."""
        rows = []
        for link in self._links.values():
            ahead, back = link.forward, link.backward
            rows.append(
                {
                    "link": link.name,
                    "a": link.a,
                    "b": link.b,
                    "plane": self.plane_of(link),
                    "rate": ahead.rate
                    if ahead.rate == back.rate
                    else f"{ahead.rate} / {back.rate}",
                    "delay": ahead.delay
                    if ahead.delay == back.delay
                    else f"{ahead.delay} / {back.delay}",
                }
            )
        return Table(("link", "a", "b", "plane", "rate", "delay"), rows)

    @property
    def half_counts(self) -> Counter[HalfLink]:
        """How many directions of switches' links are alike, of each kind."""
        return Counter(
            half
            for link in self._links.values()
            if self.plane_of(link) is not None
            for half in (link.forward, link.backward)
        )

    def ports(self, node: str) -> Table:
        """One row per port of a node: its number, as switch programs name it, the node and port at
        the other end, and the link. Ports of switches are numbered in the order of their links,
        those of hosts by plane."""
        from loomnet.fabrics.port_table import ports_of

        return ports_of(self, node)

    def plane_of(self, link: Link) -> int | None:
        """None: the link is a panel's."""
        if link.a in self.panels or link.b in self.panels:
            return None
        return self.switches[link.b if link.b in self.switches else link.a].plane

    # --- checks ---------------------------------------------------------------------------------
    def check(self) -> Fabric:
        """Raises FabricError unless ports, planes and reachability add up. Returns itself."""
        check_fabric(self)
        return self

    # --- notebooks ------------------------------------------------------------------------------
    def __repr__(self) -> str:
        hosts, switches, links = self.counts
        panels = f"{how_many(len(self.panels), 'panel')}, " if self.panels else ""
        return (
            f"Fabric({self.name}: {how_many(hosts, 'host')}, "
            f"{how_many(switches, 'switch', 'switches')}, {panels}{how_many(links, 'link')}, "
            f"{how_many(self.planes, 'plane')})"
        )

    def describe(self) -> Table:
        """Counts, bisection, optics and switches per NIC, the longest path and what a failure costs
        (Araujo et al., arXiv 2605.04333); fewer rows where the fabric is not regular. Queues are in
        full packets of the fabric's payload. A run that sends larger ones, as TCP's with `payload`
        below 3 KiB, has queues of eight of those at least."""
        from loomnet.fabrics.description import describe

        return describe(self)

    def _repr_html_(self) -> str:
        from loomnet.fabrics.drawing import fabric_html

        return fabric_html(self)

    def _repr_svg_(self) -> str:
        from loomnet.fabrics.drawing import fabric_svg

        return fabric_svg(self)

    def to_networkx(self) -> Any:
        """A networkx.Graph: nodes carry `kind` and `plane`, edges `name`, `rate`, `delay`."""
        from loomnet.fabrics.drawing import to_networkx

        return to_networkx(self)


def _text(where: str, value: Any) -> str:
    if not isinstance(value, str):
        raise FabricError(f"{where}: {quoted(value)} is not a name")
    return value


def check_ports(where: str, value: Any) -> None:
    """Raises FabricError for what is no number of ports, and not None, which is any number."""
    if value is not None and (type(value) is not int or not 1 <= value <= _MOST_PORTS):
        raise FabricError(
            f"{where}: {quoted(value)} must be a whole number from 1 to {_MOST_PORTS}"
        )


def _check_placement(where: str, placement: str) -> None:
    if not isinstance(placement, str) or placement not in PLACEMENTS:
        raise FabricError(
            f"{where}: placement {in_quotes(placement)} is not one of {', '.join(PLACEMENTS)}"
        )
