"""A model job in the engine: its ranks' compute times, its buckets, and how these are summed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import loomnet._core as _core
from loomnet.plans.job_request import JobRequest
from loomnet.plugins.priorities import priority_made
from loomnet.running.asked_priority import Asker
from loomnet.running.engine import Engine
from loomnet.running.engine_settings import staging_for
from loomnet.running.rank_traffic import RankTraffic

if TYPE_CHECKING:
    from loomnet.jobs.model_job import ModelJob


class ModelTraffic(RankTraffic):
    """Iterations without training. Over a ring lengths travel and no bytes."""

    def __init__(
        self, engine: Engine, asked: JobRequest, job: ModelJob, start_ps: int, *, payload: bool
    ) -> None:
        self._sums = bucket_sums(engine, asked, job, payload=payload)
        made = priority_made("ModelJob.priority", job.priority)
        self._asker = (
            None
            if made is None
            else Asker(job.priority, made, asked.name or job.name or "job", engine.plugins)
        )
        self.core = _core.ModelTraffic(
            engine.network,
            self._sums,
            job=asked.number,
            hosts=engine.nodes(asked.placement),
            buckets=list(job.bucket_bytes),
            iterations=job.iterations,
            start_ps=start_ps,
            stop_ps=None if asked.begins_for_ps is None else start_ps + asked.begins_for_ps,
            compute_ps=job.compute_time.count,
            forward=job.forward,
            jitter=job.jitter,
            link_bps=engine.link_bps(asked.placement[0]),
            priority="none" if made is not None else job.priority,
            ask=self._asker,
        )
        self.core.start()

    def check(self) -> None:
        if self._asker is not None:
            self._asker.pending.check()

    def wrong(self) -> int | None:
        return self._sums.wrong


def bucket_sums(
    engine: Engine, asked: JobRequest, job: ModelJob, *, payload: bool
) -> _core.ExecutorSums:
    """How the job's buckets are summed, with its queue pairs connected."""
    part = engine.carrying(asked)
    if part is not None and (own := part.bucket_sums(engine, asked, payload=payload)) is not None:
        return own
    carrier = engine.carrier(job)
    staging = staging_for(engine.plan)
    sums = _core.ExecutorSums(
        engine.network,
        job=asked.number,
        hosts=engine.nodes(asked.placement),
        longest=max(job.bucket_bytes),
        await_sends=carrier is None or carrier.await_sends,
        slots=staging["slots"],
        slot_payload=staging["slot_payload"],
    )
    for (rank, peer), number in engine.connect_mesh(asked).items():
        sums.set_queue_pair(rank, peer, number)
    return sums
