"""A first scenario: a network link dies under an all-reduce, and comes back."""

import loomnet as ln


@ln.scenario
def flap(
    lab: ln.Lab,
    planes: int = 4,
    rate: ln.Rate = "100 Gb/s",
    delay: ln.Time = "1 us",
    size: ln.Size = "4 MB",
):
    """One of a host's links dies under an all-reduce; the other planes carry on."""
    # The network: each plane is a leaf-spine fabric of its own, and every host has a link to each.
    fabric = ln.clos.two_tier(
        planes=planes, leaves=2, spines=2, hosts_per_leaf=2, rate=rate, delay=delay
    )
    # The traffic: 60 all-reduces of this size over all four hosts.
    job = ln.AllReduce(size=size, repeat=60, transport="mrc")
    # The fault: after ten all-reduces one link of h0 is down, for as long as thirty of them take.
    fault = ln.down("h0--p0.leaf0", at=ln.step(10), duration=ln.iterations(30), phase="down")
    r = lab.run(fabric, job, [fault])
    # A number of your own for the report, and what must hold: one plane of `planes` is lost.
    lab.metric("blip_s", r["down.blip_s"], unit="s")
    lab.check("capacity", r["down.goodput_ratio"], approx=1 - 1 / planes, abs=0.05)
    lab.check("no-error", r["errors"], eq=0)
