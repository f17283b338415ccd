"""The engine's numbers of what a plan numbers too. An engine counts what it was given; a plan made
in part keeps the numbers of the whole fabric. Engine alone turns one into the other."""

from __future__ import annotations

from typing import NewType

EngineNode = NewType("EngineNode", int)
EngineLink = NewType("EngineLink", int)
# A direction of a link: 2 * link for a->b and 2 * link + 1 for b->a.
EngineHalf = NewType("EngineHalf", int)
