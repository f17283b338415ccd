"""Tables of a plan's switches: static uSIDs, ECMP routes and the rows of the run's jobs, packed for
each switch's program. Used by both clocks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy

import loomnet._core as _core
from loomnet.faults.timetable import RouteChange, SwitchChange
from loomnet.plans.ecmp import EcmpTables
from loomnet.plans.entries import SwitchPlan
from loomnet.plans.model import Plan
from loomnet.plans.usid_plan import host_address
from loomnet.systems.registry import program
from loomnet.systems.system import RunPart

Batches = list[tuple[SwitchPlan, _core.TableBatch]]


class EngineTables:
    """`parts`: of the run, whose rows programs ask for. `routed`: switches have routes to hosts;
    packets that go by uSIDs alone need none."""

    def __init__(self, plan: Plan, parts: Sequence[RunPart], *, routed: bool) -> None:
        self._plan, self._parts, self._routed = plan, parts, routed
        # Of the hosts that are there, in order: uint8[n, 16].
        self._addresses = numpy.frombuffer(
            b"".join(host_address(host).packed for host in plan.hosts.numbers), numpy.uint8
        ).reshape(-1, 16)
        self._generation: dict[int, int] = {}
        self._routes: EcmpTables | None = None  # of the latest change; None: the plan's
        self._off: set[int] = set()  # switches (numbers) that are off or boot

    def next(self, switch: SwitchPlan) -> _core.TableBatch:
        """The next generation of one switch's tables; without a row while the switch is off."""
        self._generation[switch.number] = self._generation.get(switch.number, 0) + 1
        if switch.number in self._off:
            return self._packed(switch)
        if self._generation[switch.number] > 1 or self._parts:
            return self._filled(switch)
        key, made = ("tables", switch.number, self._routed), self._plan.made
        if key not in made:
            made[key] = self._filled(switch)
        return made[key]

    def _filled(self, switch: SwitchPlan) -> _core.TableBatch:
        usids = switch.usids
        rows: dict[str, Any] = {"own": [usids.own], "adjacencies": usids.links, "fib": usids.next}
        if self._routed:
            routes = self._routes.switch(switch.number) if self._routes else switch.routes
            reached = routes.group >= 0
            rows |= {
                "hosts": self._addresses[reached],
                "host_groups": routes.group[reached],
                "groups": [list(group) for group in routes.groups],
            }
        return self._packed(
            switch, rows=dict(program(switch.program).rows(switch, self._parts)), **rows
        )

    def _packed(self, switch: SwitchPlan, **rows: Any) -> _core.TableBatch:
        none: dict[str, Any] = {
            "own": [],
            "adjacencies": [],
            "fib": [],
            "hosts": [],
            "host_groups": [],
            "groups": [],
        }
        return _core.table_batch(
            switch.program,
            generation=self._generation[switch.number],
            block=switch.usids.block,
            **(none | rows),
        )

    def after(self, change: RouteChange | SwitchChange) -> Batches:
        """Which switches get which tables by this change."""
        if isinstance(change, RouteChange):
            self._routes = change.tables
            return self.again({switch.number for switch in self._plan.switches})
        (self._off.discard if change.alive else self._off.add)(change.node)
        return [
            (switch, self.next(switch))
            for switch in self._plan.switches
            if switch.number == change.node
        ]

    def again(self, switches: Collection[int]) -> Batches:
        """New tables of these switches, without those that are off, which get theirs later."""
        return [
            (switch, self.next(switch))
            for switch in self._plan.switches
            if switch.number in switches and switch.number not in self._off
        ]
