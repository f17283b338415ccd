"""What the hosts of a fluid run are given in place of transports that send packets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loomnet.fabrics.link_settings import FRAMING_BYTES
from loomnet.plans.model import Plan
from loomnet.running.engine_numbers import EngineNode
from loomnet.systems.transport import Notes, Options, Transport

if TYPE_CHECKING:
    import loomnet._core as _core


def set_fluid_transport(
    fabric: _core.FluidFabric, host: EngineNode, transport: Transport, options: Options, plan: Plan
) -> None:
    """Gives a host of the engine the fluid form of a transport."""
    frames = transport.frames(options, plan)
    fabric.set_transport(
        host,
        transport.model,
        payload_bytes=frames.payload,
        overhead_bytes=frames.header + FRAMING_BYTES,
        ack_bytes=frames.ack + FRAMING_BYTES,
        first_bytes=frames.first,
        stream_bytes=frames.stream,
        one_port=frames.ways == "one",
        part_bytes=frames.part,
        align_bytes=frames.align,
        immediate_bytes=frames.immediate,
    )


def fluid_notes(fabric: _core.FluidFabric) -> Notes:
    """What the report says of how links were shared."""
    return {
        "model": "fluid: flows share links max-min on hashed routes; no packets",
        "rates computed": fabric.solved,
    }
