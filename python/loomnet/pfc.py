"""Priority-based Flow Control (IEEE 802.1Qbb, now in 802.1Q) as a fabric states it, and the
thresholds that follow for each switch port."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import model_validator

from loomnet.errors import FabricError, UsageError
from loomnet.naming import quoted
from loomnet.spec import Spec
from loomnet.units import Size, Time

if TYPE_CHECKING:
    from loomnet.fabric import HalfLink

# Bytes beside a frame's own, and the smallest frame: a pause frame.
FRAMING_BYTES, PAUSE_BYTES = 24, 60
# The engine reckons with the largest frame of any transport: 4,096 B behind MRC's headers.
MAX_FRAME_BYTES = 4096 + 142
NO_PFC = {"pfc_xoff_bytes": 0, "pfc_xon_bytes": 0, "pfc_headroom_bytes": 0}
_MOST = Size("1024 TiB")
_WORDS = {"on": True, "off": False}


class Pfc(Spec):
    """PFC with thresholds of one's own, per switch port that a link's direction ends at. Bytes that
    came in by a port and wait for an egress: more than `xoff` pauses the far end, `xon` or less
    lets it go on, `headroom` is reserved above `xoff` for what still arrives.

    Defaults ("MRC + SRv6 multi-plane fabrics" 5): `xoff` one bandwidth-delay product of the port,
    `xon` two full frames less; `headroom` what its link can still deliver: rate x round trip and
    two largest frames. A smaller one is refused when the fabric is planned (FabricError).
    """

    positional = ("xoff", "xon")
    xoff: Size | None = None
    xon: Size | None = None
    headroom: Size | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Pfc:
        for name in ("xoff", "xon", "headroom"):
            size = getattr(self, name)
            if size is not None and not 0 < size.bytes <= _MOST.bytes:
                raise UsageError(f"{name}: {size} must be more than nothing and at most {_MOST}")
        if self.xoff is not None and self.xon is not None and self.xon.bytes >= self.xoff.bytes:
            raise UsageError(
                f"xon: {self.xon} must be below xoff, {self.xoff}: a pause ends when less waits"
            )
        return self


def as_pfc(value: Any) -> Pfc | bool | None:
    """What a fabric's `pfc` may be: None (as the transport has it), on, off, or ln.Pfc(…)."""
    if value is None or isinstance(value, (bool, Pfc)):
        return value
    if isinstance(value, str) and value in _WORDS:
        return _WORDS[value]
    raise FabricError(f'pfc: {quoted(value)} is not True, False, "on", "off" or ln.Pfc(xoff=…)')


def needed_headroom(ahead: HalfLink, back: HalfLink) -> int:
    """Bytes that may arrive by `ahead` after its far end has decided to pause: the pause frame
    waits for a frame on `back`, crosses it, and finds the sender at the start of a frame. Rounded
    up a little: the engine, which checks again, counts in picoseconds."""

    def clocked(frame: int, half: HalfLink) -> float:
        return (frame + FRAMING_BYTES) * 8e12 / half.rate.count

    until_heard = clocked(MAX_FRAME_BYTES, back) + clocked(PAUSE_BYTES, back) + back.delay.count
    until_quiet = clocked(MAX_FRAME_BYTES, ahead) + ahead.delay.count
    needed = int((until_heard + until_quiet) * ahead.rate.count / 8e12)
    # Above 2.7 Tb/s the engine's rounding to picoseconds is whole bytes, as a float's 53 bits are
    # above a terabyte.
    return needed + 16 + ahead.rate.count * 3 // (8 * 10**12) + (needed >> 40)


def thresholds(
    spec: HalfLink, back: HalfLink, bdp: int, frame: int, *, default: bool, where: str
) -> dict[str, int]:
    """Bytes of xoff, xon and headroom of the port that `spec` ends at; zeros without PFC."""
    chosen = default if spec.pfc is None else spec.pfc
    if chosen is False:
        return dict(NO_PFC)
    pfc = chosen if isinstance(chosen, Pfc) else Pfc()
    xoff = bdp if pfc.xoff is None else pfc.xoff.bytes
    xon = xoff - 2 * frame if pfc.xon is None else pfc.xon.bytes
    if not 0 < xon < xoff:
        raise FabricError(
            f"{where}: pfc: xoff {Size.of(xoff)} leaves no room for "
            + (f"xon {pfc.xon}" if pfc.xon else f"xon, two frames of {frame} B below")
            + "; raise xoff or give a smaller xon"
        )
    needed = needed_headroom(spec, back)
    headroom = needed if pfc.headroom is None else pfc.headroom.bytes
    if headroom < needed:
        raise FabricError(
            f"{where}: pfc: headroom {pfc.headroom} is less than the {needed} B that still arrive "
            f"until a pause holds (round trip {Time.of(spec.delay.count + back.delay.count)} at "
            f"{spec.rate} and two largest frames); raise it or leave it out"
        )
    return {"pfc_xoff_bytes": xoff, "pfc_xon_bytes": xon, "pfc_headroom_bytes": headroom}
