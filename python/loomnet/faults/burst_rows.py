"""Links that lose a part of their rate in bursts, as other traffic would take it: rows of a seeded
timetable."""

from __future__ import annotations

import math
import random
from typing import Any, Literal

from loomnet.base.arguments import checked_call
from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean, quoted
from loomnet.base.units import Rate, Time
from loomnet.fabrics.model import Fabric
from loomnet.faults.model import MOST_FAULTS, Fault, degrade

_SHORTEST = 1_000_000  # picoseconds of a burst or of the time between two


@checked_call
def bursts(
    fabric: Fabric,
    links: str,
    *,
    until: Time | str,
    mean: Time | str,
    share: float = 0.3,
    to: Rate | str | float = 0.2,
    start: Time | str = "0 s",
    seed: int = 1,
    lengths: Literal["random", "fixed"] = "random",
    keep_thresholds: bool = True,
) -> list[Fault]:
    """Rows of ln.degrade: each of these links is slow in bursts, for `share` of the time.

    Every link has a timetable of its own, which follows from the seed and the link's name alone. So
    two runs with the same seed have the same bursts, whatever else differs. At `start` a link is in
    a burst with the probability `share`.

    On the live clock a burst begins and ends when the run loop next looks at the time, usually
    within some milliseconds of wall time and later on a machine under load. Give bursts that last a
    second of wall time or more there, by the run's dilation.

    Args:
        links: name or glob of `fabric`: "p0.leaf*->p0.spine*", one way; "a--b", both ways at once.
        until: no burst begins after, and the last one ends then. Time counts as in `at=`.
        mean: length of a burst; between two it is mean (1 - share) / share.
        share: of the time, between 0 and 1.
        to: what is left of the link in a burst, as ln.degrade has it.
        lengths: "random": exponential, in both states; "fixed": all alike, from a random begin.
        keep_thresholds: queues and marking stay as they are, since the port's own rate does.

    Raises:
        UsageError: no such link, a number out of range, or more bursts than a run takes.
    """
    first, last, long = (
        Time.given(f"bursts: {name}", value).count
        for name, value in (("start", start), ("until", until), ("mean", mean))
    )
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
        raise UsageError(f"bursts: share={quoted(share)} must be between 0 and 1")
    if type(seed) is not int:
        raise UsageError(f"bursts: seed={quoted(seed)} must be a whole number")
    if lengths not in ("random", "fixed"):
        raise UsageError(
            f"bursts: lengths={quoted(lengths)} is none of random, fixed"
            f"{did_you_mean(lengths, ('random', 'fixed'))}"
        )
    if last <= first:
        raise UsageError(f"bursts: until={until} must be after start={start}")
    between = long * (1 - share) / share
    if min(long, between) < _SHORTEST:
        raise UsageError(
            f"bursts: mean={Time.of(long)} at share={share:g} makes bursts, or times "
            f"between them, below {Time.of(_SHORTEST)}; give a longer mean or another "
            "share"
        )
    names = [_name(link, direction) for link, direction in fabric.match(links)]
    expected = len(names) * (last - first) / (long + between)
    if expected > MOST_FAULTS / 2:
        raise UsageError(
            f"bursts: about {expected:,.0f} bursts on {len(names)} links are too many "
            f"for one run, {MOST_FAULTS // 2:,}; give a longer mean or an earlier "
            "until"
        )
    rows = [
        degrade(
            name,
            to,
            at=Time.of(begin),
            duration=Time.of(end - begin),
            keep_thresholds=keep_thresholds,
        )
        for name in sorted(names)
        for begin, end in _spans(
            random.Random(f"{seed}/{name}"), first, last, long, between, lengths == "random"
        )
    ]
    return sorted(rows, key=lambda row: row.at.count if isinstance(row.at, Time) else 0)


def _name(link: Any, direction: int) -> str:
    ahead, back = (name for name, _ in link.halves)
    return link.name if direction == 0 else ahead if direction > 0 else back


def _spans(
    draws: random.Random, first: int, last: int, long: int, between: float, exponential: bool
) -> list[tuple[int, int]]:
    """Begin and end of each burst, in picoseconds."""

    def length(mean: float) -> int:
        drawn = -mean * math.log1p(-draws.random()) if exponential else mean
        return max(round(drawn), _SHORTEST)

    spans: list[tuple[int, int]] = []
    burst = draws.random() < long / (long + between)
    now, begun = first, False
    while now < last:
        lasts = length(long if burst else between)
        if not exponential and not begun:  # the begin lies anywhere in it
            lasts = max(round(lasts * draws.random()), _SHORTEST)
        begun = True
        if burst:
            spans.append((now, min(now + lasts, last)))
        now += lasts
        burst = not burst
    return spans
