"""A priority of a user's, as the engine asks it."""

from __future__ import annotations

from typing import Any

import loomnet._core as _core
from loomnet.plugins.failures import Pending
from loomnet.plugins.priorities import Message, priority_of


class Asker:
    """Asks a priority of a user's about each bucket. It refers to nothing of the engine, which
    refers to it."""

    def __init__(self, name: str, plugin: Any, job: str, pending: Pending) -> None:
        self.pending = pending
        self._name, self._plugin, self._job = name, plugin, job

    def __call__(self, facts: _core.BucketFacts) -> int:
        if self.pending.raised is not None:
            return 1
        message = Message(
            job=self._job,
            layer=facts.layer,
            layers=facts.layers,
            iteration=facts.iteration,
            progress=facts.progress,
            bytes=facts.bytes,
            remaining_layers=facts.layer,
            remaining_s=facts.remaining_s,
            communication_ratio=facts.communication_ratio,
        )
        try:
            return priority_of(self._name, self._plugin, message)
        except BaseException as error:  # Ctrl-C in the plug-in's code too
            self.pending.raised = error
            return 1
