"""How much a machine can emulate live: switch passes per second, offered and affordable."""

from __future__ import annotations

from collections.abc import Sequence

from loomnet.fabrics.link_settings import FRAMING_BYTES
from loomnet.jobs.model import Job
from loomnet.plans.model import Plan
from loomnet.running.request import RunRequest
from loomnet.systems.registry import transport

# Passes through kernel-placed switches that keep p99 lateness near 100 us while ranks compute on
# the same two cores ("Loomnet: the design" 5: 240 k tried, 400 k collapsed).
PASSES_PER_SECOND = 150_000
# What a pass through a switch in the engine takes of that: no copy and no system call. The engine
# alone does 3 M of them per second and more; a fifth leaves the links, NICs and ranks their share.
ENGINE_PASS = 0.2


def offered_by(request: RunRequest) -> float:
    """Switch passes per emulated second of a run."""
    carrier = transport(request.lead.job.transport)
    frame = carrier.packet_bytes(request.options.get(carrier.model, {}), request.plan)
    return offered_passes(request.plan, request.lead.job, request.lead.placement, frame)


def offered_passes(plan: Plan, job: Job, placement: Sequence[int],
                   frame_bytes: int | None = None) -> float:
    """Switch passes per emulated second with every sending port at line rate: full packets from
    each host that sends, by the longest chain to any of its peers; acknowledgements add a
    sixteenth, and a pass in the engine counts ENGINE_PASS. `frame_bytes`: of a full packet, where
    it is not the plan's."""
    bits = ((frame_bytes or plan.frame_bytes) + FRAMING_BYTES) * 8
    passes = 0.0
    cost = {switch.number: 1.0 if switch.in_kernel else ENGINE_PASS for switch in plan.switches}
    chains: dict[tuple[int, int], float] = {}  # by first and last switch
    senders: dict[int, float] = {}
    for source, destination in job.edges(list(placement)):
        for plane in range(plan.planes):
            ends = (plan.topology.leaf_of(source, plane).node,
                    plan.topology.leaf_of(destination, plane).node)
            if ends not in chains:
                chains[ends] = sum(cost[node] for node in plan.topology.chain(*ends))
            senders[source] = max(senders.get(source, 0.0), chains[ends])
    for source, chain in senders.items():
        for link in plan.hosts[source].ports:
            passes += plan.links[link].forward.rate_bps / bits * chain
    return passes * 17 / 16
