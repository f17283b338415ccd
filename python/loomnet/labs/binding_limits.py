"""What a run was told to have so little of that it, and not the network, will set the pace: windows
of transports, and queues of switches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy

from loomnet.base.number_text import number_text
from loomnet.base.units import Rate, Size
from loomnet.fabrics.link_settings import MIN_QUEUE_PACKETS
from loomnet.plans.entries import HalfLinkPlan
from loomnet.plans.model import Plan
from loomnet.running.request import RunRequest
from loomnet.systems.registry import transport

BINDS = 0.95  # of a bandwidth-delay product: a smaller window or queue is said
SMALL_QUEUE = 0.5  # likewise; defaults are one product


def small_windows(request: RunRequest, clock: str) -> Iterator[str]:
    """A line per transport whose window holds less than a host sends in an empty fabric's longest
    round trip."""
    plan = request.plan
    for name in dict.fromkeys(asked.job.transport for asked in request.jobs):
        model = transport(name)
        if request.fluid or (clock == "live" and model.by_kernel):
            continue
        options = request.options.get(model.model, {})
        hosts = {
            host for asked in request.jobs if asked.job.transport == name for host in asked.hosts
        }
        rates = [
            _leaving(plan, host, link).rate_bps for host in hosts for link in plan.hosts[host].ports
        ]
        if not rates:
            continue
        ports = max(len(plan.hosts[host].ports) for host in hosts)
        window = model.window(options, plan, [max(rates)] * ports)
        sizes = [
            getattr(asked.job, "size", None)
            for asked in request.jobs
            if asked.job.transport == name
        ]
        if window is None or all(
            isinstance(size, Size) and size.bytes <= window.bytes for size in sizes
        ):
            continue
        product = window.rate_bps * plan.base_rtt_ps / 8e12
        trip = number_text(plan.base_rtt_ps / 1e12, "s")
        if window.bytes < BINDS * product:
            yield (
                f"{window.option} lets a sender have {_size(window.bytes)} unacknowledged per "
                f"{window.of}, less than the {_size(product)} that {Rate.of(window.rate_bps)} "
                f"carry in a round trip of {trip}: one {window.of} reaches "
                f"{window.bytes / product:.0%} of that rate at most; {window.remedy}"
            )


def small_queues(plan: Plan) -> Iterator[str]:
    """A line about the switch queues that hold much less than a bandwidth-delay product."""
    if plan.partial:
        return
    links = plan.links
    wanted = numpy.maximum(
        links.column("rate_bps") * (plan.base_rtt_ps / 8e12), MIN_QUEUE_PACKETS * plan.frame_bytes
    )
    by_switch = links.rows[:, [1, 3]] >= len(plan.hosts)
    small = numpy.argwhere(
        by_switch
        & (links.planes >= 0)[:, None]
        & (links.column("data_limit_bytes") < SMALL_QUEUE * wanted)
    )
    if len(small):
        at, back = small[0].tolist()
        half = plan.half(2 * int(links.numbers[at]) + back)
        more = f" and {len(small) - 1} more" if len(small) > 1 else ""
        yield (
            f"queues of {half.name}{more} hold {_size(half.data_limit_bytes)}, less than half "
            f"of the {_size(float(wanted[at, back]))} that the link carries in a round trip: "
            "bursts overflow them; data_limit= of the fabric or of override() sets it, and "
            "without it a queue holds a round trip's worth"
        )


def _leaving(plan: Plan, node: int, link: int) -> HalfLinkPlan:
    ahead = plan.links[link].forward
    return ahead if ahead.source == node else plan.links[link].backward


def _size(count: float) -> str:
    return number_text(float(f"{count:.2g}"), "B")
