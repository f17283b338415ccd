"""What a plan says of one host, switch, panel, link or direction of a link."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from loomnet.fabrics.link_settings import MIN_QUEUE_PACKETS
from loomnet.fabrics.nodes import FORWARD
from loomnet.plans.ecmp import SwitchRoutes
from loomnet.plans.usid_plan import SwitchUsids, host_address


@dataclass(frozen=True, slots=True)
class HalfLinkPlan:
    """One direction of a link. Its number is 2 * link for a->b and 2 * link + 1 for b->a."""

    number: int
    name: str
    source: int  # node that sends
    source_port: int
    target: int
    target_port: int
    rate_bps: int
    delay_ps: int
    data_limit_bytes: int
    control_limit_bytes: int
    control_share: float  # of the link, for control packets while data waits
    ecn_low_bytes: int  # 0 with ecn_high_bytes 0: no marking
    ecn_high_bytes: int
    ecn_share: float  # of packets marked just below ecn_high_bytes; all above
    trim_bytes: int  # 0: no trimming
    trim_dscp: int  # code point of a trimmed packet
    # (model, the five above) of each transport of the run, where they differ; else nothing.
    carriers: tuple[tuple[Any, ...], ...]
    trim_victim: str  # which packet a full queue cuts: "arriving", or by a "coin" the last waiting
    queue: str  # discipline of the sending port, and its options that are not at their presets
    queue_options: tuple[tuple[str, int], ...]
    largest_frame_bytes: int  # of the run's packets
    pfc_xoff_bytes: int  # of the switch port it ends at; 0: no PFC there
    pfc_xon_bytes: int
    pfc_headroom_bytes: int
    last_hop: bool  # the far end is a host
    # A panel sends it: `rate_bps` is that of the light, which is not serialised a second time.
    glass: bool = False

    @property
    def reserved_bytes(self) -> int:
        """Of the buffer of the switch it ends at."""
        return self.pfc_xoff_bytes + self.pfc_headroom_bytes

    def queue_share(self, share: float, frame_bytes: int) -> float:
        """What a queue keeps of its limits and thresholds where `share` is asked for: never less
        than the fewest packets that a queue holds."""
        if self.data_limit_bytes == 0:
            return share
        return min(max(share, MIN_QUEUE_PACKETS * frame_bytes / self.data_limit_bytes), 1.0)


@dataclass(frozen=True, slots=True)
class LinkPlan:
    number: int
    name: str
    plane: int | None  # None: a panel's
    forward: HalfLinkPlan
    backward: HalfLinkPlan

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclass(frozen=True, slots=True)
class HostPlan:
    """Node number = host number. ports[i] is the number of the link at NIC port i, planes[i] the
    plane that the port is on and panels[i] the panel (node number) that it is at, None if none.
    A job has up to `ranks` ranks there, joined by a link of `local_rate_bps` and `local_delay_ps`;
    both are 0 where there is one rank."""

    number: int
    name: str
    role: str
    ports: tuple[int, ...]
    planes: tuple[int | None, ...]
    panels: tuple[int | None, ...]
    ranks: int = 1
    local_rate_bps: int = 0
    local_delay_ps: int = 0

    @property
    def address(self) -> str:
        """The inner address, the same on all ports, as text."""
        return str(host_address(self.number))

    @property
    def local_window(self) -> int:
        """Bytes under way that keep the local link busy: two bandwidth-delay products, there and
        back."""
        return 2 * self.local_rate_bps * 2 * self.local_delay_ps // (8 * 10**12)

    def to_dict(self) -> dict[str, Any]:
        flat = dataclasses.asdict(self)
        return {
            **{name: flat.pop(name) for name in ("number", "name", "role")},
            "address": self.address,
            **flat,
        }


@dataclass(frozen=True, slots=True)
class SwitchPlan:
    """ports[i] is the number of the link at port i; `usids` is static, `routes` reconverges."""

    number: int  # node number
    name: str
    plane: int
    ports: Sequence[int]
    usids: SwitchUsids
    routes: SwitchRoutes
    buffer_bytes: int  # the shared buffer its egress queues draw from, what PFC reserves included
    pfc: bool  # some port of it is lossless
    placement: str = "xdp"  # on the live clock
    program: str = FORWARD
    options: tuple[tuple[str, Any], ...] = ()  # of the program, those that were given

    @property
    def in_kernel(self) -> bool:
        """On the live clock; on the virtual one no switch is."""
        return self.placement != "engine"

    def to_dict(self) -> dict[str, Any]:
        flat = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return flat | {
            "ports": tuple(self.ports),
            "usids": self.usids.to_dict(),
            "routes": self.routes.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class PanelPlan:
    """ports[i] is the number of the link at port i; there may be fewer links than ports.
    circuits[i] is the port that port i is patched to when a run begins, -1: none."""

    number: int  # node number
    name: str
    ports: tuple[int, ...]
    circuits: tuple[int, ...]
    profile: str = "ideal"  # this and `carrier` as Fabric.add_panel() takes them
    carrier: str = "both"
    placement: str = "engine"  # on the live clock

    @property
    def in_kernel(self) -> bool:
        """On the live clock; on the virtual one no panel is."""
        return self.placement != "engine"

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)
