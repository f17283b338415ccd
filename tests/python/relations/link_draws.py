"""What a link draws at random follows from the run's seed and the link's number. A link more, or
links listed in another order, move the numbers. Where a link drew, two such runs may differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import loomnet as ln

from . import fabrics
from .drafts import draft
from .facts import Path, differences, facts
from .relation import Excepted, Found, Trial
from .worlds import Outcome, World

AS_IT_ENDS = 2  # packets of a link, at most, that arrive in the picosecond in which a run ends
FAIR = ("fq", "fq_codel")
BY_CHANCE = ("loss", "duplicate", "reorder", "jitter")  # faults


def but_for_draws(
    trial: Trial,
    change: Callable[[fabrics.Calls], fabrics.Calls],
    but: Callable[[Path], bool] = lambda path: False,
    excuse: Callable[[Outcome, Outcome], str] = lambda one, other: "",
    of: Callable[[Outcome], dict[Path, Any]] = facts,
) -> Found:
    """Where a run with a changed fabric differs. If a link drew at random in one of the two, both
    are run again without any draw: if they are alike then, the world is excepted, and if not, it
    shows where. Packets of two links that come in one picosecond go by the links' numbers, too: a
    world is excepted that is alike once each link is longer by less than 2 ns of its own.
    `excuse`: why a run may differ for another reason; "" if it may not. `of`: what is compared."""
    steady = without_draws(trial.world)
    for world in (trial.world, steady):
        one = trial.base if world is trial.world else trial.run(world)
        other = trial.run(world.but(fabric=change(world.fabric)))
        lines = differences(of(one), of(other), but)
        if lines and (reason := excuse(one, other)):
            raise Excepted(reason)
        if world is steady:
            break
        drew = draws(one, trial.world) | draws(other, trial.world)
        if not lines:
            return lines
        if not drew:
            break
    if lines:
        unlike = steady.but(fabric=fabrics.apart(steady.fabric))
        one, other = (trial.run(unlike.but(fabric=each(unlike.fabric))) for each in (_same, change))
        if not differences(of(one), of(other), but):
            raise Excepted("packets of two links came in one picosecond")
        return [f"with nothing drawn: {line}" for line in lines] if drew else lines
    raise Excepted(f"drawn by the link's number: {', '.join(sorted(drew))}")


def _same(calls: fabrics.Calls) -> fabrics.Calls:
    return calls


def at_the_end(one: Outcome, other: Outcome) -> str:
    """A reason where only counters of the whole run differ, by packets of its last picosecond at
    most: the engine stops at the event that ends the last job, and events of one time have the
    order of their links."""
    here, there = one.result.data.totals, other.result.data.totals
    few = all(
        abs(row.get("packets", 0) - there.get(thing, {}).get("packets", 0)) <= AS_IT_ENDS
        for thing, row in here.items()
        if thing.startswith("link ")
    )
    unlike = differences(facts(one), facts(other), lambda path: path[0] == "total")
    return "" if unlike or not few else "events of the run's last picosecond go by links' numbers"


def draws(outcome: Outcome, world: World) -> set[str]:
    """What links drew at random that came to something."""
    found = {fault.name for fault in world.faults if fault.name in ("reorder", "jitter")}
    for link in outcome.result.plan.links:
        for half in (link.forward, link.backward):
            row = outcome.result.data.totals.get(f"link {half.name}", {})
            chance = half.ecn_low_bytes < half.ecn_high_bytes or half.ecn_share < 1
            if row.get("marked") and (chance or _symphony(world)):
                found.add("marks")
            if row.get("trimmed") and half.trim_victim == "coin":
                found.add("which packet is cut")
            if any(row.get(name) for name in ("drop_loss", "drop_fcs", "duplicated")):
                found.add("losses and copies")
            if half.queue in FAIR and row.get("max_queue"):
                found.add("flows that share a queue")
    return found


def without_draws(world: World) -> World:
    """The world with thresholds that are steps, full queues that cut what arrives, queues enough
    that no two flows share one, no fault by chance, and none that lasts iterations: it may begin
    before the first has ended now."""
    fabric = [call for call in world.fabric if call.given[1:] != ("symphony",)]
    fabric.append(draft("override", "*--*", ecn=ln.Ecn(ln.Size("20 kB")), trim_victim="arriving"))
    if any(call.get("queue") in FAIR for call in fabric):
        fabric.append(draft("override", "*--*", flows=65_536))
    return world.but(
        fabric=tuple(fabric),
        faults=tuple(
            fault
            for fault in world.faults
            if fault.name not in BY_CHANCE
            and isinstance(fault.get("duration", ln.Time("0 s")), ln.Time)
        ),
    )


def _symphony(world: World) -> bool:
    return any(call.given[1:] == ("symphony",) for call in world.fabric)
