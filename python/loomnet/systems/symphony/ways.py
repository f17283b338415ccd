"""The rings of jobs: which hosts send to which."""

from __future__ import annotations

from itertools import cycle, islice

from loomnet.jobs.collectives import AllGather, AllReduce, ReduceScatter
from loomnet.jobs.flows import Flows
from loomnet.jobs.kinds import is_model_job
from loomnet.jobs.model import TorchJob
from loomnet.plans.job_request import JobRequest

PROGRAM = "symphony"
# Jobs whose ranks send round a ring; by seq their other operations count as progress too.
_RINGS = (AllReduce, AllGather, ReduceScatter, TorchJob)


def ring_ways(asked: JobRequest) -> list[tuple[int, int]]:
    """Hosts that each rank of a job's ring sends from and to; none of a job without a ring."""
    job, hosts = asked.job, asked.placement
    if isinstance(job, Flows):
        if job.steps is None or not job.pairs:
            return []
        return [(hosts[a], hosts[b]) for a, b in islice(cycle(job.pairs), job.count)]
    if not (isinstance(job, _RINGS) or is_model_job(job)):
        return []
    if job.allreduce != "ring" or len(hosts) < 2:
        return []
    return [(host, hosts[(rank + 1) % len(hosts)]) for rank, host in enumerate(hosts)]
