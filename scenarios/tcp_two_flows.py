"""Two flows over one bottleneck: throughput, queue and shares of a congestion control."""

from typing import Literal

import loomnet as ln

MTU = 1500
SEGMENT, WIRE = MTU - 72, MTU + 14 + 24  # bytes of a full segment: stream, link time


@ln.scenario
def tcp_two_flows(lab: ln.Lab, transport: Literal["tcp", "mrc", "roce"] = "tcp",
                  cc: Literal["reno", "cubic", "dctcp", "bbr"] = "cubic",
                  rate: ln.Rate = "100 Mb/s", delay: ln.Time = "8 ms", buffer: ln.Size = "250 kB",
                  size: ln.Size = "150 MB"):
    """Two hosts send to two others through one link at once, until one of them is done.

    The bottleneck has `rate`, `delay` and a queue of `buffer`; host links are twice as fast and
    1 ms long, so a round trip is 2 x (`delay` + 2 ms): at the defaults 20 ms and a buffer of one
    bandwidth-delay product. Shares are taken over the second half of the time both flows send.
    """
    fabric = ln.clos.dumbbell(left=2, right=2, rate=ln.Rate.of(2 * rate.count), delay="1 ms",
                              bottleneck=rate, bottleneck_delay=delay)
    fabric.override("p0.leaf0->p0.leaf1", data_limit=buffer)
    options = {"tcp": {"cc": cc, "mtu": MTU}} if transport == "tcp" else {}
    job = ln.Flows(sizes=[size], count=2, pairs=((0, 2), (1, 3)), transport=transport)
    r = lab.run(fabric, job, **options)
    lab.check("no-error", r["errors"], eq=0)

    ends = [max((end for _, end, _ in r.data.hosts[h].work), default=r.data.end_ps) for h in (2, 3)]
    first, last = min(ends) // 2, min(ends)
    shares = [received(r.data.hosts[h], first, last) for h in (2, 3)]
    for flow, share in enumerate(shares):
        lab.metric(f"flow{flow}_rate", share / 1e6, unit="Mb/s")
    total = sum(shares)
    lab.metric("queue_max", bottleneck(r, "max_queue"), unit="B")
    lab.metric("queue_drops", bottleneck(r, "drop_queue_full"), unit="packets")
    lab.metric("marked", bottleneck(r, "marked"), unit="packets")
    lab.metric("retransmitted", r["before.retransmitted"], unit="packets")
    if transport == "tcp":
        lab.check("utilisation", total * WIRE / SEGMENT / rate.count, ge=0.90, le=1.0)
        jain = total**2 / (2 * sum(share**2 for share in shares)) if total else None
        lab.check("fairness", jain, ge=0.90)


def received(host, first, last):
    """Bits per second of payload that reached a host between two times."""
    begin, end = first // host.bin_ps, last // host.bin_ps
    if end <= begin:
        return 0.0
    return int(sum(host.payload[begin:end])) * 8e12 / ((end - begin) * host.bin_ps)


def bottleneck(result, counter):
    """A counter of the link that both flows share."""
    return result.data.totals.get("link p0.leaf0->p0.leaf1", {}).get(counter, 0)
