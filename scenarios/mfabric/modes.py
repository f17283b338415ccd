"""Flows and packets give the same iteration times on one region of MixNet; minutes.

The region trains Mixtral-8x22B (64 GPUs, 7 layers, 1 micro-batch) on fat-tree, MixNet, TopoOpt and
with random circuits, at 100 and 800 Gb/s. Then bars S1, S3 and S9 on one region in packets, and P1
(MixNet, SIGCOMM 2025, doi 10.1145/3718958.3750465)."""

import loomnet as ln

import lib as mfabric

TOLERANCE = 0.03
REGION = {"data": 1, "pipeline": 1, "layers": 7, "micro_batches": 1, "iterations": 1}
BARS = {
    "S1": ("mixtral_8x22b", "100 Gb/s", 8),
    "S3": ("mixtral_8x22b", "400 Gb/s", 8),
    "S9": ("llama_moe", "100 Gb/s", 2),
}


def seconds(lab, mode, name, label, **values):
    fabric, job = mfabric.compared(name, **values)
    r = lab.run(fabric, job, model=mode, label=f"{label}.{mode}")
    lab.check(f"{label}-{mode}-no-error", r["errors"], eq=0)
    [only] = r.experts.rounds
    return (only.end_ps - only.begin_ps) / 1e12


def prototype(lab, mode):
    """P1: four servers of four NICs, three of them optical, to the same four in a fat-tree: seven
    layers of Mixtral-8x7B at 100 Gb/s, the panel of the prototype; nothing is published but
    "comparable"."""
    times = {
        name: seconds(
            lab,
            mode,
            name,
            f"P1.{name}",
            model="mixtral_8x7b",
            rate="100 Gb/s",
            servers=4,
            alpha=3,
            profile="polatis",
            preset=None,
            matrix="drift",
            fabric={"wires": wires},
            **REGION,
        )
        for name, wires in (("fattree", 4), ("mixnet", 1))
    }
    ratio = times["mixnet"] / times["fattree"]
    lab.check(
        f"P1-{mode}",
        ratio,
        approx=1.0,
        rel=0.10,
        reason="a dispatch waits 42 ms for its circuits in every layer",
    )


@ln.scenario
def modes(
    lab: ln.Lab,
    fabrics: str = "fattree,mixnet,topoopt,random",
    rates: str = "100 Gb/s,800 Gb/s",
    bars: str = "S1,S3,S9",
    layers: int = 7,
    prototypes: str = "fluid,packets",
):
    region = REGION | {"layers": layers}
    for rate in filter(None, rates.split(",")):
        for name in filter(None, fabrics.split(",")):
            label = f"{name}.{rate.replace(' ', '').replace('/', '')}"
            times = {
                mode: seconds(lab, mode, name, label, rate=rate, servers=8, **region)
                for mode in ("fluid", "packets")
            }
            for mode, took in times.items():
                lab.metric(f"{label}-{mode}", took, unit="s")
            lab.check(
                f"agree-{label}",
                times["packets"] / times["fluid"],
                approx=1.0,
                rel=TOLERANCE,
                reason="hashed flows of packets share links more unevenly",
            )
    for mode in filter(None, prototypes.split(",")):
        prototype(lab, mode)
    points = {point.name: point for point in ln.cost.TIMES}
    for bar in filter(None, bars.split(",")):
        model, rate, servers = BARS[bar]
        times = {
            (name, mode): seconds(
                lab, mode, name, f"{bar}.{name}", model=model, rate=rate, servers=servers, **region
            )
            for name in ("fattree", "mixnet")
            for mode in ("fluid", "packets")
        }
        for mode in ("fluid", "packets"):
            lab.metric(
                f"{bar}-64-{mode}",
                times["mixnet", mode] / times["fattree", mode],
                unit="ratio",
                published=points[bar].ratio("mixnet"),
            )
        lab.check(
            f"{bar}-64-agree",
            times["mixnet", "packets"] / times["mixnet", "fluid"],
            approx=1.0,
            rel=TOLERANCE,
        )
