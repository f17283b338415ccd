"""One job of a run, under way on a clock. The run loop drives it; there is a subclass for each kind
of job on each clock."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol

from loomnet.fabrics.link_settings import Frames
from loomnet.faults.timetable import Window
from loomnet.measures.run_data import Ending, Iteration, RunData, RunFault
from loomnet.plans.job_request import JobRequest
from loomnet.running.engine import Engine
from loomnet.running.observer import Sending
from loomnet.running.request import RunRequest
from loomnet.systems.registry import transport
from loomnet.systems.transport import Notes, Transport

FOREVER = 2**63 - 1


class PlayClock(Protocol):
    """What a play asks of the clock that it is on. Times are the engine's, in picoseconds."""

    @property
    def engine(self) -> Engine: ...
    @property
    def now_ps(self) -> int: ...
    def run_counters(self, asked: JobRequest) -> dict[str, int]:
        """Engine.run_counters of a job."""
        ...

    def check(self) -> None:
        """Between two steps of what a play starts: raises KeyboardInterrupt or WallTimeError."""
        ...


class Play(ABC):
    """A job that is to start, runs, or has ended.

    Attributes: `iterations` in job time, which begins with the job's first iteration; `errors`;
    `ended` None while it runs; `counters` as RunData has them.
    """

    # Called for each iteration as it is found.
    on_iteration: Callable[[Iteration], None] | None = None
    # Called once, when the job is over.
    on_over: Callable[[Play], None] | None = None

    def __init__(self, clock: PlayClock, request: RunRequest, asked: JobRequest) -> None:
        self.clock, self.engine = clock, clock.engine
        self.request, self.asked = request, asked
        self.job, self.placement = asked.job, asked.placement
        self.transport = transport(self.job.transport)
        self.iterations: list[Iteration] = []
        self.errors: list[RunFault] = []
        self.counters: dict[str, list[tuple[int, float]]] = {}
        self.ended: Ending | None = None
        self.reason: str | None = None
        self.end_ps = 0  # engine time at which it ended

    # --- what a subclass says -------------------------------------------------------------------
    @property
    @abstractmethod
    def origin_ps(self) -> int | None:
        """Engine time of the job's first iteration; None before it."""

    @property
    def unless_it_steps_ps(self) -> int | None:
        """Where `origin_ps` is None: what it will be if a fault by time is due before the job has
        shown that it steps; None where only its first iteration tells."""
        return None

    def decide_origin(self) -> None:  # noqa: B027  (a hook: most plays know theirs)
        """Called when time 0 of the job is needed. A play that does not know it yet decides it by
        what has happened so far."""

    @property
    def starts_ps(self) -> int:
        """Engine time at which start() is called."""
        return self.asked.start_ps

    @property
    def arrival_ps(self) -> int:
        """Engine time at which the job came, from which its completion time counts."""
        return self.asked.start_ps

    @property
    def over_ps(self) -> int:
        """Engine time at which the job ended, where the engine knows it; else, and of a job that
        is ended from outside, the time now."""
        return self.clock.now_ps

    def prepare(self) -> None:  # noqa: B027  (a hook: most plays need not fill it)
        """Makes what must be there before any time passes."""

    def start(self) -> None:  # noqa: B027  (a hook: most plays need not fill it)
        """Begins the job, while time passes."""

    def horizon(self) -> int:
        """Engine time up to which nothing of this job need be looked at."""
        return FOREVER

    @abstractmethod
    def look(self) -> None:
        """Takes in what has happened since the last look; found() is called for each iteration
        that has ended."""

    @property
    def told(self) -> bool:
        """Whether the last look told the job of something, so that it may move."""
        return False

    @abstractmethod
    def outcome(self) -> tuple[Ending, str | None] | None:
        """How the job has ended, and why unless it finished; None while it runs."""

    @abstractmethod
    def trouble(self, stop: str) -> str | None:
        """Why the job must be ended, if it must. `stop`: why the clock stood still."""

    @property
    def unstarted(self) -> str:
        """What a run lacks that ended before the job had started, for its reason."""
        return "all of the job was started"

    def steps(self) -> tuple[list[dict[str, str]], str | None]:
        """For the progress line: lines of rank 0's output, and what the job waits for."""
        return [], None

    def share(self, counters: Mapping[str, int]) -> float | None:
        """For the progress line: how much of the job is done, from 0 to 1, where iterations and
        emulated time do not tell; None where that is not known. `counters`: run_counters(), now."""
        return None

    def stop(self) -> None:  # noqa: B027  (a hook: most plays need not fill it)
        """Ends the job's processes, and takes in their last words. Called once the job has ended,
        whatever happened."""

    def fill(self, data: RunData, origin_ps: int) -> None:  # noqa: B027  (a hook)
        """Adds to a run's data what only this kind of job has."""

    def notes(self) -> Notes:
        """What the report's fidelity says of the job."""
        return {}

    @property
    def fell_behind(self) -> str | None:
        """Why processes of the job could not keep up, so that no figure is of the network."""
        return None

    # --- what all share ---------------------------------------------------------------------------
    @property
    def carrier(self) -> Transport:
        """The transport whose counters are the job's figures: the engine's, or, where the hosts'
        kernels carry the job, the one it asked for."""
        return self.engine.carrier(self.job) or self.transport

    @cached_property
    def shares_hosts(self) -> bool:
        """Whether another job has a host of this one."""
        jobs_on = self.request.jobs_on
        return any(jobs_on[host] > 1 for host in set(self.placement))

    @cached_property
    def figures(self) -> tuple[str, ...]:
        """The engine's counters that are figures of the job. What NICs count of their transports
        is none where they serve another job too, or send no packets."""
        if self.request.fluid:
            return ()
        return ("lost",) if self.shares_hosts else self.carrier.figures

    def now(self) -> int:
        """Job time; 0 before its first iteration."""
        origin = self.origin_ps
        return 0 if origin is None else max(self.clock.now_ps - origin, 0)

    def found(self, iteration: Iteration) -> None:
        self.iterations.append(iteration)
        if self.on_iteration is not None:
            self.on_iteration(iteration)

    @property
    def length_ps(self) -> int:
        """From the job's first iteration to its end; 0 where it had none."""
        last = self.iterations[-1].end_ps if self.iterations else 0
        origin = self.origin_ps
        return last if origin is None else max(self.end_ps - origin, last)

    def end(self, ended: Ending, reason: str | None) -> None:
        """The job is over: nothing more happens to it."""
        self.decide_origin()
        self.ended, self.reason = ended, reason
        if self.on_over is not None:
            self.on_over(self)

    def stalled(self, message: str) -> None:
        """Ends the job for a reason of which the first line is enough in a report."""
        self.decide_origin()
        self.errors.append(RunFault(self.now(), "job", message))
        self.end("stalled", message.splitlines()[0])

    def wall_is_over(self, reason: str) -> None:
        """Ends the job because the run has had its wall time."""
        self.stalled(reason)

    def run_counters(self) -> dict[str, int]:
        return self.clock.run_counters(self.asked)

    def sending_once(self) -> Sending | None:
        """The job's traffic, where each of its queue pairs carries one flow alone."""
        return None

    def sample(self) -> dict[str, int]:
        """Notes the counters that are figures; returns all of them."""
        found = self.run_counters()
        at = self.now() if self.ended is None else self.length_ps
        timeouts = ("timeouts",) if "retransmitted" in self.figures else ()
        for name in (*self.figures, *timeouts):
            self.counters.setdefault(name, []).append((at, found[name]))
        return found

    @property
    def frames(self) -> Frames:
        """How the job's messages are cut into packets in this run."""
        found = self.transport.frames(
            self.request.options.get(self.transport.model, {}),
            self.request.plan,
            live=self.engine.live,
        )
        return found if self.asked.job.sends_immediates else replace(found, immediate=0)

    def collect(self, shared: Mapping[str, Any], windows: list[Window]) -> RunData:
        """The job's data. `shared`: what all jobs of the run have in common; `windows`: in the
        job's time."""
        origin = self.origin_ps or 0
        assert self.ended is not None
        # Where other jobs go on, a phase may end after this one: at its end the phase lasts.
        windows = [
            replace(each, end_ps=None)
            if each.end_ps is not None and each.end_ps > self.length_ps
            else each
            for each in windows
        ]
        if not any(count for _, count in self.counters.get("timeouts", ())):
            self.counters.pop("timeouts", None)
        data = RunData(
            ended=self.ended,
            end_ps=self.length_ps,
            hosts={
                host: self.engine.series(host, self.asked.number, origin)
                for host in self.asked.hosts
            },
            iterations=self.iterations,
            windows=windows,
            counters=self.counters,
            errors=self.errors,
            reason=self.reason,
            frames=self.frames,
            directory=self.request.directory / (self.asked.name or ""),
            shares_hosts=self.shares_hosts,
            fluid=self.request.fluid,
            completion_ps=max(self.end_ps - self.arrival_ps, 0),
            **shared,
        )
        self.fill(data, origin)
        return data


def shifted(windows: Iterable[Window], by_ps: int) -> list[Window]:
    """Windows in the time of another job, whose time 0 is so much earlier."""
    return [
        replace(
            window,
            start_ps=window.start_ps + by_ps,
            end_ps=None if window.end_ps is None else window.end_ps + by_ps,
        )
        for window in windows
    ]
