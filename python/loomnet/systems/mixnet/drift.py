"""Expert loads that drift from iteration to iteration and are correlated from layer to layer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from loomnet.base.errors import UsageError
from loomnet.base.names import quoted

MEMORY = 0.95  # correlation of a log-load with its value in the iteration before
SPREAD = 0.77  # standard deviation of log-loads, as the column sums of the published matrix have it
SOURCE_SPREAD = 0.15  # standard deviation of a source's log-loads from the layer's
NOISE = 0.05  # share of a layer's loads that does not follow from the layer before
TOKENS = 32768  # of each source
# Concentration of the Dirichlet distribution of a column of the matrix that couples two layers. It
# is so small that the tokens of a hot expert go to few experts of the next layer. Loads of later
# layers are therefore as uneven as those of the first.
COUPLING = 0.15
MOST_EXPERTS, _MOST_LAYERS = 4096, 1 << 15
_LATE_SPREAD, _DECAY_ITERATIONS = 0.5, 2000


class Drift:
    """An endless series of weight matrices: each step gives an array (layers, experts, experts) of
    tokens for one iteration. The same seed gives the same series.

    In the first layer, log-loads z follow z <- 0.95 z + sqrt(1 - 0.95^2) sigma N(0, 1). A layer's
    loads are those of the layer before times a fixed seeded column-stochastic matrix, but for 5 %
    that are a walk of its own. Each source's loads differ by a factor exp(0.15 N(0, 1)). MixNet
    publishes one matrix alone, so the walk is Loomnet's own; sigma is that matrix's spread.

    Args:
        experts, layers: 2 to 4,096; 1 to 32,768.
        seed: of all of it.
        spread: sigma.
        decay: sigma falls towards 0.5 with a time constant of 2,000 iterations, as loads even out
            in training.

    Raises:
        UsageError: a number out of range.
    """

    def __init__(
        self, experts: int, layers: int, seed: int, *, spread: float = SPREAD, decay: bool = False
    ) -> None:
        for field, value, least, most in (
            ("experts", experts, 2, MOST_EXPERTS),
            ("layers", layers, 1, _MOST_LAYERS),
        ):
            if type(value) is not int or not least <= value <= most:
                raise UsageError(
                    f"mixnet.Drift: {field}={quoted(value)} must be a whole number "
                    f"from {least} to {most}"
                )
        if type(seed) is not int or seed < 0:
            raise UsageError(f"mixnet.Drift: seed={quoted(seed)} must be a whole number from 0")
        if not isinstance(spread, (int, float)) or not 0 <= spread < 10:
            raise UsageError(f"mixnet.Drift: spread={quoted(spread)} must be from 0 to 10")
        self.experts, self.layers, self.seed = experts, layers, seed
        self.spread, self.decay = spread, decay

    def __iter__(self) -> Iterator[np.ndarray]:
        experts, layers = self.experts, self.layers
        random = np.random.Generator(np.random.PCG64([self.seed, experts, layers]))
        # coupling[l][:, e]: where tokens of expert e of layer l - 1 go in layer l.
        coupling = [random.dirichlet(np.full(experts, COUPLING), experts).T for _ in range(layers)]
        walks = random.standard_normal((layers, experts))
        iteration = 0
        while True:
            fading = np.exp(-iteration / _DECAY_ITERATIONS) if self.decay else 1.0
            sigma = _LATE_SPREAD + (self.spread - _LATE_SPREAD) * fading
            own = _shares(sigma * walks)
            loads = [own[0]]
            for layer in range(1, layers):
                loads.append((1 - NOISE) * coupling[layer] @ loads[-1] + NOISE * own[layer])
            jitter = np.exp(SOURCE_SPREAD * random.standard_normal((layers, experts, experts)))
            chances = np.array(loads)[:, None, :] * jitter
            chances /= chances.sum(axis=2, keepdims=True)
            yield random.multinomial(TOKENS, chances)
            walks = MEMORY * walks + np.sqrt(1 - MEMORY**2) * random.standard_normal(walks.shape)
            iteration += 1


def _shares(logs: np.ndarray) -> np.ndarray:
    found = np.exp(logs - logs.max(axis=-1, keepdims=True))
    return found / found.sum(axis=-1, keepdims=True)
