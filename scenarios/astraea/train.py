"""A policy of congestion control from nothing, by what many flows are rewarded for together.

Liao et al., "Towards Fair and Efficient Learning-based Congestion Control", EuroSys 2024. Nothing
of the released code or weights is used. Profile `ours` begins by imitating a rule, then learns on
ever wider ranges of links; `paper` learns on the published ranges, with the published networks.
"""

from dataclasses import replace
from typing import Literal

from loomnet.base.errors import UsageError
from loomnet.learning import Cloning, Curriculum, Ranges, Reward, Stage, curriculum
from loomnet.learning.grid import sealed_grid, selection_grid, subset
from loomnet.learning.links import Noise, drawn
from loomnet.learning.td3 import PAPER as PAPER_NETWORKS
from loomnet.learning.td3 import Td3
from loomnet.learning.training import Pace

FULL = Ranges()
# As transcribed from the publication's table of training environments.
PAPER = Ranges(rate_mbps=(40, 160), rtt_ms=(10, 140), buffer=(0.1, 16), flows=(2, 5))
UPDATES = 430_000  # of the critics: what a released checkpoint's 21,531 actor steps stand for
RULES = ("teacher", "vegas", "copa", "cubic", "bbr")


@curriculum
def astraea(
    profile: Literal["ours", "paper"] = "ours", budget: float = 1.0, sealed: bool = True
) -> Curriculum:
    """Stages S0 (imitation) to S3 (full ranges) of `ours`, or the one of `paper`.

    `budget`: share of the 430,000 updates; `sealed`: whether the chosen policy is judged by the
    sealed grid.
    """
    if not 0 < budget <= 1000:
        raise UsageError(f"budget: {budget:g} is no share of the updates: give 0.0003 to 1000")
    whole = max(round(UPDATES * budget), 100)
    common = {
        "looks": max(round(10_000 * min(budget * 2, 1)), 50),
        "watched": subset(selection_grid()),
        "selection": selection_grid(),
        "sealed": sealed_grid() if sealed else (),
        "beside": RULES,
        "judged": ("teacher", "vegas", "copa"),
    }
    if profile == "paper":
        return paper(whole, common)
    two = replace(FULL, rate_mbps=(40, 160), rtt_ms=(10, 140), flows=(2, 2))
    five = replace(FULL, rate_mbps=(20, 200), flows=(2, 5))
    return Curriculum(
        stages=[
            Stage(
                "S1",
                drawn(two, mixed=0),
                most=max(round(0.1 * whole), 1),
                leave={"contested_jain": 0.95, "utilisation": 0.95},
            ),
            Stage(
                "S2",
                drawn(five, mixed=1),
                most=max(round(0.2 * whole), 1),
                leave={"contested_jain": 0.93, "utilisation": 0.93},
            ),
            Stage("S3", drawn(FULL, noise=Noise()), most=max(round(0.7 * whole), 1)),
        ],
        flows=FULL.flows[1],
        cloning=Cloning(
            drawn(FULL, noise=Noise()), most=min(15_000, max(round(150_000 * budget), 150))
        ),
        # Critics that know little lead the actor astray: without these the use of the link fell
        # from 0.99, which imitation had reached, to 0.17 within 2,000 updates.
        constants=Td3(
            warm_up=min(8_000, whole // 10), near=(0.1, 0.01), near_over=max(whole // 2, 1)
        ),
        pace=Pace(over=round(3_000_000 * budget)),
        ranges=FULL,
        **common,
    )


def paper(whole: int, common: dict) -> Curriculum:
    """One stage, without a rule to imitate, a start-up or a bound on what latency costs."""
    tcp = {"features": "astraea10", "startup": "none", "extremes": "lifetime"}
    return Curriculum(
        stages=[Stage("S", drawn(PAPER, mixed=1, tcp=tcp, length_s=120), most=whole)],
        flows=PAPER.flows[1],
        constants=PAPER_NETWORKS,
        pace=Pace(explore=(1.0, 0.05), over=round(1_500_000 * 2 * whole / UPDATES)),
        reward=Reward(latency_cap=None),
        ranges=PAPER,
        tcp=tcp,
        **common,
    )
