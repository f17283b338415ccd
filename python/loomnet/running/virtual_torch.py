"""Real PyTorch on the virtual clock: ranks are plain processes of this machine, their NICs live in
the engine, and time stands still while any of them computes."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from typing import Any, Protocol

from loomnet.base import rank_environment as rank_env
from loomnet.base.names import joined_ranks
from loomnet.jobs.compute import MeasuredCompute, encoded, longest_pause
from loomnet.measures.run_data import RunData, RunFault
from loomnet.plans.job_request import JobRequest
from loomnet.processes.journal import RunLock
from loomnet.processes.rank_watch import SILENCE_S, Movement, load_text, program_below
from loomnet.running.play import FOREVER, PlayClock
from loomnet.running.rank_specs import environment_of_ranks
from loomnet.running.request import RunRequest
from loomnet.running.torch_play import TorchPlay
from loomnet.systems.transport import Notes

DRAIN_S = 5.0  # that the other ranks have to end after one has failed
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


class Port:
    """A TCP port of loopback for rank 0's store, which opens it seconds from now: the kernel gives
    it to nobody else until close(). A socket that sets SO_REUSEADDR, as PyTorch's stores do, may
    listen on it meanwhile."""

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.number: int = self._socket.getsockname()[1]

    def close(self) -> None:
        self._socket.close()


class RankClock(PlayClock, Protocol):
    """What ranks ask of the virtual clock besides. `ranks`: the engine's VirtualRanks; a rank's
    place in it is what add_rank() has returned."""

    ranks: Any
    lock: RunLock

    def add_rank(self, bridge: Any, job: int) -> int: ...
    def others_wait(self, places: list[int], but: list[int]) -> bool:
        """Whether all of these ranks wait, those of `but` left out."""
        ...

    def may_yet_communicate(self, places: list[int], undecided: list[int]) -> None:
        """Which of a job's ranks have threads that may yet communicate."""
        ...


