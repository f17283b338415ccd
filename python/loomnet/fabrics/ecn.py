"""ECN marking thresholds as a fabric states them."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import model_validator

from loomnet.base.errors import FabricError, UsageError
from loomnet.base.names import quoted
from loomnet.base.spec import Spec, given
from loomnet.base.units import Size

_MOST = Size("1024 TiB")


class Ecn(Spec):
    """RED marking at a port by thresholds of one's own: no mark while `low` or less waits at
    dequeue, every ECN-capable packet marked from `high` on, and between them a probability that
    rises to `share`. The thresholds of DCQCN's simulations at 100 Gb/s are
    ln.Ecn("400 kB", "1600 kB", share=0.2).

    Raises:
        UsageError: `high` below `low`, or a share that is none.
    """

    positional: ClassVar[tuple[str, ...]] = ("low", "high")
    low: Size = given(converter=Size, kw_only=False)
    high: Size = given(converter=Size, kw_only=False)
    share: float = 1.0

    @model_validator(mode="after")
    def _consistent(self) -> Ecn:
        if not 0 < self.low.bytes <= self.high.bytes <= _MOST.bytes:
            raise UsageError(f"low: {self.low} must be more than nothing and at most high, "
                             f"{self.high}, which is at most {_MOST}")
        if not 0 < self.share <= 1:
            raise UsageError(f"share: {self.share} must be above 0, at most 1")
        return self


def as_ecn(value: Any) -> Ecn | bool:
    """What a link's `ecn` may be beside None. Raises FabricError."""
    if isinstance(value, (bool, Ecn)):  # bool("off") would be True
        return value
    raise FabricError(f'{quoted(value)} is not True, False or ln.Ecn(low, high)')
