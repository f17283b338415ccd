"""Astraea where it is least at home: a link whose rate and round trip change every 10 s, within the
ranges of the training and beyond them, alone and among CUBIC flows. Bar P6; an independent study
(arXiv 2510.25105) finds learned controls weak there. Everything is told and nothing is bounded.

    loomnet run scenarios/astraea/responsiveness.py
    loomnet run scenarios/astraea/responsiveness.py --set draws=50 --set length=300
"""

import statistics
from typing import Annotated

from pydantic import Field

import loomnet as ln

import lib as astraea

WHERE = {"in_range": astraea.IN_RANGE, "beyond": astraea.BEYOND}


@ln.scenario
def responsiveness(
    lab: ln.Lab,
    schemes: str = "astraea,cubic,bbr,bbr3,vegas,copa",
    policy: str = "teacher",
    cubic: str = "2,20",
    beyond: bool = True,
    draws: Annotated[int, Field(ge=1, le=200)] = 5,
    length: Annotated[int, Field(ge=10, le=3600)] = 60,
):
    """`cubic`: numbers of CUBIC flows that one flow of each scheme is among, with commas between;
    `beyond`: also links beyond the training's ranges; `length`: of a run, in seconds."""
    try:
        among = [int(each) for each in cubic.split(",") if each.strip()]
    except ValueError:
        raise ln.UsageError(f"cubic: {cubic!r} is no list of numbers, as 2,20") from None
    if any(not 1 <= each <= 100 for each in among):
        raise ln.UsageError(f"cubic: {cubic!r}: give numbers from 1 to 100")
    for where, within in WHERE.items():
        if where == "beyond" and not beyond:
            continue
        uses: dict[str, list[float]] = {}
        for name in astraea.named(schemes):
            tcp = astraea.control(name, policy)
            uses[name] = alone(lab, name, where, within, tcp, draws, length)
            for others in among:
                beside(lab, name, where, within, tcp, others, draws, length)
        figure = astraea.cumulative(uses, "use of the link by one flow")
        figure.savefig(lab.directory / f"responsiveness_{where}.png", dpi=150)


def alone(lab, name, where, within, tcp, draws, length):
    """The use of the link in each draw."""
    uses, stretches, losses = [], [], []
    for draw in range(draws):
        drawn = astraea.changing(within, lab.seed + draw, length_s=length)
        label = f"{where}.{name}.{draw}"
        played = astraea.play(lab, drawn.link, tcp, label, lab.seed + draw, drawn.faults)
        uses.append(played.scores.utilisation)
        stretches.append(drawn.stretch(played.series))
        losses.append(played.scores.loss)
    label = f"{where}.{name}.alone"
    lab.metric("utilisation", statistics.fmean(uses), unit="ratio", label=label)
    lab.metric("stretch", statistics.fmean(stretches), unit="ratio", label=label)
    lab.metric("loss", statistics.fmean(losses), unit="ratio", label=label)
    return uses


def beside(lab, name, where, within, tcp, others, draws, length):
    """What the flow has among CUBIC flows, in an equal share, and the use of the link by all."""
    shares, uses = [], []
    for draw in range(draws):
        drawn = astraea.changing(within, lab.seed + draw, flows=others + 1, length_s=length)
        label = f"{where}.{name}.{others}cubic.{draw}"
        played = astraea.among(
            lab, drawn.link, tcp, {"cc": "cubic"}, label, lab.seed + draw, drawn.faults
        )
        share = played.series.share[len(played.series.share) // 4 :]
        shares.append(float(share[:, 0].sum() * (others + 1) / share.sum()))
        uses.append(played.scores.utilisation)
    label = f"{where}.{name}.{others}cubic"
    lab.metric("equal_share", statistics.fmean(shares), unit="ratio", label=label)
    lab.metric("utilisation", statistics.fmean(uses), unit="ratio", label=label)
