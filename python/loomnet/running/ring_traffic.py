"""Ring collectives in the engine: what a job says of its steps, and queue pairs by ring step."""

from __future__ import annotations

from typing import Any

import loomnet._core as _core
from loomnet.jobs.collectives import RingCollective
from loomnet.plans.job_request import JobRequest
from loomnet.running.engine import Engine

# Queue pairs that the steps between two neighbours take in turn. A step waits until its own has
# nothing under way; by so many steps a rank is never ahead of its acknowledgements.
PAIRS_BY_STEP = 4


def ring_settings(engine: Engine, asked: JobRequest, job: RingCollective) -> dict[str, Any]:
    """What the engine's traffic is told of a ring job's steps."""
    ports = engine.plan.hosts[asked.placement[0]].ports
    rate = sum(engine.plan.links[link].forward.rate_bps for link in ports)
    step_ps = job.size.bytes * 8e12 / (len(asked.placement) * rate)
    return {
        "channels": job.channels,
        "first_step": job.first_step,
        "whole_steps": job.whole_steps,
        "step_compute_ps": round(job.step_jitter * step_ps),
        "renew_every": job.new_communicator_every or 0,
    }


def connect_steps(
    engine: Engine, asked: JobRequest, core: _core.CollectiveTraffic, channel: int
) -> None:
    """Connects the queue pairs that ring steps take in turn, from each rank to the next."""
    hosts = asked.placement
    for rank, host in enumerate(hosts):
        peer = (rank + 1) % len(hosts)
        pairs = []
        for _ in range(PAIRS_BY_STEP):
            local, remote = (
                engine.network.reserve_qps(engine.node(end), 1) for end in (host, hosts[peer])
            )
            engine.connect(asked, host, local, hosts[peer], remote)
            pairs.append((local, remote))
        core.take_by_step(rank, peer, pairs, channel)
