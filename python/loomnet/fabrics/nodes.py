"""Hosts and switches as the user states them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from loomnet.base import bounds
from loomnet.base.errors import FabricError
from loomnet.base.names import in_quotes, quoted
from loomnet.base.units import Rate, Time

ROLES: tuple[str, ...] = ("rank", "server", "prober")
# Ours: above the 72 GPUs of the largest domain that one NVLink switch system joins (NVL72).
MOST_HOST_RANKS = 256
# Of NVLink's fourth generation with 18 links (NVIDIA H100), and of a copy of few bytes between two
# GPUs, which the far one sees after 1 to 2 us. The engine's own defaults are the same.
LOCAL_LINK, LOCAL_DELAY = Rate("900 GB/s"), Time("1 us")


@dataclass(frozen=True)
class LocalRanks:
    """How many ranks of one job a host has, and what joins them: one link of that rate and delay,
    which all ranks of the host share and no port of its NIC has a part in."""

    count: int = 1
    rate: Rate = LOCAL_LINK
    delay: Time = LOCAL_DELAY

    @property
    def planned(self) -> tuple[int, int, int]:
        """As a plan has it: ranks, bits per second, picoseconds."""
        if self.count == 1:
            return 1, 0, 0
        return self.count, self.rate.count, self.delay.count

    @classmethod
    def given(
        cls,
        where: str,
        ranks: int,
        link: Rate | str | None,
        delay: Time | str | None,
        *,
        field: str = "ranks",
    ) -> LocalRanks:
        """From what a user gave. Raises FabricError, UnitError."""
        if type(ranks) is not int or not 1 <= ranks <= MOST_HOST_RANKS:
            raise FabricError(
                f"{where}{field}: {quoted(ranks)} must be a whole number from 1 to "
                f"{MOST_HOST_RANKS}"
            )
        for name, value in (("local_link", link), ("local_delay", delay)):
            if value is not None and ranks == 1:
                raise FabricError(
                    f"{where}{name}: joins several ranks of one host, and there is "
                    f"one: give {field}=2 or more, or leave {name}= out"
                )
        if ranks == 1:
            return ONE_RANK
        rate = LOCAL_LINK if link is None else Rate.given(f"{where}local_link", link)
        if rate > bounds.MOST_RATE:
            raise FabricError(f"{where}local_link: {rate} is above {bounds.MOST_RATE}")
        late = LOCAL_DELAY if delay is None else Time.given(f"{where}local_delay", delay)
        if late > bounds.MOST_ROUND_TRIP:
            raise FabricError(
                f"{where}local_delay: {late} is above {bounds.MOST_ROUND_TRIP}, the "
                "longest round trip that emulated time has room for"
            )
        return cls(ranks, rate, late)


ONE_RANK = LocalRanks()


@dataclass(frozen=True)
class Host:
    """A Mininet host: one NIC port per plane and per panel's port that it is linked to. Role
    `rank`: may run ranks, of one job as many as `local` says."""

    name: str
    role: str = "rank"
    ports: int | None = None  # NIC ports; None: as many as it has links
    local: LocalRanks = ONE_RANK

    @property
    def ranks(self) -> int:
        return self.local.count


# Where a switch runs on the live clock; on the virtual clock all are in the engine.
PLACEMENTS: dict[str, str] = {
    "xdp": "a namespace of its own, its program in the kernel, real packets that tcpdump sees",
    "engine": "the engine's build of the same program, in memory: far faster",
}


FORWARD = "forward"  # the switch program of every switch for which no other is named


def check_role(host: str, role: str, ranks: int) -> None:
    """Raises FabricError for a role that there is not, and for ranks where the role runs none."""
    if role not in ROLES:
        raise FabricError(f"host {host}: role {in_quotes(role)} is not one of {', '.join(ROLES)}")
    if role != "rank" and ranks != 1:
        raise FabricError(
            f"host {host}: ranks: a host of role {role} runs no rank; leave ranks= out"
        )


@dataclass(frozen=True)
class Switch:
    """A switch of one plane; `ports` is its radix, None for as many as it has links. `options`:
    those of its program that were given, by name."""

    name: str
    plane: int = 0
    ports: int | None = None
    placement: str = "xdp"
    program: str = FORWARD
    options: tuple[tuple[str, Any], ...] = ()
