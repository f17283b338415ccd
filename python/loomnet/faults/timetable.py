"""The faults' timetable as a sans-I/O state machine: time and finished iterations go in, changes of
links, switches and routes come out. Both clocks drive the same object."""

from __future__ import annotations

import heapq
import itertools
import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from loomnet.base.errors import UsageError
from loomnet.base.units import Rate, Time
from loomnet.fabrics.panels import Circuit
from loomnet.faults.model import Fault, IterationCount, StepMark, panel_of_controller
from loomnet.plans.ecmp import EcmpTables
from loomnet.plans.model import Plan


@dataclass(frozen=True)
class LinkState:
    """What all active faults together make of one half-link."""

    up: bool = True
    loss: float = 0.0
    burst: float = 1.0
    duplicate: float = 0.0  # share of packets delivered twice
    reorder: float = 0.0  # share of packets that take up to `jitter_ps` longer
    jitter_ps: int = 0
    wander_ps: int = 0  # up to which each packet takes longer, in order
    slot_ps: int = 0  # packets arrive together at the ends of slots of this length; 0: each alone
    extra_delay_ps: int = 0
    share: float = 1.0  # of the nominal rate
    queue_share: float = 1.0  # of the nominal queue limits and marking thresholds

    @property
    def healthy(self) -> bool:
        return self == LinkState()

    def and_also(self, other: LinkState) -> LinkState:
        """Both at once: what happens to single packets as independent, delays as a sum, rates as
        shares."""
        return LinkState(
            up=self.up and other.up,
            loss=_either(self.loss, other.loss),
            burst=max(self.burst, other.burst),
            duplicate=_either(self.duplicate, other.duplicate),
            reorder=_either(self.reorder, other.reorder),
            jitter_ps=max(self.jitter_ps, other.jitter_ps),
            wander_ps=self.wander_ps + other.wander_ps,
            slot_ps=max(self.slot_ps, other.slot_ps),
            extra_delay_ps=self.extra_delay_ps + other.extra_delay_ps,
            share=self.share * other.share,
            queue_share=self.queue_share * other.queue_share,
        )

    @property
    def impairment(self) -> dict[str, float | int]:
        """What the link does to packets on their way, as the engine takes it."""
        return {
            "loss": self.loss,
            "burst": self.burst,
            "duplicate": self.duplicate,
            "reorder": self.reorder,
            "jitter_ps": self.jitter_ps,
            "wander_ps": self.wander_ps,
            "slot_ps": self.slot_ps,
        }


def _either(one: float, other: float) -> float:
    return one + other - one * other


@dataclass(frozen=True)
class LinkChange:
    half: int
    state: LinkState


@dataclass(frozen=True)
class SwitchChange:
    node: int
    alive: bool


@dataclass(frozen=True)
class RouteChange:
    """The fabric has reconverged: install these ECMP tables. `avoided`: the links and the switches
    (numbers) that they lead around."""

    tables: EcmpTables
    avoided: tuple[frozenset[int], frozenset[int]] = (frozenset(), frozenset())


@dataclass(frozen=True)
class CircuitChange:
    """The panel of this name patches these circuits and no others, at once; pairs of ends as
    Panel.circuits takes them."""

    panel: str
    circuits: tuple[Circuit, ...]


@dataclass(frozen=True, eq=False)
class SendersChange:
    """Senders of these rows of a controller's last look may send by these limits. `controller`: its
    number among those of the run; `place`: where the change was made, for an error."""

    rows: Any
    cwnd: Any
    pacing: Any
    place: str
    controller: int = -1


@dataclass(frozen=True)
class ControllerChange:
    """The controller of this panel's circuits dies, or a new one starts."""

    panel: str
    alive: bool


@dataclass(frozen=True)
class PhaseChange:
    phase: str
    kind: Literal["begin", "end"]


