"""Two flows over one bottleneck: throughput, queue and shares of a congestion control, of the model
on the virtual clock and of the kernel's own on the live one."""

import itertools
import math
from typing import Literal

import loomnet as ln

MTU = 1500
SEGMENT, WIRE = MTU - 72, MTU + 14 + 24  # bytes of a full segment: stream, link time
BOTTLENECK = "p0.leaf0->p0.leaf1"
SAMPLE_S = 0.01
WINDOW_S = 1.0  # over which a flow's share is taken


@ln.scenario
def tcp_two_flows(lab: ln.Lab, transport: Literal["tcp", "mrc", "roce"] = "tcp",
                  cc: Literal["reno", "cubic", "dctcp", "bbr"] = "cubic",
                  rate: ln.Rate = "40 Mb/s", delay: ln.Time = "8 ms", buffer: ln.Size = "100 kB",
                  size: ln.Size = "60 MB", second: ln.Time = "3 s"):
    """Two hosts send to two others through one link, the second from the time `second` on.

    The bottleneck has `rate`, `delay` and a queue of `buffer`; host links are twice as fast and
    1 ms long, so a round trip is 2 x (`delay` + 2 ms): at the defaults 20 ms and a buffer of one
    bandwidth-delay product. Live (`--clock live`), kernel TCP sends, without offloads and with the
    model's buffers; dctcp only where the kernel has it. Rates, queue and fairness are of the second
    half of the time both flows send; `until_fair` is how long after its start the second flow first
    has four fifths of a fair share over one second.
    """
    fabric = ln.clos.dumbbell(left=2, right=2, rate=ln.Rate.of(2 * rate.count), delay="1 ms",
                              bottleneck=rate, bottleneck_delay=delay)
    fabric.override(BOTTLENECK, data_limit=buffer)
    options = {"tcp": {"cc": cc, "mtu": MTU}} if transport == "tcp" else {}
    job = ln.Flows(sizes=[size], count=2, pairs=((0, 2), (1, 3)), starts=("0 s", second),
                   transport=transport)
    r = lab.run(fabric, job, sample=f"{SAMPLE_S:g} s", queues=[BOTTLENECK], **options)
    lab.check("no-error", r["errors"], eq=0)

    ends = [flow.end_ps for flow in r.flow_records]
    last = min(r.data.end_ps if end is None else end for end in ends)
    half = (second.count + last) // 2
    shares = [received(r.data.hosts[host], half, last) for host in (2, 3)]
    for flow, share in enumerate(shares):
        lab.metric(f"flow{flow}_rate", share / 1e6, unit="Mb/s")
    total = sum(shares)
    lab.metric("total_rate", total / 1e6, unit="Mb/s")
    lab.metric("jain", jain(shares), unit="ratio")
    lab.metric("until_fair", until_fair(r, second.count, last), unit="s",
               reason="the second flow had four fifths of a fair share in no second")
    for name, first, end in (("queue_alone", second.count // 2, second.count),
                             ("queue", half, last)):
        waited = sorted(r.data.samples.queue_seconds(BOTTLENECK, rate.count, first, end))
        mean = math.fsum(waited) / len(waited) if waited else None
        lab.metric(f"{name}_delay", mean, unit="s", reason="no sample")
        p95 = waited[int(0.95 * (len(waited) - 1))] if waited else None
        lab.metric(f"{name}_delay_p95", p95, unit="s", reason="no sample")
    lab.metric("queue_max", counter(r, "max_queue"), unit="B")
    lab.metric("queue_drops", counter(r, "drop_queue_full"), unit="packets")
    lab.metric("marked", counter(r, "marked"), unit="packets")
    lab.metric("retransmitted", r["before.retransmitted"], unit="packets")
    if transport == "tcp":
        lab.check("utilisation", total * WIRE / SEGMENT / rate.count, ge=0.90, le=1.01)
        lab.check("fairness", jain(shares), ge=0.80)


def received(host, first, last):
    """Bits per second of payload that reached a host between two times."""
    begin, end = first // host.bin_ps, last // host.bin_ps
    if end <= begin:
        return 0.0
    return int(sum(host.payload[begin:end])) * 8e12 / ((end - begin) * host.bin_ps)


def jain(shares):
    """Jain's index: 1 where all have the same, 1/n where one has all."""
    squares = sum(share**2 for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else None


def until_fair(result, start_ps, last_ps):
    """Seconds from the second flow's start to the end of the first window in which it has four
    fifths of half the bytes; None if there is none before one of the flows ends."""
    window, step = round(WINDOW_S * 1e12), round(0.1 * 1e12)
    for begin in itertools.count(start_ps, step):
        if begin + window > last_ps:
            return None
        first, second = (received(result.data.hosts[host], begin, begin + window)
                         for host in (2, 3))
        if second >= 0.8 * (first + second) / 2 > 0:
            return (begin + window - start_ps) / 1e12


def counter(result, name):
    """A counter of the link that both flows share."""
    return result.data.totals.get(f"link {BOTTLENECK}", {}).get(name, 0)
