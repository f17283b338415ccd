"""A bottleneck as PettingZoo has it: an agent for each flow that learns. Needs the extra [rl]."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
from pettingzoo import ParallelEnv

from loomnet.base.errors import UsageError
from loomnet.learning.batch import TERMS, Batch, Reward, RewardFunction, Step
from loomnet.learning.bottleneck import Bottleneck
from loomnet.learning.one_flow import MOST_INPUT

Values = dict[str, Any]


class SharedBottleneck(ParallelEnv[str, np.ndarray, np.ndarray]):
    """Agents `flow_0`, `flow_1`, … are the flows of a bottleneck without a control of their own, by
    their places in Bottleneck.flows. An agent is there from the first step at which its flow is
    under way to the step in which it leaves, which truncates it; its name never comes back.

    A step goes on to the next wake-up at which any flow is due, as Batch.step() has it.
    `info["due"]` says of which agents: the action of another is not looked at, and its observation
    is the one that it saw last. All have one reward. Spaces are those of OneFlow.

    With `waiting`, agents whose flows have not joined are there from reset() on, too, never due and
    with zeros: TorchRL's wrapper asks for all agents then.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "loomnet/SharedBottleneck-v0", "render_modes": []}
    render_mode = None

    def __init__(
        self,
        bottleneck: Bottleneck,
        *,
        reward: Reward | RewardFunction | None = None,
        waiting: bool = False,
    ) -> None:
        flows = enumerate(bottleneck.flows)
        self._flows = {f"flow_{number}": number for number, flow in flows if flow.cc is None}
        if not self._flows:
            raise UsageError(
                "parallel_env: every flow has a cc; leave out that of those that learn"
            )
        self._batch = Batch([bottleneck], reward=reward)
        self.possible_agents = list(self._flows)
        self.agents: list[str] = []
        self._waiting = waiting
        self._come: set[str] = set()
        self._gone: set[str] = set()
        self._seed = 0
        shape = (self._batch.inputs,)
        self._observations = {
            name: gymnasium.spaces.Box(self._batch.least_input, MOST_INPUT, shape, np.float32)
            for name in self._flows
        }
        self._actions = {
            name: gymnasium.spaces.Box(-1, 1, (1,), np.float32) for name in self._flows
        }

    def observation_space(self, agent: str) -> gymnasium.Space[Any]:
        return self._observations[agent]

    def action_space(self, agent: str) -> gymnasium.Space[Any]:
        return self._actions[agent]

    def reset(
        self, seed: int | None = None, options: Values | None = None
    ) -> tuple[Values, Values]:
        """Without a seed the episode is one more of the last seed's."""
        self._seed = self._seed + 1 if seed is None else seed
        step = self._batch.reset(self._seed)
        self._come = set()
        self._gone = {name for name, flow in self._flows.items() if step.left[0, flow]}
        self.agents = self._present(step)
        return self._look(step, self.agents)

    def step(self, actions: Values) -> tuple[Values, Values, Values, Values, Values]:
        given = np.full((1, self._batch.flows), np.nan)
        for name in self.agents:
            given[0, self._flows[name]] = np.asarray(actions[name], float).reshape(1)[0]
        step = self._batch.step(given)
        present = self._present(step)
        told = list(dict.fromkeys([*self.agents, *present]))
        over = bool(step.done[0])
        self._gone |= {name for name in told if name not in present}
        observations, infos = self._look(step, told)
        self.agents = [] if over else present
        return (
            observations,
            {name: float(step.reward[0]) for name in told},
            dict.fromkeys(told, False),
            {name: over or name not in present for name in told},
            infos,
        )

    def state(self) -> np.ndarray:
        """What a central critic sees: float32[12]."""
        return self._last.global_state[0].copy()

    def _present(self, step: Step) -> list[str]:
        here = step.present[0] | step.left[0]
        self._come |= {name for name, flow in self._flows.items() if here[flow]}
        return [
            name
            for name, flow in self._flows.items()
            if name not in self._gone
            and (step.present[0, flow] or (self._waiting and name not in self._come))
        ]

    def _look(self, step: Step, names: list[str]) -> tuple[Values, Values]:
        self._last = step
        observations, infos = {}, {}
        for name in names:
            flow = self._flows[name]
            observations[name] = np.clip(step.inputs[0, flow], self._batch.least_input, MOST_INPUT)
            infos[name] = dict(zip(TERMS, step.terms[0, flow].tolist(), strict=True))
            infos[name] |= {"due": bool(step.due[0, flow]), "time_s": float(step.now[0])}
        return observations, infos
