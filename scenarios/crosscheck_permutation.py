"""Four hosts each send to another, for `loomnet crosscheck`: live and virtual must agree."""

from typing import Literal

import loomnet as ln


@ln.scenario
def crosscheck_permutation(
    lab: ln.Lab,
    transport: Literal["mrc", "roce"] = "mrc",
    planes: int = 2,
    rate: ln.Rate = "20 Mb/s",
    uplink_rate: ln.Rate = "40 Mb/s",
    delay: ln.Time = "0.5 ms",
    size: ln.Size = "10 MB",
    dilation: float = 1,
):
    """Every NIC sends and receives at line rate; all flows cross the spines."""
    fabric = ln.clos.two_tier(
        planes=planes,
        leaves=2,
        spines=2,
        hosts_per_leaf=2,
        rate=rate,
        uplink_rate=uplink_rate,
        delay=delay,
    )
    r = lab.run(
        fabric, ln.Permutation(size, shift=1, ranks=4, transport=transport), dilation=dilation
    )
    lab.check("no-error", r["errors"], eq=0)
