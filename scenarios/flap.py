"""The first scenario: a NIC link dies under an all-reduce."""

import loomnet as ln


@ln.scenario
def flap(lab: ln.Lab, planes: int = 4, rate: ln.Rate = "100 Gb/s", delay: ln.Time = "1 us",
         size: ln.Size = "4 MB") -> None:
    """A NIC link of one host dies; the other planes carry the all-reduce on."""
    fabric = ln.clos.two_tier(planes=planes, leaves=2, spines=2, hosts_per_leaf=2, rate=rate,
                              delay=delay)
    job = ln.AllReduce(size=size, repeat=60, transport="mrc")
    fault = ln.down("h0--p0.leaf0", at=ln.step(10), duration=ln.iterations(30), phase="down")
    r = lab.run(fabric, job, [fault])
    lab.metric("blip_s", r["down.blip_s"], unit="s")
    lab.check("capacity", r["down.goodput_ratio"], approx=1 - 1 / planes, abs=0.05)
    lab.check("no-error", r["errors"], eq=0)
