"""`loomnet/CC-v1`: the first version of the benchmark. Nothing in this file changes any more: a
change that moves a link or a score makes loomnet/CC-v2, beside this one.

Rates, round trips and buffers are neither those of the selection grid nor those of the sealed grid
(grid.py): a policy that those have chosen has not been chosen by these points."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from loomnet.learning.bottleneck import Bottleneck
from loomnet.learning.grid import Point, Ranges
from loomnet.learning.links import Noise, drawn
from loomnet.learning.suite import Suite

if TYPE_CHECKING:
    from loomnet.learning.one_flow import OneFlow
    from loomnet.learning.shared import SharedBottleneckVector

NAME = "loomnet/CC-v1"
RANGES = Ranges(rate_mbps=(10, 400), rtt_ms=(5, 200), buffer=(0.2, 8), flows=(1, 10))
NOISE = Noise(share=1 / 3, loss=0.01, jitter_ms=2.0, bunching=44, delay_ms=10.0, changes=1 / 4)
EPISODE_S = 30.0
NEIGHBOURS = ("cubic", "bbr", "vegas", "copa")  # of the flow that learns in OneFlow

RATES, RTTS = (15, 40, 90, 180, 350), (8, 22, 60, 150)  # Mb/s, ms
BUFFERS, FLOWS = (0.4, 1.5, 6), (1, 2, 4, 8)

draw = drawn(RANGES, mixed=0.5, noise=NOISE, length_s=EPISODE_S)


def _still() -> list[Point]:
    """Every other point of the product of the four lists, where its flows fit."""
    found = []
    for (a, rate), (b, rtt), (c, buffer), (d, flows) in itertools.product(
        *map(enumerate, (RATES, RTTS, BUFFERS, FLOWS))
    ):
        point = Point(rate, rtt, buffer, int(flows))
        if (a + b + c + d) % 2 == 0 and point.counts:
            found.append(point)
    return found


def _changing() -> list[Point]:
    """Of which all rates are within the ranges, from a half to twice of these."""
    return [
        Point(rate, rtt, 1.5, flows, changing=True)
        for rate, rtt, flows in itertools.product((40, 90, 180), RTTS, (2, 4))
    ]


def _beyond() -> list[Point]:
    """Of each one thing is outside the ranges, on links that are otherwise within."""
    found = [Point(rate, rtt, 1.5, 2) for rate in (6, 600) for rtt in (22, 60)]
    found += [Point(rate, rtt, 1.5, 2) for rtt in (3, 280) for rate in (40, 180)]
    found += [Point(rate, 22, buffer, 2) for buffer in (0.12, 14) for rate in (40, 180)]
    found += [Point(rate, rtt, 1.5, 16) for rate in (90, 180) for rtt in (22, 60)]
    return found + [Point(350, rtt, 1.5, 2, changing=True) for rtt in RTTS]


CC_V1 = Suite(NAME, RANGES, draw, (*_still(), *_changing(), *_beyond()))


def draw_one(random: np.random.Generator) -> Bottleneck:
    """Such a link whose first flow alone learns; each of the others has one of NEIGHBOURS."""
    link = draw(random)
    first, *others = link.flows
    controls = random.choice(NEIGHBOURS, len(others))
    beside = [replace(flow, cc=str(cc)) for flow, cc in zip(others, controls, strict=True)]
    return replace(link, flows=[first, *beside])


def one_flow(**options: Any) -> OneFlow:
    """gymnasium.make("loomnet/CC-v1"): OneFlow on links of draw_one(). `reward` as there."""
    from loomnet.learning.one_flow import OneFlow

    return OneFlow(draw_one, **options)


def side_by_side(num_envs: int = 1, **options: Any) -> SharedBottleneckVector:
    """gymnasium.make_vec("loomnet/CC-v1"): SharedBottleneckVector on links of draw(), with rows for
    ten flows. `reward` and `autoreset_mode` as there."""
    from loomnet.learning.shared import SharedBottleneckVector

    return SharedBottleneckVector(num_envs, draw, flows=RANGES.flows[1], **options)
