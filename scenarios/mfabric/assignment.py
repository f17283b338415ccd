"""Which circuits MixNet (SIGCOMM 2025, doi 10.1145/3718958.3750465) gives a region for the expert
loads of one layer, by each rule; and how well a layer's loads are predicted."""

import itertools
from typing import Annotated

import numpy as np
from pydantic import Field

import loomnet as ln
from loomnet.systems import mixnet

import lib as mfabric

# Of the publication's matrix with one expert on each server, rule "skip": the share of the bytes
# that have a circuit, in percent, by optical ports of a server.
COVERED = {1: 14.69, 2: 27.37, 3: 42.88, 4: 56.73, 5: 70.43, 6: 86.98}
# Circuits of each pair at six ports, worked out by hand from the rule.
SIX = np.array(
    [
        [0, 1, 1, 1, 1, 0, 1, 1],
        [1, 0, 0, 1, 1, 1, 1, 1],
        [1, 0, 0, 0, 1, 1, 2, 1],
        [1, 1, 0, 0, 1, 1, 1, 1],
        [1, 1, 1, 1, 0, 1, 0, 1],
        [0, 1, 1, 1, 1, 0, 1, 1],
        [1, 1, 2, 1, 0, 1, 0, 0],
        [1, 1, 1, 1, 1, 1, 0, 0],
    ]
)
RULES_APART = {"skip": [3, 1, 1], "htsim": [2, 2, 2], "share": [4, 0, 0]}
RATE = 400e9  # of a circuit, bits a second
HOT_PAIRS = ((0, 1), (2, 3), (4, 5), (6, 7))


@ln.scenario
def assignment(lab: ln.Lab, size: ln.Size = "4 MB", seeds: Annotated[int, Field(ge=1, le=100)] = 3):
    """Which circuits MixNet gives a region, by each rule: bars A1 to A5, A7 and A8.

    A1: circuits for the published matrix at six ports. A2: the bytes they cover, by ports. A3: the
    rule as printed. A4: the rule of the authors' simulator. A5: demand that sets the rules apart.
    A7: Copilot finds a known matrix. A8: its two hottest experts on drifting loads, over `seeds`
    seeds. Then the 24 circuits are patched and `size` is sent between every two servers that they
    join: all arrives at the rate of the circuits.
    """
    demand = mixnet.pair_demand(mixnet.PUBLISHED, tensor_parallel=8)
    published_matrix(lab, demand)
    other_rules(lab, demand)
    sparse(lab)
    known_matrix(lab)
    drifting(lab, seeds)
    patched(lab, demand, size)


def published_matrix(lab, demand):
    """A1, A2."""
    found = mixnet.assign(demand, 6)
    lab.check(
        "A1", found.count, published=24, eq=24, what="circuits for the published matrix, six ports"
    )
    lab.check(
        "A1-circuits-apart",
        int(np.abs(found.circuits - SIX).sum()),
        eq=0,
        what="circuits other than the published map's",
    )
    for alpha, percent in COVERED.items():
        covered = mixnet.assign(demand, alpha).covered(demand)
        lab.check(
            "A1-bytes" if alpha == 6 else f"A2-{alpha}",
            100 * covered,
            approx=percent,
            abs=0.005,
            what=f"bytes that circuits cover with {alpha} ports (%)",
        )


def other_rules(lab, demand):
    """A3, A4."""
    printed = mixnet.assign(demand, 6, rule="literal")
    lab.check(
        "A3-star",
        int(printed.circuits[0].sum()),
        eq=6,
        what="the rule as printed: all six ports of server 0 are used",
    )
    lab.check("A3-circuits", printed.count, eq=6, what="the rule as printed: circuits")
    lab.check(
        "A3-bytes",
        100 * printed.covered(demand),
        approx=35.17,
        abs=0.005,
        what="the rule as printed: bytes that circuits cover (%)",
    )
    pairs = mixnet.pair_demand(mixnet.PUBLISHED, tensor_parallel=4)  # four servers
    apart = sum(
        (
            mixnet.assign(each, alpha, rule="htsim").circuits != mixnet.assign(each, alpha).circuits
        ).any()
        for each in (demand, pairs)
        for alpha in range(1, 8)
    )
    lab.check(
        "A4", int(apart), eq=0, what="demands for which the authors' simulator gives other circuits"
    )


