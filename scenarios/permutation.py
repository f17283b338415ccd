"""Every host sends to one other, all at once: what a fabric and a transport make of line rate."""

from typing import Literal

import loomnet as ln


@ln.scenario
def permutation(
    lab: ln.Lab,
    hosts: int = 64,
    transport: Literal["mrc", "roce"] = "mrc",
    size: ln.Size = "2 MB",
    rate: ln.Rate = "100 Gb/s",
    delay: ln.Time = "0.6 us",
    payload: ln.Size = "4096 B",
    fabric: Literal["two_tier", "fat_tree"] = "two_tier",
    planes: int = 4,
    shift: int = 0,
    least_goodput: float = 0.8,
):
    """A random permutation (or, with `shift`, host i to i + shift) on a non-blocking fabric.

    `two_tier`: `planes` planes of `rate` per NIC port; `fat_tree`: one plane, the smallest k-ary
    fat tree that has the hosts. MRC's slowest flow is held to `least_goodput` of what it would get
    alone in the fabric: line rate, headers taken off, and one round trip. It reaches 0.93 with 2 MB
    and more with larger flows, but 0.76 with 64 kB, whose 16 packets have no time to leave a path
    on which they meet others. ECMP collides, so RoCE's goodput is shown and not judged.
    """
    if fabric == "fat_tree":
        k = 4
        while k**3 // 4 < hosts:
            k += 2
        planes, net = 1, ln.clos.fat_tree(k, rate=rate, delay=delay, payload=payload)
    else:
        leaf = 2
        while 2 * leaf * leaf < hosts:
            leaf *= 2
        leaves = -(-hosts // leaf)
        net = ln.clos.two_tier(
            planes=planes,
            leaves=leaves,
            spines=leaf,
            hosts_per_leaf=leaf,
            rate=rate,
            delay=delay,
            payload=payload,
        )
    job = ln.Permutation(
        size, shift=shift or "random", seed=lab.seed, ranks=hosts, transport=transport
    )
    r = lab.run(net, job)
    for name, (value, unit) in r.flow_figures().items():
        lab.metric(name, value, unit=unit)
    slowest = r.flow_figures()["fct_max_s"][0]
    # Payload and headers of a full packet; TCP fills an MTU of 3,400 B.
    full, headers = {"mrc": (payload.bytes, 142), "roce": (payload.bytes, 78)}.get(
        transport, (3328, 86)
    )
    line = planes * rate.count * full / (full + headers + 24)
    share = size.bytes * 8 / slowest / line if slowest else None
    lab.metric("goodput_of_line_rate", share, unit="ratio")
    slowdown = r.flow_figures()["slowdown_max"][0]
    alone = 1 / slowdown if slowdown else None
    lab.metric("goodput_of_ideal", alone, unit="ratio")
    if transport == "mrc":
        lab.check("goodput", alone, ge=least_goodput)
    lab.check("no-error", r["errors"], eq=0)
