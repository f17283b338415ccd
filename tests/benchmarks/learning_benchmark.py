"""How fast episodes of learners pass: figures, no test.

    python tests/benchmarks/learning_benchmark.py [seconds]

One bottleneck of 100 Mb/s and 30 ms with three flows, for that many emulated seconds (60), each
line the best of three: the same flows in a plain run of the engine, whose policy is inside; a Batch
whose actions are zeros; and a Batch with the full actor of either net, 55-64-32-1 and
50-256-128-64-32-1, with random weights, which fill the link more or less than holding does. Prints
emulated seconds by second of one processor, what each costs beside the plain run, decisions by
second, and the memory of an episode.
"""

import resource
import sys
import time
from itertools import pairwise

import numpy as np

import loomnet._core as _core
from loomnet.learning import Batch, Bottleneck, Flow

NETS = {"ours": ("ours11", [55, 64, 32, 1]), "paper": ("astraea10", [50, 256, 128, 64, 32, 1])}


def net(features, widths):
    draw = np.random.default_rng(1)
    layers = [
        (draw.normal(0, (1 / into) ** 0.5, (out, into)), np.zeros(out))
        for into, out in pairwise(widths)
    ]
    return _core.astraea.Policy(layers, features=features)


def bottleneck(length, features="ours11", policy=None):
    cc = None if policy is None else {"cc": "astraea", "policy": policy}
    tcp = {"features": features}
    flows = [Flow(cc=cc), Flow("1 s", cc=cc), Flow("2 s", cc=cc)]
    return Bottleneck(flows=flows, length=f"{length} s", tcp=tcp)


def run(made, act):
    """Processor seconds and decisions of an episode."""
    batch = Batch([made])
    decisions, began = 0, time.process_time()
    step = batch.reset(seed=1)
    while not step.done.all():
        decisions += int(step.due.sum())
        step = batch.step(act(step))
    return time.process_time() - began, decisions


def main():
    length = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    cases = {"plain run, holds": (bottleneck(length, policy="hold"), None)}
    cases["stepped, zeros"] = (bottleneck(length), lambda step: np.zeros(step.due.shape))
    for name, (features, widths) in NETS.items():
        policy = net(features, widths)

        def act(step, policy=policy):
            actions = np.full(step.due.shape, np.nan)
            actions[step.due] = policy.act(step.inputs[step.due])
            return actions

        cases[f"stepped, {name}"] = (bottleneck(length, features), act)
    plain = None
    for name, (made, act) in cases.items():
        took, decisions = min(run(made, act) for _ in range(3))
        plain = plain or took
        print(
            f"{name:18} {length / took:6.1f} x real time, {took / plain:4.2f} of the plain run, "
            f"{decisions / took:8.0f} decisions/s"
        )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    many = Batch([bottleneck(length)] * 256)
    many.reset(seed=1)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(f"memory of an episode: {grown / 256:.0f} KiB")


if __name__ == "__main__":
    main()
