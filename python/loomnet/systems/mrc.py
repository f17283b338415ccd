"""MRC: spraying, SRv6 source routing, selective acknowledgement (OCP MRC 1.0; Araujo et al.,
arXiv 2605.04333)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loomnet.base.errors import UsageError
from loomnet.base.units import Time
from loomnet.fabrics.link_settings import CONTROL_SHARE_MOST, FrameOverhead, LinkDefaults
from loomnet.plans.model import Plan
from loomnet.systems.transport import Notes, Options, RunEngine, Transport, largest_frame

# `net` constants are those of software time, `sim` those of hardware: which apply follows from the
# fabric, never from the clock.
SOFTWARE_RTT_PS = 500 * 10**6
MOST_RTT_PS = 2**15 * 10**6  # of time stamps in microseconds
PUBLISHED_CONTROL = "nscc"
MIN_WINDOW = 3 / 16  # packets; the published floor is 1


class Mrc(Transport):
    name = "mrc"
    what = "spraying, SRv6 source routing, selective acknowledgement"
    model = "mrc"
    control_option = "congestion"
    by_usids = True
    sprays = True
    overhead = FrameOverhead(header=142, ack=154, parts=False)
    figures = ("lost", "retransmitted", "readmitted")
    captured_bytes = 230
    queue_pair_bytes = 32 << 10

    def link_defaults(self, options: Options, *, switches_pause: bool) -> LinkDefaults:
        return LinkDefaults(largest_frame=largest_frame(options.get("mtu"), self.overhead.header))

    def engine_options(self, options: Options, plan: Plan, rates: Sequence[int]) -> dict[str, Any]:
        if plan.base_rtt_ps > MOST_RTT_PS:
            raise UsageError(
                "transport mrc: the fabric's longest round trip, "
                f"{Time.of(plan.base_rtt_ps)}, is above {Time.of(MOST_RTT_PS)}, half "
                "of what its 16-bit time stamps count; shorten the links' delays, or raise "
                "their rates")
        return {
            "software_time": plan.base_rtt_ps >= SOFTWARE_RTT_PS,
            "net_rtt_ps": plan.base_rtt_ps, "port_rate_bps": sum(rates) // len(rates),
            "mtu": plan.payload_bytes, "min_window": MIN_WINDOW, **options}

    def describe_model(self, options: Options, plan: Plan) -> dict[str, str]:
        chosen = options.get("congestion", PUBLISHED_CONTROL)
        return {} if chosen == PUBLISHED_CONTROL else {"congestion control": chosen}

    def notes(self, engine: RunEngine, options: Options) -> Notes:
        notes: Notes = {}
        if found := _off_published(engine.plan, options):
            notes["mrc, off its published values"] = "; ".join(found)
        bound = sum(row.get("psn_window_full", 0) for row in engine.totals().values())
        if bound:
            notes["PSN window (mpr)"] = (
                f"held a packet back {bound} times that the congestion window let go")
        return notes


def _off_published(plan: Plan, options: Options) -> list[str]:
    """Each with its published value, which is also what restores it."""
    halves = [half for link in plan.links for half in (link.forward, link.backward)]
    found = []
    if shares := sorted({half.control_share for half in halves} - {CONTROL_SHARE_MOST}):
        listed = ", ".join(f"{share:g}" for share in shares)
        found.append(f"control_share {listed} (published: {CONTROL_SHARE_MOST:g})")
    if any(half.trim_bytes and half.trim_victim == "coin" for half in halves):
        found.append('trim_victim "coin" (published: "arriving")')
    longer = sorted({round(half.control_limit_bytes / half.data_limit_bytes, 2) for half in halves
                     if half.trim_bytes and half.data_limit_bytes} - {2})
    if longer:
        listed = ", ".join(f"{times:g}" for times in longer)
        found.append(f"control_limit {listed} times data_limit (published: 2)")
    if (turns := options.get("plane_turns", "paths")) != "equal":
        found.append(f'plane_turns "{turns}" (published: "equal")')
    window = options.get("min_window", MIN_WINDOW)
    if window != 1:
        found.append(f"min_window {window:g} packets (published: 1)")
    return found


TRANSPORTS = (Mrc(),)
