"""Training from nothing: bottlenecks that are drawn anew, flows that explore, a learner that goes
on where it stopped. Needs PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import loomnet._core as _core
from loomnet.base.errors import UsageError
from loomnet.learning.batch import Batch, Reward, Step
from loomnet.learning.bottleneck import Bottleneck
from loomnet.learning.experience import Experience
from loomnet.learning.td3 import Learner, Replay, Td3

Draw = Callable[[np.random.Generator], Bottleneck]


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
    same exploration, the same networks. `state_dict()` at the begin of any go_on() is where another
    process takes it up; episodes under way begin anew there.

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
        reward: Reward | None = None,
        seed: int = 0,
    ) -> None:
        self._draw_link, self._flows, self._reward = draw, flows, reward
        self.pace = pace or Pace()
        self._random = np.random.default_rng(seed)
        self.decisions = 0
        self._batch, self._step = self._begun()
        state = self._step.global_state.shape[1]
        self.learner = Learner(self._batch.inputs, state, constants or Td3(), seed)
        self.replay = Replay(self._batch.inputs, state, self.pace.replay)
        self._experience = Experience(self.replay)
        self._owed = 0  # decisions that no update has followed yet

    @property
    def exploration(self) -> float:
        """The share of actions that are drawn at random now."""
        first, last = self.pace.explore
        return first + (last - first) * min(self.decisions / max(self.pace.over, 1), 1)

    def go_on(self, updates: int) -> dict[str, float]:
        """Until the learner has made so many updates more. Means over that time: `reward` of the
        steps, `critics` of their loss, and `value` of the actor's actions where it moved."""
        until, rewards, found = self.learner.updates + updates, [], {"critics": [], "value": []}
        while self.learner.updates < until:
            self._one_step(rewards)
            while self._owed >= self.pace.decisions and self.learner.updates < until:
                self._owed -= self.pace.decisions
                for name, value in self.learner.update(self.replay).items():
                    found[name].append(value)
        means = {name: float(np.mean(each)) for name, each in found.items() if each}
        return {"reward": float(np.mean(rewards)), **means}

    def policy(self) -> Any:
        """The actor of now, as `loomnet._core.astraea.Policy`: to_bytes() is its file."""
        tcp = self._batch.bottlenecks[0].tcp
        policy = _core.astraea.Policy(
            self.learner.actor.layers(),
            features=str(tcp.get("features", "ours11")),
            frames=int(tcp.get("frames", 5)),
            spacing=str(tcp.get("spacing", "every")),
            interval_ms=int(tcp.get("interval_us", 30_000)) // 1000,
            alpha=float(tcp.get("alpha", 0.025)),
            batch_norm_folded=self.learner.constants.batch_norm,
        )
        policy.quantise()
        return policy

    def state_dict(self) -> dict[str, Any]:
        """For torch.save()."""
        return {
            "learner": self.learner.state_dict(),
            "replay": self.replay.state_dict(),
            "random": self._random.bit_generator.state,
            "decisions": self.decisions,
            "owed": self._owed,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.replay.load_state_dict(state["replay"])  # first: it refuses what does not fit
        self.learner.load_state_dict(state["learner"])
        self._random.bit_generator.state = state["random"]
        self.decisions, self._owed = state["decisions"], state["owed"]
        self._batch, self._step = self._begun()
        self._experience = Experience(self.replay)

    # --- inside -----------------------------------------------------------------------------------
    def _drawn(self) -> Bottleneck:
        link = self._draw_link(self._random)
        if all(flow.cc is not None for flow in link.flows):
            raise UsageError("Training: draw: each flow has a cc; leave it out of those that learn")
        return link

    def _begun(self) -> tuple[Batch, Step]:
        links = [self._drawn() for _ in range(self.pace.episodes)]
        batch = Batch(links, reward=self._reward, flows=self._flows)
        return batch, batch.reset(self._seeds(len(links)))

    def _seeds(self, count: int) -> list[int]:
        return self._random.integers(2**31, size=count).tolist()

    def _one_step(self, rewards: list[float]) -> None:
        step = self._step
        due = step.due & ~step.done[:, None]
        actions = np.full(due.shape, np.nan)
        count = int(due.sum())
        if count:
            chosen = self.learner.act(step.inputs[due]).astype(float)
            wild = self._random.random(count) < self.exploration
            chosen[wild] = self._random.uniform(-1, 1, int(wild.sum()))
            actions[due] = chosen
            rewards.extend(step.reward[due.any(1)].tolist())
        self._experience.add(step, actions)
        self.decisions += count
        if self.replay.size >= self.pace.before:
            self._owed += count
        over = step.done.copy()
        self._step = self._batch.step(actions)
        if over.any():
            links = [self._drawn() for _ in range(int(over.sum()))]
            self._experience.forget(over)
            self._step = self._batch.renew(over, self._seeds(len(links)), links)