# Packets that a reordered one falls behind at most, where its fault gives no time.
REORDER_PACKETS = 8
Change = (
    LinkChange
    | SwitchChange
    | RouteChange
    | CircuitChange
    | ControllerChange
    | SendersChange
    | PhaseChange
)
# Dead links and dead switches, which routes avoid.
_Routed = tuple[frozenset[int], frozenset[int]]
# When, the order among those of one moment, what begins or ends, the fault; or what is rerouted.
_Due = tuple[int, int, str, int, _Routed | None]


@dataclass
class Window:
    """One phase as it happened; `end_ps` is None while it lasts. `states` are the half-links not
    healthy, and `dead` the dead switches, when it began; `what`: the fault that began it."""

    phase: str
    start_ps: int
    end_ps: int | None
    states: dict[int, LinkState] = field(default_factory=dict)
    dead: frozenset[int] = frozenset()
    what: str = ""


class Timetable:
    """Drive it with advance(now) at or after next_time(), and on_iteration() for every iteration
    rank 0 finishes; apply the changes in the order given. Times are picoseconds since the job's
    first iteration began. `reroute_delay` None: tables never reconverge. `moments`: a phase ->
    (number, after): its first fault begins `after` ps behind the end of iteration `number` (0: of
    the job's begin), not at its own time; so a replay starts it as far behind the same iteration as
    the recorded run did.
    """

    def __init__(
        self,
        plan: Plan,
        faults: list[Fault],
        *,
        reroute_delay: Time | None = None,
        moments: Mapping[str, tuple[int, int]] | None = None,
    ) -> None:
        self._plan, self._faults = plan, list(faults)
        self._reroute = reroute_delay
        self._targets = [_targets(plan, fault) for fault in self._faults]
        self._order = itertools.count()
        self._queue: list[_Due] = []
        # Fault -> the iteration whose end it waits for, and how long it waits then.
        self._waiting: dict[int, tuple[int, int]] = {}
        moments = dict(moments or {})
        timed = [
            (fault.at.count, i) for i, fault in enumerate(faults) if isinstance(fault.at, Time)
        ]
        for at, i in sorted(timed):
            number, after = moments.pop(faults[i].phase or "", (0, at))
            if number:
                self._waiting[i] = number, after
            else:
                self._push(after, "begin", i)
        for i, fault in enumerate(faults):
            if isinstance(fault.at, StepMark):
                self._waiting[i] = fault.at.number, 0
        self._look_ahead()
        self._active: set[int] = set()
        self._started: set[int] = set()
        self._ended: set[int] = set()
        self._booting: set[int] = set()  # killed switches that have power again
        self._undisturbed: list[int] = []  # from the end of one to the end of the next
        self._last_end: int | None = None
        self._last_change = 0
        self._shown: dict[int, LinkState] = {}
        self._dead: frozenset[int] = frozenset()
        self._controlled = [
            panel_of_controller(fault.target, plan.topology.fabric.panels)
            if fault.kind == "kill"
            else None
            for fault in faults
        ]
        self._stopped: set[str] = set()  # panels without their controllers
        self._routed: _Routed = (frozenset(), frozenset())
        self.windows: list[Window] = []

    def _push(self, at: int, kind: str, fault: int) -> None:
        heapq.heappush(self._queue, (at, next(self._order), kind, fault, None))

    # --- inputs ---------------------------------------------------------------------------------
    def next_time(self) -> int | None:
        """When advance() has something to do; None when only an iteration can bring more."""
        return self._queue[0][0] if self._queue else None

    def on_iteration(self, number: int, start_ps: int, end_ps: int) -> list[Change]:
        """Rank 0 has finished iteration `number`. Returns what changes at `end_ps`."""
        if not self._active and start_ps >= self._last_change:
            # With what ranks of a collective compute between two rounds.
            since = start_ps if self._last_end is None else max(self._last_end, self._last_change)
            self._undisturbed.append(end_ps - since)
        self._last_end = end_ps
        if number >= self._awaited:
            for i in sorted(self._waiting):
                awaited, after = self._waiting[i]
                if number >= awaited:
                    del self._waiting[i]
                    self._push(end_ps + after, "begin", i)
            self._look_ahead()
        return self.advance(end_ps)

    def _look_ahead(self) -> None:
        """Notes the iteration that the next fault waits for."""
        self._awaited = min((awaited for awaited, _ in self._waiting.values()), default=math.inf)

    def advance(self, now_ps: int) -> list[Change]:
        """Everything due at or before `now_ps`, in order of time."""
        changes: list[Change] = []
        while self._queue and self._queue[0][0] <= now_ps:
            at, due = self._queue[0][0], []
            while self._queue and self._queue[0][0] == at:
                due.append(heapq.heappop(self._queue))
            changes += self._apply(at, due)
        return changes

    @property
    def counts_iterations(self) -> bool:
        """Whether a fault begins or lasts by iterations: each must be told of when it ends."""
        return bool(self._waiting) or any(
            isinstance(each.duration, IterationCount) for each in self._faults
        )

    # --- state ----------------------------------------------------------------------------------
    @property
    def finished(self) -> bool:
        """Every fault with an end has ended, and no rerouting is pending."""
        endless = {i for i in self._started if self._faults[i].duration is None}
        return (
            not self._queue
            and not self._waiting
            and len(self._ended | endless) == len(self._faults)
        )

    @property
    def never_came(self) -> list[Fault]:
        """Faults that have not begun: after a run those that its end came before."""
        return [fault for i, fault in enumerate(self._faults) if i not in self._started]

    @property
    def active(self) -> list[Fault]:
        return [self._faults[i] for i in sorted(self._active)]

    def longest_fault(self) -> Time:
        """The longest duration stated as a time; zero when there is none."""
        return max(
            (
                f.duration + (f.reboot or Time("0 s"))
                for f in self._faults
                if isinstance(f.duration, Time)
            ),
            default=Time("0 s"),
        )

    def _apply(self, at: int, due: list[_Due]) -> list[Change]:
        changes: list[Change] = []
        begun: list[int] = []
        for _, _, kind, index, routed in due:
            if routed is not None:
                changes.append(RouteChange(self._plan.reconverged(*routed), routed))
                continue
            self._last_change = at
            if kind == "begin":
                self._active.add(index)
                self._started.add(index)
                begun.append(index)
                if (lasts := self._duration(index)) is not None:
                    boots = self._faults[index].reboot
                    if boots is not None and boots.count > 0:
                        self._push(at + lasts, "power", index)
                        lasts += boots.count
                    self._push(at + lasts, "end", index)
            elif kind == "power":
                self._booting.add(index)
            else:
                self._active.discard(index)
                self._booting.discard(index)
                self._ended.add(index)
        changes += self._differences(at)
        for _, _, kind, index, _ in due:
            if kind == "end" and (phase := self._faults[index].phase):
                changes += self._close(phase, at)
        for index in begun:
            if phase := self._faults[index].phase:
                changes += self._open(phase, at, self._faults[index].happened)
        return changes

    def _duration(self, index: int) -> int | None:
        duration = self._faults[index].duration
        if isinstance(duration, IterationCount):
            if not self._undisturbed:
                raise UsageError(
                    f"fault {self._faults[index].label}: lasts {duration}, but no "
                    "undisturbed iteration came before it; give a time or start later"
                )
            return round(statistics.median(self._undisturbed) * duration.number)
        return None if duration is None else duration.count

    def _differences(self, at: int) -> list[Change]:
        states: dict[int, LinkState] = {}
        dead: set[int] = set()
        for index in sorted(self._active):
            halves, switches = self._targets[index]
            dead |= set(switches)
            for half in () if index in self._booting else halves:
                states[half] = _add(
                    states.get(half, LinkState()),
                    self._faults[index],
                    self._plan.half(half).rate_bps,
                    self._plan.frame_bytes,
                )
        changes: list[Change] = [
            SwitchChange(node, node not in dead) for node in sorted(self._dead ^ dead)
        ]
        healthy = LinkState()
        changes += [
            LinkChange(half, states.get(half, healthy))
            for half in sorted(self._shown.keys() | states.keys())
            if states.get(half, healthy) != self._shown.get(half, healthy)
        ]
        self._shown, self._dead = states, frozenset(dead)
        stopped = {panel for i in self._active if (panel := self._controlled[i]) is not None}
        changes += [
            ControllerChange(panel, panel not in stopped)
            for panel in sorted(stopped ^ self._stopped)
        ]
        self._stopped = stopped
        routed = (
            frozenset(half // 2 for half, state in states.items() if not state.up),
            self._dead,
        )
        if routed != self._routed:
            self._routed = routed
            if self._reroute is not None:
                heapq.heappush(
                    self._queue, (at + self._reroute.count, next(self._order), "reroute", 0, routed)
                )
        return changes

    def _open(self, phase: str, at: int, what: str) -> list[Change]:
        if any(w.phase == phase and w.end_ps is None for w in self.windows):
            return []
        self.windows.append(Window(phase, at, None, dict(self._shown), self._dead, what))
        return [PhaseChange(phase, "begin")]

    def _close(self, phase: str, at: int) -> list[Change]:
        if any(self._faults[i].phase == phase for i in self._active):
            return []
        for window in self.windows:
            if window.phase == phase and window.end_ps is None:
                window.end_ps = at
                return [PhaseChange(phase, "end")]
        return []


def _targets(plan: Plan, fault: Fault) -> tuple[list[int], list[int]]:
    """Half-links and switches (node numbers) a fault acts on."""
    topology = plan.topology
    panels = topology.fabric.panels
    if fault.kind == "kill" and panel_of_controller(fault.target, panels) is not None:
        return [], []
    if fault.kind == "kill" and fault.target in panels:
        links = {link for _, link, _ in topology.neighbours(topology.number[fault.target])}
        return sorted(half for link in links for half in (2 * link, 2 * link + 1)), []
    if fault.kind == "kill":
        nodes = [topology.number[name] for name in topology.fabric.match_switches(fault.target)]
        links = {link for node in nodes for _, link, _ in topology.neighbours(node)}
        return sorted(half for link in links for half in (2 * link, 2 * link + 1)), nodes
    halves = []
    for link, direction in topology.fabric.match(fault.target):
        if not topology.present(topology.link_number[link.name]):
            continue  # no traffic of this run can meet it
        number = 2 * topology.link_number[link.name]
        both = direction == 0 or fault.kind == "down"  # carrier is lost at both ends
        halves += [number] * (both or direction > 0) + [number + 1] * (both or direction < 0)
    return sorted(halves), []


def _add(state: LinkState, fault: Fault, rate_bps: int, frame_bytes: int) -> LinkState:
    """The state with one more fault."""
    share, chance, jitter = 1.0, fault.probability or 0.0, 0
    extra_ps = fault.extra.count if fault.extra else 0
    if fault.kind == "degrade":
        share = fault.to.count / rate_bps if isinstance(fault.to, Rate) else float(fault.to or 1)
    if fault.kind == "reorder":
        jitter = (
            round(REORDER_PACKETS * frame_bytes * 8e12 / rate_bps)
            if fault.extra is None
            else extra_ps
        )
    return state.and_also(
        LinkState(
            up=fault.kind not in ("down", "kill"),
            loss=chance if fault.kind == "loss" else 0.0,
            burst=fault.burst,
            duplicate=chance if fault.kind == "duplicate" else 0.0,
            reorder=chance if fault.kind == "reorder" else 0.0,
            jitter_ps=jitter,
            wander_ps=extra_ps if fault.kind == "jitter" else 0,
            slot_ps=extra_ps if fault.kind == "bunch" else 0,
            extra_delay_ps=extra_ps if fault.kind == "delay" else 0,
            share=share,
            queue_share=1.0 if fault.keep_thresholds else min(share, 1.0),
        )
    )
