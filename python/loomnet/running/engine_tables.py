"""Tables of a plan's switches: static uSIDs, ECMP routes and the rows of the run's jobs, packed for
each switch's program. Used by both clocks."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Sequence
from typing import Any

import loomnet._core as _core
from loomnet.faults.timetable import RouteChange, SwitchChange
from loomnet.plans.ecmp import EcmpTables
from loomnet.plans.model import Plan, SwitchPlan
from loomnet.systems.registry import program
from loomnet.systems.system import RunPart

Batches = list[tuple[SwitchPlan, _core.TableBatch]]


class EngineTables:
    """`parts`: of the run, whose rows programs ask for. `routed`: switches have routes to hosts;
    packets that go by uSIDs alone need none."""

    def __init__(self, plan: Plan, parts: Sequence[RunPart], *, routed: bool) -> None:
        self._plan, self._parts, self._routed = plan, parts, routed
        self._addresses = {host.number: ipaddress.ip_address(host.address).packed
                           for host in plan.hosts}
        self._generation: dict[int, int] = {}
        self._routes: EcmpTables | None = None  # of the latest change; None: the plan's
        self._off: set[int] = set()  # switches (numbers) that are off or boot

    def next(self, switch: SwitchPlan) -> _core.TableBatch:
        """The next generation of one switch's tables; without a row while the switch is off."""
        self._generation[switch.number] = self._generation.get(switch.number, 0) + 1
        if switch.number in self._off:
            return self._packed(switch)
        usids = switch.usids
        rows: dict[str, Any] = {
            "own": [usids.own], "adjacencies": list(usids.adjacencies), "fib": list(usids.fib)}
        if self._routed:
            routes = self._routes.switch(switch.number) if self._routes else switch.routes
            rows["hosts"] = [(self._addresses[host], group) for host, group in routes.items()
                             if group >= 0]
            rows["groups"] = [list(group) for group in routes.groups]
        return self._packed(switch, rows=dict(
            program(switch.program).rows(switch, self._parts)), **rows)

    def _packed(self, switch: SwitchPlan, **rows: Any) -> _core.TableBatch:
        none: dict[str, Any] = {"own": [], "adjacencies": [], "fib": [], "hosts": [], "groups": []}
        return _core.table_batch(
            switch.program, generation=self._generation[switch.number], block=switch.usids.block,
            **(none | rows))

    def after(self, change: RouteChange | SwitchChange) -> Batches:
        """Which switches get which tables by this change."""
        if isinstance(change, RouteChange):
            self._routes = change.tables
            return self.again({switch.number for switch in self._plan.switches})
        (self._off.discard if change.alive else self._off.add)(change.node)
        return [(switch, self.next(switch)) for switch in self._plan.switches
                if switch.number == change.node]

    def again(self, switches: Collection[int]) -> Batches:
        """New tables of these switches, without those that are off, which get theirs later."""
        return [(switch, self.next(switch)) for switch in self._plan.switches
                if switch.number in switches and switch.number not in self._off]
