"""What a failed optical NIC, GPU or server costs MixNet, over run seeds: bars X1 to X3.

X1 is an optical NIC, X2 a GPU, whose spare is reached by wires, X3 a server, whose spare has no
optical port, in the publication's conditions (SIGCOMM 2025, doi 10.1145/3718958.3750465), flows in
place of packets. A seed places circuits and hashes flows; bars are held by the mean over seeds. X4
is reported only."""

import statistics
from typing import Annotated

from pydantic import Field

import loomnet as ln

import lib as mfabric

# Tiled for 64 experts the published matrix is the same for all pairs of servers. Ties by number
# leave the last server without a circuit, so its wires set the pace. Ties to free ports give all
# servers equally many; then each has one peer left, so eight pairs go by wires, one flow each.
WHY = {
    "": "all pairs of servers ask for the same: by number the last server gets no circuit, and "
    "its wires set the pace, whatever else fails",
    "-max": "the pairs without a circuit are a flow each over two wires of a server; where two "
    "flows meet by their hashes they set the pace, before a failure as after it",
}
ALONE = "the broken server's bytes all go by its two wires, of eight NICs"
SPARE = (
    "the spare's bytes find room in wires, which end before the hottest circuit; other hashes "
    "of its flows move an iteration by less than a thousandth"
)


class Runs:
    """Of one model by one reading: seconds of an iteration by seed."""

    def __init__(self, lab, model, delay, assignment, seeds, servers):
        self.lab, self.model, self.seeds, self.servers = lab, model, seeds, servers
        self.name = delay + assignment
        self.words = mfabric.DELAY_TEXT[delay] + TIES.get(assignment, assignment)
        self.given = dict(mfabric.DELAYS[delay])
        self.control = mfabric.ASSIGNMENTS[assignment]

    def __call__(self, label, name="mixnet", faults=(), seeds=None, **options):
        found = []
        for seed in range(seeds or self.seeds):
            fabric, job = mfabric.compared(
                name,
                self.model,
                servers=self.servers,
                iterations=1,
                control=self.control,
                **(self.given | options),
            )
            full = f"{label}{self.name}.{seed}"
            r = self.lab.run(fabric, job, model="fluid", label=full, seed=seed, faults=list(faults))
            self.lab.check(f"{full}-no-error", r["errors"], eq=0, what="errors of ranks")
            last = r.experts.rounds[-1]
            found.append((last.end_ps - last.begin_ps) / 1e12)
        return found


TIES = {"": "", "-max": ", ties to free ports"}


def spread(lab, name, values, published=None, **bound):
    """The mean as a check, or a figure without a bound; the least and the most."""
    mean = statistics.mean(values)
    if bound:
        lab.check(name, mean, published=published, **bound)
    else:
        lab.metric(name, mean, unit="ratio", published=published)
    lab.metric(f"{name}-least", min(values), unit="ratio")
    lab.metric(f"{name}-most", max(values), unit="ratio")
    print(f"{name:<24}{mean:>9.4f}  ({min(values):.4f} to {max(values):.4f})", flush=True)
    return mean


def slower(broken, whole):
    return [a / b - 1 for a, b in zip(broken, whole, strict=True)]


def a_gpu(lab, delay, assignment, seeds, servers):
    """X2."""
    runs = Runs(lab, "mixtral_8x22b", delay, assignment, seeds, servers)
    found = slower(runs("X2", spares=((0, 0),)), runs("X2.whole"))
    spread(
        lab,
        f"X2{runs.name}",
        found,
        0.051,
        ge=0,
        le=0.10,
        reason=SPARE,
        what=f"time that a failed GPU costs, Mixtral 8x22B; {runs.words}",
    )


def a_nic_and_a_server(lab, delay, assignment, seeds, servers):
    """R1, X1, X3."""
    runs = Runs(lab, "deepseek_r1", delay, assignment, seeds, servers)
    tree, whole = runs("R1.fattree", "fattree"), runs("R1")
    spread(lab, f"R1{runs.name}-to-fattree", [a / b for a, b in zip(whole, tree, strict=True)])
    nic = runs("X1", faults=[ln.down("h0--ocs0", at="0 s")])
    server = runs("X3", faults=[ln.down("h0--ocs0*", at="0 s")])
    why = WHY[assignment]
    one = spread(
        lab,
        f"X1{runs.name}",
        slower(nic, whole),
        0.033,
        ge=0,
        le=0.06,
        reason=why,
        what=f"time that a failed optical NIC costs, DeepSeek-R1; {runs.words}",
    )
    all_of = spread(
        lab,
        f"X3{runs.name}",
        slower(server, whole),
        0.065,
        ge=0,
        le=0.12,
        reason=ALONE if assignment else why,
        what=f"time that a failed server costs, DeepSeek-R1; {runs.words}",
    )
    lab.check(
        f"X3-above-X1{runs.name}",
        all_of - one,
        ge=0,
        reason=why,
        what=f"a server costs more than a NIC: difference; {runs.words}",
    )
    # The same where no two flows of wires meet: what is left is not of hashes.
    alone = {"fabric": {"one_switch": True}, "seeds": 1}
    [tree], [whole] = runs("R1.fattree.apart", "fattree", **alone), runs("R1.apart", **alone)
    lab.metric(f"R1{runs.name}-one-switch-to-fattree", whole / tree, unit="ratio")
    for name, links in (("X1", "h0--ocs0"), ("X3", "h0--ocs0*")):
        [broken] = runs(f"{name}.apart", faults=[ln.down(links, at="0 s")], **alone)
        lab.metric(f"{name}{runs.name}-one-switch", broken / whole - 1, unit="ratio")


@ln.scenario
def failures(
    lab: ln.Lab,
    servers: int = 128,
    seeds: Annotated[int, Field(ge=1, le=100)] = 10,
    delays: str = ",-25us",
):
    """`delays`: readings of the time to reconfigure, by their suffixes (lib/readings.py)."""
    for delay in delays.split(","):
        for assignment in mfabric.ASSIGNMENTS:
            a_gpu(lab, delay, assignment, seeds, servers)
            a_nic_and_a_server(lab, delay, assignment, seeds, servers)
    lab.metric(
        "X4",
        None,
        unit="ratio",
        published=1.3,
        reason="2,048 GPUs of NVL72: what it is compared with is not published",
    )
