"""A plan's links, switches and ranks in the engine's own numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import loomnet._core as _core
from loomnet.plans.model import Plan


def link_config(of: Mapping[str, Any]) -> _core.LinkConfig:
    """The engine's settings of a kind of direction, from the fields of its HalfLinkPlan."""
    return _core.LinkConfig(
        rate_bps=0 if of["glass"] else of["rate_bps"],
        delay_ps=of["delay_ps"],
        data_limit=of["data_limit_bytes"],
        control_limit=of["control_limit_bytes"],
        ecn_low=of["ecn_low_bytes"],
        ecn_high=of["ecn_high_bytes"],
        trim_size=of["trim_bytes"],
        trim_dscp=of["trim_dscp"],
        carriers=list(of["carriers"]),
        last_hop=of["last_hop"],
        pfc_xoff=of["pfc_xoff_bytes"],
        pfc_xon=of["pfc_xon_bytes"],
        pfc_headroom=of["pfc_headroom_bytes"],
        ecn_share=of["ecn_share"],
        control_share=of["control_share"],
        trim_coin=of["trim_victim"] == "coin",
        largest_frame=of["largest_frame_bytes"],
        queue=of["queue"],
        queue_options=list(of["queue_options"]),
    )


def staging_for(plan: Plan) -> dict[str, int]:
    """Slots and their size that keep all planes of a host busy: four times what is in flight on the
    longest round trip, so that a slot's way back as credit never shows; and its local link, where
    it has one: twice that, since nothing queues on the way."""
    window = max(4 * plan.most_host_bps * plan.base_rtt_ps // (8 * 10**12), plan.most_local_window)
    # 64 KiB: a message of few packets would cost an acknowledgement for every few.
    slots, payload = 16, 65536
    while payload < 1 << 20 and slots * payload < window:
        # Many small slots pipeline a ring better than few large ones.
        slots, payload = (slots * 2, payload) if slots < 64 else (slots, payload * 2)
    return {"slots": slots, "slot_payload": payload}
