"""One flow between two hosts, for `loomnet crosscheck`: live and virtual must agree."""

from typing import Literal

import loomnet as ln


@ln.scenario
def crosscheck_flow(
    lab: ln.Lab,
    transport: Literal["mrc", "roce"] = "mrc",
    planes: int = 2,
    rate: ln.Rate = "20 Mb/s",
    delay: ln.Time = "0.5 ms",
    size: ln.Size = "10 MB",
    dilation: float = 1,
):
    """A flow of a few seconds crosses two planes undisturbed."""
    fabric = ln.clos.two_tier(
        planes=planes,
        leaves=2,
        spines=2,
        hosts_per_leaf=1,
        rate=rate,
        uplink_rate=rate,
        delay=delay,
    )
    r = lab.run(
        fabric, ln.Flows(sizes=[size], pairs=((0, 1),), transport=transport), dilation=dilation
    )
    lab.check("no-error", r["errors"], eq=0)
