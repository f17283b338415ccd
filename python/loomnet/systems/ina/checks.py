"""Whether switches can sum for a job: refused with what is missing."""

from __future__ import annotations

from loomnet.base.errors import UsageError
from loomnet.jobs.model import TorchJob
from loomnet.plans.job_request import JobRequest
from loomnet.systems.ina.pool import Policy, SumPool


def check_sums(
    asked: JobRequest, pool: SumPool | None, window: int, *, exponents: bool, floats: bool
) -> None:
    """`exponents`: gradients are floats with a scale per block; `floats`: what a fixed scale cannot
    hold is to be added as float32. Raises UsageError."""
    kind = type(asked.job).__name__
    if pool is None:
        raise UsageError(
            f'{kind}: allreduce="ina" needs switches that sum; say which: '
            'fabric.program("p0.*", "aggregate", policy="esa")'
        )
    if len(asked.placement) > 64:
        raise UsageError(
            f'{kind}: allreduce="ina": {len(asked.placement)} ranks are more '
            "than the 64 of one sum; give ranks="
        )
    if len(asked.hosts) < len(asked.placement):
        raise UsageError(
            f'{kind}: allreduce="ina" takes one rank of a host, and some hosts '
            "have several; use hosts of one rank"
        )
    if isinstance(asked.job, TorchJob) and not exponents and not pool.saturate:
        raise UsageError(
            f'{kind}: ina={{"quant": "fixed"}} needs switches whose sums saturate '
            "and do not wrap unseen; say "
            'fabric.program("p0.*", "aggregate", saturate=True)'
        )
    if floats and not pool.policy.has_servers:
        raise UsageError(
            f'{kind}: ina={{"overflow_fallback": True}} needs a parameter server, '
            f"which {pool.policy.name} has not; take policy="
            f"{Policy.names('has_servers')}"
        )
    if len(asked.servers) > 1 and not pool.policy.has_servers:
        raise UsageError(
            f"{kind}.servers: {pool.policy.name} has no parameter servers; "
            "server= says where its tree has its root"
        )
    if window < len(asked.servers):
        raise UsageError(
            f"run: ina: window={window} is less than a fragment for each of "
            f"{len(asked.servers)} servers"
        )
