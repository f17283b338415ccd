"""What both clocks do with a PyTorch job: bridges and queue pairs before it, marks and logs while
it runs, one outcome after it. The clock only decides how time passes in between."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import loomnet._core as _core
from loomnet.base.names import how_many, joined_ranks
from loomnet.base.torch_versions import TRIED, untried
from loomnet.jobs.model import TorchJob
from loomnet.measures.ring_steps import RingSteps
from loomnet.measures.run_data import Iteration, RunFault
from loomnet.plans.job_request import JobRequest
from loomnet.plugins.priorities import priority_made
from loomnet.processes.rank_watch import (
    StackFile,
    ask_all,
    in_backend,
    in_kernel,
    shown,
    stacks,
)
from loomnet.processes.ranks import NICE, RankGroup
from loomnet.running.asked_priority import Asker
from loomnet.running.engine import Engine
from loomnet.running.engine_settings import staging_for
from loomnet.running.job_zero import JobZero
from loomnet.running.log_lines import LogLines
from loomnet.running.off_network import asked_for, off_network
from loomnet.running.rank_specs import specs_of
from loomnet.running.request import RunRequest
from loomnet.systems.transport import Notes

STOP_AHEAD = 2  # ranks of a synchronous job are at most one step apart
CAUSE_S = 2.0  # of wall time for the process of the rank that failed first to end
_KINDS = _core.MARK_KINDS
# In a traceback, of a peer that a rank needed: its name as the backend says it.
_MISSED = re.compile(r"job rank (\d+) has exited")


class RankJob:
    """One TorchJob on an engine: its ranks' bridges, their processes, and what they report.

    Times handed in and out are the engine's clock.
    """

    def __init__(self, engine: Engine, request: RunRequest, asked: JobRequest) -> None:
        assert isinstance(asked.job, TorchJob)
        self.engine, self.request, self.job = engine, request, asked.job
        self.asked, self.placement = asked, asked.placement
        world = len(self.placement)
        part = engine.carrying(asked)
        summing = {} if part is None else part.bridge_options(asked)
        self.works = [
            work for each in engine.parts if (work := each.rank_work(engine, asked)) is not None
        ]
        self.bridges = [
            _core.RankBridge(
                engine.network,
                engine.node(host),
                rank=rank,
                world=world,
                channels=16,
                job=asked.number,
                **staging_for(engine.plan),
                **summing,
                queue_pairs=max([1, *(work.queue_pairs for work in self.works)]),
            )
            for rank, host in enumerate(self.placement)
        ]
        self.carrier = engine.carrier(self.job)
        if connecting := [work for work in self.works if work.connects]:
            for work in connecting:
                work.connect(self.bridges)
        elif self.carrier is not None:  # else stock Gloo takes the ranks' bytes
            for (rank, peer), number in engine.connect_mesh(asked).items():
                self.bridges[rank].bind(peer, number, self.bridges[peer].key)
        if part is not None:
            part.bind_ranks(engine, asked, self.bridges)
        if (name := self.job.priority) is not None:
            made = priority_made("TorchJob.priority", name)
            self._asker = (
                None if made is None else Asker(name, made, asked.name or "job", engine.plugins)
            )
            for host, bridge in zip(self.placement, self.bridges, strict=True):
                bridge.weigh_sums(
                    steps=self.job.steps or 1,
                    link_bps=engine.link_bps(host),
                    priority=name if made is None else "none",
                    ask=self._asker,
                )
        self.stack_files = [StackFile() for _ in self.placement]
        self.steps: list[list[tuple[int, int]]] = [[] for _ in self.placement]  # (step, engine ps)
        self.hashes: list[dict[int, int]] = [{} for _ in self.placement]
        self.zero = JobZero(asked)
        self.group: RankGroup | None = None
        self._log = LogLines(self.job)
        self.told_gone: set[int] = set()
        self._failing: list[tuple[int, int]] = []  # (engine ps, rank), as they became known
        self.failed_ps: int | None = None  # when the first rank that said so had failed
        self._stopping = False

    @property
    def origin_ps(self) -> int | None:
        """Time 0 of the job: see JobZero."""
        return self.zero.origin_ps

    @property
    def no_iterations(self) -> str | None:
        """Why the job has no iteration, where no step has ended; None where one has."""
        if self.steps[0]:
            return None
        return (
            "no torch.optim.Optimizer has stepped in rank 0; loomnet.torch.step() in the "
            "script marks a step"
        )

    def found_by_parts(self) -> dict[str, Any]:
        """What parts of the run have seen of the ranks, by the names of RunData's fields."""
        origin = self.origin_ps or 0
        ends = [at - origin for _, at in self.steps[0]]
        found: dict[str, Any] = {}
        for work in self.works:
            found |= work.found(origin, list(itertools.pairwise(ends)))
        return found

    @property
    def marks_ring_steps(self) -> bool:
        """Whether ranks report the ring steps that they receive: where packets show them, or a
        switch looks for them. Elsewhere the marks would be a cost without a use."""
        own = self.carrier
        shown = own is not None and self.request.options.get(own.model, {}).get("identity")
        return own is not None and (
            shown not in (None, "none") or any(part.reads_steps for part in self.engine.parts)
        )

    def ring_steps(self, origin_ps: int) -> RingSteps | None:
        """Of ranks that report them; the job's communicators are channels 0, 1, …"""
        return RingSteps.joined(
            [bridge.steps() for bridge in self.bridges],
            origin_ps,
            sum(bridge.steps_unlogged for bridge in self.bridges),
        )

    def notes(self) -> Notes:
        """What the report's fidelity says of the job."""
        found: Notes = {}
        if version := untried():
            found["an untried PyTorch"] = (
                f"{version}; Loomnet is tried with {TRIED[0]} to {TRIED[-1]}"
            )
        if overflows := max(bridge.sum_overflows for bridge in self.bridges):
            found["blocks of sums that overflowed"] = overflows
            if floats := max(bridge.sums_as_floats for bridge in self.bridges):
                found["of these, summed as float32"] = floats
        if (why := self.no_iterations) is not None:
            found["iterations"] = f"none: {why}; {self.zero.told}"
            if self._stopping:
                found["stop"] = (
                    "its time came, and no rank heard of it: ranks end after a step, "
                    "and none was marked"
                )
        for work in self.works:
            found |= work.notes()
        return found

    # --- processes --------------------------------------------------------------------------------
    def launch(
        self,
        fabric: Any,
        *,
        master_port: int,
        environment: dict[str, str],
        nice: int = NICE,
        computes: Sequence[str] = (),
        fork: bool = False,
        look: Callable[[], None] = lambda: None,
    ) -> None:
        """Starts the ranks inside `fabric` (live hosts, or the virtual clock's local ones).
        `computes`: on the virtual clock each rank's compute time, as its step hook reads it.
        `fork`: they may share one import of PyTorch. `look` raises to end the launch."""
        specs = specs_of(self, computes, environment)
        logs = self.asked.folder_in(self.request.opened()).folder("ranks")
        self.group = RankGroup(
            fabric,
            specs,
            logs,
            cwd=Path.cwd(),
            master_port=master_port,
            run_id=self.asked.name or "loomnet",
            nice=nice,
            fork=fork,
            look=look,
        )

    def ended(self, timeout: float = 0) -> list[int]:
        """Ranks whose process has ended since the last call."""
        assert self.group is not None
        ended = self.group.poll(timeout)
        known = self._failing[-1][0] if self._failing else 0
        self._failing += [(known, rank.spec.rank) for rank in ended if rank.failed]
        return [rank.spec.rank for rank in ended]

    def gone_reason(self, rank: int) -> tuple[str, int]:
        """How a rank's process ended, as its peers are told, with its exit status or signal."""
        assert self.group is not None
        status = next(r for r in self.group.ranks if r.spec.rank == rank).status
        if status == 0:
            return "exited", 0
        # A process of which nothing is known was taken away.
        return ("killed", -(status or 0)) if (status or 0) <= 0 else ("failed", status or 0)

    @property
    def running(self) -> bool:
        """Whether a rank runs that the job waits for: one that was cut off may run for ever."""
        return self.group is not None and any(
            rank.spec.rank not in self.told_gone for rank in self.group.running
        )

    @property
    def departed(self) -> str:
        """What a stalled job may lack: "; rank 3 has exited", or nothing."""
        assert self.group is not None
        gone = [str(rank.spec.rank) for rank in self.group.ranks if rank.status == 0]
        return f"; rank {', '.join(gone)} {'has' if len(gone) == 1 else 'have'} exited" * bool(gone)

    def apart(self, operations: Sequence[str]) -> str:
        """Which ranks are in which operation, where they are not all in the same one: ": rank 1 in
        broadcast, ranks 0 and 2 in all_reduce", or nothing. `operations`: of each rank, the one
        under way for longest, or empty."""
        ranks: dict[str, list[int]] = {}
        for rank in self.pids:
            ranks.setdefault(operations[rank], []).append(rank)
        named = sorted(
            ((who, what) for what, who in ranks.items() if what), key=lambda each: len(each[0])
        )
        if len(named) < 2:
            return ""
        return ": " + ", ".join(f"{joined_ranks(who)} in {what}" for who, what in named)

    @property
    def pids(self) -> dict[int, int]:
        """Processes of the ranks that run, by rank."""
        group = self.group
        return (
            {}
            if group is None
            else {rank.spec.rank: rank.process.known_pid for rank in group.running}
        )

    def everybody(self, head: str, operations: Sequence[str]) -> str:
        """A message that begins with `head` and has every rank's operation and Python stack.
        `operations` as apart() has them."""
        states = [bridge.state for bridge in self.bridges]
        self.ask_stacks()
        lines = [head]
        for rank, state in enumerate(states):
            lines += self.where(rank, operations[rank], state)
        return "\n".join(lines)

    def ask_stacks(self) -> None:
        assert self.group is not None
        ask_all(
            (self.stack_files[rank.spec.rank], rank.process.known_pid, rank.pidfd)
            for rank in self.group.running
        )

    def where(self, rank: int, operation: str, state: str | None = None) -> list[str]:
        """A line with the rank's state and operation, then lines of its threads' Python stacks.
        `state`: as it was before the ranks were asked for their stacks, which wakes them."""
        assert self.group is not None
        bridge = self.bridges[rank]
        found = next((r for r in self.group.running if r.spec.rank == rank), None)
        if found is None:
            return [f"  rank {rank} has ended"]
        words = {
            "starting": "has made no group yet",
            "outside": "sleeps outside the network",
            "waiting": "waits",
            "computing": "computes",
            "gone": "has left the network",
        }
        doing, pid = words[state or bridge.state], found.process.known_pid
        if bridge.state == "starting" and not self.stack_files[rank].notes():
            # Stacks come from the backend, which is not there.
            doing = f"has not imported torch.distributed yet{in_kernel(pid)}"
        head = f"  rank {rank} {doing}"
        if operation:
            head += f", in {operation}"
        return [head, *shown(self.stack_files[rank].ask(pid, found.pidfd))]

    def has_other_threads(self, rank: int) -> bool:
        """Whether a Python thread of the rank beside its main thread, of which the session always
        knows, is outside the calls of the backend."""
        assert self.group is not None
        found = next((r for r in self.group.running if r.spec.rank == rank), None)
        if found is None:
            return False
        threads = stacks(self.stack_files[rank].ask(found.process.known_pid, found.pidfd))
        return any(not in_backend(thread) for thread in threads[1:])

    @property
    def left(self) -> bool:
        """True when every rank has said goodbye to its NIC or ended: what is left is their exit."""
        assert self.group is not None
        ended = {rank.spec.rank for rank in self.group.ranks if rank.status is not None}
        return all(
            rank in ended or bridge.state == "gone" for rank, bridge in enumerate(self.bridges)
        )

    # --- what the ranks say -----------------------------------------------------------------------
    def take(
        self, rank: int, marks: Iterable[tuple[int, int, int, int, int, int]]
    ) -> list[Iteration]:
        """Marks of one rank; rank 0's finished iterations, in time since `origin_ps`."""
        found = []
        for kind, _, at_ps, value, a, b in marks:
            if kind == _KINDS["step"]:
                if rank:
                    self.steps[rank] = [(value, at_ps)]  # of the others the last is asked for
                    continue
                before = self.steps[rank][-1] if self.steps[rank] else None
                self.steps[rank].append((value, at_ps))
                if before is None:
                    self.zero.stepped(at_ps)
                elif self.origin_ps is not None:
                    found.append(
                        Iteration(value, before[1] - self.origin_ps, at_ps - self.origin_ps)
                    )
            elif kind == _KINDS["work_begin"]:
                self.zero.began(at_ps)
            elif kind == _KINDS["optimizer"]:
                self.zero.steps_will_come()
            elif kind == _KINDS["hash"]:
                self.hashes[rank][value] = a | b << 64
            elif kind == _KINDS["failure"]:
                self._failing.append((at_ps, rank))
                self.failed_ps = min(at_ps, self.failed_ps or at_ps)
        return found

    def last_step(self) -> int | None:
        return max((steps[-1][0] for steps in self.steps if steps), default=None)

    def stop_step(self) -> int:
        """The step after which all ranks shall end, told to them by the caller; once."""
        self._stopping = True
        return (self.last_step() or 0) + STOP_AHEAD

    def stops_ps(self) -> list[int]:
        """When the ranks are to be told to stop, on the engine's clock, as far as that is known."""
        until, stop = self.job.until, self.asked.stop_ps
        found = [] if stop is None else [stop]
        if until is not None and self.origin_ps is not None:
            found.append(self.origin_ps + until.count)
        return found

    def to_stop(self, now_ps: int) -> bool:
        """Whether the ranks are to be told now; false once they have been."""
        until, stop = self.job.until, self.asked.stop_ps
        job_ps = 0 if self.origin_ps is None else now_ps - self.origin_ps
        return not self._stopping and (
            (until is not None and job_ps >= until.count) or (stop is not None and now_ps >= stop)
        )

    @property
    def stopping(self) -> bool:
        return self._stopping

    def read_log(self, *, to_end: bool = False) -> None:
        """Takes in what rank 0 has printed since, some megabytes at most; `to_end`: all of it, as
        far as a log is read at all."""
        if self.group is not None:
            self._log.read(self.group.ranks[0].log, to_end=to_end)

    @property
    def lines(self) -> list[dict[str, str]]:
        """Of rank 0's output, the groups of each line that TorchJob.log matches."""
        return self._log.lines

    def log(self) -> list[tuple[int, dict[str, str]]]:
        """The same with times: see LogLines."""
        return self._log.timed(self.steps[0], self.origin_ps or 0)

    def unequal_hashes(self) -> int | None:
        """Steps at which the ranks' parameters differed; None if none was hashed by all."""
        common = set.intersection(*(set(each) for each in self.hashes)) if self.hashes else set()
        if not common:
            return None
        return sum(len({each[step] for each in self.hashes}) > 1 for step in common)

    @property
    def failed(self) -> bool:
        """Whether the process of a rank has ended in failure."""
        return self.group is not None and self.group.first_failure is not None

    def failure(self, at_ps: int) -> RunFault:
        """The rank that failed first, with its traceback, once one has failed. Peers fail because
        of it, and their processes may end before its own does."""
        assert self.group is not None and self.group.first_failure is not None
        _, number = min(self._failing, key=lambda each: each[0])
        cause = next(rank for rank in self.group.ranks if rank.spec.rank == number)
        end = time.monotonic() + CAUSE_S
        while cause.status is None and time.monotonic() < end:
            self.ended(0.05)
        first = cause if cause.failed else self.group.first_failure
        return RunFault(at_ps, f"rank {first.spec.rank}", first.error())

    def reason(self, errors: Sequence[RunFault]) -> str:
        """The first of these errors in one line, with ranks that had ended well before and that the
        failed one missed."""
        first = errors[0]
        line = first.message.splitlines()[0]
        if line.startswith("cut off"):
            return f"{first.who} was {line}"
        if line.startswith("ended with"):
            return f"{first.who} {line}"
        gone = sorted({int(rank) for rank in _MISSED.findall(first.message)})
        assert self.group is not None
        well = [
            rank.spec.rank
            for rank in self.group.ranks
            if rank.status == 0 and rank.spec.rank in gone
        ]
        return f"{line}; {joined_ranks(well)} had ended with status 0" if well else line

    def unfinished(self, works: Sequence[tuple[int, str]], at_ps: int) -> list[RunFault]:
        """An error for each rank that left operations unfinished, once all ranks have ended with
        status 0. `works`: of each rank, the number of such operations, the names of open ones."""
        if self._stopping:
            return []
        return [
            RunFault(
                at_ps,
                f"rank {rank}",
                f"ended with {how_many(count, 'operation')} unfinished"
                f"{name and f' ({name})'}; the script must wait for all before it ends",
            )
            for rank, (count, name) in enumerate(works)
            if count
        ]

    def off_network(self, works: Sequence[int], payload: int, at_ps: int) -> list[RunFault]:
        """An error where the emulated network was not what joined the ranks, once all of them have
        ended with status 0. `works`: operations of each rank; `payload`: bytes that reached the
        job's hosts."""
        if self.job.allow_no_network:
            return []
        notes = [file.notes() for file in self.stack_files]
        made = [
            bool(count) or any(kind == "made" for kind, _ in said)
            for count, said in zip(works, notes, strict=True)
        ]
        if all(made) and payload:
            return []
        asked: dict[str, list[int]] = {}
        for rank, said in enumerate(notes):
            if not (made[rank] and payload):
                asked.setdefault(asked_for(said, self.job, made=made[rank]), []).append(rank)
        return [RunFault(at_ps, "job", off_network(asked))]

    def stop(self, grace: float) -> None:
        if self.group is not None:
            self.group.stop(grace)
        for file in self.stack_files:
            file.close()
