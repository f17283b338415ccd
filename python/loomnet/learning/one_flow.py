"""`loomnet/OneFlow-v0`: a flow that learns beside flows of other controls, as a Gymnasium
environment. Needs the extra [rl]."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import gymnasium
import numpy as np

from loomnet.base.errors import UsageError
from loomnet.learning.batch import TERMS, Batch, Reward, RewardFunction, Step
from loomnet.learning.bottleneck import Bottleneck, Flow

MOST_INPUT = 1e4  # features are ratios and logarithms; one above this is a link of its own kind
NEIGHBOURS = ("cubic", "bbr", "vegas", "copa")

Draw = Callable[[np.random.Generator], Bottleneck]


def spread(draw: np.random.Generator, least: float, most: float) -> float:
    """A number between them whose logarithm is uniform."""
    return math.exp(draw.uniform(math.log(least), math.log(most)))


def drawn(draw: np.random.Generator) -> Bottleneck:
    """The learner's flow from the begin to the end of 20 s, and none to two others."""
    others = [
        Flow(f"{draw.uniform(0, 8):.3f} s", f"{draw.uniform(5, 12):.3f} s", cc=str(cc))
        for cc in draw.choice(NEIGHBOURS, int(draw.integers(3)))
    ]
    return Bottleneck(
        rate=f"{spread(draw, 10, 100):.3f} Mb/s",
        rtt=f"{spread(draw, 5, 100):.3f} ms",
        buffer=spread(draw, 0.3, 4),
        flows=[Flow(), *others],
        length="20 s",
    )


class OneFlow(gymnasium.Env[np.ndarray, np.ndarray]):
    """One flow that learns, the first of a bottleneck's; the others follow controls of their own.

    A step is an interval of the flow, 30 ms. The observation is what a policy sees, float32
    [inputs], cut at 0 (features="aurora3": -1) and 10,000; the action is float32[1], -1 to 1; the
    reward is that of `Reward(…)`, of this flow alone. An episode never terminates: it is truncated
    when its time or the flow's lifetime is over. `info` has the seconds since the begin (`time_s`),
    the terms of TERMS, and the reward's five.

    Args:
        bottleneck: the same in each episode, or a function that draws one; by default drawn().
        reward: its weights.

    Raises UsageError where the bottleneck's first flow has a control, or another has none.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(
        self,
        bottleneck: Bottleneck | Draw = drawn,
        *,
        reward: Reward | RewardFunction | None = None,
    ) -> None:
        self._draw: Draw = bottleneck if callable(bottleneck) else lambda _: bottleneck
        self._reward = reward
        example = Batch([self._draw(np.random.default_rng(0))])
        self._least = example.least_input
        self.observation_space = gymnasium.spaces.Box(
            self._least, MOST_INPUT, (example.inputs,), np.float32
        )
        self.action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
        self._batch: Batch | None = None
        self._step: Step | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        bottleneck = self._draw(self.np_random)
        if bottleneck.flows[0].cc is not None or any(
            flow.cc is None for flow in bottleneck.flows[1:]
        ):
            raise UsageError(
                "OneFlow: the bottleneck's first flow learns and has no cc; give each other one "
                "a cc, or use loomnet.learning.parallel_env"
            )
        self._batch = Batch([bottleneck], reward=self._reward)
        self._step = self._batch.reset(int(self.np_random.integers(2**31)))
        return self._seen(self._step)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self._batch is None or self._step is None:
            raise gymnasium.error.ResetNeeded("OneFlow: call reset() before step()")
        actions = np.full((1, self._batch.flows), np.nan)
        actions[0, 0] = np.asarray(action, float).reshape(1)[0]
        step = self._step = self._batch.step(actions)
        observation, info = self._seen(step)
        return observation, float(step.reward[0]), False, bool(step.done[0]), info

    def _seen(self, step: Step) -> tuple[np.ndarray, dict[str, Any]]:
        info: dict[str, Any] = dict(zip(TERMS, step.terms[0, 0].tolist(), strict=True))
        info["time_s"] = float(step.now[0])
        info["reward_terms"] = step.reward_terms[0].copy()
        return np.clip(step.inputs[0, 0], self._least, MOST_INPUT), info
