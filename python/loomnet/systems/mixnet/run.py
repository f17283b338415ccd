"""Mixtures of experts in a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from loomnet.fabrics.panels import switching
from loomnet.jobs.kinds import is_moe_job
from loomnet.jobs.model import TorchJob
from loomnet.measures.run_data import OwnFigure, RunData
from loomnet.plans.job_request import JobRequest
from loomnet.plans.model import Plan
from loomnet.systems.given import PartEngine, RankWork
from loomnet.systems.system import RunPart

if TYPE_CHECKING:
    from loomnet.systems.mixnet.traffic import MoeTraffic


_GUARDS = ("ideal", "rotor10us")  # profiles whose dark time is made to lie between two turns


class Experts(RunPart):
    def __init__(self, plan: Plan, requests: Sequence[JobRequest]) -> None:
        self._plan, self._requests = plan, requests

    @classmethod
    def of(
        cls, plan: Plan, requests: Sequence[JobRequest], options: Mapping[str, Any]
    ) -> Experts | None:
        # Any PyTorch job may be one: its script says so.
        mixed = any(isinstance(each.job, TorchJob) or is_moe_job(each.job) for each in requests)
        return cls(plan, requests) if mixed else None

    def lint(self) -> Iterator[str]:
        """Where circuits rotate, panels that were not made for it: they are dark in each turn."""
        controls = [each.job.circuits for each in self._requests if is_moe_job(each.job)]
        slow = {
            panel.profile: panel.name
            for panel in self._plan.panels
            if panel.profile not in _GUARDS and "dark_ps" not in switching(panel.profile)
        }
        if any(control is not None and control.repatch == "rotor" for control in controls):
            for profile, name in slow.items():
                yield (
                    f"circuits rotate, and between two turns {name} is dark for the time of "
                    f'profile="{profile}"; give profile="rotor10us", or a time'
                )

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
