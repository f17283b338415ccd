"""Times until flows share a link, of which some never end: their median by Kaplan and Meier
("Nonparametric Estimation from Incomplete Observations", JASA 1958)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from loomnet.learning.scores import STAYS_S, Series, settlings


@dataclass(frozen=True)
class Settled:
    """Times after a flow has come or gone.

    Attributes:
        median: seconds; None where less than half of the times ends within what was looked at.
        never: share of the times that did not end.
        count: times.
    """

    median: float | None
    never: float
    count: int


def settled(
    runs: Iterable[Series], band: float = 0.25, who: Literal["all", "entering", "left"] = "all"
) -> Settled:
    """Over all runs, after a flow has come to others: until all flows are within `band` of their
    shares, and stay there for 5 s; or until the flow that came is ("entering"). "left": after a
    flow has gone, until all that are left are."""
    times, censored = [], []
    for series in runs:
        for each in settlings(series, band):
            came = each.entering is None or not np.isnan(each.entering)
            if each.lasts < STAYS_S or came is (who == "left") or (came and each.flows == 1):
                continue
            time = each.entering if who == "entering" else each.all
            (censored if time is None else times).append(
                each.lasts - STAYS_S if time is None else time
            )
    count = len(times) + len(censored)
    return Settled(median(times, censored), len(censored) / count if count else 0.0, count)


def median(times: Iterable[float], censored: Iterable[float] = ()) -> float | None:
    """The time by which half has ended. `censored`: times up to which others were looked at without
    an end."""
    rows = sorted([*((each, 0) for each in times), *((each, 1) for each in censored)])
    left = 1.0
    for place, (time, open_) in enumerate(rows):
        if not open_:
            left *= 1 - 1 / (len(rows) - place)
            if left <= 0.5 + 1e-12:
                return time
    return None
