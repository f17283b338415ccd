"""Hostile senders beside a ring: hosts of their own whose packets claim to be of the ring's job,
and cross every uplink that the ring crosses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loomnet.base.units import Size, Time
from loomnet.fabrics.model import Fabric
from loomnet.jobs.flows import Flows
from loomnet.jobs.flows import RingClaim as RingClaim

from .fabric import ring_fabric

RATE_BPS = 300 * 10**6  # of a hostile host: of the ring's bandwidth they take next to nothing
FLOWS_PER_HOST = 8


def shared_fabric(ring: int, **options: Any) -> Fabric:
    """ring_fabric() of a ring of so many hosts with as many hosts more, the last ones, and no more
    uplinks: those of the other hosts are slow. What they send is heard at every uplink about every
    60 us, and takes 0.3 % of its rate."""
    made = ring_fabric(2 * ring, oversubscription=2, **options)
    for host in range(ring, 2 * ring):
        made.override(f"h{host}--*", rate=f"{RATE_BPS} b/s")
    return made


def liars(ring: int, lasting: Time | str, claims: Sequence[RingClaim] = ()) -> Flows:
    """Flows between the slow hosts of shared_fabric(), from leaf to leaf, for about so long. Each
    is in one step; without `claims` it is in no ring."""
    hosts = range(ring)
    pairs = [(each, (each + 1) % ring) for each in hosts for _ in range(FLOWS_PER_HOST)]
    size = RATE_BPS * Time(lasting).count // (FLOWS_PER_HOST * 8 * 10**12)
    return Flows(
        Size.of(size),
        count=len(pairs),
        pairs=pairs,
        transport="roce",
        name="liars",
        hosts=tuple(f"h{ring + each}" for each in hosts),
        steps=1 if claims else None,
        claims=tuple(claims),
    )
