"""Jobs on the live clock: PyTorch ranks in their hosts, and traffic models of the engine."""

from __future__ import annotations

import time
from typing import Any, Protocol

from loomnet.base import rank_environment as rank_env
from loomnet.live.nodes import HOST_INTERFACE, MANAGEMENT_INTERFACE, LiveFabric
from loomnet.live.ranks_stall import RanksStall
from loomnet.measures.columns import as_rows
from loomnet.measures.run_data import RunData, RunFault
from loomnet.plans.job_request import JobRequest
from loomnet.running.play import Play, PlayClock
from loomnet.running.rank_specs import environment_of_ranks
from loomnet.running.request import RunRequest
from loomnet.running.torch_play import TorchPlay
from loomnet.running.traffic_play import TrafficClock, TrafficPlay
from loomnet.systems.transport import Notes

MASTER_PORT = 29500  # of the first job's rendezvous; each further job has the next
# Wall time from the last rank's goodbye to its end. A framework's exit takes a second of CPU, niced
# on a busy machine many of the clock's: that is no stall of the job.
EXIT_S = 60.0


class HostsClock(PlayClock, Protocol):
    """What jobs whose processes live in hosts ask of the live clock besides. `live`: the engine's
    LiveRun."""

    glue: LiveFabric
    live: Any


class Stall:
    """Since when a job on the live clock has not got on. Times are the job's."""

    def __init__(self) -> None:
        self.progress_ps = 0
        self.payload = 0

    def over(self, play: Play, *, flows: bool) -> bool:
        """Whether the job's stall timeout has passed. Bytes that arrive are progress, long before
        an operation ends. `flows`: so is that none is under way, since flows that are yet to start
        wait for nothing that the network owes."""
        stall, now = play.asked.stall_after, play.now()
        if not stall:
            return False
        if now - self.progress_ps > stall.count // 4:
            found = play.run_counters()
            if found["payload"] > self.payload or (flows and not found["working"]):
                self.payload, self.progress_ps = found["payload"], now
        return play.origin_ps is not None and now - self.progress_ps > stall.count


def stalled(play: Play) -> str:
    return (
        f"no operation finished and no payload arrived for {play.asked.stall_after} "
        f"(stall_timeout){play.engine.stall(play.asked)}"
    )


class LiveTraffic(TrafficPlay):
    """A traffic model on the engine's own thread."""

    def __init__(self, clock: TrafficClock, request: RunRequest, asked: JobRequest) -> None:
        super().__init__(clock, request, asked)
        self.stall = Stall()

    def trouble(self, stop: str) -> str | None:
        self.stall.progress_ps = max(self.stall.progress_ps, self.progress_ps)
        return stalled(self) if self.stall.over(self, flows=True) else None


