"""Thresholds of ECN marking at a switch port as a fabric states them."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import model_validator

from loomnet.base.errors import FabricError, UsageError
from loomnet.base.names import quoted
from loomnet.base.spec import Spec, given
from loomnet.base.units import Size, size_or_none

_MOST = Size("1024 TiB")


class Ecn(Spec):
    """ECN marking with thresholds of one's own, per queue of a switch port. A packet that finds
    less than `low` waiting is not marked; from `low` to `high` the share of marked packets grows
    evenly up to `share`; above `high` every packet is marked. Without `high` it equals `low`: a
    step.

    `ln.Ecn("400 kB", "1600 kB", share=0.2)` is what public RDMA simulators have at 100 Gb/s,
    `ln.Ecn("150 kB")` the step of a DCTCP-like host. A port with thresholds holds four times `high`
    unless `data_limit` says otherwise, and under PFC the xoff of its link, both ways, is not below
    `high` by default, so that marks come before pauses.
    """

    positional: ClassVar[tuple[str, ...]] = ("low", "high")
    low: Size = given(converter=Size, kw_only=False)
    high: Size | None = given(default=None, converter=size_or_none, kw_only=False)
    share: float = 1.0

    @model_validator(mode="after")
    def _consistent(self) -> Ecn:
        for name in ("low", "high"):
            size = getattr(self, name)
            if size is not None and not 0 < size.bytes <= _MOST.bytes:
                raise UsageError(f"{name}: {size} must be above 0 B and at most {_MOST}")
        if self.high is not None and self.high.bytes < self.low.bytes:
            raise UsageError(f"high: {self.high} must not be below low, {self.low}")
        if not 0 < self.share <= 1:
            raise UsageError(f"share: {self.share} is not a share above 0 and up to 1")
        return self

    @property
    def most(self) -> Size:
        """The threshold above which every packet is marked."""
        return self.low if self.high is None else self.high


def as_ecn(value: Any) -> Ecn | bool:
    """What a link's `ecn` may be: on, off, or ln.Ecn(…)."""
    if isinstance(value, (bool, Ecn)):  # bool("off") would be True
        return value
    raise FabricError(f"{quoted(value)} is not True, False or ln.Ecn(low, high)")
