"""One all-to-all of experts, in flows, against closed forms: bar A6.

The all-to-all takes the time that the bytes of its slowest way take, by closed forms on the weight
matrix of MixNet's public simulator (GV1: an expert a server; GV2: two) and on a sparse one (GV5).
Rows: optical NICs, how pairs' bytes are divided, and the ratio to a non-blocking fat-tree (MixNet,
SIGCOMM 2025, doi 10.1145/3718958.3750465)."""

from fractions import Fraction

import numpy as np

import loomnet as ln
from loomnet.systems import mixnet

import lib as mfabric

TOLERANCE = 0.02
WIRES = (
    "in packets wires that several servers share are 2 to 4 % slower than in flows, at any "
    "size; the cause is not known"
)
SPARSE = np.full((8, 8), 5)
for first, hot in zip((0, 2, 4, 6), (500, 495, 490, 485), strict=True):
    SPARSE[first, first + 1] = SPARSE[first + 1, first] = hot
np.fill_diagonal(SPARSE, 0)
np.fill_diagonal(SPARSE, 600 - SPARSE.sum(axis=1))  # tokens that stay make all rows equal
MATRICES = {"GV1": (mixnet.PUBLISHED, 8), "GV2": (mixnet.PUBLISHED, 4), "GV5": (SPARSE, 8)}
# (matrix, rule, split) -> alpha -> ratio to the fat-tree.
ROWS = {
    ("GV1", "skip", "all_or_nothing"): {1: 1.1525, 2: 1.1525, 3: 1.2840, 4: 1.2840, 6: 1.2840},
    ("GV1", "skip", "weighted"): {1: 1, 2: 1, 3: 1, 4: 1, 6: 1},
    ("GV2", "skip", "all_or_nothing"): {1: 2.6789, 2: 2.6789, 3: 2.8244, 4: 2.8244, 6: 1.4122},
    ("GV2", "skip", "weighted"): {1: 1, 2: 1, 3: 1, 4: 1, 6: 1},
    ("GV5", "skip", "all_or_nothing"): {1: 7.547, 2: 7.547, 3: 7.547, 4: 7.547, 6: 7.547},
    ("GV5", "skip", "weighted"): {1: 1.000, 2: 1.132, 3: 1.308, 4: 1.555, 6: 2.566},
    ("GV5", "share", "all_or_nothing"): {1: 7.547, 2: 3.774, 3: 2.516, 4: 1.887, 6: 1.258},
    ("GV5", "share", "weighted"): {1: 1, 2: 1, 3: 1, 4: 1, 6: 1},
}


def dispatch_s(lab, model, matrix, label, *, name="mixnet", alpha=6, exchange="256 MiB", **control):
    """Seconds of the first dispatch, without what GPUs hand one another inside a server."""
    tokens, tensor = MATRICES[matrix]
    fabric, job = mfabric.compared(
        name,
        servers=8 * tensor // 8,
        alpha=alpha,
        profile="ideal",
        control=control,
        tensor=tensor,
        data=1,
        pipeline=1,
        layers=1,
        micro_batches=1,
        iterations=1,
        matrix=tokens,
        exchange=exchange,
        compute="1 us",
        nvlink="1000000 Gb/s",
        fabric={"one_switch": True},
    )
    r = lab.run(fabric, job, model=model, label=label)
    [first] = [span for span in r.experts.spans if span.step == "dispatch" and not span.backward]
    return (first.end_ps - first.begin_ps) / 1e12


def fat_tree_tokens(matrix):
    """What the closed form gives, in tokens at one a unit of time and NIC."""
    tokens, tensor = MATRICES[matrix]
    each = 8 // tensor  # experts of a server
    servers = tokens.reshape(8 // each, each, 8 // each, each).sum(axis=(1, 3))
    np.fill_diagonal(servers, 0)
    return Fraction(int(max(servers.sum(axis=0).max(), servers.sum(axis=1).max())), 8)


@ln.scenario
def fluid_times(lab: ln.Lab, model: str = "fluid", exchange: ln.Size = "256 MiB"):
    tree = {}
    for matrix in MATRICES:
        tree[matrix] = dispatch_s(
            lab, model, matrix, f"{matrix}.fattree", name="fattree", exchange=exchange
        )
        tokens, tensor = MATRICES[matrix]
        sent = exchange.bytes * tensor * 8 / (int(tokens[0].sum()) * 400e9)  # s for each token
        # Headers of RoCE are 2.5 %.
        lab.check(
            f"A6-{matrix}-fattree",
            tree[matrix] / (float(fat_tree_tokens(matrix)) * sent),
            ge=1 - TOLERANCE,
            le=1.026 * (1 + TOLERANCE),
            what=f"an all-to-all of {matrix} over a fat-tree, of its line rate's time",
        )
    for (matrix, rule, split), rows in ROWS.items():
        for alpha, wanted in rows.items():
            label = f"{matrix}.{rule}.{split}.{alpha}"
            took = dispatch_s(
                lab, model, matrix, label, alpha=alpha, rule=rule, split=split, exchange=exchange
            )
            lab.check(
                f"A6-{label}",
                took / tree[matrix],
                approx=wanted,
                rel=TOLERANCE,
                reason=WIRES if model == "packets" else None,
                what=f"{matrix} over circuits, of its time over a fat-tree: rule {rule}, "
                f"{split.replace('_', ' ')}, ports {alpha}",
            )
    off = dispatch_s(lab, model, "GV1", "GV1.eps_only", name="eps_only", exchange=exchange)
    lab.check(
        "A6-GV1-without-circuits",
        off / tree["GV1"],
        approx=4.0,
        rel=TOLERANCE,
        what="GV1 without circuits, of its time over a fat-tree",
    )
