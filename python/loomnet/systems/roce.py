"""RoCEv2: reliable connections with go-back-N, a queue pair for each plane, ECMP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from loomnet.base.errors import UsageError
from loomnet.base.names import quoted
from loomnet.fabrics.link_settings import LOSSY_BDPS, Frames, LinkDefaults
from loomnet.measures.congestion_control import ControlActivity, why_idle
from loomnet.plans.model import Plan
from loomnet.systems.transport import (
    Notes,
    Options,
    RunEngine,
    SequenceNumbers,
    Transport,
    Window,
    control_facts,
    size_option,
)

DCQCN_LEAST_BPS = 10**8  # NICs' and simulators' minimum; a hundredth of slower ports
STRIPE_BYTES = 128  # a message's part for a plane is a multiple of it
# What switches mark above where hosts react to the marked share and links do not say (Symphony's
# simulations, our completion).
MARKED_SHARE_BYTES = 150_000


class Roce(Transport):
    name = "roce"
    what = "RC with go-back-N, one queue pair per plane, ECMP; over PFC on the virtual clock"
    model = "roce"
    cuts_messages = True
    figures = ("lost", "retransmitted")
    control_option = "cc"
    size_options = ("payload_mtu",)
    captured_bytes = 185
    renews = True
    step_identities = ("hdr", "sport")

    def check_options(self, options: Options) -> None:
        super().check_options(options)
        if not isinstance(options.get("dcqcn", False), bool):
            raise UsageError(f"run: roce: dcqcn={quoted(options['dcqcn'])} must be True or False")
        preset = options.get("preset", "")
        if not isinstance(preset, str) or (preset and preset not in presets()):
            raise UsageError(
                f"run: roce: no preset {quoted(preset)}; there are {', '.join(presets())}"
            )

    def link_defaults(self, options: Options, *, switches_pause: bool) -> LinkDefaults:
        # The RoCE of the published comparisons runs over PFC.
        full = with_preset(options)
        shares = full.get("cc") == "dctcp_like"
        return LinkDefaults(
            pfc=switches_pause,
            dcqcn=_by_notifications(full),
            trims=False,
            mark_bytes=MARKED_SHARE_BYTES if shares else 0,
        )

    def engine_options(self, options: Options, plan: Plan, rates: Sequence[int]) -> dict[str, Any]:
        chosen: dict[str, Any] = {"payload_mtu": plan.payload_bytes, **with_preset(options)}
        rate = min(rates)
        if _dcqcn(chosen):
            chosen.setdefault("line_rate_bps", rate)
            chosen.setdefault("minimum_rate_bps", min(DCQCN_LEAST_BPS, max(rate // 100, 1)))
            if chosen.get("window_bdps"):
                chosen.setdefault("net_rtt_ps", plan.base_rtt_ps)
        elif chosen.get("cc") == "timely":  # its round trips are the forward path's (SIGCOMM 2015)
            chosen.setdefault("ack_priority", True)
            chosen.setdefault("line_rate_bps", rate)
            chosen.setdefault("net_rtt_ps", plan.base_rtt_ps)
        elif chosen.get("cc") or chosen.get("window_bdps"):
            chosen.setdefault("line_rate_bps", rate)
            chosen.setdefault("net_rtt_ps", plan.base_rtt_ps)
        return chosen

    def frames(self, options: Options, plan: Plan, *, live: bool = False) -> Frames:
        # Ethernet 14, IPv6 40, UDP 8, BTH 12, ICRC 4; RETH 16, ImmDt 4 and AETH 4.
        header = 78 + self.step_header_bytes(options)
        return Frames(
            payload=size_option(options, "payload_mtu", plan.payload_bytes),
            header=header,
            ack=82,
            first=16,
            immediate=4,
            align=4,
            part=STRIPE_BYTES,
            ways="parts",
        )

    def sequence_numbers(self, options: Options, plan: Plan) -> SequenceNumbers | None:
        return SequenceNumbers(self.payload_bytes(options, plan), options.get("initial_psn", 0))

    def needed_for_marks(self, options: Options) -> str | None:
        full = with_preset(options)
        if _dcqcn(full) or full.get("cc") not in (None, "fixed_window", "timely"):
            return None
        return 'roce={"preset": "B"}, or another of the presets'

    def window(self, options: Options, plan: Plan, rates: Sequence[int]) -> Window | None:
        limit = options.get("in_flight_limit")
        if not isinstance(limit, int) or not limit:
            return None
        return Window(
            f'roce={{"in_flight_limit": {limit}}}',
            limit,
            "queue pair",
            max(rates),
            "leave it out, or raise it",
        )

    def describe_model(self, options: Options, plan: Plan) -> dict[str, str]:
        notes = {}
        if not plan.pfc and plan.counts[1] > 0:
            notes["pfc"] = (
                f"off: go-back-N over lossy switches, queues of {LOSSY_BDPS} BDP by default"
            )
        full = with_preset(options)
        notes["dcqcn"] = "on" if _dcqcn(full) else "off"
        if full.get("cc") and not _dcqcn(full):
            notes["congestion control"] = full["cc"]
        return notes

    def notes(self, engine: RunEngine, options: Options) -> Notes:
        full = with_preset(options)
        if not (_dcqcn(full) or full.get("cc")) or not engine.plan.hosts:
            return {}
        plan = engine.plan
        rates = [plan.links[port].forward.rate_bps for port in plan.hosts[0].ports]
        stated = host_parameters(self.engine_options(options, plan, rates))
        notes: Notes = {
            "roce hosts": ", ".join(f"{name} {value}" for name, value in stated.items())
        }
        if reason := why_idle(ControlActivity.of(engine.totals()), stated):
            notes["roce congestion control"] = reason
        return notes


def presets() -> Mapping[str, Mapping[str, Any]]:
    """What each preset of hosts says of options, as the engine has it."""
    import loomnet._core as _core  # only a run that names a preset loads the engine here

    return _core.transports()["roce"]["presets"]


def with_preset(options: Options) -> dict[str, Any]:
    """The options with those of the preset that they name; options that are given win. A name that
    is unknown is left to the checks of a run."""
    name = options.get("preset")
    if not isinstance(name, str) or not name:
        return dict(options)
    return {**presets().get(name, {}), **options}


def host_parameters(options: Options) -> dict[str, Any]:
    """Every parameter of a host's congestion control and transport by name, those at their defaults
    too; `options` are engine_options()."""
    import loomnet._core as _core

    full = with_preset(options)
    chosen = "dcqcn" if _dcqcn(full) else full.get("cc", "")
    rows = [*_core.transports()["roce"]["options"], *control_facts(chosen).get("options", ())]
    found = {row["name"]: full.get(row["name"], row["default"]) for row in rows}
    del found["dcqcn"]
    return {**found, "cc": chosen}


def _dcqcn(options: Options) -> bool:
    return bool(options.get("dcqcn")) or options.get("cc") == "dcqcn"


def _by_notifications(options: Options) -> bool:
    """Whether the control answers to marks that the receiver notifies of, as DCQCN does."""
    if options.get("dcqcn") not in (None, False):
        return True
    return "notifications" in control_facts(options.get("cc")).get("needs", "")


TRANSPORTS = (Roce(),)