class LiveTorch(TorchPlay):
    """One TorchJob whose ranks live in their hosts' namespaces."""

    clock: HostsClock

    def __init__(self, clock: HostsClock, request: RunRequest, asked: JobRequest) -> None:
        super().__init__(clock, request, asked)
        self.live = clock.live
        self.stall = RanksStall(
            asked.stall_after, dilation=request.dilation, named=self.torch.stall_timeout != "auto"
        )
        self.works_of = [0] * len(self.placement)  # operations of each rank that have ended
        self.left: float | None = None  # wall time at which all ranks had left the network
        self.unfinished: list[tuple[int, str]] = []

    def prepare(self) -> None:
        super().prepare()
        for bridge in self.ranks.bridges:
            self.live.add_rank(bridge, self.asked.number)

    def start(self) -> None:
        port = MASTER_PORT + self.asked.number
        self.stall.begin(self.clock.now_ps)
        self.ranks.launch(
            self.clock.glue,
            master_port=port,
            environment={
                # Gloo binds to the interface that holds fd00::<host> and nothing else.
                "GLOO_SOCKET_IFNAME": HOST_INTERFACE,
                # RPC is no modelled traffic, so it goes where rendezvous goes. By the host's name
                # TensorPipe would find an address of the machine, which no host here has.
                "TP_SOCKET_IFNAME": MANAGEMENT_INTERFACE,
                rank_env.DILATION: str(self.request.dilation),
                # As RankSession::now_ps counts: the machine's clock over the dilation.
                rank_env.STARTED: str(int(time.monotonic_ns() / self.request.dilation) * 1000),
                **environment_of_ranks(),
            },
            look=self.clock.check,
        )
        assert self.ranks.group is not None
        for rank in self.ranks.group.ranks:
            self.live.name_rank(rank.process.pid)

    def wait(self, seconds: float) -> None:
        """Until a rank's process ends, so long at most."""
        if self.ranks.ended(seconds):
            self.tell_ended()

    def tell_ended(self) -> None:
        assert self.ranks.group is not None
        for rank in self.ranks.group.ranks:
            number = rank.spec.rank
            if rank.status is not None and number not in self.ranks.told_gone:
                self.tell_gone(number, *self.ranks.gone_reason(number))

    def tell_gone(self, gone: int, reason: str, status: int = 0) -> None:
        """Tells the other ranks, once; `status`: the exit status or signal of its process."""
        self.ranks.told_gone.add(gone)
        for peer, bridge in enumerate(self.ranks.bridges):
            if peer != gone:
                self.live.tell(bridge, "peer_gone", gone, reason, status)

    def look(self) -> None:
        ranks = self.ranks
        if ranks.group is not None:
            self.wait(0)
        begun, self.unfinished = 0, []
        seen = self.live.look(ranks.bridges)
        for number, (marks, works, failed, count, name, fault) in enumerate(seen):
            self.works_of[number] = works + failed
            self.unfinished.append((count, name))
            for iteration in ranks.take(number, marks):
                self.found(iteration)
            begun += 2 * (works + failed) + count  # an end moves it as a begin does
            if fault and number not in ranks.told_gone:
                self.errors.append(RunFault(self.now(), f"rank {number}", f"cut off: {fault}"))
                self.tell_gone(number, "cut off")
        ranks.zero.take_operations()
        self.stall.look(self.clock.now_ps, begun, stepped=bool(ranks.steps[0]), pids=ranks.pids)
        if ranks.to_stop(self.clock.now_ps):
            step = ranks.stop_step()
            for bridge in ranks.bridges:
                self.live.stop_at(bridge, step)

    def unfinished_works(self) -> list[tuple[int, str]]:
        return self.unfinished

    def ended_works(self) -> list[int]:
        return self.works_of

    def trouble(self, stop: str) -> str | None:
        if self.left is None and self.ranks.left:
            self.left = time.monotonic()
        if self.left is None:
            if not self.stall.over(self.clock.now_ps, lambda: self.run_counters()["payload"]):
                return None
            return self.everybody(
                f"{self.stall.reason}{self.engine.stall(self.asked)}"
                f"{self.ranks.apart(self.operations)}{self.ranks.departed}"
            )
        if time.monotonic() - self.left > EXIT_S:
            return self.everybody(f"ranks have left the network but not ended for {EXIT_S:g} s")
        return None

    @property
    def operations(self) -> list[str]:
        """The operation of each rank as of the last look. The bridges themselves cannot be read
        now, since the engine's thread writes to them."""
        names = [name for _, name in self.unfinished]
        return names + [""] * (len(self.placement) - len(names))

    def steps(self) -> tuple[list[dict[str, str]], str | None]:
        self.ranks.read_log()
        return self.ranks.lines, None

    def stop(self) -> None:
        self.ranks.stop(0.2 if self.ended == "interrupted" else 1.0)
        self.look()

    def fill(self, data: RunData, origin_ps: int) -> None:
        # Wall time is emulated time: Python's start and exit are none of the job's completion time.
        spans = [span for host in data.hosts.values() for span in as_rows(host.work)]
        data.completion_ps = (
            max(end for _, end, _ in spans) - min(begin for begin, *_ in spans) if spans else None
        )
        super().fill(data, origin_ps)

    def notes(self) -> Notes:
        return self.ranks.notes()