def sparse(lab):
    """A5: three servers; two servers; four hot pairs among cold ones."""
    three = np.array([[0, 900, 100], [900, 0, 90], [100, 90, 0]])
    for rule, wanted in RULES_APART.items():
        circuits = mixnet.assign(three, 4, rule=rule).circuits
        got = [int(circuits[pair]) for pair in ((0, 1), (0, 2), (1, 2))]
        lab.check(
            f"A5-three-{rule}",
            got == wanted,
            eq=True,
            what=f"three servers get the circuits of the rule {rule}",
        )
    two = np.array([[0, 7], [7, 0]])
    lab.check(
        "A5-two",
        int(mixnet.assign(two, 6).circuits[0, 1]),
        eq=6,
        what="circuits of two servers with six ports each",
    )
    hot = np.full((8, 8), 10)
    np.fill_diagonal(hot, 0)
    for (i, j), bytes_ in zip(HOT_PAIRS, (1000, 990, 980, 970), strict=True):
        hot[i, j] = hot[j, i] = bytes_
    lab.check(
        "A5-hot-skip",
        mixnet.assign(hot, 6, ties="index").count,
        eq=22,
        what="circuits for four hot pairs, ties by number",
    )
    lab.check(
        "ties-to-free-ports-leave-none",
        mixnet.assign(hot, 6).count,
        eq=24,
        what="circuits for four hot pairs, ties to free ports",
    )
    equal = 1000 * (1 - np.eye(8, dtype=np.int64))
    for ties, fewest in (("free", 6), ("index", 0)):
        circuits = mixnet.assign(equal, 6, ties=ties).circuits
        lab.check(
            f"equal-pairs-{ties}",
            int(circuits.sum(axis=1).min()),
            eq=fewest,
            what=f"fewest circuits of a server among equal pairs, ties by {ties}",
        )
    share = mixnet.assign(hot, 6, rule="share").circuits
    lab.check(
        "A5-hot-share",
        min(int(share[pair]) for pair in HOT_PAIRS),
        eq=6,
        what="the rule share: fewest circuits of a hot pair",
    )


def known_matrix(lab):
    """A7: records without noise."""
    random = np.random.default_rng(lab.seed)
    truth = random.dirichlet(np.ones(8), 8).T
    copilot = mfabric.Copilot(8)
    for _ in range(16):
        before = random.dirichlet(np.full(8, 0.3))
        copilot.record(before, truth @ before)
    copilot.fit()
    lab.check(
        "A7",
        float(np.abs(copilot.matrix - truth).max()),
        le=1e-6,
        what="Copilot finds a known matrix: largest error",
    )


def drifting(lab, seeds):
    """A8: of the two hottest experts, how many Copilot names, and how many were the hottest in the
    iteration before."""
    named = dict.fromkeys(("copilot", "reuse"), 0)
    asked = 0
    for seed in range(seeds):
        weights = mixnet.Drift(8, 3, lab.seed + seed)
        loads = [each.sum(axis=1) for each in itertools.islice(weights, 60)]  # by layer and expert
        copilot = mfabric.Copilot(8)
        for last, now in itertools.pairwise(loads):
            copilot.record(last[1], last[2])
            copilot.fit()
            hot = hottest(now[2])
            named["copilot"] += len(hot & hottest(copilot.predict(now[1])))
            named["reuse"] += len(hot & hottest(last[2]))
            asked += 2
    for name, hits in named.items():
        lab.metric(f"A8-{name}", hits / asked, unit="ratio")
    # Above 0 by more than chance: one name in a hundred.
    lab.check(
        "A8",
        (named["copilot"] - named["reuse"]) / asked,
        ge=0.01,
        what="hottest experts that Copilot names more often than the last iteration does",
    )


def hottest(loads):
    return set(np.argsort(loads)[-2:].tolist())


def patched(lab, demand, size):
    """Servers of six optical ports at one panel of 48."""
    circuits = mixnet.assign(demand, 6).circuits
    ports = mixnet.map_ports(circuits, demand, alpha=6)
    fabric = ln.Fabric("region")
    fabric.add_panel("ocs0", ports=48)
    for server in range(8):
        fabric.add_host(f"h{server}")
        for _ in range(6):
            fabric.add_link(f"h{server}", "ocs0", rate="400 Gb/s", delay="500 ns")
    fabric.panel("ocs0").circuits([(port, peer) for port, peer in enumerate(ports) if port < peer])
    pairs = [(int(i), int(j)) for i, j in np.argwhere(circuits)]
    r = lab.run(
        fabric,
        ln.Flows(
            pairs=pairs, sizes=size, count=len(pairs), transport="mrc", starts=["0 s"] * len(pairs)
        ),
    )
    # A flow has the rate of its circuits; headers take 7 %, fibre and the flow's start 5 us.
    slowest = max(
        (row["fct_s"] - 5e-6) * RATE * int(circuits[pair]) / (size.bytes * 8)
        for row, pair in zip(r.flows, pairs, strict=True)
    )
    lab.metric("slowest_to_its_circuits", slowest, unit="ratio")
    lab.check(
        "every-circuit-carries",
        slowest,
        le=1.10,
        what="slowest flow over the time at its circuits' rate",
    )
    lab.check("no-error", r["errors"], eq=0, what="errors of ranks")
