"""RoCEv2: reliable connections with go-back-N, a queue pair for each plane, ECMP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loomnet.base.errors import UsageError
from loomnet.base.names import quoted
from loomnet.fabrics.link_settings import LOSSY_BDPS, LinkDefaults
from loomnet.plans.model import Plan
from loomnet.systems.transport import Options, Transport

DCQCN_LEAST_BPS = 10**8  # NICs' and simulators' minimum; a hundredth of slower ports


class Roce(Transport):
    name = "roce"
    what = "RC with go-back-N, one queue pair per plane, ECMP; over PFC on the virtual clock"
    model = "roce"
    figures = ("lost", "retransmitted")
    captured_bytes = 185

    def check_options(self, options: Options) -> None:
        if not isinstance(options.get("dcqcn", False), bool):
            raise UsageError(f"run: roce: dcqcn={quoted(options['dcqcn'])} must be True or False")

    def link_defaults(self, options: Options, *, switches_pause: bool) -> LinkDefaults:
        # The RoCE of the published comparisons runs over PFC.
        return LinkDefaults(pfc=switches_pause, dcqcn=options.get("dcqcn") not in (None, False),
                            trims=False)

    def engine_options(self, options: Options, plan: Plan, rates: Sequence[int]) -> dict[str, Any]:
        chosen: dict[str, Any] = {"payload_mtu": plan.payload_bytes, **options}
        if options.get("dcqcn"):
            rate = min(rates)
            chosen.setdefault("line_rate_bps", rate)
            chosen.setdefault("minimum_rate_bps", min(DCQCN_LEAST_BPS, max(rate // 100, 1)))
        return chosen

    def describe_model(self, options: Options, plan: Plan) -> dict[str, str]:
        notes = {}
        if not plan.pfc:
            notes["pfc"] = (
                f"off: go-back-N over lossy switches, queues of {LOSSY_BDPS} BDP by default")
        notes["dcqcn"] = "on" if options.get("dcqcn") else "off"
        return notes


TRANSPORTS = (Roce(),)
