"""What the process of each rank is started with: its command, its descriptors, its environment."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import Any, Protocol

from loomnet.base import rank_environment as rank_env
from loomnet.jobs.model import TorchJob
from loomnet.plans.job_request import JobRequest
from loomnet.processes.rank_watch import StackFile
from loomnet.processes.ranks import RankSpec
from loomnet.running.engine import Engine
from loomnet.running.request import RunRequest
from loomnet.systems.transport import Transport

HASH_EVERY = 20  # steps between two hashes of the parameters


class StartedRanks(Protocol):
    """The part of a RankJob that its ranks' start needs."""

    engine: Engine
    request: RunRequest
    job: TorchJob
    asked: JobRequest
    placement: tuple[int, ...]
    bridges: list[Any]
    works: list[Any]
    carrier: Transport | None
    stack_files: list[StackFile]

    @property
    def marks_ring_steps(self) -> bool: ...


def specs_of(
    ranks: StartedRanks, computes: Sequence[str], environment: dict[str, str]
) -> list[RankSpec]:
    """`computes`: on the virtual clock each rank's compute time, as its step hook reads it;
    `environment`: of all of them."""
    # Where a model stands for Gloo, Gloo's own name means that model.
    own = ranks.carrier
    mapped = ranks.job.map_backend or (own is not None and own.name != ranks.job.transport)
    specs = []
    script_time = ranks.job.script_time
    if script_time == "emulated":  # time.time() begins at one moment in all ranks
        script_time += f" {time.time_ns()}"
    recording = ranks.request.recording
    record = recording.environment(ranks.asked) if recording is not None else {}
    for rank, host in enumerate(ranks.placement):
        fds = ranks.bridges[rank].fds()
        stack_fd = ranks.stack_files[rank].fd
        compute = {}
        if computes:
            compute[rank_env.COMPUTE] = computes[rank]
        specs.append(
            RankSpec(
                rank,
                ranks.engine.plan.hosts[host].name,
                [sys.executable, str(ranks.asked.script), *ranks.job.args],
                environment={
                    rank_env.RANK_FD: str(fds[0]),
                    rank_env.EVENT_FD: str(fds[1]),
                    rank_env.STACK_FD: str(stack_fd),
                    rank_env.TRANSPORT: ranks.job.transport if own is None else own.name,
                    rank_env.STOCK_GLOO: "1" if own is None else "0",
                    rank_env.AWAIT_SENDS: "1" if own is None or own.await_sends else "0",
                    rank_env.MAP_BACKEND: "1" if mapped else "0",
                    rank_env.HASH_EVERY: str(HASH_EVERY),
                    rank_env.RING_STEPS: "1" if ranks.marks_ring_steps else "0",
                    rank_env.SCRIPT_TIME: script_time,
                    rank_env.CUDA: ranks.job.cuda,
                    **{
                        name: text
                        for work in ranks.works
                        for name, text in work.environment.items()
                    },
                    **compute,
                    **environment,
                    **record,
                    **ranks.job.env,
                },
                pass_fds=(*fds, stack_fd),
            )
        )
    return specs


def environment_of_ranks() -> dict[str, str]:
    """What the backend inside every rank reads besides its descriptors."""
    return {"PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0")}
