"""A world that is stepped by hand is the run of its jobs, and its rows are what its flows do."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

import loomnet as ln

from . import jobs
from .drafts import draft
from .fabrics import build, far
from .relation import Found, Trial, Unfit, relation
from .watching import looks
from .worlds import Outcome, Wants, World

OF_FLOWS = ("Flows", "Permutation", "Incast")
MOST_STEPS = 1000


def _made(world: World) -> ln.World:
    with tempfile.TemporaryDirectory(prefix="loomnet-relation-") as folder:
        return ln.World(
            build(world.fabric),
            [job.make(ln, Path(folder)) for job in world.jobs],
            world.seed,
            faults=[fault.make(ln) for fault in world.faults],
            **world.options,
        )


def _of_flows(trial: Trial) -> World:
    """The world without controllers, with jobs of flows in the place of those beside the first."""
    if "controllers" in trial.world.options:
        raise Unfit("nobody steps a world beside a controller")
    made = []
    for job in trial.world.jobs:
        if job.name not in OF_FLOWS:
            hosts = (job.get("hosts") or ())[:4]
            if len(hosts) < 2:
                raise Unfit("its ranks are on one host")
            kind = trial.draw.choice(OF_FLOWS)
            job = jobs.a_job(trial.draw, kind, job.get("transport"), len(hosts)).change(
                hosts=hosts, name=job.get("name"), start=job.get("start")
            )
        made.append(job)
    trial.world = trial.world.but(jobs=tuple(made))
    return trial.world


def _columns(outcome: Outcome) -> list[Any]:
    return [part.data.flows.columns.tolist() for part in outcome.parts]


def _unlike(what: str, world: ln.World, outcome: Outcome) -> list[str]:
    return [
        f"{what}: {mine.columns.tolist()} for {theirs}"
        for mine, theirs in zip(world.flows, _columns(outcome), strict=True)
        if mine.columns.tolist() != theirs
    ]


def _to_the_end(world: ln.World, step: ln.Time) -> None:
    """A destination hears of the end one link's delay after it."""
    for _ in range(MOST_STEPS):
        if world.done:
            return
        world.step(world.now + step)
    raise Unfit(f"more than {MOST_STEPS} steps")


def _stepped(trial: Trial, step: ln.Time) -> Found:
    made, lines = _made(trial.world), []
    # A flow that fails may outlast the job, which ends with its first error.
    end = max(part.data.end_ps for part in trial.base.parts) + step.count
    for what in ("stepped", "anew"):
        made.reset()
        made.step(step)
        if what == "anew":
            made.step(ln.Time.of(end))
        _to_the_end(made, step)
        lines += _unlike(what, made, trial.base)
    return lines


@relation(Wants(kinds=OF_FLOWS, more=0))
def stepped(trial: Trial) -> Found:
    """Stepped by hand, and begun anew, the flows are those of the run to the picosecond."""
    _of_flows(trial)
    return _stepped(trial, looks(trial))


@relation(Wants(kinds=OF_FLOWS, least_more=1, more=2, faults=()))
def several_stepped(trial: Trial) -> Found:
    """The same of several jobs over any transports, and over long links, where transports get
    ready in unlike times."""
    world = _of_flows(trial)
    trial.world = world.but(fabric=far(world.fabric, trial.draw))
    return _stepped(trial, looks(trial))


