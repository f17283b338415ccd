"""Bounds of bars, and the means that they are held to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np

import loomnet as ln
from loomnet.learning import Bottleneck, Flow

from .rig import Played
from .settling import settled

RESOLUTION_S = 0.05  # of times until flows share a link; or a round trip, where that is longer
UNITS = {
    "score": "1",
    "contested_jain": "ratio",
    "steady_jain": "ratio",
    "utilisation": "ratio",
    "stretch": "ratio",
    "loss": "ratio",
    "deviation": "ratio",
    "least_to_most": "ratio",
}


@dataclass(frozen=True)
class Bounds:
    """Of means over runs; None: not asked. `settled_s`: the median time until all flows share the
    link; `deviation`: in the link's rate; `published` by figure: what is known of the original."""

    contested_jain: float | None = None
    steady_jain: float | None = None
    utilisation: float | None = None
    stretch: float | None = None
    loss: float | None = None
    deviation: float | None = None
    settled_s: float | None = None
    published: Mapping[str, float] | None = None


LEAST = ("contested_jain", "steady_jain", "utilisation")
O1 = Bounds(contested_jain=0.97, utilisation=0.97, stretch=1.4, loss=0.001, settled_s=2.5)
P3 = Bounds(contested_jain=0.97, steady_jain=0.98)
# The better one of two released checkpoints, in a model of packets, less 0.01.
# Times are the published ones with half a second more.
R1 = Bounds(
    contested_jain=0.974,
    steady_jain=0.98,
    utilisation=0.98,
    stretch=1.4,
    deviation=0.01,
    settled_s=2.5,
)


def stair(
    flows: int,
    apart: ln.Time,
    *,
    rate: ln.Rate | str = "100 Mb/s",
    rtt: ln.Time | str = "30 ms",
    buffer: float = 1.0,
    rtts: Sequence[ln.Time | str] = (),
    length: ln.Time | str | None = None,
    seed: int | None = None,
) -> Bottleneck:
    """Flows that come so far apart, each of which sends for as many such times as there are flows;
    or all of them to the end, where a `length` is given. `seed`: they come up to 0.2 s later."""
    random = np.random.default_rng((0 if seed is None else seed, 3))
    step = ln.Time(apart).seconds
    late = [0.0 if seed is None else random.uniform(0, 0.2) for _ in range(flows)]
    return Bottleneck(
        rate=rate,
        rtt=rtt,
        buffer=buffer,
        flows=[
            Flow(
                f"{number * step + late[number]:.6f} s",
                None if length is not None else f"{flows * step:.6f} s",
                rtt=rtts[number] if rtts else None,
            )
            for number in range(flows)
        ],
        length=f"{(2 * flows - 1) * step + 0.2:.6f} s" if length is None else length,
    )


def means(runs: Sequence[Played]) -> dict[str, float]:
    """Of the runs' scores."""
    rows = [each.scores.row() for each in runs]
    return {name: float(np.mean([float(row[name] or 0) for row in rows])) for name in UNITS}


def bars_of_one(lab: ln.Lab, bar: str, runs: Sequence[Played], bounds: Bounds) -> None:
    """Checks named `bar`-figure."""
    found = means(runs)
    published = bounds.published or {}
    for each in fields(bounds):
        bound = getattr(bounds, each.name)
        if bound is None or each.name == "published":
            continue
        name, known = f"{bar}-{each.name}", published.get(each.name)
        if each.name == "settled_s":
            took = settled(run.series for run in runs).median
            why = "in half of the times flows never share the link" if took is None else None
            lab.check(name, took, le=bound, published=known, reason=why)
        elif each.name in LEAST:
            lab.check(name, found[each.name], ge=bound, published=known)
        else:
            lab.check(name, found[each.name], le=bound, published=known)
