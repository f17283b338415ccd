"""A figure as it was measured, or why it was not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Value:
    """A figure: a number, or None and the reason. `span_ps`: the window a rate was taken over."""

    value: float | None
    reason: str | None = None
    span_ps: int | None = None
