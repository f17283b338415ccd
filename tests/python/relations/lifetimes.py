"""Flows that live for a time: what must be true of them beside flows of a given size."""

from __future__ import annotations

from unittest import mock

import loomnet as ln
from loomnet.running import traffic

from . import fabrics
from .drafts import Draft, a_size, draft
from .facts import not_above
from .relation import Found, Trial, Unfit, relation
from .worlds import Outcome, Wants, World

# A window that neither losses nor round trips move.
HELD = {"cc": "astraea", "policy": "hold", "startup": "none", "initial_window": 50}
# Controls under which a flow never waits for bytes to be posted: windows of which some are longer
# than what queues hold, and rules that move them.
CONTROLS: tuple[dict[str, object], ...] = (
    *({**HELD, "initial_window": packets} for packets in (50, 200, 800)),
    *({"cc": name} for name in ("cubic", "bbr", "bbr3", "copa")),
)
WANTS = Wants(kinds=("Flows",), more=0, faults=(), simple=True)


def _arrival(outcome: Outcome) -> float:
    """Of the last byte. Not the sender's end: an acknowledgement of the last segment alone is
    delayed."""
    return max(row["arrival_s"] for row in outcome.parts[0].flows)


def _flows(trial: Trial) -> tuple[World, Draft]:
    """The world and its job. Over TCP one flow takes its place, which loses packets as it goes."""
    [job] = trial.world.jobs
    if job.get("transport") != "tcp":
        return trial.world, job
    # 60 windows and more: a round trip more or less, which a last packet behind a full window and
    # one lost near the end take, is little of that.
    size = a_size(trial.draw, 10_000_000, 20_000_000)
    alone = {"transport": "tcp", "ranks": job.get("ranks"), "count": 1, "pairs": ((0, 1),)}
    lossy = draft("loss", "h0--*", trial.draw.choice((0.003, 0.01, 0.03)), at=ln.Time("0 s"))
    world = trial.world.but(faults=(lossy,)).with_options(tcp=HELD)
    return world, Draft(job.name, (size,), alone)


def _narrowed(trial: Trial, world: World) -> World:
    """With slower links towards hosts, whose long queues let windows grow far beyond what a path
    holds."""
    [first, *_] = fabrics.build(world.fabric).links_of("h0")
    rate = ln.Rate.of(round(first.forward.rate.count * trial.draw.uniform(0.05, 0.5)))
    narrow = draft(
        "override", "*->h*", rate=rate, data_limit=ln.Size("6 MB"), trim=False, ecn=False
    )
    return world.but(fabric=(*world.fabric, narrow))


def _living(trial: Trial, world: World, job: Draft) -> Outcome:
    lifetimes = (ln.Time("1000 s"),) * job.get("count")
    return trial.run(world.but(jobs=(job.change(lifetimes=lifetimes),)))


def _ended(*outcomes: Outcome) -> None:
    if not all(each.finished for each in outcomes):
        raise Unfit("a job did not finish")


@relation(WANTS, nearly=True)
def lifetime_longer_than_the_flow(trial: Trial) -> Found:
    """A flow that may live for longer than its bytes take is not slower for it (5 %), where packets
    are lost too: it posts its bytes as they are sent, not all at once."""
    world, job = _flows(trial)
    plain = trial.run(world.but(jobs=(job.change(lifetimes=()),)))
    lives = _living(trial, world, job)
    _ended(plain, lives)
    if plain.counted("rto") or lives.counted("rto"):
        raise Unfit("the last packets were lost, and a timer was awaited")
    return not_above("the last byte's arrival", _arrival(lives), _arrival(plain), 0.05)


@relation(WANTS)
def lifetime_posts_in_time(trial: Trial) -> Found:
    """A flow that may live for longer than its bytes take never waits for bytes that it has not
    posted: it arrives at the picosecond at which it arrives if the same short writes are all posted
    at its start, where packets are lost too."""
    world, job = _flows(trial)
    if job.get("transport") == "tcp":
        job = job.change(count=trial.draw.randint(1, 3))
        world = _narrowed(trial, world).with_options(tcp=trial.draw.choice(CONTROLS))
    lives = _living(trial, world, job)
    with mock.patch.multiple(
        traffic, MESSAGE_BYTES=traffic.LIVING_BYTES, writes_outstanding=lambda plan: 1 << 12
    ):
        at_once = trial.run(world.but(jobs=(job.change(lifetimes=()),)))
    _ended(lives, at_once)
    one, other = ([row["arrival_s"] for row in each.parts[0].flows] for each in (at_once, lives))
    return [
        f"flow {number}: {late} s, and {early} s if all is posted at its start"
        for number, (early, late) in enumerate(zip(one, other, strict=True))
        if early != late
    ]
