"""The regions of servers whose circuits the ranks of a PyTorch job have patched, in a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import loomnet.base.rank_environment as rank_env
from loomnet.jobs.model import TorchJob
from loomnet.plans.job_request import JobRequest
from loomnet.systems.given import PartEngine
from loomnet.systems.mixnet.regions import RankRegions, ServerRanks
from loomnet.systems.transport import Notes


class ExpertRanks:
    """Of one PyTorch job. Only one with circuits= has regions."""

    def __init__(self, engine: PartEngine, asked: JobRequest) -> None:
        job = asked.job
        assert isinstance(job, TorchJob)
        servers = ServerRanks(engine, asked)
        self._regions = (
            None if job.circuits is None else RankRegions(engine, asked, servers, live=engine.live)
        )
        self.connects = self._regions is not None
        self.queue_pairs = 1 if self._regions is None else self._regions.queue_pairs
        self._servers = servers.environment(
            0 if self._regions is None else self._regions.size, job.circuits
        )

    @property
    def environment(self) -> Mapping[str, str]:
        return {rank_env.SERVERS: self._servers}

    def connect(self, bridges: Sequence[Any]) -> None:
        assert self._regions is not None
        self._regions.connect(bridges)

    def found(self, origin_ps: int, iterations: Sequence[tuple[int, int]]) -> Mapping[str, Any]:
        if self._regions is None:
            return {}
        found = self._regions.experts(origin_ps, iterations)
        found.gates = self._regions.trace()
        return {"experts": found}

    def notes(self) -> Notes:
        why = None if self._regions is None else self._regions.refusal()
        return {"circuits refused": why} if why else {}
