"""A job of flows over the hosts' kernels as a play."""

from __future__ import annotations

from loomnet.live.kernel_flows import KernelFlows
from loomnet.live.kernel_tcp import KernelTcp
from loomnet.live.plays import HostsClock, Stall, stalled
from loomnet.measures.run_data import Ending, RunData
from loomnet.measures.samples import Sampler
from loomnet.plans.job_request import JobRequest
from loomnet.running.play import Play
from loomnet.running.request import RunRequest
from loomnet.running.traffic import as_iterations


class KernelFlowsPlay(Play):
    """`sampler`: where the senders' states go, if the run is asked for them."""

    clock: HostsClock

    def __init__(
        self,
        clock: HostsClock,
        request: RunRequest,
        asked: JobRequest,
        tcp: KernelTcp,
        sampler: Sampler | None,
    ) -> None:
        super().__init__(clock, request, asked)
        self._tcp, self._sampler = tcp, sampler
        self.stall = Stall()

    def prepare(self) -> None:
        clock = self.clock  # the flows refer to the clock, not back to this play
        self.flows = KernelFlows(
            clock.glue, self.request, self.asked, self._tcp, lambda: clock.now_ps
        )

    def start(self) -> None:
        self.flows.connect(self._sampler, self.clock.check)

    @property
    def origin_ps(self) -> int | None:
        return self.flows.origin_ps

    @property
    def over_ps(self) -> int:
        return self.flows.ended_ps if self.ended == "finished" else self.clock.now_ps

    def look(self) -> None:
        self.flows.poll()
        if self.flows.origin_ps is None:
            return
        found = as_iterations(self.flows.iterations(), self.flows.origin_ps)
        for iteration in found[len(self.iterations) :]:
            self.stall.progress_ps = max(self.stall.progress_ps, iteration.end_ps)
            self.found(iteration)

    def outcome(self) -> tuple[Ending, str | None] | None:
        if not self.flows.done:
            return None
        self.errors += self.flows.errors()
        return ("failed", self.errors[0].message) if self.errors else ("finished", None)

    def trouble(self, stop: str) -> str | None:
        return stalled(self) if self.stall.over(self, flows=False) else None

    def run_counters(self) -> dict[str, int]:
        return {**super().run_counters(), "retransmitted": sum(self.flows.retransmitted)}

    def stop(self) -> None:
        self.flows.stop()

    def fill(self, data: RunData, origin_ps: int) -> None:
        data.flows = self.flows.flows().since(origin_ps)
        data.hosts = self.flows.series(data.hosts, data.end_ps)

    @property
    def fell_behind(self) -> str | None:
        return self.flows.fell_behind
