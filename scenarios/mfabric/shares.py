"""How a job's traffic and time are divided, beside what was measured in production: bars F1 to F4.

They are of MixNet (SIGCOMM 2025, doi 10.1145/3718958.3750465). Compute times are the constants of
headline.py and are not moved."""

import itertools

import numpy as np

import loomnet as ln
from loomnet.systems import mixnet

import lib as mfabric

# Set-ups that were profiled in production: 128 GPUs, rails at 400 Gb/s.
PRODUCTION = {"mixtral_8x7b": {}, "llama_moe": {}, "qwen_moe": {"expert": 16}}
TIME_SHARES = {"mixtral_8x7b": (0.33, 0.55), "llama_moe": (0.42, 0.58), "qwen_moe": (0.0, 0.68)}
VOLUMES = {
    "mixtral_8x7b": {"tensor": 0.60, "expert": 0.30, "others": 0.06},
    "llama_moe": {"expert": 0.80},
    "qwen_moe": {"expert": 0.80},
}
LABELS = {"mixtral_8x7b": "Mixtral 8x7B", "llama_moe": "LLaMA-MoE", "qwen_moe": "Qwen-MoE"}
SENT = {"tensor": "tensor parallelism's", "expert": "expert parallelism's", "others": "all others'"}
COMPUTE = "the compute constant, fitted to the fat-tree times, is not moved"
COUNTED = (
    "of a GPU: four all-reduces of a layer over its tensor ranks, four all-to-alls; how the "
    "published shares were counted is not stated"
)
DRIFT = "logarithms of drifting loads are normal, and the published matrix is one sample"


def volumes(job, replicas):
    """Shares of the bytes that a GPU sends in an iteration."""
    layers = max(job.stage_layers) * job.micro_batches
    tensor = job.tensor_ranks
    # Ring all-reduces of activations after attention and after the experts, forward and backward.
    whole = job.tokens * job.of.hidden * 2
    found = {"tensor": layers * 4 * 2 * (tensor - 1) / tensor * whole}
    ranks = job.expert_ranks
    found["expert"] = layers * 4 * job.bytes_per_rank * (ranks - 1) / ranks
    sums = 2 * (replicas - 1) / replicas * job.gradient_bytes / 8
    found["others"] = 2 * job.micro_batches * job.activation_bytes / 8 + sums
    return {name: value / sum(found.values()) for name, value in found.items()}


def production(lab):
    """F1 on rails, beside the upper end of the published range; F2 by the job's bytes."""
    for model, setting in PRODUCTION.items():
        fabric, job = mfabric.compared("rail", model, servers=16, iterations=1, **setting)
        share = lab.run(fabric, job, model="fluid", label=f"F1.{model}")["all_to_all_share"]
        low, high = TIME_SHARES[model]
        lab.check(
            f"F1-{model}",
            share,
            ge=low,
            le=high,
            published=high,
            reason=None if low <= share <= high else COMPUTE,
            what=f"all-to-alls' share of the time, {LABELS[model]}",
        )
        replicas = 16 // (job.region_servers * job.stages)
        found = volumes(job, max(replicas, 1))
        for name, value in found.items():
            lab.metric(f"F2-{model}-share-{name}", value, unit="ratio")
        for name, stated in VOLUMES[model].items():
            at_most, at_least = name == "others", model != "mixtral_8x7b"
            bound = (
                {"le": stated + 0.05}
                if at_most
                else {"ge": stated - 0.05}
                if at_least
                else {"approx": stated, "abs": 0.05}
            )
            lab.check(
                f"F2-{model}-{name}",
                found[name],
                published=stated,
                **bound,
                reason=COUNTED,
                what=f"{SENT[name]} share of the bytes, {LABELS[model]}",
            )


def compute(lab):
    """F3: reported against the constant."""
    for batch, stated in ((8, 0.100), (16, 0.122)):
        _, job = mfabric.compared("fattree", "mixtral_8x7b", servers=16, micro_batch=batch)
        took = job.experts_ps / 1e12
        bound = {"ge": stated} if batch == 8 else {"approx": stated, "rel": 0.10}
        lab.check(
            f"F3-{batch}",
            took,
            published=stated,
            reason=COMPUTE,
            **bound,
            what=f"seconds that experts compute, micro-batch {batch}",
        )


def skew(lab, iterations):
    """F4: the hottest and the coldest expert to the mean."""
    loads = mixnet.PUBLISHED.sum(axis=0)
    hottest, coldest = loads.max() / loads.mean(), loads.min() / loads.mean()
    lab.check(
        "F4-hottest",
        hottest,
        published=2.37,
        approx=2.37,
        abs=0.01,
        what="the hottest expert's load over the mean, published matrix",
    )
    lab.check(
        "F4-coldest",
        coldest,
        published=0.22,
        approx=0.22,
        abs=0.01,
        what="the coldest expert's load over the mean, published matrix",
    )
    walks = np.array(
        [each.sum(axis=1) for each in itertools.islice(mixnet.Drift(8, 4, lab.seed), iterations)]
    )
    means = walks.mean(axis=-1)
    for name, values, wanted in (
        ("hottest", walks.max(axis=-1) / means, hottest),
        ("coldest", walks.min(axis=-1) / means, coldest),
    ):
        lab.check(
            f"F4-drift-{name}",
            float(np.median(values)),
            approx=float(wanted),
            rel=0.20,
            published=float(wanted),
            reason=DRIFT,
            what=f"the {name} expert's load over the mean, drifting loads",
        )


@ln.scenario
def shares(lab: ln.Lab, iterations: int = 400):
    production(lab)
    compute(lab)
    skew(lab, iterations)
