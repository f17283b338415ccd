"""One link as the user states it: the settings of each direction, and how overrides change them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from loomnet.base.errors import FabricError, UsageError
from loomnet.base.names import did_you_mean, quoted
from loomnet.base.units import Rate, Size, Time
from loomnet.fabrics import queues

if TYPE_CHECKING:
    from loomnet.fabrics.ecn import Ecn
    from loomnet.fabrics.pfc import Pfc


@dataclass(frozen=True)
class HalfLink:
    """One direction of a link. None: the default of the plan (bandwidth-delay products)."""

    rate: Rate
    delay: Time
    data_limit: Size | None = None  # bytes of data queue
    control_limit: Size | None = None
    control_share: float | None = None  # of the link, for control packets while data waits
    # Mark CE, by thresholds of one's own or the plan's; None: everywhere but at the last hop.
    ecn: Ecn | bool | None = None
    trim: bool = True  # cut what does not fit; False: tail drop
    # What is cut: the "arriving" packet, or by the toss of a "coin" that one or the last waiting.
    trim_victim: str = "coin"
    # Lossless by PFC at the switch port this direction ends at; None: where the transport has it
    # (roce on the virtual clock).
    pfc: Pfc | bool | None = None
    # Discipline of the switch port that sends this direction, and those of its options that are not
    # at their presets, in the engine's numbers. A host's NIC has a queue of its own.
    queue: str = queues.PRIORITY
    queue_options: tuple[tuple[str, int], ...] = ()


@dataclass
class Link:
    """A full-duplex link: `forward` carries a->b, `backward` b->a."""

    a: str
    b: str
    forward: HalfLink = field(repr=False)
    backward: HalfLink = field(repr=False)
    number: int = 0  # among the links of these two nodes; several join a host and a panel

    @property
    def suffix(self) -> str:
        """What ends the names of all but the first link of two nodes."""
        return f":{self.number}" if self.number else ""

    @property
    def name(self) -> str:
        return f"{self.a}--{self.b}{self.suffix}"

    @property
    def halves(self) -> tuple[tuple[str, HalfLink], tuple[str, HalfLink]]:
        ahead, back = f"{self.a}->{self.b}", f"{self.b}->{self.a}"
        return (ahead + self.suffix, self.forward), (back + self.suffix, self.backward)


def pfc_setting(value: Any) -> Pfc | bool | None:
    """What `pfc` may be: None, True, False, "on", "off" or ln.Pfc(…). Raises FabricError."""
    if value is None or isinstance(value, bool):
        return value
    from loomnet.fabrics.pfc import as_pfc

    return as_pfc(value)


def _ecn_setting(value: Any) -> Ecn | bool:
    if isinstance(value, bool):
        return value
    from loomnet.fabrics.ecn import as_ecn

    return as_ecn(value)


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
OVERRIDES = (
    "rate",
    "delay",
    "data_limit",
    "control_limit",
    "control_share",
    "ecn",
    "trim",
    "trim_victim",
    "pfc",
    "queue",
)
_CONVERT: dict[str, Any] = {
    "rate": Rate,
    "delay": Time,
    "data_limit": Size,
    "control_limit": Size,
    "control_share": _share,
    "ecn": _ecn_setting,
    "trim": _switched,
    "trim_victim": _victim,
    "pfc": pfc_setting,
    "queue": queues.discipline,
}


def changed(half: HalfLink, overrides: dict[str, Any], where: str) -> HalfLink:
    """A direction with these settings, of which some are options of its queue discipline. Another
    discipline starts from its presets."""
    values: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for name, value in overrides.items():
        if name not in OVERRIDES:
            options[name] = value
            continue
        if value is None and name in _DEFAULTED:
            values[name] = None
            continue
        try:
            values[name] = _CONVERT[name](value)
        except UsageError as error:
            raise FabricError(f"{where}: {name}: {error}") from None
    half = replace(half, **values)
    if "queue" in values:
        half = replace(half, queue_options=())
    return _with_options(half, options, where) if options else half


def _with_options(half: HalfLink, options: dict[str, Any], where: str) -> HalfLink:
    known = queues.options_of(half.queue)
    numbers = dict(half.queue_options)
    for name, value in options.items():
        if name not in known:
            owners = queues.having(name)
            raise FabricError(
                f'{where}: {name} is an option of queue="{owners[0]}", not of "{half.queue}"'
                if owners
                else f'{where}: unknown setting "{name}"{did_you_mean(name, (*OVERRIDES, *known))}'
            )
        try:
            numbers[name] = queues.as_option(known[name], value)
        except UsageError as error:
            raise FabricError(f"{where}: {name}: {error}") from None
    return replace(half, queue_options=tuple(sorted(numbers.items())))
