"""Training from nothing: bottlenecks that are drawn anew, flows that explore, a learner that goes
on where it stopped. Needs PyTorch."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import loomnet._core as _core
from loomnet.base.errors import UsageError
from loomnet.labs.typed_function import called
from loomnet.learning.batch import TERMS, Batch, Reward, RewardFunction, Step
from loomnet.learning.bottleneck import Bottleneck
from loomnet.learning.experience import Experience
from loomnet.learning.td3 import Learner, Replay, Td3

Draw = Callable[[np.random.Generator], Bottleneck]
LEAST_WINDOW, LOW = 4, -0.9  # packets; an action: at both, flows stand still
IDLE = 100  # episodes without a decision, after which there will be none
_WINDOW = TERMS.index("window_packets")
_TOLD = ("reward", "critics", "value", "utilisation", "floor", "low")


@dataclass(frozen=True)
class Pace:
    """How a training goes on.

    Attributes:
        episodes: bottlenecks side by side.
        decisions: of flows, for one update of the learner.
        before: transitions before the first update.
        explore: share of actions that are drawn at random, at first and in the end.
        over: decisions in which it falls from the one to the other.
        replay: transitions that are kept.
    """

    episodes: int = 8
    decisions: int = 20
    before: int = 2_000
    explore: tuple[float, float] = (0.3, 0.05)
    over: int = 3_000_000
    replay: int = 400_000


class Training:
    """One training: `draw` makes each episode's bottleneck, whose flows without `cc` learn.

    One seed is one training, on one machine with one thread of PyTorch: the same bottlenecks, the
    same exploration, the same networks. Episode number n is drawn by a generator of (seed, n). From
    `state_dict()` another process goes on as if the training had not stopped: episodes under way
    are played again by the actions that they have had.

    Args:
        flows: rows of an episode: the most flows that are drawn.
    """

    def __init__(
        self,
        draw: Draw,
        *,
        flows: int,
        constants: Td3 | None = None,
        pace: Pace | None = None,
        reward: Reward | RewardFunction | None = None,
        seed: int = 0,
    ) -> None:
        self._draw_link, self._flows, self._reward = draw, flows, reward
        self.pace = pace or Pace()
        self._seed, self._random = seed, np.random.default_rng(seed)
        self.decisions = self._drawn = 0  # _drawn: episodes
        self._batch, self._step = self._begun(self._numbers(self.pace.episodes))
        state = self._step.global_state.shape[1]
        self.learner = Learner(self._batch.inputs, state, constants or Td3(), seed)
        self.replay = Replay(self._batch.inputs, state, self.pace.replay)
        self._experience = Experience(self.replay)
        self._owed = 0  # decisions that no update has followed yet
        self._idle = 0  # episodes that have ended since the last decision

    @property
    def exploration(self) -> float:
        """The share of actions that are drawn at random now."""
        first, last = self.pace.explore
        return first + (last - first) * min(self.decisions / max(self.pace.over, 1), 1)

    def go_on(self, updates: int) -> dict[str, float]:
        """Until the learner has made so many updates more. Means over that time: `reward` of the
        steps, `critics` of their loss, and `value` of the actor's actions where it moved; and of
        the moments at which flows decided `utilisation` (payload), `floor`, the share of flows at
        the least window, and `low`, the share for which the actor's action was below -0.9."""
        until = self.learner.updates + updates
        found: dict[str, list[float]] = {name: [] for name in _TOLD}
        while self.learner.updates < until:
            self._one_step(found)
            while self._owed >= self.pace.decisions and self.learner.updates < until:
                self._owed -= self.pace.decisions
                for name, value in self.learner.update(self.replay).items():
                    found[name].append(value)
        return {name: float(np.mean(each)) for name, each in found.items() if each}

    def change(self, draw: Draw) -> None:
        """From here on `draw` makes the bottlenecks: those under way are left, and their flows'
        last decisions with them."""
        self._draw_link = draw
        self._batch, self._step = self._begun(self._numbers(self.pace.episodes))
        self._experience = Experience(self.replay)

    def policy(self) -> Any:
        """The actor of now, as `loomnet._core.astraea.Policy`: to_bytes() is its file."""
        tcp = self._batch.bottlenecks[0].tcp
        action = str(tcp.get("action", "window"))
        scale = ("factor_exponent", 2.0) if action == "factor" else ("alpha", 0.025)
        policy = _core.astraea.Policy(
            self.learner.actor.layers(),
            features=str(tcp.get("features", "ours11")),
            frames=int(tcp.get("frames", 5)),
            spacing=str(tcp.get("spacing", "every")),
            interval_ms=int(tcp.get("interval_us", 30_000)) // 1000,
            interval_rtts=float(tcp.get("interval_rtts", 0)),
            action=action,
            inner=str(tcp.get("inner", "cubic")) if action == "factor" else "cubic",
            alpha=float(tcp.get(*scale)),
            batch_norm_folded=self.learner.constants.batch_norm,
        )
        policy.quantise()
        return policy

    def state_dict(self) -> dict[str, Any]:
        """For torch.save(); torch.load(weights_only=True) reads it."""
        acted = [np.array(each).reshape(-1, self._flows) for each in self._acted]
        return {
            "learner": self.learner.state_dict(),
            "replay": self.replay.state_dict(),
            "experience": self._experience.state_dict(),
            "random": json.dumps(self._random.bit_generator.state),
            "decisions": self.decisions,
            "owed": self._owed,
            "seed": self._seed,
            "drawn": self._drawn,
            "episodes": list(self._episodes),
            "acted": [torch.from_numpy(each) for each in acted],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Of a training with the same draw, constants and pace; its seed may be another one."""
        self.replay.load_state_dict(state["replay"])  # first: it refuses what does not fit
        self.learner.load_state_dict(state["learner"])
        self._random.bit_generator.state = json.loads(state["random"])
        self.decisions, self._owed = state["decisions"], state["owed"]
        self._seed, self._drawn = state["seed"], state["drawn"]
        self._batch, self._step = self._begun([tuple(each) for each in state["episodes"]])
        self._acted = [list(each.numpy()) for each in state["acted"]]
        self._step = self._batch.repeat(self._acted)
        self._experience = Experience(self.replay)
        self._experience.load_state_dict(state["experience"])

    # --- inside -----------------------------------------------------------------------------------
    def _numbers(self, count: int) -> list[tuple[int, int]]:
        """Seed and number of the next episodes."""
        self._drawn += count
        return [(self._seed, self._drawn - count + each) for each in range(count)]

    def _links(self, numbers: list[tuple[int, int]]) -> tuple[list[int], list[Bottleneck]]:
        """Seeds and bottlenecks of these episodes."""
        seeds, links = [], []
        for each in numbers:
            random = np.random.default_rng(each)
            seeds.append(int(random.integers(2**31)))
            links.append(called(self._draw_link, random))
            if not isinstance(links[-1], Bottleneck):
                raise UsageError(f"Training: draw gave a {type(links[-1]).__name__}, no Bottleneck")
            if all(flow.cc is not None for flow in links[-1].flows):
                raise UsageError(
                    "Training: draw: each flow has a cc; leave it out of those that learn"
                )
        return seeds, links

    def _begun(self, numbers: list[tuple[int, int]]) -> tuple[Batch, Step]:
        seeds, links = self._links(numbers)
        self._episodes, self._acted = numbers, [[] for _ in numbers]
        batch = Batch(links, reward=self._reward, flows=self._flows)
        return batch, batch.reset(seeds)

    def _one_step(self, found: dict[str, list[float]]) -> None:
        step = self._step
        due = step.due & ~step.done[:, None]
        actions = np.full(due.shape, np.nan)
        count = int(due.sum())
        if count:
            self._idle = 0
            chosen = self.learner.act(step.inputs[due]).astype(float)
            moments = due.any(1)
            found["reward"].extend(step.reward[moments].tolist())
            found["utilisation"].extend(step.reward_terms[moments, 0].tolist())
            found["floor"].extend((step.terms[due][:, _WINDOW] <= LEAST_WINDOW).tolist())
            found["low"].extend((chosen < LOW).tolist())
            wild = self._random.random(count) < self.exploration
            chosen[wild] = self._random.uniform(-1, 1, int(wild.sum()))
            actions[due] = chosen
        self._experience.add(step, actions)
        self.decisions += count
        if self.replay.size >= self.pace.before:
            self._owed += count
        over = step.done.copy()
        for k in np.flatnonzero(~over).tolist():
            self._acted[k].append(actions[k])
        self._step = self._batch.step(actions)
        if over.any():
            places = np.flatnonzero(over).tolist()
            self._idle += len(places)
            if self._idle >= IDLE:
                raise UsageError(
                    f"Training: draw: no flow of {IDLE} bottlenecks has decided anything; give "
                    "them a length in which flows that learn come and leave slow start"
                )
            numbers = self._numbers(len(places))
            seeds, links = self._links(numbers)
            for k, number in zip(places, numbers, strict=True):
                self._episodes[k], self._acted[k] = number, []
            self._experience.forget(over)
            self._step = self._batch.renew(over, seeds, links)
