"""Real PyTorch on the virtual clock: ranks are plain processes of this machine, their NICs live in
the engine, and time stands still while any of them computes."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from loomnet import _core
from loomnet.base.errors import WallTimeError
from loomnet.jobs.compute import MeasuredCompute, encoded, longest_pause
from loomnet.jobs.model import TorchJob
from loomnet.measures.run_data import Fidelity, Iteration, RunData, RunFault
from loomnet.processes.journal import RunLock
from loomnet.processes.rank_watch import SILENCE_S, Movement, ask_all, joined
from loomnet.running.engine import Engine, figures_of, model_of
from loomnet.running.request import Progress, RunRequest
from loomnet.running.torch_ranks import RankJob, environment_of_ranks

LOOK_MS = 50  # wall time between two looks at processes while a rank computes
PROGRESS_S = 0.25
FOREVER = 2**63 - 1
LONGEST_POLL_PS = 10**9  # of a poll that finds nothing; a longer pause is a time limit


@dataclass(frozen=True)
class LocalHost:
    """A host of the virtual clock: this machine, rendezvous over loopback."""

    name: str
    management: str = "127.0.0.1"
    address: str = "::1"

    def open_namespaces(self) -> list[int]:
        return []


class LocalHosts:
    """What a RankGroup needs of a fabric, where there is none."""

    def __init__(self, lock: RunLock, names: list[str]) -> None:
        self.lock = lock
        self.hosts = {name: LocalHost(name) for name in names}


def free_port() -> int:
    """A TCP port of loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class VirtualTorchRun:
    """One TorchJob on the virtual clock."""

    def __init__(self, request: RunRequest, on_progress: Callable[[Progress], None]) -> None:
        assert isinstance(request.job, TorchJob)
        self.looked = self.began = time.monotonic()
        self.request, self.on_progress = request, on_progress
        self.table, self.job = request.timetable, request.job
        plan = request.plan
        self.model, options, self.labels = model_of(self.job, request.options, plan)
        self.engine = Engine(plan, transport=self.model, seed=request.seed, options=options,
                             bin_ps=max(plan.base_rtt_ps // 10, 10**6))
        if request.recording is not None:
            request.recording.attach(self.engine)
        self.ranks = RankJob(self.engine, request)
        self.clock = _core.VirtualRanks(self.engine.network)
        for bridge in self.ranks.bridges:
            self.clock.add(bridge)
        self.iterations: list[Iteration] = []
        self.errors: list[RunFault] = []
        self.told_gone = False  # peers have heard that a rank ended
        self.unsaid: list[int] = []  # ranks that have ended, of which no peer has heard
        self.counters: dict[str, list[tuple[int, float]]] = {}
        self.progress_ps = 0  # engine time at which the job last got on
        self.limit_ps = 0     # … and the latest time limit of a script that was awaited since
        self.works = self.payload = 0
        self.raced_ps = 0     # as of the last progress: see VirtualRanks
        self.stranded: object = None
        self.waited_outside: list[str] = []
        self.movement = Movement()
        self.longest_compute_ps = 0

    def now(self) -> int:
        """Job time; 0 before its first iteration ended."""
        origin = self.ranks.origin_ps
        return 0 if origin is None else self.engine.network.now_ps - origin

    def go(self) -> RunData:
        computes = [",".join(map(str, each))  # of each rank, as a live run measured them
                    for each in self.request.options.get("gaps_ps", ())]
        if not computes and self.job.compute is not None:
            computes = [encoded(self.job.compute)] * len(self.ranks.bridges)
        self.longest_compute_ps = max(map(longest_pause, computes), default=0)
        ended: str
        with RunLock() as lock:
            names = [self.request.plan.hosts[host].name for host in self.request.placement]
            try:
                self.ranks.launch(LocalHosts(lock, names), master_port=free_port(),
                                  environment={"LOOMNET_CLOCK": "virtual",
                                               **environment_of_ranks()},
                                  nice=0,  # an engine that waits for its ranks fears none
                                  computes=computes, fork=True, look=self.check_wall)
                ended, reason = self.watch()
            except WallTimeError as over:
                ended, reason = "stalled", f"{over} before all ranks were started"
                self.errors.append(RunFault(self.now(), "job", reason))
            except KeyboardInterrupt:
                ended, reason = "interrupted", "interrupted"
            finally:
                self.ranks.stop(0.5)
        return self.collect(ended, reason)

    def watch(self) -> tuple[str, str | None]:
        while True:
            stop = self.clock.run(self.horizon(), LOOK_MS)
            if self.request.recording is not None:
                self.request.recording.drain()
            self.take_marks()
            self.advance()
            self.stop_when_due()
            told = self.on_ended(self.ranks.ended(0))
            if self.ranks.failed:  # asked first: the rank that fails may be the last
                self.drain()
                self.errors.append(self.ranks.failure(self.now()))
                return "failed", self.ranks.reason(self.errors)
            if not self.ranks.running:
                if not self.errors:
                    self.errors = self.ranks.unfinished(
                        [(bridge.unfinished_works(self.engine.network.now_ps), bridge.under_way)
                         for bridge in self.ranks.bridges], self.now())
                if self.errors:
                    return "failed", self.ranks.reason(self.errors)
                return "finished", None
            self.note_outside()
            # A rank that has just been told may move although the clock was stuck before.
            trouble = self.trouble("told" if told else stop)
            if trouble is not None:
                self.errors.append(RunFault(self.now(), "job", trouble))
                return "stalled", trouble.splitlines()[0]
            self.report()

    def drain(self, seconds: float = 5.0) -> None:
        """Lets the others hear of a failure, so that theirs is a named error in their logs."""
        end = time.monotonic() + seconds
        while self.ranks.running and time.monotonic() < end:
            for number, bridge in enumerate(self.ranks.bridges):
                if bridge.state == "gone":
                    self.clock.leave(number)  # its process may take long to end
            if self.clock.run(self.engine.network.now_ps + 10**12, 20) == "stuck":
                self.clock.strand()
                time.sleep(0.01)
            self.take_marks()  # the clock stands before a mark that nobody has taken
            self.on_ended(self.ranks.ended(0))

    def horizon(self) -> int:
        """Engine time up to which the clock may run before somebody must look."""
        origin, ends = self.ranks.origin_ps, [FOREVER]
        if origin is not None and (due := self.table.next_time()) is not None:
            ends.append(origin + due)
        if self.stall_ps is not None:
            ends.append(max(self.progress_ps, self.limit_ps) + self.stall_ps)
        return max(min(ends), self.engine.network.now_ps)

    @property
    def stall_ps(self) -> int | None:
        """Emulated time without progress that ends the job: a rank may compute for as long as the
        scenario says without being stalled."""
        stall = self.request.stall_after
        return None if stall is None else stall.count + self.longest_compute_ps

    def got_on(self) -> None:
        self.progress_ps, self.raced_ps = self.engine.network.now_ps, self.clock.raced_ps
        self.limit_ps = 0
        self.clock.doubt([])

    def take_marks(self) -> None:
        finished = 0
        for number, bridge in enumerate(self.ranks.bridges):
            for iteration in self.ranks.take(number, bridge.take_marks()):
                self.iterations.append(iteration)
                self.got_on()
                self.apply(self.table.on_iteration(iteration.number, iteration.start_ps,
                                                   iteration.end_ps))
            finished += bridge.finished_works
        if finished > self.works:
            self.works = finished
            self.got_on()

    def advance(self) -> None:
        due = self.table.next_time()
        if self.ranks.origin_ps is not None and due is not None and due <= self.now():
            self.apply(self.table.advance(self.now()))

    def apply(self, changes: list) -> None:
        if changes:
            self.sample()
            self.engine.apply(changes, self.engine.network.now_ps)

    def stop_when_due(self) -> None:
        until = self.job.until
        if until is not None and not self.ranks.stopping and self.now() >= until.count:
            step = self.ranks.stop_step()
            for bridge in self.ranks.bridges:
                bridge.stop_at(step, self.engine.network.now_ps)

    def on_ended(self, ended: list[int]) -> bool:
        """Tells peers of ranks that have ended or were cut off; whether it told any."""
        now = self.engine.network.now_ps
        self.unsaid += ended
        # Processes end by the machine's clock. Peers hear of one that ended well when all of them
        # wait, so that it finds them at the same point in every run; until then time stands.
        well = all(self.ranks.gone_reason(number) == "exited" for number in self.unsaid)
        if not self.unsaid or (well and not self.clock.others_wait(self.unsaid)):
            ended = []
        else:
            ended, self.unsaid = sorted(self.unsaid), []
        self.told_gone |= bool(ended)
        told = bool(ended)
        for number in ended:
            self.clock.leave(number)
            for peer, bridge in enumerate(self.ranks.bridges):
                if peer != number:
                    bridge.tell("peer_gone", number, self.ranks.gone_reason(number), now)
        for number, bridge in enumerate(self.ranks.bridges):
            if bridge.fault and number not in self.ranks.told_gone:
                told = True
                self.ranks.told_gone.add(number)
                self.errors.append(
                    RunFault(self.now(), f"rank {number}", f"cut off: {bridge.fault}"))
                for peer, other in enumerate(self.ranks.bridges):
                    if peer != number:
                        other.tell("peer_gone", number, "cut off", now)
        return told

    def trouble(self, stop: str) -> str | None:
        """Why the job must be ended, if it must."""
        if stop == "stuck" and not self.unstick():
            return self.everybody("every rank waits and the network has nothing left to deliver: "
                                  f"a deadlock{self.ranks.apart}{self.ranks.departed}")
        payload = self.engine.network.run_counters(list(self.request.placement))["payload"]
        if payload > self.payload:
            self.payload = payload
            self.got_on()
        now = self.engine.network.now_ps
        idle = now - max(self.progress_ps, self.limit_ps)
        if stop == "reached" and self.stall_ps is not None and idle >= self.stall_ps:
            limit = max((self.ranks.bridges[rank].alarm_ps for rank in self.ranks.pids), default=0)
            if self.clock.raced_ps > self.raced_ps:
                self.got_on()  # emulated time that went with the machine's clock proves nothing
            elif not self.limit_ps and limit > now + LONGEST_POLL_PS:
                self.limit_ps = limit  # the script chose to wait until then, and may go on after it
            else:
                stall = self.request.stall_after
                return self.everybody(f"no operation finished for {stall} (stall_timeout)"
                                      f"{self.engine.deadlock()}")
        if self.wall_is_over():
            return self.everybody(self.request.wall_reason)
        wall = self.job.stall_wall
        # Emulated time that goes with the machine's clock is no movement.
        seen = (now - self.clock.raced_ps, self.works, payload, len(self.iterations))
        self.movement.look(seen, self.ranks.pids)
        if wall is not None and self.movement.dead_s() > wall.seconds:
            return self.everybody(f"no rank has moved for {wall} of wall time (stall_wall)")
        return None

    def wall_is_over(self) -> bool:
        most = self.request.max_wall_s
        return most is not None and time.monotonic() - self.began > most

    def check_wall(self) -> None:
        """Raises WallTimeError once the run has had its wall time."""
        if self.wall_is_over():
            raise WallTimeError(self.request.wall_reason)

    def unstick(self) -> bool:
        """Every rank waits and nothing is under way: whether anything may still come of it."""
        origin, due = self.ranks.origin_ps, self.table.next_time()
        if origin is not None and due is not None:
            self.engine.network.run_until(max(origin + due, self.engine.network.now_ps))
            self.advance()
            return True
        # A rank that has left may be needed still: its peers give it up now, once.
        state = (self.works, self.ranks.group and len(self.ranks.group.running))
        if self.told_gone and self.stranded != state:
            self.stranded = state
            self.clock.strand()
            return True
        # A thread that has never communicated may be about to.
        self.ask_stacks()
        doubtful = [rank for rank in self.ranks.pids if self.ranks.has_other_threads(rank)]
        self.clock.doubt(doubtful)
        return bool(doubtful)

    def everybody(self, head: str) -> str:
        """A message with every rank's operation and Python stack."""
        self.ask_stacks()
        lines = [head]
        for rank in range(len(self.ranks.bridges)):
            lines += self.ranks.where(rank)
        return "\n".join(lines)

    def ask_stacks(self) -> None:
        assert self.ranks.group is not None
        ask_all((self.ranks.stack_files[rank.spec.rank], rank.process.known_pid, rank.pidfd)
                for rank in self.ranks.group.running)

    def note_outside(self) -> None:
        """The first time that emulated time has to go with the machine's clock, the stacks of the
        ranks that it waits for are kept for the report."""
        if self.waited_outside or self.clock.raced_ps == 0:
            return
        for rank in self.clock.racers:
            self.waited_outside.append("; ".join(
                line.strip() for line in self.ranks.where(rank)[:4]))

    def waits(self) -> str | None:
        """What a run in which nothing moves waits for."""
        if self.movement.silent_s() < SILENCE_S:
            return None
        if busy := list(self.movement.busy()):
            rank, share = max(busy, key=lambda each: each[1])
            return f"rank {rank}, which computes ({share:.0%} of a processor)"
        states = {rank: self.ranks.bridges[rank].state for rank in self.ranks.pids}
        others = [rank for rank, state in states.items() if state != "waiting"]
        if not others:
            return None
        operation = self.ranks.bridges[others[0]].under_way
        return joined(others) + (f", in {operation}" if operation else ", outside the network")

    def sample(self) -> dict[str, int]:
        found = self.engine.network.run_counters(list(self.request.placement))
        for name, value in figures_of(found, self.engine.transport).items():
            self.counters.setdefault(name, []).append((max(self.now(), 0), value))
        return found

    def report(self) -> None:
        wall = time.monotonic()
        if wall - self.looked < PROGRESS_S:
            return
        self.looked = wall
        self.ranks.read_log()
        found = self.engine.network.run_counters(list(self.request.placement))
        self.on_progress(Progress.of(
            max(self.now(), 0), self.iterations, self.table, found, self.ranks.lines,
            waits=self.waits()))

    def collect(self, ended: str, reason: str | None) -> RunData:
        self.take_marks()
        self.sample()
        self.ranks.read_log(to_end=True)
        network, origin = self.engine.network, self.ranks.origin_ps or 0
        end = max(self.now(), self.iterations[-1].end_ps if self.iterations else 0)
        for host in self.request.placement:
            network.close_meter(host)
        network.clear()
        polls = sum(bridge.polls for bridge in self.ranks.bridges)
        strays = sum(bridge.strays for bridge in self.ranks.bridges)
        outside: dict[str, str | int] = {}
        if polls:
            outside["polls that found nothing"] = f"{polls}, at 1 us each, doubling to 1 ms"
        if self.waited_outside:
            outside["waited outside the network"] = " | ".join(self.waited_outside)
        if failed := sum(bridge.failed_works for bridge in self.ranks.bridges):
            outside["operations that failed"] = failed
        if strays:
            outside["threads that began to communicate while time passed"] = strays
        data = RunData(
            ended=ended, end_ps=end,  # type: ignore[arg-type]
            hosts={host: self.engine.series(host, origin) for host in self.request.placement},
            iterations=self.iterations, windows=self.table.windows, counters=self.counters,
            log=self.ranks.log(), errors=self.errors,
            fidelity=Fidelity(packets=network.packets, unexplained=network.leaked, emulated_ps=end,
                              notes={**self.labels, **self.model.notes(self.engine), **outside}),
            totals=self.engine.totals(), unequal_hashes=self.ranks.unequal_hashes(), reason=reason,
            deterministic=not (isinstance(self.job.compute, MeasuredCompute) or self.clock.raced_ps
                               or strays),
            directory=self.request.directory)
        if self.request.recording is not None:
            self.request.recording.finish(data, origin)
        return data
