"""Hosts and switches as the user states them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

ROLES: tuple[str, ...] = ("rank", "server", "prober", "controller")


@dataclass(frozen=True)
class Host:
    """A Mininet host: one NIC port per plane and per panel's port that it is linked to. Role
    `rank`: may run a rank."""

    name: str
    role: str = "rank"
    ports: int | None = None  # NIC ports; None: as many as it has links


# Where a switch runs on the live clock; on the virtual clock all are in the engine.
PLACEMENTS: dict[str, str] = {
    "xdp": "a namespace of its own, its program in the kernel, real packets that tcpdump sees",
    "engine": "the engine's build of the same program, in memory: far faster",
}


FORWARD = "forward"  # the switch program of every switch for which no other is named


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
