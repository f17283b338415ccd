"""How the transports of a run are marked and trimmed where they share links, in words."""

from __future__ import annotations

import numpy

from loomnet.base.number_text import number_text
from loomnet.plans.model import Plan

MOST_KINDS = 4  # of directions of links that are listed


def marks_text(plan: Plan) -> str | None:
    """Of each kind of direction on which transports of a run have marks or trims of their own, the
    first one, how many are like it, and what each transport has there; None: there is no such."""
    links = plan.links
    found = []
    flat = links.kinds.ravel()
    for kind, settings in enumerate(links.settings):
        if not settings["carriers"] or not (at := numpy.flatnonzero(flat == kind)).size:
            continue
        half = 2 * int(links.rows[at[0] // 2, 0]) + int(at[0] % 2)
        others = f" and {at.size - 1:,} like it" if at.size > 1 else ""
        own = ", ".join(f"{model} {_text(*marks)}" for model, *marks in settings["carriers"])
        found.append(f"{links.half_name(half)}{others}: {own}")
    if len(found) > MOST_KINDS:
        found[MOST_KINDS:] = [f"and {len(found) - MOST_KINDS} kinds of links more"]
    return "; ".join(found) or None


def _text(low: int, high: int, share: float, trim_bytes: int, trim_dscp: int) -> str:
    """trim_dscp: 0: its packets are not trimmed."""
    trims = f" and trims to {trim_bytes} B" if trim_bytes and trim_dscp else ""
    if not high:
        return f"marks nothing{trims}"
    marks = number_text(high, "B")
    if low != high:
        marks = f"{number_text(low, 'B')} to {marks}"
    return f"marks from {marks}{'' if share == 1 else f' (up to {share:.3g})'}{trims}"
