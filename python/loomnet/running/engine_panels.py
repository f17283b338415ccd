"""Panels of a plan in the engine: their circuits, patched by a run, its jobs or from outside, the
paths that queue pairs have by them, and the controllers of their regions. Used by both clocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar
from weakref import WeakMethod

from loomnet.base.errors import UsageError
from loomnet.base.names import quoted
from loomnet.fabrics.panels import switching
from loomnet.faults.timetable import CircuitChange, ControllerChange
from loomnet.measures.panel_events import PanelEvents
from loomnet.plans.model import Plan
from loomnet.plans.usid_plan import PlanePaths
from loomnet.running.circuits import Circuits
from loomnet.running.engine_numbers import EngineNode

T = TypeVar("T")

MOST_COMMANDS = 100_000  # from outside, for the report


class EnginePanels:
    """Adds the plan's panels to the network and to `nodes`. `reroute`: a method of the engine,
    called with pairs of hosts whose paths have changed. `single`: transports that have one path
    between two hosts. `patched`: a job patches the panels, and has queue pairs of its own for each
    circuit."""

    def __init__(
        self,
        plan: Plan,
        network: Any,
        nodes: dict[int, EngineNode],
        *,
        live: bool,
        reroute: Callable[[Iterable[tuple[int, int]]], None],
        single: Sequence[str],
        patched: bool,
    ) -> None:
        self._plan, self._network, self._patched = plan, network, patched
        self._node: Mapping[int, EngineNode] = nodes
        # Weakly: a method of the engine that holds this part would keep both until Python collects.
        self._rerouted = WeakMethod(reroute)
        for panel in plan.panels:
            nodes[panel.number] = network.add_panel(
                list(panel.circuits),
                carrier=panel.carrier,
                kernel=live and panel.in_kernel,
                **switching(panel.profile),
            )
        self._circuits = Circuits(plan, single=() if patched else single) if plan.panels else None
        self._commands: list[tuple[int, str, str]] = []  # time, panel, request
        # By panel: each stops (False) or starts (True) the controller of a region there.
        self.region_controllers: dict[str, list[Callable[[bool], None]]] = {}

    # --- paths ------------------------------------------------------------------------------------
    @property
    def lead(self) -> bool:
        """Whether packets of two hosts go by the circuits that join them."""
        return self._circuits is not None and not self._patched

    def paths(
        self, source: int, destination: int, *, by_usids: bool
    ) -> tuple[list[PlanePaths], list[int]]:
        """As Circuits.paths, where panels lead."""
        assert self._circuits is not None
        return self._circuits.paths(source, destination, by_usids=by_usids)

    def carry(self, link: int, up: bool) -> list[tuple[int, int]]:
        """Queue pairs go by paths that this link, up or down, leaves. Returns the pairs of hosts
        whose paths have changed."""
        if self._circuits is None:
            return []
        self._circuits.carry(link, up)
        moved = self._circuits.moved()
        self._reroute(moved)
        return moved

    def ports_to(self, source: int, destination: int) -> list[int]:
        """Ports of a host by which circuits reach another now."""
        if self._circuits is None or self._patched:
            return []
        light = self._circuits.joined(source, destination)
        return [port for port, link in enumerate(self._plan.hosts[source].ports) if link in light]

    @property
    def joined_hosts(self) -> list[tuple[int, int]]:
        """Pairs of hosts that circuits join now, and whose packets go by them."""
        if self._circuits is None or self._patched:
            return []
        return self._circuits.pairs

    # --- circuits ---------------------------------------------------------------------------------
    def circuits(self, panel: str) -> list[tuple[str, str]]:
        """Hosts that a panel's circuits join now: time stands. Raises UsageError for an unknown
        panel."""
        known = self._known(panel)
        if self._patched:
            self._adopt(panel)
        return known.now(panel)

    def patch(
        self, change: CircuitChange, held: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> list[tuple[int, int]]:
        """Now: in `held` time stands. Returns the pairs of hosts whose paths have changed. Queue
        pairs have their paths before the carriers of their ports go and come, so that transports
        look for nothing at a port that leads to another host."""
        known = self._known(change.panel)
        if self._patched:
            with held():
                self._adopt(change.panel)
        panel, table = known.patch(change)
        moved = known.moved()
        with held():
            self._reroute(moved)
            self._network.set_circuits(self._node[panel], table)
        return moved

    def operate(
        self, panel: str, request: Callable[[Any, int], T]
    ) -> tuple[T, list[tuple[int, int]]]:
        """Now: time stands. Calls request(device, now_ps) with a panel's device, which it must not
        keep; then packets, queue pairs and hosts see what it has changed. Returns its result and
        the pairs of hosts whose paths have changed. Raises UsageError, and what it raises."""
        node = self._node[self._known(panel).number(panel)]
        moved: list[tuple[int, int]] = []

        def asked(device: Any, now_ps: int) -> T:
            try:
                return request(device, now_ps)
            finally:  # before carriers go and come, as in patch()
                moved.extend(self._adopt(panel))
                self._reroute(moved)

        return self._network.operate(node, asked), moved

    def _reroute(self, hosts: Iterable[tuple[int, int]]) -> None:
        reroute = self._rerouted()
        assert reroute is not None, "panels are used only while their engine is there"
        reroute(hosts)

    def _known(self, panel: str) -> Circuits:
        if self._circuits is None:
            raise UsageError(f"no panel {quoted(panel)}: the fabric has none")
        return self._circuits

    def _adopt(self, panel: str) -> list[tuple[int, int]]:
        """Takes over what others have patched; the pairs of hosts that are joined in another way
        than before."""
        known = self._known(panel)
        known.adopt(panel, self._network.cross_connects(self._node[known.number(panel)]))
        return known.moved()

    # --- controllers and events -------------------------------------------------------------------
    def control(self, change: ControllerChange) -> None:
        """Now, and time stands: controllers of a panel end or begin. Raises UsageError where none
        patches it."""
        if change.panel not in self.region_controllers:
            raise UsageError(
                f'fault kill("{change.panel}.controller"): no job of this run patches '
                f"{change.panel}; one with circuits=ln.CircuitControl() does"
            )
        for lives in self.region_controllers[change.panel]:
            lives(change.alive)

    def note_command(self, panel: str, at_ps: int, text: str) -> None:
        """A request from outside has changed something of a panel at this time."""
        if len(self._commands) < MOST_COMMANDS:
            self._commands.append((at_ps, panel, text))

    def events(self) -> PanelEvents:
        """What has happened to the panels' ports so far, and what was asked from outside."""
        found = PanelEvents()
        for command in self._commands:
            found.add_command(*command)
        for panel in self._plan.panels:
            rows, left_out = self._network.panel_events(self._node[panel.number])
            found.add(panel, [self._plan.links[link].name for link in panel.ports], rows, left_out)
            found.add_patches(panel.name, self._network.panel_patches(self._node[panel.number]))
        return found.in_order()