class VirtualTorch(TorchPlay):
    """One TorchJob on the virtual clock."""

    clock: RankClock

    def __init__(self, clock: RankClock, request: RunRequest, asked: JobRequest) -> None:
        super().__init__(clock, request, asked)
        self.progress_ps = 0  # engine time at which the job last got on
        self.limit_ps = 0  # … and the latest time limit of a script that was awaited since
        self.works = self.payload = 0
        self.wall_paced_ps = 0  # as of the last progress: see VirtualRanks
        self.places: list[int] = []  # of the ranks on the clock
        self.port: Port | None = None
        self.was_told = False
        self.told_gone = False  # peers have heard that a rank ended
        self.unannounced: list[int] = []  # ranks that have ended, of which no peer has heard
        self.stranded: object = None
        self.waited_outside: list[str] = []
        self.movement = Movement()
        # Of each rank, as a live run measured them, or as the job says.
        self.computes = [",".join(map(str, each)) for each in asked.gaps_ps]
        if not self.computes and self.torch.compute is not None:
            self.computes = [encoded(self.torch.compute)] * len(self.placement)
        self.longest_compute_ps = max(map(longest_pause, self.computes), default=0)

    def start(self) -> None:
        self.places = [
            self.clock.add_rank(bridge, self.asked.number) for bridge in self.ranks.bridges
        ]
        names = [self.request.plan.hosts[host].name for host in self.placement]
        self.port = Port()
        self.ranks.launch(
            LocalHosts(self.clock.lock, names),
            master_port=self.port.number,
            environment={
                rank_env.CLOCK: "virtual",
                rank_env.STARTED: str(self.clock.now_ps),
                **environment_of_ranks(),
            },
            nice=0,  # the engine waits for its ranks, so they never make it late
            computes=self.computes,
            fork=True,
            look=self.clock.check,
        )

    @property
    def unstarted(self) -> str:
        return "all ranks were started"

    # --- the run ----------------------------------------------------------------------------------
    def horizon(self) -> int:
        ends = [FOREVER]
        if self.stall_ps is not None:
            ends.append(max(self.progress_ps, self.limit_ps) + self.stall_ps)
        # Between two steps the clock is looked at by wall time: without this stop the step after
        # which the job ends would depend on it.
        if not self.ranks.stopping:
            ends += self.ranks.stops_ps()
        return min(ends)

    @property
    def stall_ps(self) -> int | None:
        """Emulated time without progress that ends the job: a rank may compute for as long as the
        scenario says without being stalled."""
        stall = self.asked.stall_after
        return None if stall is None else stall.count + self.longest_compute_ps

    def got_on(self, at_ps: int | None = None) -> None:
        """`at_ps`: when, if that was before now."""
        now = self.clock.now_ps
        self.progress_ps = now if at_ps is None else max(self.progress_ps, min(at_ps, now))
        self.wall_paced_ps = self.clock.ranks.wall_paced_ps
        self.limit_ps = 0
        self.clock.may_yet_communicate(self.places, [])

    def look(self) -> None:
        self.take_marks()
        self.stop_when_due()
        self.was_told = self.on_ended(self.ranks.ended(0))

    @property
    def told(self) -> bool:
        return self.was_told

    def unfinished_works(self) -> list[tuple[int, str]]:
        return [
            (bridge.unfinished_works(self.clock.now_ps), bridge.under_way)
            for bridge in self.ranks.bridges
        ]

    def ended_works(self) -> list[int]:
        return [bridge.finished_works + bridge.failed_works for bridge in self.ranks.bridges]

    def drain(self) -> None:
        """Lets the others hear of a failure, so that theirs is a named error in their logs."""
        end = time.monotonic() + DRAIN_S
        while self.ranks.running and time.monotonic() < end:
            for number, bridge in enumerate(self.ranks.bridges):
                if bridge.state == "gone":
                    self.clock.ranks.leave(self.places[number])  # its process may take long to end
            if self.clock.ranks.run(self.clock.now_ps + 10**12, 20) == "stuck":
                self.clock.ranks.strand()
                time.sleep(0.01)
            self.take_marks()  # the clock stands before a mark that nobody has taken
            self.on_ended(self.ranks.ended(0))

    def take_marks(self) -> None:
        finished = 0
        for number, bridge in enumerate(self.ranks.bridges):
            for iteration in self.ranks.take(number, bridge.take_marks()):
                self.got_on()
                self.found(iteration)
            finished += bridge.finished_works
        self.ranks.zero.take_operations()
        if finished > self.works:
            self.works = finished
            self.got_on()

    def stop_when_due(self) -> None:
        if self.ranks.to_stop(self.clock.now_ps):
            step = self.ranks.stop_step()
            for bridge in self.ranks.bridges:
                bridge.stop_at(step, self.clock.now_ps)

    def on_ended(self, ended: list[int]) -> bool:
        """Tells peers of ranks that have ended or were cut off; whether it told any."""
        now = self.clock.now_ps
        self.unannounced += ended
        # Processes end by the machine's clock. Peers hear of one that ended well when all of them
        # wait, so that it finds them at the same point in every run; until then time stands.
        well = all(self.ranks.gone_reason(number)[0] == "exited" for number in self.unannounced)
        unannounced = [self.places[number] for number in self.unannounced]
        if not unannounced or (well and not self.clock.others_wait(self.places, unannounced)):
            ended = []
        else:
            ended, self.unannounced = sorted(self.unannounced), []
        self.told_gone |= bool(ended)
        told = bool(ended)
        for number in ended:
            self.clock.ranks.leave(self.places[number])
            for peer, bridge in enumerate(self.ranks.bridges):
                if peer != number:
                    reason, status = self.ranks.gone_reason(number)
                    bridge.tell("peer_gone", number, reason, now, status)
        for number, bridge in enumerate(self.ranks.bridges):
            if bridge.fault and number not in self.ranks.told_gone:
                told = True
                self.ranks.told_gone.add(number)
                self.errors.append(
                    RunFault(self.now(), f"rank {number}", f"cut off: {bridge.fault}")
                )
                for peer, other in enumerate(self.ranks.bridges):
                    if peer != number:
                        other.tell("peer_gone", number, "cut off", now)
        return told

    def trouble(self, stop: str) -> str | None:
        self.note_outside()
        if stop == "stuck" and not self.unstick():
            return self.everybody(
                "every rank waits and the network has nothing left to deliver: "
                f"a deadlock{self.ranks.apart(self.operations)}"
                f"{self.ranks.departed}"
            )
        counters = self.run_counters()
        payload = counters["payload"]
        if payload > self.payload:
            self.payload = payload
            # When the bytes came, which may be long before anybody looked.
            self.got_on(counters["quiet_since_ps"] if counters["working"] else None)
        now = self.clock.now_ps
        idle = now - max(self.progress_ps, self.limit_ps)
        if stop == "reached" and self.stall_ps is not None and idle >= self.stall_ps:
            limit = max((self.ranks.bridges[rank].alarm_ps for rank in self.ranks.pids), default=0)
            if self.clock.ranks.wall_paced_ps > self.wall_paced_ps:
                self.got_on()  # emulated time that went with the machine's clock proves nothing
            elif self.give_up_gone():
                self.got_on()  # timers of the network go on, so the ranks are never seen stuck
            elif not self.limit_ps and limit > now + LONGEST_POLL_PS:
                self.limit_ps = limit  # the script chose to wait until then, and may go on after it
            else:
                stall = self.asked.stall_after
                return self.everybody(
                    f"no operation finished for {stall} (stall_timeout)"
                    f"{self.engine.deadlock()}{self.engine.stall(self.asked)}"
                )
        wall = self.torch.stall_wall
        # Emulated time that goes with the machine's clock is no movement.
        seen = (now - self.clock.ranks.wall_paced_ps, self.works, payload, len(self.iterations))
        self.movement.look(seen, self.ranks.pids)
        if wall is not None and self.movement.dead_s() > wall.seconds:
            return self.everybody(
                f"no rank has moved for {wall} of wall time (stall_wall){load_text()}"
            )
        return None

    def unstick(self) -> bool:
        """Every rank waits and nothing is under way: whether anything may still come of it."""
        if self.give_up_gone():
            return True
        # A thread that has never communicated may be about to.
        self.ranks.ask_stacks()
        undecided = [
            self.places[rank] for rank in self.ranks.pids if self.ranks.has_other_threads(rank)
        ]
        self.clock.may_yet_communicate(self.places, undecided)
        return bool(undecided)

    def give_up_gone(self) -> bool:
        """A rank that has left may be needed still: its peers give it up now, once."""
        state = (self.works, self.ranks.group and len(self.ranks.group.running))
        if not self.told_gone or self.stranded == state:
            return False
        self.stranded = state
        self.clock.ranks.strand()
        return True

    @property
    def operations(self) -> list[str]:
        return [bridge.under_way for bridge in self.ranks.bridges]

    def note_outside(self) -> None:
        """The first time that emulated time has to go with the machine's clock, the stacks of the
        ranks that it waits for are kept for the report."""
        if self.waited_outside or self.clock.ranks.wall_paced_ps == 0:
            return
        for place in self.clock.ranks.waited_for:
            if place in self.places:
                self.waited_outside.append(
                    "; ".join(line.strip() for line in self.where(self.places.index(place))[:4])
                )

    def where(self, rank: int) -> list[str]:
        return self.ranks.where(rank, self.ranks.bridges[rank].under_way)

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
        if all(states[rank] == "gone" for rank in others):
            return f"{joined_ranks(others)} to exit"
        first = others[0]
        if operation := self.ranks.bridges[first].under_way:
            return f"{joined_ranks(others)}, in {operation}"
        program = program_below(self.ranks.pids[first])
        doing = "outside the network" if program is None else f"whose {program} runs"
        return f"{joined_ranks(others)}, {doing}"

    def steps(self) -> tuple[list[dict[str, str]], str | None]:
        self.ranks.read_log()
        return self.ranks.lines, self.waits()

    def stop(self) -> None:
        self.ranks.stop(0.5)
        if self.port is not None:
            self.port.close()
        self.take_marks()
        for place in self.places:
            self.clock.ranks.leave(place)

    def fill(self, data: RunData, origin_ps: int) -> None:
        super().fill(data, origin_ps)
        if isinstance(self.torch.compute, MeasuredCompute) or self.strays:
            data.deterministic = False

    def notes(self) -> Notes:
        found: Notes = {}
        if polls := sum(bridge.polls for bridge in self.ranks.bridges):
            found["polls that found nothing"] = f"{polls}, at 1 us each, doubling to 1 ms"
        if self.waited_outside:
            found["waited outside the network"] = " | ".join(self.waited_outside)
        if failed := sum(bridge.failed_works for bridge in self.ranks.bridges):
            found["operations that failed"] = failed
        found |= self.ranks.notes()
        by_layer = bool(self.computes) and self.computes[0].startswith("{")
        if self.ranks.no_iterations and not by_layer:
            found["compute"] = "none passed for whole iterations: there was none"
        if self.strays:
            found["threads that began to communicate while time passed"] = self.name_strays()
        return found

    def name_strays(self) -> str:
        """Text for a note: how many threads began to communicate while emulated time passed, and
        for each rank their names, which the rank's log has."""
        assert self.ranks.group is not None
        named = []
        for rank, bridge in zip(self.ranks.group.ranks, self.ranks.bridges, strict=True):
            if bridge.strays:
                threads = sorted(set(map(ascii, rank.log.said(rank_env.STRAY))))
                named.append(f"rank {rank.spec.rank}: {', '.join(threads) or 'not named'}")
        return f"{self.strays} ({'; '.join(named)})"

    @property
    def strays(self) -> int:
        return sum(bridge.strays for bridge in self.ranks.bridges)
