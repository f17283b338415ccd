"""Links whose rate and round trip change while flows use them."""

from dataclasses import dataclass

import numpy as np

import loomnet as ln
from loomnet.faults.model import Fault
from loomnet.learning import Bottleneck, Flow
from loomnet.learning.scores import STEP_S, Series

EVERY_S = 10


@dataclass(frozen=True)
class Within:
    """Ranges to draw from, least and most: rates in Mb/s, round trips in milliseconds."""

    rate: tuple[float, float]
    rtt: tuple[float, float]


# As of a study of learned controls (arXiv 2510.25105), within the ranges of the training; and links
# that are faster and longer than any of it.
IN_RANGE = Within((10, 100), (20, 200))
BEYOND = Within((400, 800), (200, 400))


@dataclass(frozen=True)
class Changing:
    """`rtts`: round trips without a queue, milliseconds, each for EVERY_S. The extra delay of all
    but the shortest is on the way back."""

    link: Bottleneck
    rtts: tuple[float, ...]

    @property
    def faults(self) -> list[Fault]:
        found = []
        for number, rtt in enumerate(self.rtts):
            extra = rtt - min(self.rtts)
            if extra > 0:
                at = f"{EVERY_S * number} s"
                found.append(
                    ln.delay("right->left", f"{extra:.3f} ms", at=at, duration=f"{EVERY_S} s")
                )
        return found

    def stretch(self, series: Series) -> float:
        """Mean of round trips over the least of their time, of steps and flows with a sample."""
        steps = len(series.stretch)
        part = np.minimum(np.arange(steps) * STEP_S // EVERY_S, len(self.rtts) - 1).astype(int)
        least = min(self.rtts) / np.array(self.rtts)[part]
        return float(np.nanmean(series.stretch * least[:, None]))


def changing(within: Within, seed: int, *, flows: int = 1, length_s: int = 60) -> Changing:
    """Rate and round trip drawn anew every 10 s, evenly; the queue holds what the first rate
    carries in the shortest round trip. Flows come 0.5 s apart and stay."""
    random = np.random.default_rng((seed, 6))
    parts = -(-length_s // EVERY_S)
    rates = [f"{random.uniform(*within.rate):.3f} Mb/s" for _ in range(parts)]
    rtts = tuple(round(random.uniform(*within.rtt), 3) for _ in range(parts))
    link = Bottleneck(
        rate=rates[0],
        rtt=f"{min(rtts):.3f} ms",
        flows=[Flow(f"{0.5 * each:g} s") for each in range(flows)],
        length=f"{length_s} s",
        changes=[(f"{EVERY_S * k} s", each) for k, each in enumerate(rates) if k],
    )
    return Changing(link, rtts)
