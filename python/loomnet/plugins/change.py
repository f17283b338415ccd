"""`ln.change`: what a controller asks to be changed. Each function returns one entry of the list
that `advance` or `on_event` returns; the run carries it out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from loomnet.base.arguments import checked_call
from loomnet.base.bounds import MOST_TIME, hours
from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean, quoted
from loomnet.base.units import Rate, Time
from loomnet.fabrics.panels import Circuit, circuit_list
from loomnet.faults.timetable import (
    Change,
    CircuitChange,
    LinkChange,
    LinkState,
    RouteChange,
    SendersChange,
    SwitchChange,
)
from loomnet.plans.make import panel_ports
from loomnet.plans.model import Plan
from loomnet.plugins.failures import called_from

# Where it was made, for the error of a change that the fabric does not have.
_PLACE: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True)
class Link:
    """Made by link()."""

    pattern: str
    up: bool
    rate: Rate | None
    share: float
    extra_delay: Time
    loss: float
    burst: float
    place: str = _PLACE

    def resolved(self, plan: Plan) -> list[Change]:
        found: list[Change] = []
        numbers = plan.topology.link_number
        for link, direction in plan.topology.fabric.match(self.pattern):
            number = 2 * numbers[link.name]
            both = direction == 0 or not self.up  # carrier is lost at both ends
            halves = [number] * (both or direction > 0) + [number + 1] * (both or direction < 0)
            found += [LinkChange(half, self._state(plan, half)) for half in halves]
        return found

    def _state(self, plan: Plan, number: int) -> LinkState:
        half, share = plan.half(number), self.share
        if self.rate is not None:
            share = self.rate.count / half.rate_bps
            if share > 1:
                raise UsageError(
                    f"change.link: {self.rate} is above {half.name}'s own rate, "
                    f"{Rate.of(half.rate_bps)}"
                )
        return LinkState(
            up=self.up,
            loss=self.loss,
            burst=self.burst,
            extra_delay_ps=self.extra_delay.count,
            share=share,
            queue_share=share,
        )


@dataclass(frozen=True)
class Switch:
    """Made by switch()."""

    pattern: str
    up: bool
    place: str = _PLACE

    def resolved(self, plan: Plan) -> list[Change]:
        numbers = plan.topology.number
        return [
            SwitchChange(numbers[name], self.up)
            for name in plan.topology.fabric.match_switches(self.pattern)
        ]


@dataclass(frozen=True)
class Routes:
    """Made by routes()."""

    avoid: tuple[str, ...]
    place: str = _PLACE

    def resolved(self, plan: Plan) -> list[Change]:
        topology, links, switches = plan.topology, set(), set()
        for name in self.avoid:
            if "--" in name or "->" in name:
                links |= {
                    topology.link_number[link.name] for link, _ in topology.fabric.match(name)
                }
            else:
                switches |= {topology.number[each] for each in topology.fabric.match_switches(name)}
        avoided = frozenset(links), frozenset(switches)
        return [RouteChange(plan.reconverged(*avoided), avoided)]


@dataclass(frozen=True)
class Circuits:
    """Made by circuits()."""

    panel: str
    pairs: tuple[Circuit, ...]
    place: str = _PLACE

    def resolved(self, plan: Plan) -> list[Change]:
        panels = [panel.name for panel in plan.panels]
        if self.panel not in panels:
            raise UsageError(
                f'change.circuits: no panel "{self.panel}"{did_you_mean(self.panel, panels)}'
            )
        panel_ports(plan.topology, self.panel).table(self.pairs)
        return [CircuitChange(self.panel, self.pairs)]


@dataclass(frozen=True, eq=False)
class Senders:
    """Made by senders()."""

    rows: Any
    cwnd: Any
    pacing: Any
    place: str = _PLACE

    def resolved(self, plan: Plan) -> list[Change]:
        return [SendersChange(self.rows, self.cwnd, self.pacing, self.place)]


Asked = Link | Switch | Routes | Circuits | Senders


@checked_call
def link(
    link: str,
    *,
    up: bool = True,
    rate: Rate | str | float | None = None,
    extra_delay: Time | str = "0 s",
    loss: float = 0.0,
    burst: float = 1.0,
) -> Link:
    """How a link (`a--b`) or one direction (`a->b`), globs allowed, is to be from now on.

    Each change of a link replaces the controller's last one of it; what is not given is as the
    fabric says, so `ln.change.link("a--b")` takes all back. `up=False` takes the carrier at both
    ends. `rate`: a rate ("10 Gb/s") or a share of the link's own (0.25); queues and marking
    thresholds shrink with it. `extra_delay` comes on top of the link's delay. `loss`: the share of
    packets lost while carrier stays, in bursts of mean `burst`. Faults of the run come on top.
    """
    if not isinstance(link, str):
        raise UsageError(f"change.link: {quoted(link)} is not a link's name")
    if not isinstance(up, bool):
        raise UsageError(f"change.link: up={quoted(up)} must be True or False")
    share, wanted = 1.0, None
    if isinstance(rate, (int, float)) and not isinstance(rate, bool):
        share = float(rate)
        if not 0 < share <= 1:
            raise UsageError(
                f"change.link: rate={quoted(rate)}: a share above 0, at most 1, or a "
                'rate such as "10 Gb/s"'
            )
    elif rate is not None:
        wanted = Rate.given("change.link: rate", rate)
        if wanted.count < 1:
            raise UsageError(f"change.link: rate={wanted} must be above 0; up=False takes it down")
    for name, value, least, most in (("loss", loss, 0, 1), ("burst", burst, 1, math.inf)):
        if (
            isinstance(value, bool)
            or not isinstance(value, (int, float))
            or not math.isfinite(value)
            or not least <= value <= most
        ):
            bounds = "0 to 1" if name == "loss" else "1 or more"
            raise UsageError(f"change.link: {name}={quoted(value)} must be {bounds}")
    extra = Time.given("change.link: extra_delay", extra_delay)
    if extra.count < 0:
        raise UsageError(f"change.link: extra_delay={extra} must not be negative")
    if extra > MOST_TIME:
        raise UsageError(
            f"change.link: extra_delay={extra} is more than the {hours(MOST_TIME)} that a run has"
        )
    return Link(link, up, wanted, share, extra, float(loss), float(burst), called_from())


@checked_call
def switch(switch: str, *, up: bool) -> Switch:
    """Takes a switch (globs allowed) down, as ln.kill does: its links lose carrier, and what its
    program held is gone. `up=True` gives it back its links and tables."""
    if not isinstance(switch, str):
        raise UsageError(f"change.switch: {quoted(switch)} is not a switch's name")
    if not isinstance(up, bool):
        raise UsageError(f"change.switch: up={quoted(up)} must be True or False")
    return Switch(switch, up, called_from())


@checked_call
def routes(*, avoid: Sequence[str] = ()) -> Routes:
    """ECMP tables of all switches, from now on: shortest paths around these links and switches
    (names, globs allowed), and around what the run's faults have taken. Paths of MRC, which its
    senders choose, are theirs. Each such change replaces the controller's last one."""
    names = [avoid] if isinstance(avoid, str) else avoid
    if not isinstance(names, (list, tuple, set, frozenset)) or not all(
        isinstance(each, str) for each in names
    ):
        raise UsageError(
            f"change.routes: avoid={quoted(avoid)} is not a list of names of links and switches"
        )
    ordered = sorted(names) if isinstance(names, (set, frozenset)) else names
    return Routes(tuple(ordered), called_from())


@checked_call
def circuits(panel: str, pairs: Iterable[Circuit]) -> Circuits:
    """The circuits of a panel from now on, these and no others; pairs as Panel.circuits takes them.
    Hosts that stay joined keep their ports. Two hosts that a circuit joins talk by it, others by
    their planes; what is on its way by a circuit that ends reaches the port's new far end, whose
    NIC drops it, or is lost in the panel (`drop_unmapped`)."""
    if not isinstance(panel, str):
        raise UsageError(f"change.circuits: {quoted(panel)} is not a panel's name")
    return Circuits(panel, circuit_list(f"change.circuits: {panel}", pairs), called_from())


@checked_call
def senders(rows: Any, *, cwnd: Any = None, pacing: Any = None) -> Senders:
    """What senders may send by from now on; their congestion controls go on from there. With the
    control "held", as `tcp={"cc": "held"}`, nothing else moves it.

    `rows`: of this controller's last `view.senders()`: numbers, a slice or a mask of bools. `cwnd`:
    bytes that may be in flight, of each of these rows, or one number for all; at least a packet.
    `pacing`: bits per second, likewise; 0: not paced. NaN or None: as it is.
    """
    return Senders(rows, cwnd, pacing, called_from())
