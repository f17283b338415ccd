"""Circuits of a run's panels as they are now, and the paths that queue pairs have by them: two
hosts that a circuit joins talk by it, others by their planes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean
from loomnet.fabrics.panels import NO_CIRCUIT
from loomnet.faults.timetable import CircuitChange
from loomnet.plans.entries import PanelPlan
from loomnet.plans.make import panel_ports
from loomnet.plans.model import LEFT_TO_SWITCHES, Plan
from loomnet.plans.usid_plan import PlanePaths

NO_PATH = PlanePaths((), -1, ())


class Circuits:
    """Which ports of which hosts circuits join. Numbers are those of the plan. `single`: transports
    of the run that cut a message into as many parts as two hosts have paths, which may not become
    more or fewer, so two hosts have one path at most."""

    def __init__(self, plan: Plan, *, single: Sequence[str] = ()) -> None:
        self._plan, self._single = plan, single
        if single and plan.planes > 1:
            raise UsageError(
                f"run: transport {single[0]} cuts messages into a part for each of "
                f"the {plan.planes} planes, and circuits are one path: give planes=1 "
                "beside a panel, or transport mrc or tcp"
            )
        self._panels = {panel.name: panel for panel in plan.panels}
        self._tables = {panel.number: list(panel.circuits) for panel in plan.panels}
        self._down: set[int] = set()  # links without carrier
        # Of a pair of hosts, the lower number first: the links of each circuit that joins them.
        self._joined: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self._moved: set[tuple[int, int]] = set()
        self._check(self._tables)
        self._join()
        self._moved.clear()

    def now(self, panel: str) -> list[tuple[str, str]]:
        """Hosts that a panel's circuits join now, a pair for each. Raises UsageError."""
        found = self._tables[self.number(panel)]
        plan = self._panels[panel]
        names = self._plan.topology.names
        return [
            (
                names[_host_at(self._plan, plan, plan.ports[port])],
                names[_host_at(self._plan, plan, plan.ports[other])],
            )
            for port, other in enumerate(found)
            if other != NO_CIRCUIT and port < other
        ]

    def patch(self, change: CircuitChange) -> tuple[int, list[int]]:
        """Takes over a change; the panel's number and its table. Raises UsageError."""
        panel = self._panels.get(change.panel)
        if panel is None:
            raise UsageError(
                f'circuit change: no panel "{change.panel}"'
                f"{did_you_mean(change.panel, self._panels)}"
            )
        ports = panel_ports(self._plan.topology, panel.name)
        table = ports.table(change.circuits, self._tables[panel.number])
        self._check(self._tables | {panel.number: table})
        self._tables[panel.number] = table
        self._join()
        return panel.number, table

    def number(self, panel: str) -> int:
        """The node of a panel. Raises UsageError."""
        if panel not in self._panels:
            raise UsageError(f'no panel "{panel}"{did_you_mean(panel, self._panels)}')
        return self._panels[panel].number

    def adopt(self, panel: str, crosses: Iterable[tuple[int, int]]) -> None:
        """The panel has these simplex cross-connects: two ports that are joined both ways are a
        circuit of their hosts. Of several circuits of two hosts a transport that knows one path
        keeps the one it had: a request from outside has been answered already. Raises UsageError
        for an unknown panel."""
        self.number(panel)
        plan, there = self._panels[panel], set(crosses)
        table = [NO_CIRCUIT] * len(plan.circuits)
        for a, b in there:
            if a != b and (b, a) in there and max(a, b) < len(plan.ports):
                table[a] = b
        self._tables[plan.number] = table
        self._join()

    def carry(self, link: int, up: bool) -> None:
        """Takes over the carrier of a link."""
        if up != (link not in self._down) and self._plan.links[link].plane is None:
            (self._down.discard if up else self._down.add)(link)
            self._join()

    def moved(self) -> list[tuple[int, int]]:
        """Pairs of hosts whose paths have changed since the last call."""
        found, self._moved = sorted(self._moved), set()
        return found

    def _check(self, tables: Mapping[int, Sequence[int]]) -> None:
        """Raises UsageError if these tables join two hosts more often than a transport can use."""
        for hosts, found in self._circuits_of(tables).items():
            if self._single and len(found) > 1:
                a, b = (self._plan.hosts[host].name for host in hosts)
                raise UsageError(
                    f"run: {len(found)} circuits join {a} and {b}, and transport "
                    f"{self._single[0]} cuts messages into as many parts as two hosts "
                    "have paths, which may not change: join them once, or use "
                    "transport mrc or tcp"
                )

    def _join(self) -> None:
        before, self._joined = self._joined, self._circuits_of(self._tables)
        if self._single:
            for hosts, found in self._joined.items():
                had = [links for links in before.get(hosts, []) if links in found]
                self._joined[hosts] = (had or found)[:1]
        self._moved |= {
            hosts
            for hosts in before.keys() | self._joined.keys()
            if before.get(hosts) != self._joined.get(hosts)
        }

    def _circuits_of(
        self, tables: Mapping[int, Sequence[int]]
    ) -> dict[tuple[int, int], list[tuple[int, int]]]:
        """Of each pair of hosts, the lower number first: the links of its circuits with carrier."""
        joined: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for panel in self._plan.panels:
            for port, other in enumerate(tables[panel.number]):
                if other == NO_CIRCUIT:
                    continue
                links = panel.ports[port], panel.ports[other]
                hosts = _host_at(self._plan, panel, links[0]), _host_at(self._plan, panel, links[1])
                if hosts[0] < hosts[1] and not self._down.intersection(links):
                    joined.setdefault(hosts, []).append(links)
        return joined

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Pairs of hosts that circuits join."""
        return sorted(self._joined)

    def joined(self, source: int, destination: int) -> list[int]:
        """Links by which light of the source reaches the destination; the k-th is the other end of
        the k-th of the destination's."""
        found = self._joined.get((min(source, destination), max(source, destination)), [])
        return [links[source > destination] for links in found]

    def paths(
        self, source: int, destination: int, *, by_usids: bool
    ) -> tuple[list[PlanePaths], list[int]]:
        """The path template of each port of the source's NIC, as Plan.port_paths() has it, and the
        plane that each has for this pair of hosts: both ends of a circuit have the same, and no two
        ports of a NIC."""
        plan = self._plan
        host = plan.hosts[source]
        shared = plan.port_paths(source, destination, by_usids=by_usids)
        light = self.joined(source, destination)
        templates: list[PlanePaths] = []
        planes: list[int | None] = []
        for link, plane in zip(host.ports, host.planes, strict=True):
            if link in light:
                templates.append(LEFT_TO_SWITCHES)  # there are none
                planes.append(len(shared) + light.index(link))
            elif plane is not None and shared:
                templates.append(NO_PATH if light else shared[plane])
                planes.append(plane)
            else:
                templates.append(NO_PATH)
                planes.append(None)
        spare = iter(
            sorted(
                set(range(len(host.ports) + len(shared) + len(light)))
                - {plane for plane in planes if plane is not None}
            )
        )
        return templates, [next(spare) if plane is None else plane for plane in planes]


def _host_at(plan: Plan, panel: PanelPlan, link: int) -> int:
    ahead = plan.links[link].forward
    return ahead.source if ahead.target == panel.number else ahead.target
