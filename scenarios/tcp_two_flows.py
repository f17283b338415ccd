"""Two flows over one bottleneck: throughput, queue and shares of a congestion control, of the model
on the virtual clock and of the kernel's own on the live one."""

import itertools
import math
from typing import Annotated, Literal

from pydantic import Field

import loomnet as ln

MTU = 1500
SEGMENT, WIRE = MTU - 72, MTU + 14 + 24  # bytes of a full segment: stream, link time
SAMPLE_S = 0.02
WINDOW_S = 1.0  # over which a flow's share is taken
STAGGER_S = 0.007  # no multiple of a packet's time or a round trip's
UNITS = {
    "flow0_rate": "Mb/s",
    "flow1_rate": "Mb/s",
    "total_rate": "Mb/s",
    "jain": "ratio",
    "until_fair": "s",
    "queue_alone_delay": "s",
    "queue_alone_delay_p95": "s",
    "queue_delay": "s",
    "queue_delay_p95": "s",
    "queue_max": "B",
    "queue_drops": "packets",
    "marked": "packets",
}
SPREAD = ("total_rate", "jain", "until_fair", "queue_alone_delay", "queue_delay", "queue_drops")


@ln.scenario
def tcp_two_flows(
    lab: ln.Lab,
    transport: Literal["tcp", "mrc", "roce"] = "tcp",
    cc: Literal[
        "reno", "cubic", "dctcp", "bbr", "bbr3", "vegas", "copa", "vivace", "astraea"
    ] = "cubic",
    rate: ln.Rate = "40 Mb/s",
    delay: ln.Time = "8 ms",
    buffer: ln.Size = "100 kB",
    size: ln.Size = "60 MB",
    second: ln.Time = "3 s",
    draws: Annotated[int, Field(ge=1, le=64)] = 7,
):
    """Two hosts send to two others through one link, the second from the time `second` on; `draws`
    times side by side, and numbers are medians of these (with quartiles, `_q1` and `_q3`): whose
    packet a full queue drops, and with it one draw's numbers, are chance.

    Each bottleneck has `rate`, `delay` and a queue of `buffer`; host links are twice as fast and
    1 ms long, so a round trip is 2 x (`delay` + 2 ms): at the defaults 20 ms and a buffer of one
    bandwidth-delay product. Bottlenecks end in one switch, where nothing queues. A draw begins 7 ms
    after the one before, and so much more lies between its flows. Live (`--clock live`), kernel TCP
    sends, without offloads and with the model's buffers, through switches in the engine, which
    leave it more of the machine; dctcp only where the kernel has it. Rates, queue and fairness are
    of the second half of the time both flows send; `until_fair` is how long after its start the
    second flow first has four fifths of a fair share over one second.
    """
    fabric, bottlenecks = side_by_side(draws, rate, delay, buffer)
    options = {"tcp": {"cc": cc, "mtu": MTU}} if transport == "tcp" else {}
    pairs = [(4 * n + k, 4 * n + 2 + k) for n in range(draws) for k in range(2)]
    step = ln.Time.of(round(STAGGER_S * 1e12)).count
    starts = [
        ln.Time.of(n * step + k * (second.count + n * step)) for n in range(draws) for k in range(2)
    ]
    job = ln.Flows(sizes=[size], count=2 * draws, pairs=pairs, starts=starts, transport=transport)
    r = lab.run(fabric, job, sample=f"{SAMPLE_S:g} s", queues=bottlenecks, **options)
    lab.check("no-error", r["errors"], eq=0)

    seen = [figures_of(r, n, link, rate) for n, link in enumerate(bottlenecks)]
    for name, unit in UNITS.items():
        reason = (
            "the second flow had four fifths of a fair share in no second"
            if name == "until_fair"
            else "no sample"
        )
        values = [each[name] for each in seen]
        lab.metric(name, quantile(values, 0.5), unit=unit, reason=reason)
        if name in SPREAD:
            for suffix, share in (("q1", 0.25), ("q3", 0.75)):
                lab.metric(f"{name}_{suffix}", quantile(values, share), unit=unit, reason=reason)
    lab.metric("retransmitted", r["before.retransmitted"] / draws, unit="packets")
    if transport == "tcp":
        used = quantile([each["total_rate"] for each in seen], 0.5) * 1e6 / rate.count
        lab.check("utilisation", used * WIRE / SEGMENT, ge=0.90, le=1.01)
        lab.check("fairness", quantile([each["jain"] for each in seen], 0.5), ge=0.80)


def side_by_side(draws, rate, delay, buffer):
    """A fabric of as many bottlenecks, and their directions by name: of the n-th, hosts 4n and
    4n + 1 send and 4n + 2 and 4n + 3 receive."""
    fabric = ln.Fabric(f"bottlenecks-{draws}")
    far = fabric.add_switch("p0.spine0")
    bottlenecks = []
    for n in range(draws):
        near = fabric.add_switch(f"p0.leaf{n}")
        for end in (near, near, far, far):
            fabric.add_link(fabric.add_host(), end, rate=ln.Rate.of(2 * rate.count), delay="1 ms")
        fabric.add_link(near, far, rate=rate, delay=delay)
        bottlenecks.append(f"{near}->{far}")
        fabric.override(bottlenecks[-1], data_limit=buffer)
    return fabric.check().place("*", "engine"), bottlenecks


def figures_of(result, n, bottleneck, rate):
    """One draw's figures by name; None where there is none."""
    first, second = result.flow_records[2 * n : 2 * n + 2]
    receivers = [result.data.hosts[4 * n + 2 + k] for k in range(2)]
    last = min(
        result.data.end_ps if flow.end_ps is None else flow.end_ps for flow in (first, second)
    )
    half = (second.start_ps + last) // 2
    shares = [received(host, half, last) for host in receivers]
    found = {f"flow{k}_rate": share / 1e6 for k, share in enumerate(shares)}
    found |= {
        "total_rate": sum(shares) / 1e6,
        "jain": jain(shares),
        "until_fair": until_fair(receivers, second.start_ps, last),
    }
    for name, begin, end in (
        ("queue_alone", (first.start_ps + second.start_ps) // 2, second.start_ps),
        ("queue", half, last),
    ):
        waited = sorted(result.data.samples.queue_seconds(bottleneck, rate.count, begin, end))
        found[f"{name}_delay"] = math.fsum(waited) / len(waited) if waited else None
        found[f"{name}_delay_p95"] = waited[int(0.95 * (len(waited) - 1))] if waited else None
    totals = result.data.totals.get(f"link {bottleneck}", {})
    return found | {
        "queue_max": totals.get("max_queue", 0),
        "queue_drops": totals.get("drop_queue_full", 0),
        "marked": totals.get("marked", 0),
    }


def quantile(values, share):
    """The nearest rank: the smallest that at least `share` of them do not exceed. None counts as
    larger than any number: as what did not happen in the time there was."""
    ordered = sorted(math.inf if value is None else value for value in values)
    found = ordered[max(0, math.ceil(share * len(ordered)) - 1)]
    return found if math.isfinite(found) else None


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


def until_fair(receivers, start_ps, last_ps):
    """Seconds from the second flow's start to the end of the first window in which it has four
    fifths of half the bytes; None if there is none before one of the flows ends."""
    window, step = round(WINDOW_S * 1e12), round(0.1 * 1e12)
    for begin in itertools.count(start_ps, step):
        if begin + window > last_ps:
            return None
        first, second = (received(host, begin, begin + window) for host in receivers)
        if second >= 0.8 * (first + second) / 2 > 0:
            return (begin + window - start_ps) / 1e12
