"""Three flows come to one link and go again: Astraea beside other congestion controls. Liao et al.,
"Towards Fair and Efficient Learning-based Congestion Control", EuroSys 2024.

    loomnet run scenarios/astraea/stair3.py
    sudo .venv/bin/loomnet run scenarios/astraea/stair3.py --clock live    # the kernel's TCP

Live there are the controls that the kernel has, and Astraea by its program; three minutes each.
"""

from typing import Annotated

from pydantic import Field

import loomnet as ln

import lib as astraea

BANDS = (0.1, 0.25, 0.5)


@ln.scenario
def stair3(
    lab: ln.Lab,
    schemes: str = "all",
    policy: str = "teacher",
    rate: ln.Rate = "100 Mb/s",
    rtt: ln.Time = "30 ms",
    buffer: Annotated[float, Field(gt=0, le=64)] = 1.0,
    apart: ln.Time = "40 s",
    draws: Annotated[int, Field(ge=1, le=64)] = 1,
):
    """Bars P1 to P4, R1 and O1, with the time over which flows share the link, by scheme.

    `schemes`: with commas between; the others are compared with the first. `policy`: of Astraea.
    Each flow sends for three times as long as flows are `apart`. `draws`: runs whose flows come up
    to 0.2 s later, by the seed.
    """
    live = lab.clock == "live"
    rule = () if policy == "teacher" else ("teacher",)
    everything = ("astraea", "cubic") if live else ("astraea", *rule, *astraea.RULES)
    wanted = list(everything) if schemes == "all" else astraea.named(schemes)
    runs: dict[str, list[astraea.Played]] = {}
    for name in wanted:
        for draw in range(draws):
            link = astraea.stair(
                3, apart, rate=rate, rtt=rtt, buffer=buffer, seed=lab.seed + draw if draw else None
            )
            played = astraea.play(
                lab, link, astraea.control(name, policy), f"{name}.{draw}", lab.seed + draw
            )
            lab.check(f"no-error-{name}-{draw}", played.result["errors"], eq=0)
            runs.setdefault(name, []).append(played)
        told(lab, name, runs[name])
    first, *others = wanted
    astraea.bars_of_one(lab, "O1", runs[first], astraea.O1)
    astraea.bars_of_one(lab, "R1", runs[first], astraea.R1)
    astraea.bars_of_one(lab, "P3", runs[first], astraea.P3)
    if others:
        compared(lab, first, {name: runs[name] for name in others}, runs[first])
    pictures = {name: each[0] for name, each in runs.items()}
    astraea.over_time(pictures).savefig(lab.directory / "throughput.png", dpi=150)
    astraea.efficiency(runs).savefig(lab.directory / "efficiency.png", dpi=150)


def told(lab: ln.Lab, name: str, runs: list) -> None:
    """The figures of one scheme."""
    for figure, value in astraea.means(runs).items():
        lab.metric(figure, value, unit=astraea.UNITS[figure], label=name)
    for band in BANDS:
        for who in ("all", "entering", "left"):
            found = astraea.settled([each.series for each in runs], band, who)
            where = f"{name}.{who}_within_{band:.0%}"
            lab.metric(
                "settled_s",
                found.median,
                unit="s",
                label=where,
                reason="half of the times do not end" if found.median is None else None,
            )
            lab.metric("never", found.never, unit="ratio", label=where)


def compared(lab: ln.Lab, first: str, others: dict, ours: list) -> None:
    """P1, P2 and P4: ratios to the first scheme."""
    mine = astraea.settled(each.series for each in ours)
    resolution = max(astraea.RESOLUTION_S, ours[0].link.base_rtts[0].seconds)
    found, deviations = {}, {}
    own = astraea.means(ours)
    # Windows that stand still deviate from nothing, however unequal they are: a control that does
    # nothing would hold P2 best.
    shares = own["steady_jain"] >= astraea.P3.steady_jain
    unequal = None if shares else f"{first} does not share the link, so that its deviation is none"
    for name, runs in others.items():
        theirs = astraea.settled(each.series for each in runs)
        if mine.median is None:
            why = f"{first} never settles in half of the times"
            lab.check(f"P1-{name}", None, ge=1, reason=why)
        elif theirs.median is None:
            why = f"{name} never settles in {theirs.never:.0%} of the times"
            lab.metric("P1_ratio", None, unit="ratio", label=name, reason=why)
        elif mine.median < resolution:
            why = f"{first} settles within {resolution:g} s, which the measure does not resolve"
            lab.metric("P1_ratio", None, unit="ratio", label=name, reason=why)
        else:
            found[name] = theirs.median / mine.median
            lab.check(f"P1-{name}", found[name], ge=1)
        if shares:
            deviations[name] = astraea.means(runs)["deviation"] / max(own["deviation"], 1e-9)
        if name in ("cubic", "bbr", "vivace"):
            lab.check(f"P2-{name}", deviations.get(name), ge=1, reason=unequal)
    if found:
        lab.check("P1-most", max(found.values()), ge=5, published=8.4)
    most = max(deviations.values(), default=None)
    lab.check("P2-most", most, ge=2, published=2.8, reason=unequal)
    best = max(astraea.means(runs)["utilisation"] for runs in others.values())
    middle = sorted(astraea.means(runs)["stretch"] for runs in others.values())[len(others) // 2]
    lab.check("P4-utilisation", own["utilisation"] - best, ge=-0.02)
    lab.check("P4-round-trips", own["stretch"] / middle, le=1)
