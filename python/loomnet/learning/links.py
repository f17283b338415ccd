"""Links to learn on, drawn within ranges: rates, round trips and buffers even in their logarithms,
flows that come and go."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from loomnet.learning.bottleneck import Bottleneck, Flow
from loomnet.learning.grid import Ranges

JOINING, LASTING = 0.3, (0.25, 0.9)  # of the length
FACTOR = (0.5, 2.0)  # of a flow's round trip in the link's


@dataclass(frozen=True)
class Noise:
    """What links and receivers do besides, each drawn by itself.

    Attributes:
        share: of the episodes, for loss, jitter, bunching and delay each.
        loss: the largest share of packets that the link itself loses.
        jitter_ms: the longest delay of an acknowledgement, milliseconds.
        bunching: the most packets whose acknowledgements come together.
        delay_ms: the longest time from a decision to the sender, milliseconds.
        changes: share of the episodes whose rate changes once, to half to twice.
    """

    share: float = 1 / 3
    loss: float = 0.01
    jitter_ms: float = 2.0
    bunching: int = 44
    delay_ms: float = 10.0
    changes: float = 1 / 4


def drawn(
    ranges: Ranges,
    *,
    mixed: float = 0.5,
    noise: Noise | None = None,
    tcp: Mapping[str, Any] | None = None,
    length_s: float = 60,
) -> Callable[[np.random.Generator], Bottleneck]:
    """A function that draws a bottleneck, as Stage.draw and OneFlow(bottleneck=) take it.

    Args:
        ranges: of rate, round trip, buffer and number of flows.
        mixed: share of episodes whose flows have round trips of their own, half to twice that of
            the link.
        noise: None: links that lose, delay and bunch nothing.
        tcp: Bottleneck.tcp of each.
        length_s: of an episode. The first flow lasts to its end; the others join within the first
            30 % and last for 25 to 90 % of it.
    """

    def draw(random: np.random.Generator) -> Bottleneck:
        def within(least: float, most: float) -> float:
            return float(np.exp(random.uniform(np.log(least), np.log(most))))

        rate, rtt = within(*ranges.rate_mbps), within(*ranges.rtt_ms)
        count = int(random.integers(ranges.flows[0], ranges.flows[1] + 1))
        own = random.random() < mixed
        # Half of the link's round trip, which is the least that a flow may have, in microseconds.
        least = math.ceil(round(rtt * 1000) / 2) / 1000
        flows = []
        for number in range(count):
            start = 0.0 if number == 0 else random.uniform(0, JOINING * length_s)
            lasts = random.uniform(*LASTING) * length_s
            factor = random.uniform(*FACTOR) if own else 1.0
            flows.append(
                Flow(
                    f"{start:.3f} s",
                    f"{lasts:.3f} s" if number else None,  # one lasts to the end
                    rtt=f"{max(rtt * factor, least):.3f} ms",
                )
            )
        return Bottleneck(
            rate=f"{rate:.3f} Mb/s",
            rtt=f"{rtt:.3f} ms",
            buffer=within(*ranges.buffer),
            flows=flows,
            length=f"{length_s:g} s",
            tcp=dict(tcp or {}),
            **({} if noise is None else _noise(random, noise, rate, length_s)),
        )

    return draw


def _noise(
    random: np.random.Generator, noise: Noise, rate: float, length_s: float
) -> dict[str, Any]:
    """Arguments of Bottleneck."""
    found: dict[str, Any] = {}
    if random.random() < noise.share:
        found["loss"] = random.uniform(0, noise.loss)
    if random.random() < noise.share:
        found["jitter"] = f"{random.uniform(0, noise.jitter_ms):.3f} ms"
    if random.random() < noise.share:
        found["bunching"] = int(random.integers(1, noise.bunching + 1))
    if random.random() < noise.share:
        found["action_delay"] = f"{random.uniform(0, noise.delay_ms):.3f} ms"
    if random.random() < noise.changes:
        at = random.uniform(0.2, 0.8) * length_s
        changed = rate * random.uniform(0.5, 2)
        found["changes"] = [(f"{at:.3f} s", f"{changed:.3f} Mb/s")]
    return found
