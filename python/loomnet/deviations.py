"""Notes of a run's report: what its models do otherwise than the publications, and where a window
held it back."""

from __future__ import annotations

from loomnet.engine import MIN_WINDOW, Engine
from loomnet.plan import CONTROL_SHARE_MOST

Notes = dict[str, float | int | str | None]


def notes_of(engine: Engine) -> Notes:
    """Of an engine that has run."""
    if engine.transport != "mrc":
        return {}
    notes: Notes = {}
    if found := _off_published(engine):
        notes["mrc, off its published values"] = "; ".join(found)
    bound = sum(row.get("psn_window_full", 0) for row in engine.totals().values())
    if bound:
        notes["PSN window (mpr)"] = (
            f"held a packet back {bound} times that the congestion window let go")
    return notes


def _off_published(engine: Engine) -> list[str]:
    """Each with its published value, which is also what restores it."""
    halves = [half for link in engine.plan.links for half in (link.forward, link.backward)]
    found = []
    if shares := sorted({half.control_share for half in halves} - {CONTROL_SHARE_MOST}):
        listed = ", ".join(f"{share:g}" for share in shares)
        found.append(f"control_share {listed} (published: {CONTROL_SHARE_MOST:g})")
    if any(half.trim_bytes and half.trim_victim == "coin" for half in halves):
        found.append('trim_victim "coin" (published: "arriving")')
    longer = sorted({round(half.control_limit_bytes / half.data_limit_bytes, 2) for half in halves
                     if half.trim_bytes and half.data_limit_bytes} - {2})
    if longer:
        listed = ", ".join(f"{times:g}" for times in longer)
        found.append(f"control_limit {listed} times data_limit (published: 2)")
    if (turns := engine.options.get("plane_turns", "paths")) != "equal":
        found.append(f'plane_turns "{turns}" (published: "equal")')
    window = engine.options.get("min_window", MIN_WINDOW)
    if window != 1:
        found.append(f"min_window {window:g} packets (published: 1)")
    return found
