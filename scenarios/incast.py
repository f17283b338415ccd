"""Many hosts send to one at the same time: its link, shared, sets the pace."""

from typing import Literal

import loomnet as ln


@ln.scenario
def incast(
    lab: ln.Lab,
    senders: int = 7,
    transport: Literal["mrc", "roce"] = "mrc",
    size: ln.Size = "2 MB",
    rate: ln.Rate = "100 Gb/s",
    delay: ln.Time = "0.6 us",
    payload: ln.Size = "4096 B",
    planes: int = 4,
    least_goodput: float = 0.9,
):
    """`senders` to 1: the receiver's goodput against its line rate, headers taken off, and against
    that with the shortest round trip added (judged for MRC only); and how even the senders'
    completion times are (least over greatest). From 2 MB on MRC reaches 0.95. It reaches 0.87 to
    0.9 with less: all bytes are then in the first windows, 1.5 BDP of each sender, which the last
    hop trims.
    """
    leaves = max(2, -(-(senders + 1) // 4))
    net = ln.clos.two_tier(
        planes=planes,
        leaves=leaves,
        spines=4,
        hosts_per_leaf=4,
        rate=rate,
        delay=delay,
        payload=payload,
    )
    r = lab.run(net, ln.Incast(size, ranks=senders + 1, transport=transport))
    figures = r.flow_figures()
    for name, (value, unit) in figures.items():
        lab.metric(name, value, unit=unit)
    times = [flow.completion_ps for flow in r.flow_records if flow.completion_ps]
    # Payload and headers of a full packet; TCP fills an MTU of 3,400 B.
    full, headers = {"mrc": (payload.bytes, 142), "roce": (payload.bytes, 78)}.get(
        transport, (3328, 86)
    )
    line = planes * rate.count * full / (full + headers + 24)
    slowest = figures["fct_max_s"][0]
    goodput = senders * size.bytes * 8 / slowest / line if slowest else None
    even = min(times) / max(times) if times else None
    lab.metric("goodput_of_line_rate", goodput, unit="ratio")
    lab.metric("least_over_greatest_fct", even, unit="ratio")
    alone = [flow.ideal_ps / 1e12 for flow in r.flow_records if flow.ideal_ps]
    ideal = min(alone) + (senders - 1) * size.bytes * 8 / line if alone else None
    shared = ideal / slowest if ideal and slowest else None
    lab.metric("goodput_of_ideal", shared, unit="ratio")
    if transport == "mrc":
        lab.check("goodput", shared, ge=least_goodput)
    lab.check("no-error", r["errors"], eq=0)
