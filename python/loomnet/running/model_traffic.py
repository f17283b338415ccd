"""A model job in the engine: its ranks' compute times, its buckets, and how these are summed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import loomnet._core as _core
from loomnet.plans.job_request import JobRequest
from loomnet.plugins.failures import Pending
from loomnet.plugins.priorities import Message, priority_made, priority_of
from loomnet.running.engine import Engine
from loomnet.running.engine_settings import staging_for
from loomnet.running.rank_traffic import RankTraffic

if TYPE_CHECKING:
    from loomnet.jobs.model_job import ModelJob


class ModelTraffic(RankTraffic):
    """Iterations without training. Over a ring lengths travel and no bytes."""

    def __init__(self, engine: Engine, asked: JobRequest, job: ModelJob, start_ps: int, *,
                 payload: bool) -> None:
        self._sums = bucket_sums(engine, asked, job, payload=payload)
        made = priority_made("ModelJob.priority", job.priority)
        self._asker = None if made is None else Asker(
            job.priority, made, asked.name or job.name or "job", engine.plugins)
        host = engine.plan.hosts[asked.placement[0]]
        self.core = _core.ModelTraffic(
            engine.network, self._sums, job=asked.number, hosts=engine.nodes(asked.placement),
            buckets=list(job.bucket_bytes), iterations=job.iterations, start_ps=start_ps,
            stop_ps=None if asked.begins_for_ps is None else start_ps + asked.begins_for_ps,
            compute_ps=job.compute_time.count, forward=job.forward, jitter=job.jitter,
            link_bps=sum(engine.plan.links[link].forward.rate_bps for link in host.ports),
            priority="none" if made is not None else job.priority, ask=self._asker)
        self.core.start()

    def check(self) -> None:
        if self._asker is not None:
            self._asker.pending.check()

    def wrong(self) -> int | None:
        return self._sums.wrong


class Asker:
    """Asks a priority of a user's about each bucket. It refers to nothing of the engine, which
    refers to it."""

    def __init__(self, name: str, plugin: Any, job: str, pending: Pending) -> None:
        self.pending = pending
        self._name, self._plugin, self._job = name, plugin, job

    def __call__(self, facts: _core.BucketFacts) -> int:
        if self.pending.raised is not None:
            return 1
        message = Message(
            job=self._job, layer=facts.layer, layers=facts.layers, iteration=facts.iteration,
            progress=facts.progress, bytes=facts.bytes, remaining_layers=facts.layer,
            remaining_s=facts.remaining_s, communication_ratio=facts.communication_ratio)
        try:
            return priority_of(self._name, self._plugin, message)
        except BaseException as error:  # Ctrl-C in the plug-in's code too
            self.pending.raised = error
            return 1


def bucket_sums(engine: Engine, asked: JobRequest, job: ModelJob, *, payload: bool
                ) -> _core.ExecutorSums:
    """How the job's buckets are summed, with its queue pairs connected."""
    part = engine.carrying(asked)
    if part is not None and (own := part.bucket_sums(engine, asked, payload=payload)) is not None:
        return own
    carrier = engine.carrier(job)
    staging = staging_for(engine.plan)
    sums = _core.ExecutorSums(
        engine.network, job=asked.number, hosts=engine.nodes(asked.placement),
        longest=max(job.bucket_bytes), await_sends=carrier is None or carrier.await_sends,
        slots=staging["slots"], slot_payload=staging["slot_payload"])
    for (rank, peer), number in engine.connect_mesh(asked).items():
        sums.set_queue_pair(rank, peer, number)
    return sums
