"""Mixtures of experts in a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from loomnet.jobs.kinds import is_moe_job
from loomnet.jobs.model import TorchJob
from loomnet.measures.run_data import OwnFigure, RunData
from loomnet.plans.job_request import JobRequest
from loomnet.plans.model import Plan
from loomnet.systems.given import PartEngine, RankWork
from loomnet.systems.system import RunPart

if TYPE_CHECKING:
    from loomnet.systems.mixnet.traffic import MoeTraffic


class Experts(RunPart):
    @classmethod
    def of(cls, plan: Plan, requests: Sequence[JobRequest], options: Mapping[str, Any]
           ) -> Experts | None:
        # Any PyTorch job may be one: its script says so.
        mixed = any(isinstance(each.job, TorchJob) or is_moe_job(each.job) for each in requests)
        return cls() if mixed else None

    def traffic(self, engine: PartEngine, asked: JobRequest, start_ps: int) -> MoeTraffic | None:
        job = asked.job
        if not is_moe_job(job):
            return None
        from loomnet.systems.mixnet.traffic import MoeTraffic

        return MoeTraffic(engine, asked, job, start_ps)

    def figures(self, asked: JobRequest, data: RunData) -> Iterable[OwnFigure]:
        return () if data.experts is None else data.experts.figures()

    def rank_work(self, engine: PartEngine, asked: JobRequest) -> RankWork:
        from loomnet.systems.mixnet.ranks import ExpertRanks

        return ExpertRanks(engine, asked)
