"""The bars of Astraea on one link at a time, as checks of their names: R2 to R14 and O2, O3, O6 of
one control. R1, O1 and P1 to P4 are in stair3.py, P6 in responsiveness.py. Reference values are of
two released checkpoints in a model of packets (2024 and 2025), a single run of each; a bar that
does not hold stays a failing check.

    loomnet run scenarios/astraea/bars.py                      # all, five draws: some minutes
    loomnet run scenarios/astraea/bars.py --set only=R3,R8 --set scheme=vegas
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

import loomnet as ln
from loomnet.learning import Bottleneck, Flow

import lib as astraea


@dataclass(frozen=True)
class Row:
    """A bar: what makes its link for a seed, and the bounds."""

    link: Callable[[int], Bottleneck]
    bounds: astraea.Bounds
    tcp: dict | None = None


def stair3(**settings):
    return lambda seed: astraea.stair(3, ln.Time("40 s"), seed=seed, **settings)


def two_at_unlike_rtts(far):
    return lambda seed: astraea.stair(2, ln.Time("30 s"), rtts=["30 ms", far], seed=seed)


def alone(seed):
    return Bottleneck(flows=[Flow()], length="30 s")


JUST = astraea.Bounds
FAR = ("60 ms", "90 ms", "120 ms", "150 ms")
JAINS = (0.938, 0.934, 0.936, 0.970)  # of R12
BARS: dict[str, Row] = {
    "R2": Row(
        stair3(),
        replace(astraea.R1, contested_jain=0.975, published={"contested_jain": 0.985}),
        {"interval_us": 20_000},
    ),
    "R3": Row(
        stair3(buffer=0.5),
        JUST(contested_jain=0.95, loss=0.01, published={"contested_jain": 0.984, "loss": 0.0}),
    ),
    "R4": Row(
        stair3(buffer=0.2),
        JUST(contested_jain=0.90, loss=0.05, published={"contested_jain": 0.992, "loss": 0.025}),
    ),
    "R6": Row(
        stair3(rate="20 Mb/s"),
        JUST(contested_jain=0.93, loss=0.02, published={"contested_jain": 0.905, "loss": 0.078}),
    ),
    "R7": Row(
        stair3(rate="200 Mb/s"),
        JUST(
            contested_jain=0.95,
            utilisation=0.97,
            published={"contested_jain": 0.959, "utilisation": 0.987},
        ),
    ),
    "R8": Row(
        stair3(rate="400 Mb/s"),
        JUST(contested_jain=0.93, loss=0.01, published={"contested_jain": 0.470, "loss": 0.22}),
    ),
    "R9": Row(
        stair3(rtt="10 ms"),
        JUST(contested_jain=0.95, loss=0.01, published={"contested_jain": 0.970}),
    ),
    "R10": Row(
        stair3(rtt="100 ms"),
        JUST(contested_jain=0.97, settled_s=4.0, published={"contested_jain": 0.981}),
    ),
    "R11": Row(
        lambda seed: astraea.stair(10, ln.Time("5 s"), buffer=2, seed=seed),
        JUST(contested_jain=0.93, loss=0.03, published={"contested_jain": 0.857, "loss": 0.19}),
    ),
    **{
        f"R12-{far.split()[0]}ms": Row(
            two_at_unlike_rtts(far),
            JUST(contested_jain=0.93, published={"contested_jain": known}),
        )
        for far, known in zip(FAR, JAINS, strict=True)
    },
    "R13": Row(
        lambda seed: astraea.stair(
            5,
            ln.Time("10 s"),
            rtt="40 ms",
            buffer=2,
            rtts=["40 ms", "60 ms", "80 ms", "100 ms", "120 ms"],
            seed=seed,
        ),
        JUST(contested_jain=0.95, published={"contested_jain": 0.987}),
    ),
    "R14": Row(alone, JUST(utilisation=0.98, stretch=1.2, loss=0.0)),
    "O2": Row(stair3(rtt="100 ms"), JUST(contested_jain=0.97)),
    "O3": Row(two_at_unlike_rtts("120 ms"), JUST(contested_jain=0.93)),
}
DEEP = (2, 4, 16)  # bandwidth-delay products, of R5
OTHERS = ("R5", "O6")


@ln.scenario
def bars(
    lab: ln.Lab,
    only: str = "",
    scheme: str = "astraea",
    policy: str = "teacher",
    draws: Annotated[int, Field(ge=1, le=64)] = 5,
):
    """`only`: bars with commas between, by default all; `scheme`: whose; `policy`: of Astraea."""
    name, *more = astraea.named(scheme)
    if more:
        raise ln.UsageError(f"scheme: {scheme!r}: give one; stair3.py compares several")
    # Those with options of Astraea's control are its own alone.
    known = [bar for bar, row in BARS.items() if name == "astraea" or not row.tcp]
    known += OTHERS
    wanted = [each.strip() for each in only.split(",") if each.strip()] or known
    for each in wanted:
        if each not in known:
            raise ln.UsageError(f"only: no bar {each!r}; there are {', '.join(known)}")
    tcp = astraea.control(name, policy)

    def runs(label, link, options=None):
        return [
            astraea.play(
                lab, link(lab.seed + k), {**tcp, **(options or {})}, f"{label}.{k}", lab.seed + k
            )
            for k in range(draws)
        ]

    for bar in wanted:
        if bar in BARS:
            row = BARS[bar]
            found = runs(bar, row.link, row.tcp)
            told(lab, bar, found)
            astraea.bars_of_one(lab, bar, found, row.bounds)
    if "R5" in wanted:
        deep(lab, runs)
    if "O6" in wanted:
        beside_cubic(lab, tcp, draws)


def told(lab, where, runs):
    for figure, value in astraea.means(runs).items():
        lab.metric(figure, value, unit=astraea.UNITS[figure], label=where)


def deep(lab, runs):
    """R5: deeper queues are as one of a bandwidth-delay product, since none is filled."""
    one = astraea.means(runs("R5.1bdp", stair3()))
    for buffer in DEEP:
        found = runs(f"R5.{buffer}bdp", stair3(buffer=buffer))
        told(lab, f"R5.{buffer}bdp", found)
        mean = astraea.means(found)
        apart = abs(mean["contested_jain"] - one["contested_jain"])
        lab.check(f"R5-{buffer}bdp-jain-apart", apart, le=0.01)
        lab.check(f"R5-{buffer}bdp-round-trips", mean["stretch"] / one["stretch"], ge=0.9, le=1.1)


def beside_cubic(lab, tcp, draws):
    """O6: what one flow has beside CUBIC flows, in its equal share. Published, no bound."""
    for others in (2, 5, 10):
        shares = []
        for draw in range(draws):
            mixed = astraea.stair(others + 1, ln.Time("1 s"), length="60 s", seed=lab.seed + draw)
            played = astraea.among(lab, mixed, tcp, {"cc": "cubic"}, f"O6.{others}.{draw}")
            half = played.series.share[len(played.series.share) // 2 :]
            shares.append(float(half[:, 0].mean() * (others + 1) / half.sum(1).mean()))
        lab.metric("O6_share", sum(shares) / draws, unit="ratio", label=f"{others}cubic")
