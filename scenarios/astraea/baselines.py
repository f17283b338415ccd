"""Learned controls that Astraea is compared with, trained here from nothing: `loomnet train
scenarios/astraea/baselines.py::orca`, and `::aurora`.

Nothing of their released code or weights is used; constants are from the publications and from the
configurations that their authors released. Each is trained on one flow alone, as published: that is
what Astraea's publication says of why they do not share, so the grids, on which several flows meet,
are those of Astraea. Both learn by TD3 here. That is Orca's learner. Aurora's is PPO: the training
course keeps transitions, goes on from them to the bit, and has no place for a learner that throws
them away, so Aurora's features, network, actions and reward are here under another learner.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np

from loomnet.learning import Bottleneck, Curriculum, Flow, Point, Ranges, Stage, curriculum
from loomnet.learning.grid import sealed_grid, selection_grid, subset
from loomnet.learning.links import Noise, drawn
from loomnet.learning.rewards import AuroraReward, OrcaReward
from loomnet.learning.td3 import Td3
from loomnet.learning.training import Pace

FULL = Ranges()
UPDATES = 430_000  # as of scenarios/astraea/train.py
RULES = ("cubic", "vegas")
DECISIONS = 5  # for an update: one flow makes few, and publications have an update for each
PACKET = 1500
WARM_UP = 2_000  # updates of the critics before the first of the actor, fewer in short trainings
TRIAL = [Point(20, 30, 1, 2), Point(20, 100, 1, 2), Point(50, 30, 1, 3)]
ALONE = replace(FULL, flows=(1, 1))

# Abbasloo, Yen and Chao, SIGCOMM 2020: a factor of 2^(2a) of CUBIC's window. The authors' released
# configuration has a decision every 20 ms, a history of 10, and the learner's constants.
ORCA = {"action": "factor", "inner": "cubic", "interval_us": 20_000, "frames": 10}
ORCA_LEARNER = Td3(
    actor=(256, 256),
    critic=(256, 256),
    batch=512,
    discount=0.995,
    soft=0.001,
    actor_rate=1e-4,
    critic_rate=1e-3,
    policy_delay=5,
)

# Jay et al., ICML 2019: 10 monitor intervals of three features, a network of 32 and 16, and actions
# that change the sending rate by 2.5 % at most.
AURORA = {
    "action": "rate",
    "features": "aurora3",
    "frames": 10,
    "interval_rtts": 1,
    "interval_most_us": 1_000_000,
}
AURORA_LEARNER = Td3(actor=(32, 16), discount=0.99)
# Its simulator: packets a second, milliseconds, packets of the queue in their logarithm, loss.
AURORA_PACKETS, AURORA_RTT_MS, AURORA_QUEUE, AURORA_LOSS = (100, 500), (50, 500), (0, 8), 0.05
AURORA_INTERVALS = 400  # of an episode
OF_LINK = 300  # packets a second, in the middle of its links


@curriculum
def orca(
    budget: float = 1.0, sealed: bool = True, looks: int = 10_000, trial: bool = False
) -> Curriculum:
    """A learned factor of CUBIC's window, on one flow: 10 to 400 Mb/s, 5 to 200 ms.

    `budget`: share of the 430,000 updates; `looks`: updates between two looks at the policy;
    `sealed`: whether the sealed grid judges; `trial`: three points in the place of the grids.
    """
    draw = drawn(ALONE, mixed=0, noise=Noise(), tcp=ORCA)
    return _alone(draw, ALONE, ORCA, ORCA_LEARNER, OrcaReward(), budget, sealed, looks, trial)


@curriculum
def aurora(
    ranges: Literal["published", "ours"] = "published",
    budget: float = 1.0,
    sealed: bool = True,
    looks: int = 10_000,
    trial: bool = False,
) -> Curriculum:
    """Aurora's features, network and rates on one flow, learned by TD3 (published: PPO).

    `ranges`: links of its own simulator, without a start-up, or 10 to 400 Mb/s and 5 to 200 ms,
    where throughput counts as a share of the link. The others as of orca.
    """
    if ranges == "published":
        tcp = {**AURORA, "startup": "none", "extremes": "lifetime"}
        slow, fast = (each * PACKET * 8 / 1e6 for each in AURORA_PACKETS)
        most = (1 + np.exp(AURORA_QUEUE[1])) * PACKET
        held = most / (slow * 1e6 / 8 * AURORA_RTT_MS[0] / 1e3)
        within = Ranges(
            rate_mbps=(slow, fast), rtt_ms=AURORA_RTT_MS, buffer=(0, held), flows=(1, 1)
        )
        draw, reward = published_links(tcp), AuroraReward()
    else:
        tcp, within = AURORA, ALONE
        draw = drawn(within, mixed=0, noise=Noise(), tcp=tcp)
        reward = AuroraReward(of_link=OF_LINK)
    return _alone(draw, within, tcp, AURORA_LEARNER, reward, budget, sealed, looks, trial)


def published_links(tcp: dict) -> Callable[[np.random.Generator], Bottleneck]:
    """Links of Aurora's simulator, each for 400 intervals of a round trip. Its latencies are taken
    for round trips."""

    def draw(random: np.random.Generator) -> Bottleneck:
        rate = random.uniform(*AURORA_PACKETS) * PACKET * 8
        rtt_ms = random.uniform(*AURORA_RTT_MS)
        queue = (1 + np.exp(random.uniform(*AURORA_QUEUE))) * PACKET
        return Bottleneck(
            rate=f"{rate:.0f} b/s",
            rtt=f"{rtt_ms:.3f} ms",
            buffer=float(queue / (rate / 8 * rtt_ms / 1e3)),
            flows=[Flow()],
            length=f"{AURORA_INTERVALS * rtt_ms / 1e3:.3f} s",
            loss=random.uniform(0, AURORA_LOSS),
            tcp=tcp,
        )

    return draw


def _alone(
    draw: Callable[[np.random.Generator], Bottleneck],
    within: Ranges,
    tcp: dict,
    learner: Td3,
    reward: AuroraReward | OrcaReward,
    budget: float,
    sealed: bool,
    looks: int,
    trial: bool,
) -> Curriculum:
    """One stage of links with one flow, judged by Astraea's grids."""
    points = TRIAL if trial else selection_grid()
    return Curriculum(
        stages=[Stage("S", draw, most=max(round(UPDATES * budget), 100))],
        flows=1,
        looks=looks,
        watched=points if trial else subset(points),
        selection=points,
        sealed=sealed_grid() if sealed and not trial else (),
        beside=RULES,
        judged=RULES,
        constants=replace(learner, warm_up=round(WARM_UP * min(10 * budget, 1))),
        pace=Pace(decisions=DECISIONS, over=round(DECISIONS * UPDATES / 3 * budget)),
        reward=reward,
        ranges=within,
        tcp=tcp,
    )
