"""Congestion controls in Python: what a class of a user's must have, and its registration in the
engine, which calls it on the virtual clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from loomnet.base.errors import PluginError, UsageError
from loomnet.base.names import did_you_mean, in_quotes, quoted
from loomnet.base.wall_time import WallTimeOver, under_way
from loomnet.plugins.failures import PluginInterrupted, defined_in, not_back, place
from loomnet.plugins.registry import CONGESTION, check_new, keep

if TYPE_CHECKING:
    from loomnet._core import AckSample, CongestionEvent, CongestionFlow

# What the engine may call, with the names of the arguments; those in REQUIRED must be there.
METHODS: dict[str, tuple[str, ...]] = {
    "on_ack": ("ack",),
    "on_congestion": ("event",),
    "on_tick": ("now_ps",),
    "on_established": ("rtt_ps", "now_ps"),
    "on_restart": ("now_ps",),
    "on_recovered": ("now_ps",),
    "on_undo": ("now_ps",),
    "on_ports": ("live", "total", "now_ps"),
    "observe": (),
}
REQUIRED = ("on_ack", "on_congestion")
# What the engine reads of a class and its objects.
READ = ("window", "pacing_rate", "next_tick", "options", "needs", "accurate_ecn")
KINDS = ("loss", "ecn", "timeout", "refused", "notified")


class EventKind(str):
    """A kind of congestion event: text that is equal to that text. To compare it with text that is
    no kind at all is a slip of the pen, which would go unseen, so it raises ValueError."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str) and str(other) not in KINDS:
            raise ValueError(
                f"event.kind is never {quoted(str(other))}{did_you_mean(other, KINDS)}"
            )
        return str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other


class Congestion:
    """Base of a congestion control; a class without it that has the same names is as good.

    One object is made for each sender, with its `flow` (mss, initial_window, line_rate_bps,
    base_rtt_ps, network_rtt_ps, seed, options). After every call the engine reads `window` (bytes
    in flight at most: a packet or more), `pacing_rate` (bits per second; None: not paced) and
    `next_tick` (picoseconds at which on_tick() is called, later than now; None: never).

    `options`: names and defaults of what a run may set beside the control's name. `needs`: signals
    without which it cannot work, of rtt, delivery_rate, marks, recovery, refusals, notifications
    and line_rate; a transport that lacks one refuses it. `accurate_ecn`: whether it reads the
    number of marked bytes, as DCTCP does, instead of one sign per round trip.
    """

    options: ClassVar[dict[str, Any]] = {}
    needs: ClassVar[tuple[str, ...]] = ()
    accurate_ecn: ClassVar[bool] = False
    window: float
    pacing_rate: float | None = None
    next_tick: int | None = None

    def __init__(self, flow: CongestionFlow) -> None:
        self.window = flow.initial_window

    def on_ack(self, ack: AckSample) -> None:
        """An acknowledgement came."""

    def on_congestion(self, event: CongestionEvent) -> None:
        """A sign of congestion: event.kind is loss, ecn, timeout, refused or notified."""


def register_congestion(name: str, made: type) -> None:
    """Registers the class with the engine, for each transport that reports the signals which the
    class reads. Raises UsageError."""
    import loomnet._core as _core  # a controller alone needs no engine

    check_new(CONGESTION, name, made)
    where = f"plugin.congestion {in_quotes(name)}"
    built_in = [
        each for each, row in _core.congestion_controls().items() if not row["virtual_only"]
    ]
    if name in built_in:
        raise UsageError(f"{where}: the engine has a control of that name; choose another")
    options, needs = getattr(made, "options", {}), getattr(made, "needs", ())
    if not isinstance(options, dict) or not all(isinstance(each, str) for each in options):
        raise UsageError(f"{where}: options={quoted(options)} is not a table of names and defaults")
    if not isinstance(needs, (tuple, list)) or not all(isinstance(each, str) for each in needs):
        raise UsageError(f"{where}: needs={quoted(needs)} is not a tuple of names of signals")
    try:
        _core.register_congestion_control(
            name,
            made,
            needs=list(needs),
            options=options,
            accurate_ecn=bool(getattr(made, "accurate_ecn", False)),
        )
    except (ValueError, TypeError) as error:
        raise UsageError(f"{where}: {error}") from None
    if _core.plugin_under_way not in under_way:
        under_way.append(_core.plugin_under_way)
    keep(CONGESTION, name, made)


def failure_of(error: BaseException) -> BaseException:
    """The engine's error about a control as the one that ends a run: a PluginError, or
    PluginInterrupted where Ctrl-C came while the control's own code ran."""
    cause, what = error.__cause__, str(error).partition(" raised ")[0]
    if isinstance(cause, KeyboardInterrupt):
        return PluginInterrupted(f"in {what}")
    if isinstance(cause, WallTimeOver):
        return not_back(what, cause)
    asked = getattr(error, "asked", None)
    if cause is None and asked is not None:
        return PluginError(f"{error}{defined_in(*asked)}")
    return PluginError(f"{error}{place(cause)}")
