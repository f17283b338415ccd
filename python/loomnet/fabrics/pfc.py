"""Priority-based Flow Control (IEEE 802.1Qbb, now in 802.1Q) as a fabric states it."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import model_validator

from loomnet.base.constructor import constructor
from loomnet.base.errors import FabricError, UsageError
from loomnet.base.names import quoted
from loomnet.base.spec import Spec, given
from loomnet.base.units import Size, size_or_none

_MOST = Size("1024 TiB")
_WORDS = {"on": True, "off": False}


class Pfc(Spec):
    """PFC with thresholds of one's own, per switch port that a link's direction ends at. Bytes that
    came in by a port and wait for an egress: more than `xoff` pauses the far end, `xon` or less
    lets it go on, `headroom` is reserved above `xoff` for what still arrives.

    Defaults: `xoff` one bandwidth-delay product of the port,
    `xon` two full frames less; `headroom` the frame that crossed `xoff` and what its link can still
    deliver: rate x round trip and two largest frames. A smaller one is refused when the fabric is
    planned (FabricError).
    """

    positional: ClassVar[tuple[str, ...]] = ("xoff", "xon")
    xoff: Size | None = given(default=None, converter=size_or_none, kw_only=False)
    xon: Size | None = given(default=None, converter=size_or_none, kw_only=False)
    headroom: Size | None = given(default=None, converter=size_or_none)

    @constructor
    def __init__(
        self,
        xoff: Size | str | None = None,
        xon: Size | str | None = None,
        *,
        headroom: Size | str | None = None,
    ) -> None: ...

    @model_validator(mode="after")
    def _consistent(self) -> Pfc:
        for name in ("xoff", "xon", "headroom"):
            size = getattr(self, name)
            if size is not None and not 0 < size.bytes <= _MOST.bytes:
                raise UsageError(f"{name}: {size} must be above 0 B and at most {_MOST}")
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
