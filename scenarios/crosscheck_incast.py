"""Four hosts send to one, for `loomnet crosscheck`: live and virtual must agree."""

from typing import Literal

import loomnet as ln


@ln.scenario
def crosscheck_incast(
    lab: ln.Lab,
    transport: Literal["mrc", "roce"] = "mrc",
    planes: int = 2,
    rate: ln.Rate = "20 Mb/s",
    uplink_rate: ln.Rate = "40 Mb/s",
    delay: ln.Time = "0.5 ms",
    size: ln.Size = "4 MB",
    dilation: float = 1,
):
    """Four flows of a few seconds share one NIC's ports."""
    fabric = ln.clos.two_tier(
        planes=planes,
        leaves=2,
        spines=2,
        hosts_per_leaf=3,
        rate=rate,
        uplink_rate=uplink_rate,
        delay=delay,
    )
    r = lab.run(fabric, ln.Incast(size, ranks=5, transport=transport), dilation=dilation)
    lab.check("no-error", r["errors"], eq=0)
