"""An all-reduce of four hosts under a port failure, for `loomnet crosscheck`."""

import loomnet as ln


@ln.scenario
def crosscheck_allreduce(
    lab: ln.Lab,
    planes: int = 4,
    rate: ln.Rate = "20 Mb/s",
    uplink_rate: ln.Rate = "40 Mb/s",
    delay: ln.Time = "0.5 ms",
    size: ln.Size = "2 MB",
    repeat: int = 30,
    dilation: float = 1,
):
    """One NIC link is gone for a while; the capacity of the others stays."""
    fabric = ln.clos.two_tier(
        planes=planes,
        leaves=2,
        spines=2,
        hosts_per_leaf=2,
        rate=rate,
        uplink_rate=uplink_rate,
        delay=delay,
    )
    fault = ln.down("h0--p0.leaf0", at=ln.step(8), duration="5 s", phase="port_down")
    r = lab.run(
        fabric, ln.AllReduce(size=size, repeat=repeat, transport="mrc"), [fault], dilation=dilation
    )
    lab.check("capacity", r["port_down.goodput_ratio"], approx=1 - 1 / planes, abs=0.05)
    lab.check("no-error", r["errors"], eq=0)
