"""A bottleneck whose flows a Python function decides for, measured as measured.py measures
controls: a policy, and a function that acts as it, have the same scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from loomnet.base.errors import UsageError
from loomnet.learning.batch import Batch
from loomnet.learning.bottleneck import Bottleneck
from loomnet.learning.measured import Samples
from loomnet.learning.scores import Scores, scores

Decide = Callable[[np.ndarray], Any]


def measured_by(
    bottleneck: Bottleneck, decide: Decide, options: Mapping[str, Any], seed: int = 1
) -> Scores:
    """Of the bottleneck's flows that learn, under this function.

    Args:
        decide: from inputs float32[flows, inputs] of the flows that are due, Step.inputs, to their
            actions, -1 to 1, of shape [flows] or [flows, 1].
        options: as Bottleneck.tcp.

    Raises UsageError for actions of another shape, ValueError for one beyond -1 to 1.
    """
    batch = _SampledBatch(replace(bottleneck, tcp=dict(options)))
    step = batch.reset([seed])
    while not step.done[0]:
        due = step.due[0]
        actions = np.full(step.due.shape, np.nan)
        if count := int(due.sum()):
            actions[0, due] = _actions(decide(step.inputs[0, due]), count)
        step = batch.step(actions)
    return scores(batch.samples().series())


def _actions(given: Any, count: int) -> np.ndarray:
    found = np.asarray(given, float)
    if found.shape not in ((count,), (count, 1)):
        raise UsageError(
            f"evaluate: the policy gave an array of shape {found.shape} for the inputs of {count} "
            f"flows; give their actions, as shape ({count},) or ({count}, 1)"
        )
    return found.reshape(count)


class _SampledBatch(Batch):
    """One bottleneck, whose time stands wherever its samples are due."""

    def __init__(self, bottleneck: Bottleneck) -> None:
        super().__init__([bottleneck])
        self._samples: Samples | None = None

    def samples(self) -> Samples:
        """All of them, once the episode is over."""
        assert self._samples is not None
        while (
            self._samples.due is not None
        ):  # of the time after all flows have ended, or of its end
            self._samples.take(self.worlds[0].step(self._samples.due))
        return self._samples

    def _begin(self, k: int, seed: int) -> None:
        self._samples = None
        super()._begin(k, seed)

    def _bound(self, k: int) -> int:
        world = self.worlds[k]
        if self._samples is None:
            self._samples = Samples(self.bottlenecks[k], world)
        due = self._samples.due
        if due is not None and world.now >= due:
            self._samples.take(world.step(due))
            due = self._samples.due
        until = super()._bound(k)
        return until if due is None else min(until, world.origin_ps + due.count)
