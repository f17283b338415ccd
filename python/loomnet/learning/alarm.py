"""A policy that has collapsed: all flows stand at their least windows, and all want less."""

from __future__ import annotations

from collections.abc import Mapping

USE, FLOOR, LOW = 0.05, 0.9, 0.9
CHECKS = 5  # one after the other


class Collapse:
    """Told of a training's figures as Training.go_on() has them, says when a policy is past help:
    the link nearly unused, nine of ten flows at the least window and nine of ten actions below
    -0.9, five times running."""

    def __init__(self, running: int = 0) -> None:
        self.running = running  # checks, one after the other, that were so

    def rings(self, told: Mapping[str, float]) -> bool:
        so = (
            told.get("utilisation", 1) < USE
            and told.get("floor", 0) >= FLOOR
            and told.get("low", 0) >= LOW
        )
        self.running = self.running + 1 if so else 0
        return self.running >= CHECKS
