"""When circuits are patched only where that is worthwhile: the limits of the dark time, other names
of servers, the same demand played again, and a demand that becomes another one later."""

from __future__ import annotations

from typing import Any

import numpy as np

import loomnet as ln
import loomnet._core as _core
from loomnet.systems import mixnet

from . import jobs
from .facts import MOST_SHOWN
from .relation import Found, Trial, relation
from .worlds import Outcome, Wants, World

EXPERTS, ALPHA, ROW = 8, 6, 1 << 20
OF_EXPERTS = Wants(
    kinds=jobs.EXPERTS, transports=("roce", "tcp"), more=0, faults=(), settings=False
)
ENDLESS = "1000000 s"
# What each request gets: its iteration, layer, micro-batch, whether backward, and the circuits.
Decisions = list[tuple[tuple[int, int, int, bool], tuple[tuple[int, ...], ...]]]


def _counts(trial: Trial, iterations: int, layers: int) -> np.ndarray:
    """Gate counts without two equal entries, of which some stay from one iteration to the next."""
    random = np.random.default_rng(trial.draw.randrange(1 << 30))
    found: list[np.ndarray] = []
    for iteration in range(iterations):
        if iteration and trial.draw.random() < 0.4:
            found.append(found[-1])
            continue
        shares = random.dirichlet(
            np.full(EXPERTS, trial.draw.choice((0.2, 1.0))), (layers, EXPERTS)
        )
        whole = np.floor(shares * ROW).astype(np.int64)
        whole[..., 0] += ROW - whole.sum(-1)
        found.append(whole)
    return np.array(found)


def _patching(
    trial: Trial, counts: np.ndarray, profile: str | None = None, split: str | None = None
) -> World:
    """The trial's world with circuits that are patched where that is worthwhile. By default dark
    times are as long as some exchanges, so that some requests are patched and others are not."""
    [job] = trial.world.jobs
    fabric = trial.world.fabric[0].change(servers=4, alpha=ALPHA, network="mixnet", carrier="none")
    split = split or trial.draw.choice(("all_or_nothing", "weighted"))
    if profile is None:
        by_all_nics_ps = job.get("exchange").count * 8e12 / fabric.get("rate").count
        profile = f"{round(trial.draw.uniform(0.05, 2.0) * by_all_nics_ps)} ps"
    fabric = fabric.change(profile=profile)
    control = ln.CircuitControl(rule="share", split=split, repatch="worthwhile")
    return trial.world.but(
        fabric=(fabric,),
        jobs=(
            job.change(
                tensor=4,
                matrix=counts,
                layers=counts.shape[1],
                iterations=len(counts),
                micro_batches=trial.draw.randint(1, 2),
                circuits=control,
            ),
        ),
    )


def _decisions(outcome: Outcome) -> Decisions:
    experts: Any = outcome.parts[0].experts
    maps = [each.circuits for each in experts.kept]
    found: Decisions = []
    present = 0
    for note in experts.events:
        if note.event == "demand":
            found.append((note.key[:4], maps[present]))
        elif note.event == "apply":
            present += 1
            found[-1] = (found[-1][0], maps[present])
    return found


def _unlike(one: Decisions, other: Decisions) -> Found:
    if len(one) != len(other):
        return [f"{len(one)} requests, {len(other)}"]
    return [f"{a}, {b}" for a, b in zip(one, other, strict=True) if a != b][:MOST_SHOWN]


def _between(counts: np.ndarray) -> np.ndarray:
    """Tokens between four servers of two experts each; own ones left out."""
    folded = counts.reshape(4, 2, 4, 2).sum((1, 3))
    return np.where(np.eye(4, dtype=bool), 0, folded)


@relation(OF_EXPERTS)
def no_dark_time_patches_all_that_saves(trial: Trial) -> Found:
    """Without a dark time each request gets the best of the circuits that there are and those of
    the rule, and a change always saves time."""
    counts, split = _counts(trial, 3, 2), trial.draw.choice(("all_or_nothing", "weighted"))
    world = _patching(trial, counts, "ideal", split)
    outcome = trial.run(world, model="fluid")
    rate = float(world.fabric[0].get("rate").count)
    before, lines = np.zeros((4, 4), np.int64), []
    for (iteration, layer, _, _), circuits in _decisions(outcome):
        tokens = _between(counts[iteration, layer])
        demand = np.maximum(tokens, tokens.T)
        wanted = mixnet.assign(demand, ALPHA, rule="share").circuits
        there, ruled, chosen = (
            _core.exchange_seconds(
                split,
                4,
                (1_000_000 * tokens).ravel().tolist(),
                np.array(each).ravel().tolist(),
                rate,
                (8 - ALPHA) * rate,
            )
            for each in (before, wanted, circuits)
        )
        if chosen > min(there, ruled) * (1 + 1e-9):
            lines.append(f"{iteration} {layer}: {chosen} s, where others take {there} and {ruled}")
        if (before != circuits).any() and chosen > there:
            lines.append(f"{iteration} {layer}: patched for {chosen} s in place of {there}")
        before = np.array(circuits)
    return lines[:MOST_SHOWN]


@relation(OF_EXPERTS)
def endless_dark_time_patches_nothing(trial: Trial) -> Found:
    """No exchange saves as much as an endless dark time costs."""
    world = _patching(trial, _counts(trial, 3, 2), ENDLESS)
    outcome = trial.run(world, model="fluid")
    patches = outcome.parts[0].experts.patches
    return [f"{patches} patches"] if patches else []


@relation(OF_EXPERTS)
def servers_renamed(trial: Trial) -> Found:
    """With the servers' parts exchanged the decisions are those for the exchanged servers."""
    counts = _counts(trial, 3, 2)
    order = trial.draw.sample(range(4), 4)  # the server whose part each one plays
    experts = [2 * server + each for server in order for each in range(2)]
    world = _patching(trial, counts)
    [job] = world.jobs
    renamed = world.but(jobs=(job.change(matrix=counts[:, :, experts][..., experts]),))
    one, other = (_decisions(trial.run(each, model="fluid")) for each in (world, renamed))
    return _unlike(
        [
            (key, tuple(tuple(circuits[a][b] for b in order) for a in order))
            for key, circuits in one
        ],
        other,
    )


@relation(OF_EXPERTS)
def replay_decides_the_same(trial: Trial) -> Found:
    """A run in packets and a replay of its gate counts without packets decide the same: decisions
    follow from bytes, rates and dark times, not from how long exchanges took."""
    world = _patching(trial, _counts(trial, 3, 2))
    one, other = trial.run(world), trial.run(world, model="fluid")
    return _unlike(_decisions(one), _decisions(other))


@relation(OF_EXPERTS)
def later_demand_decides_nothing(trial: Trial) -> Found:
    """Decisions are the same where the demand of later iterations is another one."""
    counts = _counts(trial, 4, 2)
    other = np.concatenate([counts[:2], _counts(trial, 2, 2)])
    world = _patching(trial, counts)
    [job] = world.jobs
    changed = world.but(jobs=(job.change(matrix=other),))
    one, two = (
        [each for each in _decisions(trial.run(each, model="fluid")) if each[0][0] < 2]
        for each in (world, changed)
    )
    return _unlike(one, two)
