"""What may change the network during a run: the faults' timetable and the user's controllers, asked
in one order, and what they want of one link made into one state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from loomnet.faults.timetable import (
    Change,
    LinkChange,
    LinkState,
    PhaseChange,
    RouteChange,
    SendersChange,
    SwitchChange,
    Timetable,
)
from loomnet.measures.run_data import Iteration
from loomnet.measures.switch_state import Snapshot
from loomnet.plans.model import Plan
from loomnet.plugins.controllers import Event, View

# For the controller of this number, of the run at this time; the third is Control.state.
ViewMaker = Callable[[int, int, Callable[[int], LinkState]], View]


class Controls(Protocol):
    """The timetable, a user's controller (plugins.controllers.Seat), or one of the package's own.
    Times are picoseconds since the first job's first iteration began."""

    def next_time(self) -> int | None:
        """When advance() is due; None: no time is known."""
        ...

    def advance(self, now: int, view: View) -> list[Change]: ...
    def on_event(self, now: int, event: Event) -> list[Change]: ...


class Faults:
    """The timetable as a controller: the first of every run."""

    def __init__(self, table: Timetable, lead: str) -> None:
        self._table, self._lead = table, lead

    def next_time(self) -> int | None:
        return self._table.next_time()

    def advance(self, now: int, view: View) -> list[Change]:
        return self._table.advance(now)

    def on_event(self, now: int, event: Event) -> list[Change]:
        if event.kind != "iteration" or event.where != self._lead:
            return []
        done: Iteration = event.value
        return self._table.on_iteration(done.number, done.start_ps, done.end_ps)


class Snapshots:
    """Takes the state of switch programs at the times that a run was given; changes nothing."""

    def __init__(self, times_ps: Sequence[int], switches: Sequence[str]) -> None:
        self._due, self._switches = list(times_ps), switches
        self.taken: dict[str, dict[int, Snapshot]] = {}  # by switch and time

    def next_time(self) -> int | None:
        return self._due[0] if self._due else None

    def advance(self, now: int, view: View) -> list[Change]:
        while self._due and self._due[0] <= now:
            at = self._due.pop(0)
            for name in self._switches:
                self.taken.setdefault(name, {})[at] = view.switch(name).snapshot()
        return []

    def on_event(self, now: int, event: Event) -> list[Change]:
        return []


@dataclass
class _Wants:
    """What one of them wants of the network at present."""

    links: dict[int, LinkState] = field(default_factory=dict)  # by direction
    off: set[int] = field(default_factory=set)  # switches
    avoided: tuple[frozenset[int], frozenset[int]] = (frozenset(), frozenset())


class Control:
    """All that may change a run's network. The changes that it returns are to be applied in their
    order. Where only one controls, they are as that one gave them."""

    def __init__(self, plan: Plan, controls: Sequence[Controls], view: ViewMaker) -> None:
        self._plan, self._controls, self._view = plan, list(controls), view
        self._wants = [_Wants() for _ in self._controls]
        self.faults_alone = False  # asks and tells the timetable only: a job is being closed
        self._told: dict[int, bool] = {}  # of a direction: whether controllers know it as up
        self._routed = False  # whether tables have been installed since the beginning
        self._states: dict[int, LinkState] = {}  # of directions that are not as built

    def next_time(self) -> int | None:
        """When advance() is due; None: only an event can bring more."""
        dues = [each.next_time() for each in self._controls]
        return min((due for due in dues if due is not None), default=None)

    def advance(self, now: int) -> list[Change]:
        """Everything due at `now`."""
        found: list[Change] = []
        for number, each in enumerate(self._controls):
            if (due := each.next_time()) is not None and due <= now:
                view = self._view(number, now, self.state)
                found += self._taken(number, each.advance(now, view), now)
        return found

    def on_event(self, now: int, event: Event) -> list[Change]:
        """The changes that the timetable and the controllers want because of the event."""
        found: list[Change] = []
        for number, each in enumerate(self._controls[:1] if self.faults_alone else self._controls):
            found += self._taken(number, each.on_event(now, event), now)
        return found

    def state(self, half: int) -> LinkState:
        """How a direction of a link is now, faults and controllers together."""
        return self._states.get(half, LinkState())

    # --- one state of what several want -----------------------------------------------------------
    def _taken(self, number: int, changes: Iterable[Change], now: int) -> list[Change]:
        """The network's changes where the controller of that number wants these."""
        found: list[Change] = []
        for change in changes:
            found += self._merged(number, change)
            if number == 0:
                found += self._tell(now, change)
        return found

    def _merged(self, number: int, change: Change) -> list[Change]:
        wants = self._wants[number]
        if isinstance(change, LinkChange):
            wants.links[change.half] = change.state
            return self._show(number, change.half)
        if isinstance(change, SwitchChange):
            return self._switch(number, change)
        if isinstance(change, RouteChange):
            if len(self._controls) == 1:
                return [change]
            if number > 0 and change.avoided == wants.avoided and self._routed:
                return []  # a controller may say at each call what it wants
            wants.avoided, self._routed = change.avoided, True
            links, switches = (
                frozenset().union(*(each.avoided[kind] for each in self._wants)) for kind in (0, 1)
            )
            return [RouteChange(self._plan.reconverged(links, switches), (links, switches))]
        if isinstance(change, SendersChange):
            return [replace(change, controller=number)]
        return [change]

    def _switch(self, number: int, change: SwitchChange) -> list[Change]:
        """A switch that one of them has off is off."""
        wants = self._wants[number]
        before = any(change.node in each.off for each in self._wants)
        (wants.off.discard if change.alive else wants.off.add)(change.node)
        after = any(change.node in each.off for each in self._wants)
        found: list[Change] = []
        if before != after:
            found.append(SwitchChange(change.node, not after))
        if number > 0:  # the timetable states the links of a killed switch itself
            for _, link, _ in self._plan.topology.neighbours(change.node):
                found += [*self._show(number, 2 * link), *self._show(number, 2 * link + 1)]
        return found

    def _show(self, number: int, half: int) -> list[Change]:
        """What all of them want of a direction now that this one wants what it wants."""
        state = LinkState()
        for each, wants in enumerate(self._wants):
            if half in wants.links:
                state = state.and_also(wants.links[half])
            if each > 0 and wants.off and self._ends_at(half, wants.off):
                state = state.and_also(LinkState(up=False))
        if number > 0 and state == self.state(half):
            return []
        self._states[half] = state
        return [LinkChange(half, state)]

    def _ends_at(self, half: int, nodes: set[int]) -> bool:
        ends = self._plan.half(half)
        return ends.source in nodes or ends.target in nodes

    def _tell(self, now: int, change: Change) -> list[Change]:
        """Tells the controllers what the faults have done."""
        event = None
        if isinstance(change, PhaseChange):
            event = Event("phase", now, change.phase, change.kind)
        elif isinstance(change, SwitchChange):
            event = Event(
                "switch",
                now,
                self._plan.topology.names[change.node],
                "up" if change.alive else "down",
            )
        elif isinstance(change, LinkChange):
            up, name = change.state.up, self._plan.half(change.half).name
            if up != self._told.get(change.half, True):
                self._told[change.half] = up
                event = Event("link", now, name, "up" if up else "down")
        if event is None or self.faults_alone:
            return []
        return [
            each
            for number, control in enumerate(self._controls)
            if number > 0
            for each in self._taken(number, control.on_event(now, event), now)
        ]
