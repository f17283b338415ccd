"""The slots that a job held in each switch, where a run kept them, as figures."""

from __future__ import annotations

from collections.abc import Iterator

from loomnet.measures.pools import taken_slots, taken_text
from loomnet.measures.run_data import OwnFigure, RunData


def slot_figures(data: RunData, name: str) -> Iterator[OwnFigure]:
    """Mean and most of the job of this name."""
    pools = data.pools
    for switch in pools.slots if pools is not None and name in pools.jobs else ():
        assert pools is not None
        used = pools.used(switch, name)
        mean, peak = used or (None, None)
        why = None if used else "no sample fell into the time that the job played"
        taken, held_ps = taken_slots(data.totals.get(f"switch {switch}", {}))
        unseen = why
        if peak == 0 and taken:  # they were held between two samples
            peak, unseen = (
                None,
                (
                    "no sample met a slot that the job held. In this switch "
                    f"{taken_text(taken, held_ps, True).lower()}"
                ),
            )
        for figure, value, reason in (("mean", mean, why), ("peak", peak, unseen)):
            yield f"slots_{figure}.{switch}", value, "slots", reason
