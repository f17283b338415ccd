"""Performance per dollar of MixNet to the fat-tree from 1,024 to 32,768 GPUs: bar C7.

Costs are in proportion to the number of GPUs, so times must be (SIGCOMM 2025, doi
10.1145/3718958.3750465). Mixtral-8x22B at 400 Gb/s, flows in place of packets, one replica for each
512 GPUs."""

import loomnet as ln

import lib as mfabric


def seconds(lab, name, servers):
    fabric, job = mfabric.compared(name, servers=servers, iterations=1)
    r = lab.run(fabric, job, model="fluid", label=f"{name}.{servers * 8}")
    lab.check(f"C7-{name}-{servers * 8}-no-error", r["errors"], eq=0)
    [only] = r.experts.rounds
    return (only.end_ps - only.begin_ps) / 1e12


@ln.scenario
def scale(lab: ln.Lab, servers: str = "128,1024,4096"):
    first = None
    for each in map(int, servers.split(",")):
        ratio = seconds(lab, "mixnet", each) / seconds(lab, "fattree", each)
        gpus = each * 8
        tree, own = (
            ln.cost.bill(name, gpus=gpus, rate="400G").total for name in ("fattree", "mixnet")
        )
        lab.metric(
            f"C7-{gpus}-performance-per-dollar", tree / own / ratio, unit="ratio", published=2.0
        )
        if first is None:
            first = ratio
        else:
            lab.check(
                f"C7-{gpus}",
                ratio / first,
                published=1.0,
                approx=1.0,
                rel=0.10,
                reason="the more replicas, the longer gradients go round their rings",
            )
