"""Paths between a plan's hosts as the engine's queue pairs take them. Used by both clocks."""

from __future__ import annotations

from typing import Any

import loomnet._core as _core
from loomnet.plans.model import Plan
from loomnet.plans.usid_plan import PlanePaths
from loomnet.running.engine_panels import EnginePanels
from loomnet.running.leaf_spares import LeafSpares
from loomnet.systems.transport import Transport


class EnginePaths:
    """By circuits where the panels lead, else by the plan's switches."""

    def __init__(self, plan: Plan, panels: EnginePanels) -> None:
        self._plan, self._panels, self._spares = plan, panels, LeafSpares(plan)
        self._ways: dict[int, _core.ListedWays] = {}

    def rows(self, source: int, destination: int, by: Transport) -> tuple[list[Any], list[int]]:
        """Of each port of the source: what connect_qp takes of its paths; and its plane, of none
        where each port has the plane of its number. Nothing where source and destination are one
        host. Switches find the way of packets that do not say it, however long it is."""
        if source == destination:
            return [], []
        if self._panels.lead:
            templates, planes = self._panels.paths(source, destination, by_usids=by.by_usids)
        else:
            templates = self._plan.port_paths(source, destination, by_usids=by.by_usids)
            planes = []
        rows = []
        for port, p in enumerate(templates):
            # A template with uSIDs is of a plane, whose ports come first.
            spare = (
                min(self._spares.of_host(host, port) for host in (source, destination))
                if p.usids
                else 1.0
            )
            rows.append(self.row(p, spare))
        return rows, planes

    def row(self, paths: PlanePaths, spare: float = 1.0) -> tuple[Any, ...]:
        """A path template as connect_qp takes it. Listed ways become the engine's once, and its
        queue pairs share them."""
        listed = None
        if paths.ways:
            key = id(paths.ways)  # which the plan keeps
            if key not in self._ways:
                self._ways[key] = _core.ListedWays(paths.ways)
            listed = self._ways[key]
        return (
            paths.usids,
            paths.uplink_slot,
            paths.uplinks,
            paths.agg_slots,
            paths.cores_per_agg,
            listed,
            spare,
        )
