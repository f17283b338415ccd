"""What experts of one region ask of it: gate counts (iterations, layers, experts, experts) of eight
experts, all rows with one sum."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np

from loomnet.systems import mixnet

HOT, COLD = 3000, 30  # tokens of a source for its hot partner, and for each other one
EXPERTS, ROW = 8, 32768
# Of bursts(): how far a preference walks in an iteration, how often a source forgets all of its
# own, and how far apart new ones are.
STEP, FORGETS, SPREAD = 0.5, 0.1, 2.0


def moving_pairs(iterations: int, layers: int, seed: int) -> np.ndarray:
    """Sparse demand: in each layer every expert has one hot partner, others in every iteration."""
    random = np.random.default_rng(seed)
    found = np.full((iterations, layers, EXPERTS, EXPERTS), COLD)
    for iteration, layer in itertools.product(range(iterations), range(layers)):
        order = random.permutation(EXPERTS)
        for a, b in order.reshape(-1, 2):
            found[iteration, layer, a, b] = found[iteration, layer, b, a] = HOT
        for expert in range(EXPERTS):  # what stays makes all rows equal
            found[iteration, layer, expert, expert] = 2 * COLD
    return found


def drifting(iterations: int, layers: int, seed: int) -> np.ndarray:
    """Hot experts that move, as MoeJob's matrix "drift" has them."""
    walk = iter(mixnet.Drift(EXPERTS, layers, seed))
    return np.array([next(walk) for _ in range(iterations)], dtype=np.int64)


def mixed(iterations: int, layers: int, seed: int) -> np.ndarray:
    """Half of each source's tokens drift, half are sparse."""
    pairs, drift = moving_pairs(iterations, layers, seed), drifting(iterations, layers, seed)
    return pairs * int(drift[0, 0, 0].sum()) + drift * int(pairs[0, 0, 0].sum())


def bursts(iterations: int, layers: int, seed: int) -> np.ndarray:
    """Each source prefers some experts. Preferences walk at random, and now and then a source has
    new ones. No rule was made with it in view."""
    random = np.random.default_rng(seed)
    taste = SPREAD * random.normal(size=(layers, EXPERTS, EXPERTS))
    found = []
    for _ in range(iterations):
        shares = np.exp(taste)
        shares /= shares.sum(-1, keepdims=True)
        whole = np.floor(shares * ROW).astype(np.int64)
        whole[..., 0] += ROW - whole.sum(-1)
        found.append(whole)
        taste += STEP * random.normal(size=taste.shape)
        forgets = random.random((layers, EXPERTS)) < FORGETS
        taste[forgets] = SPREAD * random.normal(size=(int(forgets.sum()), EXPERTS))
    return np.array(found)


def recorded(trace: Path, iterations: int, layers: int, seed: int) -> np.ndarray:
    """Steps of recorded gates from number `iterations` x `seed` on; the folder is begun anew at its
    end. Layers take turns where it has fewer."""
    steps = np.array(mixnet.read_weights(trace))
    rows = (seed * iterations + np.arange(iterations)) % len(steps)
    return steps[rows][:, np.arange(layers) % steps.shape[1]]
