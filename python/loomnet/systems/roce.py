"""RoCEv2: reliable connections with go-back-N, a queue pair for each plane, ECMP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loomnet.base.errors import UsageError
from loomnet.base.names import quoted
from loomnet.fabrics.link_settings import LOSSY_BDPS, LinkDefaults
from loomnet.plans.model import Plan
from loomnet.systems.transport import Options, Transport, Window, control_facts

DCQCN_LEAST_BPS = 10**8  # NICs' and simulators' minimum; a hundredth of slower ports


class Roce(Transport):
    name = "roce"
    what = "RC with go-back-N, one queue pair per plane, ECMP; over PFC on the virtual clock"
    model = "roce"
    cuts_messages = True
    figures = ("lost", "retransmitted")
    control_option = "cc"
    size_options = ("payload_mtu",)
    captured_bytes = 185

    def check_options(self, options: Options) -> None:
        super().check_options(options)
        if not isinstance(options.get("dcqcn", False), bool):
            raise UsageError(f"run: roce: dcqcn={quoted(options['dcqcn'])} must be True or False")

    def link_defaults(self, options: Options, *, switches_pause: bool) -> LinkDefaults:
        # The RoCE of the published comparisons runs over PFC.
        return LinkDefaults(pfc=switches_pause, dcqcn=_by_notifications(options), trims=False)

    def engine_options(self, options: Options, plan: Plan, rates: Sequence[int]) -> dict[str, Any]:
        chosen: dict[str, Any] = {"payload_mtu": plan.payload_bytes, **options}
        rate = min(rates)
        if _dcqcn(options):
            chosen.setdefault("line_rate_bps", rate)
            chosen.setdefault("minimum_rate_bps", min(DCQCN_LEAST_BPS, max(rate // 100, 1)))
        elif options.get("cc"):
            chosen.setdefault("line_rate_bps", rate)
            chosen.setdefault("net_rtt_ps", plan.base_rtt_ps)
        return chosen

    @property
    def header_bytes(self) -> int:
        return 78  # Ethernet 14, IPv6 40, UDP 8, BTH 12, ICRC 4

    def payload_bytes(self, options: Options, plan: Plan) -> int:
        return options.get("payload_mtu", plan.payload_bytes)

    def window(self, options: Options, plan: Plan, rates: Sequence[int]) -> Window | None:
        limit = options.get("in_flight_limit")
        if not isinstance(limit, int) or not limit:
            return None
        return Window(f'roce={{"in_flight_limit": {limit}}}', limit, "queue pair", max(rates),
                      "leave it out, or raise it")

    def describe_model(self, options: Options, plan: Plan) -> dict[str, str]:
        notes = {}
        if not plan.pfc and plan.counts[1] > 0:
            notes["pfc"] = (
                f"off: go-back-N over lossy switches, queues of {LOSSY_BDPS} BDP by default")
        notes["dcqcn"] = "on" if _dcqcn(options) else "off"
        if options.get("cc") and not _dcqcn(options):
            notes["congestion control"] = options["cc"]
        return notes


def _dcqcn(options: Options) -> bool:
    return bool(options.get("dcqcn")) or options.get("cc") == "dcqcn"


def _by_notifications(options: Options) -> bool:
    """Whether the control answers to marks that the receiver notifies of, as DCQCN does."""
    if options.get("dcqcn") not in (None, False):
        return True
    return "notifications" in control_facts(options.get("cc")).get("needs", "")


TRANSPORTS = (Roce(),)
