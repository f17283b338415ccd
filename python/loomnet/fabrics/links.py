"""One link as the user states it: the settings of each direction, and how overrides change them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from loomnet.base.errors import FabricError, UsageError
from loomnet.base.names import did_you_mean, quoted
from loomnet.base.units import Rate, Size, Time

if TYPE_CHECKING:
    from loomnet.fabrics.pfc import Pfc


@dataclass(frozen=True)
class HalfLink:
    """One direction of a link. None: the default of the plan (bandwidth-delay products)."""

    rate: Rate
    delay: Time
    data_limit: Size | None = None  # bytes of data queue
    control_limit: Size | None = None
    control_share: float | None = None  # of the link, for control packets while data waits
    ecn: bool | None = None  # mark CE; default: everywhere but at the last hop
    trim: bool = True  # cut what does not fit; False: tail drop
    # What is cut: the "arriving" packet, or by the toss of a "coin" that one or the last waiting.
    trim_victim: str = "coin"
    # Lossless by PFC at the switch port this direction ends at; None: where the transport has it
    # (roce on the virtual clock).
    pfc: Pfc | bool | None = None


@dataclass
class Link:
    """A full-duplex link: `forward` carries a->b, `backward` b->a."""

    a: str
    b: str
    forward: HalfLink = field(repr=False)
    backward: HalfLink = field(repr=False)

    @property
    def name(self) -> str:
        return f"{self.a}--{self.b}"

    @property
    def halves(self) -> tuple[tuple[str, HalfLink], tuple[str, HalfLink]]:
        return (f"{self.a}->{self.b}", self.forward), (f"{self.b}->{self.a}", self.backward)


def pfc_setting(value: Any) -> Pfc | bool | None:
    """What `pfc` may be: None, True, False, "on", "off" or ln.Pfc(…). Raises FabricError."""
    if value is None or isinstance(value, bool):
        return value
    from loomnet.fabrics.pfc import as_pfc

    return as_pfc(value)


def _switched(value: Any) -> bool:
    if not isinstance(value, bool):  # bool("off") would be True
        raise FabricError(f"{quoted(value)} is not True or False")
    return value


def _share(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        raise FabricError(f"{quoted(value)} is not a share between 0 and 1")
    return float(value)


def _victim(value: Any) -> str:
    if value not in ("coin", "arriving"):
        raise FabricError(f'{quoted(value)} is neither "coin" nor "arriving"')
    return value


# Settings for which None stands for the plan's own default.
_DEFAULTED = ("data_limit", "control_limit", "control_share", "ecn", "pfc")
OVERRIDES = ("rate", "delay", "data_limit", "control_limit", "control_share", "ecn", "trim",
             "trim_victim", "pfc")
_CONVERT: dict[str, Any] = {
    "rate": Rate,
    "delay": Time,
    "data_limit": Size,
    "control_limit": Size,
    "control_share": _share,
    "ecn": _switched,
    "trim": _switched,
    "trim_victim": _victim,
    "pfc": pfc_setting,
}


def changed(half: HalfLink, overrides: dict[str, Any], where: str) -> HalfLink:
    values = {}
    for name, value in overrides.items():
        if name not in OVERRIDES:
            raise FabricError(f'{where}: unknown setting "{name}"{did_you_mean(name, OVERRIDES)}')
        if value is None and name in _DEFAULTED:
            values[name] = None
            continue
        try:
            values[name] = _CONVERT[name](value)
        except UsageError as error:
            raise FabricError(f"{where}: {name}: {error}") from None
    return replace(half, **values)
