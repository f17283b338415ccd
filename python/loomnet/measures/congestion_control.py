"""Whether the hosts' congestion control was at work in a run. A comparison of switches that mark
means nothing where no host reacts, so a figure of such a run is null with a reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loomnet.base.units import Rate
from loomnet.measures.drops import Totals


@dataclass(frozen=True)
class ControlActivity:
    """Sums over the NICs of a run. `marks`: packets that came with CE; `cnps_sent` and
    `cnps_received`: RoCE's congestion notifications; `cuts`: times that a control lowered a rate or
    a window; `floors`: cuts that ended at the minimum; `at_floor_s`: seconds of all senders
    together at the minimum. `path_skips` and `path_swaps`, of MRC: times that a mark made a path
    pass its turn, and that a backup took the place of a path where all of a plane were to pass
    theirs."""

    marks: int = 0
    cnps_sent: int = 0
    cnps_received: int = 0
    cuts: int = 0
    floors: int = 0
    at_floor_s: float = 0.0
    path_skips: int = 0
    path_swaps: int = 0

    @classmethod
    def of(cls, totals: Totals) -> ControlActivity:
        """From a run's counters: result.data.totals."""
        nics = [row for name, row in totals.items() if name.startswith("nic ")]

        def total(counter: str) -> int:
            return sum(row.get(counter, 0) for row in nics)

        return cls(
            total("ce_received"),
            total("cnps_sent"),
            total("cnps_received"),
            total("rate_cuts"),
            total("rate_floor_reached"),
            total("rate_floor_ns") / 1e9,
            total("ev_skipped_marked"),
            total("ev_swapped_skipped"),
        )

    def figures(self) -> dict[str, float]:
        """By name for a report; times in seconds."""
        return {
            "marks": self.marks,
            "CNPs_sent": self.cnps_sent,
            "CNPs_received": self.cnps_received,
            "cuts": self.cuts,
            "cuts_to_the_minimum": self.floors,
            "time_at_the_minimum": self.at_floor_s,
            "turns_passed_by_marked_paths": self.path_skips,
            "paths_swapped": self.path_swaps,
        }


def why_idle(activity: ControlActivity, host: Mapping[str, Any]) -> str | None:
    """Why the congestion control of a run cannot be said to have worked; None where it did. `host`:
    its parameters by name, of roce host_parameters()."""
    control = host.get("cc")
    if not control:
        return "the hosts have no congestion control"
    line = host.get("line_rate_bps", 0)
    floor = host.get("timely_minimum_rate_bps" if control == "timely" else "minimum_rate_bps", 0)
    if floor and floor >= line:
        return (
            f"the rate floor of the hosts, {Rate.of(floor)}, is at or above the line rate, "
            f"{Rate.of(line)}: no flow can be slowed"
        )
    if control == "dcqcn" and not activity.cnps_received:
        return "no CNP occurred: the hosts' congestion control had nothing to react to"
    if not activity.cuts:
        return f"{control} never lowered a rate: the hosts' congestion control was not at work"
    return None


def if_controlled(
    value: float | None, activity: ControlActivity, host: Mapping[str, Any]
) -> tuple[float | None, str | None]:
    """A figure and no reason; or None and why the figure of this run does not count."""
    reason = why_idle(activity, host)
    return (value, None) if reason is None else (None, reason)
