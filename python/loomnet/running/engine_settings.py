"""A plan's links, switches and ranks in the engine's own numbers."""

from __future__ import annotations

import loomnet._core as _core
from loomnet.plans.model import HalfLinkPlan, Plan


def link_config(half: HalfLinkPlan) -> _core.LinkConfig:
    """The engine's settings of one direction."""
    return _core.LinkConfig(
        rate_bps=0 if half.glass else half.rate_bps, delay_ps=half.delay_ps,
        data_limit=half.data_limit_bytes, control_limit=half.control_limit_bytes,
        ecn_low=half.ecn_low_bytes, ecn_high=half.ecn_high_bytes, trim_size=half.trim_bytes,
        last_hop=half.last_hop,
        pfc_xoff=half.pfc_xoff_bytes, pfc_xon=half.pfc_xon_bytes,
        pfc_headroom=half.pfc_headroom_bytes, ecn_share=half.ecn_share,
        control_share=half.control_share, trim_coin=half.trim_victim == "coin",
        largest_frame=half.largest_frame_bytes, queue=half.queue,
        queue_options=list(half.queue_options))


def staging_for(plan: Plan) -> dict[str, int]:
    """Slots and their size that keep all planes of a host busy: four times what is in flight on the
    longest round trip, so that a slot's way back as credit never shows; and its local link, where
    it has one: twice that, since nothing queues on the way."""
    window = max(4 * plan.most_host_bps * plan.base_rtt_ps // (8 * 10**12),
                 plan.most_local_window)
    # 64 KiB: a message of few packets would cost an acknowledgement for every few.
    slots, payload = 16, 65536
    while payload < 1 << 20 and slots * payload < window:
        # Many small slots pipeline a ring better than few large ones.
        slots, payload = (slots * 2, payload) if slots < 64 else (slots, payload * 2)
    return {"slots": slots, "slot_payload": payload}
