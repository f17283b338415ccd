"""What a transport tells the rest of the package of itself. A module of this package holds one in
its TRANSPORTS; the engine's half is registered by the same name in core/transport."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from loomnet.base.errors import UsageError
from loomnet.base.names import in_quotes, quoted
from loomnet.fabrics.link_settings import (
    MAX_FRAME_BYTES,
    STEP_HEADER_BYTES,
    Frames,
    LinkDefaults,
)
from loomnet.jobs.model import Job
from loomnet.plans.model import Plan

Options = Mapping[str, Any]
Notes = dict[str, float | int | str | None]
MOST_MTU = 1 << 16  # larger values are refused where the model is made
# Begins the name of a note on what set a run's pace in place of the network, which a run prints.
LIMITED_BY = "limited by "
LEAST_HEADER = 74
START_RTTS = 64  # round trips in which paths are measured before a job begins


def largest_frame(mtu: Any, overhead: int) -> int:
    """Bytes of the largest frame of a run whose packets hold `mtu` and so many bytes more; None and
    what no model takes: the largest of a transport's defaults."""
    fits = type(mtu) is int and 0 < mtu <= MOST_MTU
    return max(MAX_FRAME_BYTES, mtu + overhead) if fits else MAX_FRAME_BYTES


def size_option(options: Options, name: str, default: int) -> int:
    """The value of an option that is a packet size, or `default` where the option is missing or
    out of range."""
    value = options.get(name, default)
    return value if type(value) is int and 0 < value <= MOST_MTU else default


def control_facts(name: Any) -> Mapping[str, Any]:
    """What the engine says of a congestion control; nothing where it has none of that name."""
    if not isinstance(name, str) or not name:
        return {}
    import loomnet._core as _core  # only a run that names a control loads the engine here

    return _core.congestion_controls().get(name, {})


def control_notes(name: Any, options: Options) -> Notes:
    """The note of a congestion control with these options; nothing where it has none."""
    if not control_facts(name):
        return {}
    import loomnet._core as _core

    text = _core.congestion_note(name, dict(options))
    return {"congestion control": text} if text else {}


class RunEngine(Protocol):
    """What notes of a run read of its engine: the plan and the counters."""

    @property
    def plan(self) -> Plan: ...
    def totals(self) -> dict[str, dict[str, int]]: ...


@dataclass(frozen=True)
class Window:
    """How many bytes a sender may have unacknowledged. `option`: what sets it, as a run is told;
    `of`: to what the window belongs, which sends at `rate_bps` at most; `remedy`: what widens it.
    """

    option: str
    bytes: float
    of: str
    rate_bps: int
    remedy: str


@dataclass(frozen=True)
class SequenceNumbers:
    """What the numbers in a transport's packets count, from which switches can know ring steps.
    `packet_bytes`: payload of a full packet, where they count packets; 0: they count bytes.
    `first`: of a queue pair; None: a packet that opens the connection says it."""

    packet_bytes: int = 0
    first: int | None = None


