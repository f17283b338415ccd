"""The main job's training script on eight ranks and eight planes: what it computes is the same on
either clock, and on the virtual one every iteration takes the same time in every run."""

import loomnet as ln


@ln.scenario
def ddp_eight_planes(
    lab: ln.Lab,
    planes: int = 8,
    rate: ln.Rate = "400 Gb/s",
    delay: ln.Time = "1 us",
    steps: int = 6,
    compute: ln.Time = "2 ms",
):
    """A NIC link dies under data-parallel training; each step's time and loss is in the report.

    Live, eight planes want slow links: --set 'rate=12 Mb/s' --set 'delay=0.5 ms'.
    """
    fabric = ln.clos.two_tier(
        planes=planes,
        leaves=2,
        spines=2,
        hosts_per_leaf=4,
        rate=rate,
        uplink_rate=ln.Rate.of(2 * rate.count),
        delay=delay,
    )
    job = ln.TorchJob(
        "train_digits.py",
        ranks=8,
        transport="mrc",
        compute=compute,
        args=[f"--steps={steps}", "--batch=8", f"--seed={lab.seed}"],
        log=r"step (?P<step>\d+) loss (?P<loss>\S+)",
    )
    fault = ln.down("h0--p0.leaf0", at=ln.step(2), duration=ln.iterations(2), phase="nic_link_down")
    r = lab.run(fabric, job, [fault])
    for each in r.data.iterations:
        lab.metric(f"step_{each.number}_s", each.length_ps / 1e12, unit="s")
    for step, loss in r.loss_curve:
        lab.metric(f"step_{step}_loss", loss)
    lab.check("all-steps", len(r.loss_curve), eq=steps)
    lab.check("no-rank-error", r["errors"], eq=0)
