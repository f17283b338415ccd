"""Imitation of Astraea's rule, by which a training begins: Ross et al., "A Reduction of Imitation
Learning and Structured Prediction to No-Regret Online Learning", AISTATS 2011 (DAgger): the learner
drives, the rule says what it would have done. Needs PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import loomnet._core as _core
from loomnet.base.errors import UsageError
from loomnet.labs.typed_function import called
from loomnet.learning.batch import TERMS, Batch
from loomnet.learning.stages import Cloning
from loomnet.learning.td3 import Learner

EPISODES, HELD = 16, 2  # side by side, of which the last ones are held out
ROUND = 20_000  # decisions of one round of driving
STEPS = 3_000  # of the actor, after each round
ROWS = 256  # of a step
WILD = 0.1  # share of the rule's own actions that are replaced by random ones while it drives
RATES = (1e-3, 1e-4)  # of Adam, first and last
ALPHA = 0.025
INTERVAL_US = 30_000

_COLUMNS = [
    TERMS.index(name)
    for name in (
        "throughput_Bps",
        "rtt_us",
        "least_rtt_us",
        "loss_Bps",
        "window_packets",
    )
]


@dataclass(frozen=True)
class Cloned:
    """What cloning reached: the mean squared error on held-out episodes, and steps of the actor."""

    error: float
    steps: int


def clone(
    learner: Learner,
    cloning: Cloning,
    *,
    flows: int,
    tcp: Mapping[str, Any],
    seed: int,
    watch: Callable[[Cloned], None] = lambda found: None,
) -> Cloned:
    """Until the error on held-out episodes is below what `cloning` asks, or its steps are over. The
    rule drives in the first round, the learner afterwards. `watch` is told after each round, and
    may raise."""
    random = np.random.default_rng((seed, 2**20))
    seen: list[list[np.ndarray]] = [[], []]  # inputs and the rule's actions
    held: list[list[np.ndarray]] = [[], []]
    found = Cloned(float("nan"), 0)
    while found.steps < cloning.most:
        drive = None if not found.steps else learner
        _gather(cloning, drive, flows, tcp, random, seen, held)
        if not seen[0] or not held[0]:
            raise UsageError(
                "Cloning: draw: flows of its bottlenecks decide nothing; give them a length in "
                "which flows that learn come and leave slow start"
            )
        inputs, actions = (np.concatenate(each) for each in seen)
        for number in range(min(STEPS, cloning.most - found.steps)):
            done = (found.steps + number) / cloning.most
            rows = random.integers(len(inputs), size=ROWS)
            rate = RATES[0] * (RATES[1] / RATES[0]) ** done
            learner.imitate(inputs[rows], actions[rows], rate)
        asked = np.concatenate(held[1])
        error = float(np.mean((learner.act(np.concatenate(held[0])) - asked) ** 2))
        found = Cloned(error, found.steps + min(STEPS, cloning.most - found.steps))
        watch(found)
        if error < cloning.below:
            break
    return found


def _gather(
    cloning: Cloning,
    drive: Learner | None,
    flows: int,
    tcp: Mapping[str, Any],
    random: np.random.Generator,
    seen: list[list[np.ndarray]],
    held: list[list[np.ndarray]],
) -> None:
    """ROUND decisions on new bottlenecks, fewer where fewer steps are asked for."""
    links = [called(cloning.draw, random) for _ in range(EPISODES)]
    batch = Batch(links, flows=flows)
    step = batch.reset(random.integers(2**31, size=EPISODES).tolist())
    alpha = float(tcp.get("alpha", ALPHA))
    interval_us = float(tcp.get("interval_us", INTERVAL_US))
    count, needed = 0, ROUND * min(cloning.most, STEPS) / STEPS
    while count < needed and not step.done.all():
        due = step.due & ~step.done[:, None]
        asked = np.full(due.shape, np.nan)
        asked[due] = rule(step.terms[due], alpha, interval_us)
        inputs = step.inputs[due]
        for kept, part in ((seen, slice(None, -HELD)), (held, slice(-HELD, None))):
            which = due[part]
            if which.any():
                kept[0].append(step.inputs[part][which])
                kept[1].append(asked[part][which].astype(np.float32))
        actions = asked
        if drive is not None and len(inputs):
            actions = np.full(due.shape, np.nan)
            actions[due] = drive.act(inputs)
        wild = due & (random.random(due.shape) < WILD)
        actions = np.where(wild, random.uniform(-1, 1, due.shape), actions)
        count += int(due.sum())
        step = batch.step(actions)


def rule(terms: np.ndarray, alpha: float = ALPHA, interval_us: float = INTERVAL_US) -> np.ndarray:
    """Actions float64[flows] of Astraea's rule, for terms float64[flows, len(TERMS)]."""
    return np.array(
        [
            _core.astraea.teacher_action(
                avg_thr=thr,
                avg_urtt=rtt,
                min_rtt=least,
                loss=loss,
                cwnd=window,
                interval_us=interval_us,
                alpha=alpha,
            )
            for thr, rtt, least, loss, window in terms[:, _COLUMNS].tolist()
        ],
        float,
    )