class Transport:
    """One transport. A subclass says what is different of it; every method has the answer of a
    transport of which nothing is special."""

    name: ClassVar[str]
    what: ClassVar[str]  # a line for help
    # Its model in the engine on the virtual clock, by the name it is registered with there.
    model: ClassVar[str]
    # Live, whether the hosts' kernels carry it instead of the engine's NICs …
    by_kernel: ClassVar[bool] = False
    # … and whether those sockets are PyTorch's own Gloo, which nothing of ours replaces.
    stock_gloo: ClassVar[bool] = False
    has_options: ClassVar[bool] = True  # lab.run takes a table of its options by its name
    # Whether a sender is done when its last byte is acknowledged, not when its socket has the byte.
    await_sends: ClassVar[bool] = True
    # The option that names its congestion control; None: it has no choice of one.
    control_option: ClassVar[str | None] = None
    # Names that options of its table had, and have: taken for one version more.
    former_options: ClassVar[dict[str, str]] = {}
    own_options: ClassVar[tuple[str, ...]] = ()  # of its table, those that its model is not given
    size_options: ClassVar[tuple[str, ...]] = ()  # of its table: sizes of packets
    by_usids: ClassVar[bool] = False  # its packets carry their path: switches need no routes
    sprays: ClassVar[bool] = False  # each packet of a queue pair may take another path
    # A message is cut into a part for each path of two hosts, whose number stays.
    cuts_messages: ClassVar[bool] = False
    delays_acks: ClassVar[bool] = False  # of one packet: a window of one waits for a timer
    # Whether a queue pair tells a flow that ends by its time when to post more, so that few bytes
    # are posted and unsent; those under way are as many as window() says.
    tells_when_to_post: ClassVar[bool] = False
    sender_states: ClassVar[bool] = False  # window and round trips of each sender are sampled
    figures: ClassVar[tuple[str, ...]] = ("lost",)  # of the engine's run counters
    # What a capture takes per data packet and its share of acknowledgements, without payload;
    # measured on all-reduce, all-to-all, incast and permutation. None: not measured.
    captured_bytes: ClassVar[int | None] = None
    queue_pair_bytes: ClassVar[int] = 8 << 10  # memory, measured
    # Whether a queue pair can begin anew: other entropy for ECMP, and a congestion control in its
    # first state.
    renews: ClassVar[bool] = False
    # Values of its option `identity` by which its packets say their ring step; empty: they cannot.
    step_identities: ClassVar[tuple[str, ...]] = ()

    def check(self, job: Job, clock: str) -> None:
        """Raises UsageError where it does not carry such a job on that clock."""

    def check_options(self, options: Options) -> None:
        """Raises UsageError for a value of another type, before an engine is made."""
        chosen = options.get(self.control_option or "", "")
        if not isinstance(chosen, str):
            raise UsageError(
                f"run: {self.name}: {self.control_option}={quoted(chosen)} is not a name"
            )

    def check_live(self, options: Options) -> None:
        """Raises UsageError for what only the virtual clock has."""
        chosen = options.get(self.control_option or "")
        if control_facts(chosen).get("virtual_only"):
            raise UsageError(
                f"run: {self.name}: {self.control_option}={in_quotes(chosen)} is a "
                "congestion control in Python, which runs on the virtual clock; leave "
                "it out, or run on the virtual clock"
            )

    def link_defaults(self, options: Options, *, switches_pause: bool) -> LinkDefaults:
        """How switches queue its packets where links do not say. `switches_pause`: whether the
        run's switches know PFC."""
        return LinkDefaults(trim_dscps=self.trim_dscps)

    @property
    def trim_dscps(self) -> tuple[int, int]:
        """What switches write into its packets that they trim, and at the last hop."""
        import loomnet._core as _core  # a command that only names transports does without

        # A model that the engine was not built with is refused by name, later.
        return _core.trim_dscps(self.model) if self.model in _core.transports() else (0, 0)

    def start_ps(self, plan: Plan) -> int:
        """Emulated time before a job's first flow on the virtual clock."""
        return plan.base_rtt_ps * START_RTTS

    def engine_options(self, options: Options, plan: Plan, rates: Sequence[int]) -> dict[str, Any]:
        """The options that the model is made with at a host whose ports have these rates in bits
        per second. Raises UsageError where it cannot run on this fabric."""
        return dict(options)

    def live_options(self, dilation: float) -> dict[str, Any]:
        """Defaults of options where the run is live: `dilation` of wall time pass per emulated."""
        return {}

    def step_header_bytes(self, options: Options) -> int:
        """What identity="hdr" adds to each data packet."""
        return STEP_HEADER_BYTES if options.get("identity") == "hdr" else 0

    def packet_bytes(self, options: Options, plan: Plan) -> int:
        """Bytes of a full packet's Ethernet frame."""
        return plan.frame_bytes

    def frames(self, options: Options, plan: Plan, *, live: bool = False) -> Frames:
        """How it cuts messages into packets, from which follow a flow's ideal time and what a run
        without packets puts on links. Here the least of any: IPv6, UDP and BTH, or IPv6 and TCP."""
        return Frames(
            payload=max(plan.frame_bytes - LEAST_HEADER, 1), header=LEAST_HEADER, ack=LEAST_HEADER
        )

    def payload_bytes(self, options: Options, plan: Plan) -> int:
        """Bytes of a full packet's payload."""
        return self.frames(options, plan).payload

    def sequence_numbers(self, options: Options, plan: Plan) -> SequenceNumbers | None:
        """None where its packets have none that a switch can read."""
        return None

    def needed_for_marks(self, options: Options) -> str | None:
        """The option to give where no mark slows its senders; None where marks do."""
        return None

    def describe_model(self, options: Options, plan: Plan) -> dict[str, str]:
        """What the report of a virtual run says of it."""
        return {}

    def window(self, options: Options, plan: Plan, rates: Sequence[int]) -> Window | None:
        """What bounds a sender beside its congestion control, at a host whose ports have these
        rates; None where nothing does."""
        return None

    def notes(self, engine: RunEngine, options: Options) -> Notes:
        """What the report says of it, made with these options, when an engine has run."""
        return {}
