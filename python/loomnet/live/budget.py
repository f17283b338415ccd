"""What a run will ask of the machine at most: switch passes per second, as they are reckoned before
it starts."""

from __future__ import annotations

from loomnet.fabrics.link_settings import FRAMING_BYTES
from loomnet.plans.job_request import JobRequest
from loomnet.plans.model import Plan
from loomnet.running.request import RunRequest
from loomnet.systems.registry import transport

# What a pass through a switch in the engine takes of one in the kernel: no copy and no system call.
# The engine alone does 3 M of them per second and more; a fifth leaves the links, NICs and ranks
# their share.
ENGINE_PASS = 0.2


def offered_by(request: RunRequest) -> float:
    """Switch passes per emulated second with every sending port at line rate: full packets from
    each host that sends, by the longest chain to any of its peers, of the job for which that is
    most; acknowledgements add a sixteenth, and a pass in the engine counts ENGINE_PASS."""
    most: dict[int, float] = {}  # by sender
    for asked in request.jobs:
        carrier = transport(asked.job.transport)
        frame = carrier.packet_bytes(request.options.get(carrier.model, {}), request.plan)
        for sender, passes in _offered_by_job(request.plan, asked, frame).items():
            most[sender] = max(most.get(sender, 0.0), passes)
    return sum(most.values()) * 17 / 16


def _offered_by_job(plan: Plan, asked: JobRequest, frame_bytes: int) -> dict[int, float]:
    """Switch passes of full packets per emulated second, by sending host."""
    bits = (frame_bytes + FRAMING_BYTES) * 8
    cost = {switch.number: 1.0 if switch.in_kernel else ENGINE_PASS for switch in plan.switches}
    chains: dict[tuple[int, int], float] = {}  # by first and last switch
    senders: dict[int, float] = {}
    for source, destination in asked.job.edges(list(asked.placement)):
        if source == destination:
            continue  # two ranks on one host, joined by no switch
        here, there = plan.hosts[source], plan.hosts[destination]
        shared = set(here.panels) & set(there.panels)
        for panel in plan.panels:
            if panel.number in shared:
                passing = 1.0 if panel.in_kernel else ENGINE_PASS
                senders[source] = max(senders.get(source, 0.0), passing)
        if not plan.joined(source, destination):
            continue
        for plane in range(plan.planes):
            ends = (
                plan.topology.leaf_of(source, plane).node,
                plan.topology.leaf_of(destination, plane).node,
            )
            if ends not in chains:
                chains[ends] = sum(cost[node] for node in plan.topology.chain(*ends))
            senders[source] = max(senders.get(source, 0.0), chains[ends])
    return {
        source: sum(plan.links[link].forward.rate_bps for link in plan.hosts[source].ports)
        / bits
        * chain
        for source, chain in senders.items()
    }
