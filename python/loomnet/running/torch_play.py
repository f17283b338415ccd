"""A PyTorch job in a run: what the live clock and the virtual one do alike with its ranks."""

from __future__ import annotations

from abc import abstractmethod

from loomnet.jobs.model import TorchJob
from loomnet.measures.run_data import Ending, RunData
from loomnet.plans.job_request import JobRequest
from loomnet.running.play import Play, PlayClock
from loomnet.running.request import RunRequest
from loomnet.running.torch_ranks import RankJob


class TorchPlay(Play):
    """One TorchJob. `ranks` is there from prepare() on."""

    ranks: RankJob

    def __init__(self, clock: PlayClock, request: RunRequest, asked: JobRequest) -> None:
        super().__init__(clock, request, asked)
        assert isinstance(asked.job, TorchJob)
        self.torch = asked.job
        self.failed_ps: int | None = None  # engine time at which the first rank failed

    def prepare(self) -> None:
        self.ranks = RankJob(self.engine, self.request, self.asked)

    # --- time 0 -----------------------------------------------------------------------------------
    @property
    def origin_ps(self) -> int | None:
        return self.ranks.origin_ps

    @property
    def unless_it_steps_ps(self) -> int | None:
        return self.ranks.zero.unless_it_steps_ps

    def decide_origin(self) -> None:
        if hasattr(self, "ranks"):
            self.ranks.zero.decide()

    # --- what the ranks have done -----------------------------------------------------------------
    @abstractmethod
    def unfinished_works(self) -> list[tuple[int, str]]:
        """Of each rank how many operations are under way, and the name of the oldest."""

    @abstractmethod
    def ended_works(self) -> list[int]:
        """Of each rank how many operations have ended, well or not."""

    @property
    @abstractmethod
    def operations(self) -> list[str]:
        """The operation of each rank that has been under way for longest, or empty."""

    def everybody(self, head: str) -> str:
        """A message with every rank's operation and Python stack."""
        return self.ranks.everybody(head, self.operations)

    # --- its end ----------------------------------------------------------------------------------
    def drain(self) -> None:
        """Called when a rank has failed, before the job ends. On the virtual clock it lets the
        other ranks hear of that; on the live clock they do so by themselves."""

    @property
    def over_ps(self) -> int:
        # Goodbyes of the other ranks may take long after it: their way may be what is dead.
        return self.clock.now_ps if self.failed_ps is None else self.failed_ps

    def outcome(self) -> tuple[Ending, str | None] | None:
        ranks = self.ranks
        if ranks.failed:  # asked first: the rank that fails may be the last
            noticed = self.clock.now_ps
            self.drain()
            self.decide_origin()
            said = ranks.failed_ps
            self.failed_ps = noticed if said is None else min(said, noticed)
            origin = self.failed_ps if self.origin_ps is None else self.origin_ps
            self.errors.append(ranks.failure(max(self.failed_ps - origin, 0)))
            return "failed", ranks.reason(self.errors)
        if ranks.running:
            return None
        self.decide_origin()
        if not self.errors:
            self.errors += ranks.unfinished(self.unfinished_works(), self.now())
        if not self.errors:
            self.errors += ranks.off_network(
                self.ended_works(), self.run_counters()["payload"], self.now()
            )
        return ("failed", ranks.reason(self.errors)) if self.errors else ("finished", None)

    def wall_is_over(self, reason: str) -> None:
        self.stalled(self.everybody(reason))

    def fill(self, data: RunData, origin_ps: int) -> None:
        self.ranks.read_log(to_end=True)
        data.log, data.unequal_hashes = self.ranks.log(), self.ranks.unequal_hashes()
        data.no_iterations = self.ranks.no_iterations
        for name, value in self.ranks.found_by_parts().items():
            setattr(data, name, value)
        data.ring_steps = self.ranks.ring_steps(origin_ps)
