"""What flows of a batch have done and what came of it, as a learner takes it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from loomnet.learning.batch import Step
from loomnet.learning.td3 import Replay

_KEPT = ("open", "over", "inputs", "state", "actions")


class Experience:
    """Makes transitions of the decisions of a batch's flows, each from one moment at which the flow
    was due to the next one; the reward is that of the later moment. None is made across a flow's
    end or an episode's: both are limits of time, so what comes after is not known to be nothing."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self._open = self._over = np.zeros(0, bool)

    def add(self, step: Step, actions: np.ndarray) -> int:
        """Takes in a step and the actions for it, before Batch.step(actions); how many transitions
        ended with it."""
        if not self._open.size:
            self._open = np.zeros_like(step.due)  # decisions of which it is not known what came
            self._over = np.zeros_like(step.done)
            self._inputs = np.zeros_like(step.inputs)
            self._state = np.zeros((*step.due.shape, step.global_state.shape[1]), np.float32)
            self._actions = np.zeros(step.due.shape, np.float32)
        self._open &= step.present & ~step.born
        ended = self._open & step.due & ~self._over[:, None]
        episodes = np.nonzero(ended)[0]
        if len(episodes):
            self._replay.add(
                self._inputs[ended],
                self._state[ended],
                self._actions[ended],
                step.reward[episodes],
                step.inputs[ended],
                step.global_state[episodes],
                np.zeros(len(episodes), np.float32),
            )
        self._over = step.done.copy()
        self._open[step.due] = False
        decided = step.due & np.isfinite(actions) & ~self._over[:, None]
        self._open |= decided
        self._inputs[decided] = step.inputs[decided]
        self._state[decided] = step.global_state[np.nonzero(decided)[0]]
        self._actions[decided] = actions[decided]
        return len(episodes)

    def forget(self, which: np.ndarray) -> None:
        """Of these episodes, bool[episodes], which begin anew."""
        if self._open.size:
            self._open[which] = self._over[which] = False

    def state_dict(self) -> dict[str, Any]:
        """Tensors by name: decisions of which it is not known yet what came of them."""
        if not self._open.size:
            return {}
        return {name: torch.from_numpy(getattr(self, f"_{name}").copy()) for name in _KEPT}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, f"_{name}", value.numpy().copy())