@relation(Wants(kinds=OF_FLOWS, more=2))
def rows_follow_from_flows(trial: Trial) -> Found:
    """After every step the rows are those of the flows that have begun and not ended, with their
    hosts; `acked` never falls, and is at most the flow's bytes and what frames them."""
    made, step = _made(_of_flows(trial)), looks(trial)
    parts = trial.base.parts
    zeros = [part.data.time_zero_ps for part in parts]
    if None in zeros:
        raise Unfit("a job did not begin")
    seen = []
    made.reset()
    while not made.done and len(seen) < 300:
        rows = made.step(made.now + step)
        seen.append((made.now.count, rows))
    flows = []
    for job, (found, part, zero) in enumerate(zip(made.flows, parts, zeros, strict=True)):
        behind = zero - zeros[0]
        # A job that has failed is over, whatever its flows do.
        over = None if part.data.ended == "finished" else behind + part.data.end_ps
        for number, flow in enumerate(found):
            ends = [] if flow.end_ps is None else [behind + flow.end_ps]
            last = min([*ends, *([] if over is None else [over])], default=None)
            if flow.source != flow.destination:
                flows.append((job, number, flow, behind + flow.start_ps, last))
    lines, before, acked = [], {}, defaultdict(float)
    for at, rows in seen:
        there = {tuple(row) for row in rows[["job", "flow", "source", "destination"]].tolist()}
        wanted = {
            (job, number, flow.source, flow.destination)
            for job, number, flow, start, last in flows
            if start <= at and (last is None or at < last)
        }
        if there != wanted:
            lines.append(f"at {at}: {sorted(there)} for {sorted(wanted)}")
        for job, number, part, now in rows[["job", "flow", "part", "acked"]].tolist():
            was = before.get((job, number, part), 0)
            if now < was:
                lines.append(f"at {at}: flow {number} of job {job}: acked {now} after {was}")
            acked[job, number] += now - was
            before[job, number, part] = now
    for job, number, flow, *_ in flows:
        # MRC and TCP frame each write; RoCE counts whole packets.
        if acked[job, number] > 1.2 * flow.bytes + 20_000:
            lines.append(f"flow {number} of job {job}: acked {acked[job, number]} of {flow.bytes}")
    return lines


@relation(Wants(kinds=OF_FLOWS, more=2))
def rows_show_what_was_set(trial: Trial) -> Found:
    """A look after act() shows, in each row that was given, the limits set there, and in the
    others what they showed before."""
    world, step = _of_flows(trial), looks(trial)
    made = _made(world.with_options(**{name: {"cc": "held"} for name in world.transports()}))
    made.reset()
    lines, acted, limits = [], 0, ("cwnd", "pacing_bps")
    for _ in range(40):
        if made.done or lines:
            break
        rows = made.step(made.now + step)
        if len(rows) < 2:
            continue
        at = trial.draw.sample(range(len(rows)), trial.draw.randint(1, len(rows)))
        given = {
            "cwnd": [float(trial.draw.randint(20_000, 900_000)) for _ in at],
            "pacing_bps": [trial.draw.choice((0.0, 1e8, 2e9)) for _ in at],
        }
        made.act(at, cwnd=given["cwnd"], pacing=given["pacing_bps"])
        after = made.step(made.now)
        acted += 1
        for name in limits:
            wanted = rows[name].copy()
            wanted[at] = given[name]
            if len(after) != len(rows) or not np.allclose(after[name], wanted, rtol=1e-6):
                lines.append(f"{name} of rows {at}: {after[name].tolist()} for {wanted.tolist()}")
    if not acted:
        raise Unfit("never two rows at once")
    return lines


@ln.plugin.controller("relations_actor")
class Actor(ln.plugin.Controller):
    """Halves windows at every other tick of its own and widens them at the others."""

    def __init__(self, step_ps: int) -> None:
        self.step_ps = step_ps

    def advance(self, now: int, view: ln.plugin.View) -> ln.plugin.Changes:
        at, cwnd = _chosen(view.senders(), now // self.step_ps)
        return [ln.change.senders(at, cwnd=cwnd)] if len(at) else None


def _chosen(rows: np.ndarray, tick: int) -> tuple[np.ndarray, np.ndarray]:
    at = np.flatnonzero(rows["cwnd"] >= 10_000)
    return at, rows["cwnd"][at] * (0.5 if tick % 2 else 1.7)


@relation(Wants(kinds=OF_FLOWS, more=2))
def acted_as_controlled(trial: Trial) -> Found:
    """What a controller does at its ticks and what act() does at the same times give the same
    flows."""
    made, step = _made(_of_flows(trial)), looks(trial)
    actor = draft("controller", "relations_actor", every=step, step_ps=step.count)
    controlled = trial.run(trial.world, controllers=[actor])
    rows = made.reset()
    for tick in range(MOST_STEPS):
        at, cwnd = _chosen(rows, tick)
        if len(at):
            made.act(at, cwnd=cwnd)
        rows = made.step(made.now + step)
        if made.done:
            return _unlike("acted on", made, controlled)
    raise Unfit(f"more than {MOST_STEPS} steps")
