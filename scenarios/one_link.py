"""The smallest fault story: a NIC link dies under data-parallel training."""

from typing import Literal

import loomnet as ln


@ln.scenario
def one_link(
    lab: ln.Lab,
    transport: Literal["mrc", "roce", "gloo"] = "mrc",
    planes: int = 4,
    rate: ln.Rate = "400 Gb/s",
    delay: ln.Time = "1 us",
):
    """A NIC link dies under DDP, then a leaf-spine link loses packets in silence."""
    fabric = ln.clos.two_tier(
        planes=planes, leaves=2, spines=2, hosts_per_leaf=2, rate=rate, delay=delay
    )
    job = ln.TorchJob(
        "train.py",
        args=["--epochs=2"],
        ranks=4,
        transport=transport,
        compute="2 ms",
        log=r"step (?P<step>\d+) loss (?P<loss>\S+)",
    )
    faults = [
        ln.down("h0--p0.leaf0", at=ln.step(40), duration=ln.iterations(30), phase="nic_link_down"),
        ln.loss(
            "p1.leaf0->p1.spine1",
            0.20,
            at=ln.step(110),
            duration=ln.iterations(30),
            phase="silent_loss",
        ),
    ]
    r = lab.run(fabric, job, faults, label=transport)
    lab.metric("blip_s", r["nic_link_down.blip_s"], unit="s")
    lab.check("capacity", r["nic_link_down.goodput_ratio"], ge=0.70, le=0.80, published=0.75)
    lab.check("no-rank-error", r["errors"], eq=0)
