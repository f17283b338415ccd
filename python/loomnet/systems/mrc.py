"""MRC: spraying, SRv6 source routing, selective acknowledgement (OCP MRC 1.0; Araujo et al.,
arXiv 2605.04333)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from loomnet.base.errors import UsageError
from loomnet.base.units import Time
from loomnet.fabrics.link_settings import (
    CONTROL_SHARE_MOST,
    HEADER_BYTES,
    SACK_FRAME_BYTES,
    TRIM_BYTES,
    Frames,
    LinkDefaults,
)
from loomnet.plans.model import Plan
from loomnet.systems.transport import (
    LIMITED_BY,
    Notes,
    Options,
    RunEngine,
    Transport,
    Window,
    largest_frame,
    size_option,
)

# `net` constants are those of software time, `sim` those of hardware: which apply follows from the
# fabric, never from the clock.
SOFTWARE_RTT_PS = 500 * 10**6
MOST_RTT_PS = 2**15 * 10**6  # of time stamps in microseconds
PUBLISHED_CONTROL = "nscc"
MPR_PSNS = 128  # packets that one unit of mpr allows
LEAST_MPR, MOST_MPR = 8, 255  # where a run does not say; mpr has 8 bits of a header
OFTEN = 0.01  # of the packets sent: held back more often than that, the window sets the pace
SACK_BYTES = 16_384  # received until an acknowledgement leaves; by quarters of a smaller window
SHORT = 0.89  # a window of less than this share of what keeps a port busy is spoken of
MIN_WINDOW = 3 / 16  # packets; the published floor is 1


class Mrc(Transport):
    name = "mrc"
    what = "spraying, SRv6 source routing, selective acknowledgement"
    model = "mrc"
    control_option = "cc"
    former_options: ClassVar[dict[str, str]] = {"congestion": "cc"}
    by_usids = True
    sprays = True
    figures = ("lost", "retransmitted", "readmitted")
    captured_bytes = 230
    queue_pair_bytes = 32 << 10
    step_identities = ("hdr",)

    def link_defaults(self, options: Options, *, switches_pause: bool) -> LinkDefaults:
        step = self.step_header_bytes(options)
        return LinkDefaults(
            largest_frame=largest_frame(options.get("mtu"), HEADER_BYTES) + step,
            trim_dscps=self.trim_dscps,
            trim_bytes=TRIM_BYTES + step,
        )  # else the PSN behind the step header would be cut off

    def frames(self, options: Options, plan: Plan, *, live: bool = False) -> Frames:
        return Frames(
            payload=size_option(options, "mtu", plan.payload_bytes),
            header=HEADER_BYTES + self.step_header_bytes(options),
            ack=SACK_FRAME_BYTES,
            immediate=4,
        )

    def engine_options(self, options: Options, plan: Plan, rates: Sequence[int]) -> dict[str, Any]:
        if plan.base_rtt_ps > MOST_RTT_PS:
            raise UsageError(
                "transport mrc: the fabric's longest round trip, "
                f"{Time.of(plan.base_rtt_ps)}, is above {Time.of(MOST_RTT_PS)}, half "
                "of what its 16-bit time stamps count; shorten the links' delays, or raise "
                "their rates"
            )
        return {
            "software_time": plan.base_rtt_ps >= SOFTWARE_RTT_PS,
            "net_rtt_ps": plan.base_rtt_ps,
            "port_rate_bps": sum(rates) // len(rates),
            "mtu": plan.payload_bytes,
            "min_window": MIN_WINDOW,
            **options,
        }

    def window(self, options: Options, plan: Plan, rates: Sequence[int]) -> Window | None:
        least = math.ceil(sum(rates) * plan.base_rtt_ps / 8e12 / (MPR_PSNS * plan.payload_bytes))
        given = options.get("mpr")
        units = (
            given if isinstance(given, int) and given else min(max(2 * least, LEAST_MPR), MOST_MPR)
        )
        remedy = (
            f'leave mpr out, or write mrc={{"mpr": {least}}} or more'
            if least <= MOST_MPR
            else f"{MOST_MPR} is the most that MRC's header holds; shorten the round trip, "
            "or make packets larger"
        )
        return Window(
            f'mrc={{"mpr": {units}}}',
            units * MPR_PSNS * plan.payload_bytes,
            "queue pair",
            sum(rates),
            remedy,
        )

    def describe_model(self, options: Options, plan: Plan) -> dict[str, str]:
        chosen = options.get("cc", PUBLISHED_CONTROL)
        return {} if chosen == PUBLISHED_CONTROL else {"congestion control": chosen}

    def notes(self, engine: RunEngine, options: Options) -> Notes:
        notes: Notes = {}
        if found := _off_published(engine.plan, options):
            notes["mrc, off its published values"] = "; ".join(found)
        if short := _short_paths(engine.plan, options):
            notes["mrc, short paths"] = short
        totals = engine.totals().values()
        bound = sum(row.get("psn_window_full", 0) for row in totals)
        if bound:
            sent = sum(row.get("data_sent", 0) for row in totals)
            name = "PSN window (mpr)"
            notes[f"{LIMITED_BY}{name}" if bound > OFTEN * sent else name] = (
                f"held back {bound} packets that the congestion window let go; "
                'mrc={"mpr": …} sets it, in 128 packets'
            )
        return notes


def _short_paths(plan: Plan, options: Options) -> str | None:
    """Whether NSCC's window is less than what a ring sends until it hears of it. The published
    maximum, 1.5 bandwidth-delay products, leaves half of one for that: few packets on a path that
    holds few."""
    if options.get("cc", PUBLISHED_CONTROL) != PUBLISHED_CONTROL or not plan.hosts:
        return None
    hosts = plan.hosts.numbers  # those that are there
    rates = plan.port_rates(plan.hosts[hosts[0]])
    switches = max(
        (len(each.usids) - 1 for each in plan.paths(hosts[0], hosts[-1]) if each.uplinks), default=0
    )
    if switches < 1 or len(hosts) < 2:
        return None
    packet, product = plan.frame_bytes, sum(rates) * plan.base_rtt_ps / 8e12
    # An acknowledgement meets a packet under way on each link; meanwhile all ports send.
    waits = (switches + 1) * len(rates) * packet
    window = max(1.5 * product, product + 2 * packet + waits)
    busy = min(
        (product + waits) * 4 / 3, product + waits + size_option(options, "sack_bytes", SACK_BYTES)
    )
    if window >= SHORT * busy:
        return None
    return (
        f"the longest round trip holds {product / packet:.3g} packets, and a sender has at most "
        f"{window / packet:.3g} under way (NSCC of Ultra Ethernet 1.0: 1.5 times as many, and "
        "never less than fill an idle path); where acknowledgements wait behind data of the way "
        f"back, as in a ring, {busy / packet:.3g} keep its port busy; "
        f'mrc={{"cc": "held", "held_window": {math.ceil(busy)}}} lets so many go, whatever '
        "queues there are"
    )


def _off_published(plan: Plan, options: Options) -> list[str]:
    """Each with its published value, which is also what restores it."""
    halves = plan.links.settings
    found = []
    if shares := sorted({half["control_share"] for half in halves} - {CONTROL_SHARE_MOST}):
        listed = ", ".join(f"{share:g}" for share in shares)
        found.append(f"control_share {listed} (published: {CONTROL_SHARE_MOST:g})")
    if any(half["trim_bytes"] and half["trim_victim"] == "coin" for half in halves):
        found.append('trim_victim "coin" (published: "arriving")')
    longer = sorted(
        {
            round(half["control_limit_bytes"] / half["data_limit_bytes"], 2)
            for half in halves
            if half["trim_bytes"] and half["data_limit_bytes"]
        }
        - {2}
    )
    if longer:
        listed = ", ".join(f"{times:g}" for times in longer)
        found.append(f"control_limit {listed} times data_limit (published: 2)")
    if (turns := options.get("plane_turns", "paths")) != "equal":
        found.append(f'plane_turns "{turns}" (published: "equal")')
    if (reaction := options.get("ecn_reaction", "path")) != "path":
        found.append(f'ecn_reaction "{reaction}" (published: "path")')
    window = options.get("min_window", MIN_WINDOW)
    if window != 1:
        found.append(f"min_window {window:g} packets (published: 1)")
    return found


TRANSPORTS = (Mrc(),)
