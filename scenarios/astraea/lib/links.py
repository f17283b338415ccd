"""Links to learn on, drawn within ranges: rates, round trips and buffers even in their logarithms,
flows that come and go."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from loomnet.learning import Bottleneck, Flow, Ranges

FULL = Ranges()
# As transcribed from the publication's table of training environments.
PAPER = Ranges(rate_mbps=(40, 160), rtt_ms=(10, 140), buffer=(0.1, 16), flows=(2, 5))
JOINING, LASTING = 0.3, (0.25, 0.9)  # of the length
FACTOR = (0.5, 2.0)  # of a flow's round trip in the link's


@dataclass(frozen=True)
class Noise:
    """What links and receivers do besides: each in a share of the episodes."""

    share: float = 1 / 3
    loss: float = 0.01
    jitter_ms: float = 2.0
    bunching: int = 44  # segments that one acknowledgement stands for
    delay_ms: float = 10.0
    changes: float = 1 / 4  # share of episodes whose rate changes once


def drawn(
    ranges: Ranges,
    *,
    mixed: float = 0.5,
    noise: Noise | None = None,
    tcp: Mapping | None = None,
    length_s: float = 60,
) -> Callable[[np.random.Generator], Bottleneck]:
    """What makes a link of a generator. `mixed`: share of episodes whose flows have round trips of
    their own."""

    def draw(random: np.random.Generator) -> Bottleneck:
        def within(least: float, most: float) -> float:
            return float(np.exp(random.uniform(np.log(least), np.log(most))))

        rate, rtt = within(*ranges.rate_mbps), within(*ranges.rtt_ms)
        count = int(random.integers(ranges.flows[0], ranges.flows[1] + 1))
        own = random.random() < mixed
        flows = []
        for number in range(count):
            start = 0.0 if number == 0 else random.uniform(0, JOINING * length_s)
            lasts = random.uniform(*LASTING) * length_s
            factor = random.uniform(*FACTOR) if own else 1.0
            flows.append(
                Flow(
                    f"{start:.3f} s",
                    f"{lasts:.3f} s" if number else None,  # one lasts to the end
                    rtt=f"{rtt * factor:.3f} ms",
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


def _noise(random: np.random.Generator, noise: Noise, rate: float, length_s: float) -> dict:
    """Each drawn by itself."""
    found: dict = {}
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
