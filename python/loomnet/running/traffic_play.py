"""A traffic model as a play: what it sends is the engine's own, so both clocks differ only in how
the network may be touched and in what counts as standing still."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Protocol

from loomnet.base.units import Time
from loomnet.measures.run_data import Ending, RunData, RunFault
from loomnet.plans.job_request import JobRequest
from loomnet.running.observer import Sending
from loomnet.running.play import Play, PlayClock
from loomnet.running.request import RunRequest
from loomnet.running.traffic import FlowTraffic, as_iterations, start_traffic
from loomnet.running.traffic_contract import Traffic
from loomnet.systems.transport import Notes

NOTHING_SENT = (
    "the job ended and no operation of it used the network, so there is no result; "
    "give it something to send"
)
LOOK_AHEAD_PS = 10**15  # between two looks at traffic that has no end in sight


class TrafficClock(PlayClock, Protocol):
    """What traffic models ask of a clock besides."""

    def traffic_start_ps(self, play: TrafficPlay) -> int:
        """Engine time of the first flow of a job that starts with the run."""
        ...

    def held(self) -> AbstractContextManager[None]:
        """While it lasts no time passes, and the engine's objects may be touched."""
        ...

    def traffic_state(self, traffic: Traffic, since: int) -> tuple[list[tuple[int, int]], bool]:
        """Rank 0's finished iterations as (begin, end) in the engine's time, without the first
        `since`, and whether the job is done."""
        ...


class TrafficPlay(Play):
    """A collective, flows or a graph of tasks."""

    clock: TrafficClock

    def __init__(self, clock: TrafficClock, request: RunRequest, asked: JobRequest) -> None:
        super().__init__(clock, request, asked)
        self._origin = clock.traffic_start_ps(self) + asked.start_ps
        self.traffic: Traffic | None = None  # before prepare()
        self.done = False
        self.progress_ps = 0  # when anything of the job last ended, job time

    def sending_once(self) -> Sending | None:
        traffic = self.traffic
        return traffic if isinstance(traffic, FlowTraffic) and traffic.sends_once else None

    @property
    def payload_moves(self) -> bool:
        """Whether real bytes are moved, which are compared on arrival. Live they cost the engine's
        thread lateness, so lengths are the default."""
        part = self.engine.carrying(self.asked)
        return bool(self.request.options.get("payload", False)) or (
            part is not None and part.has_bytes(self.asked)
        )

    @property
    def origin_ps(self) -> int:
        return self._origin

    @property
    def starts_ps(self) -> int:
        return 0  # the engine starts the flows at their time

    @property
    def arrival_ps(self) -> int:
        return self._origin

    @property
    def over_ps(self) -> int:
        if not self.done or self.traffic is None:
            return self.clock.now_ps
        with self.clock.held():
            return self.traffic.ended_ps

    def prepare(self) -> None:
        self.traffic = start_traffic(
            self.engine,
            self.asked,
            self._origin,
            seed=self.request.seed,
            payload=self.payload_moves,
            jitter=self.request.options.get("jitter"),
        )

    def look(self) -> None:
        assert self.traffic is not None
        found, self.done = self.clock.traffic_state(self.traffic, len(self.iterations))
        self.take(found)

    def take(self, found: list[tuple[int, int]]) -> None:
        """Adds iterations, as (begin, end), that come after those taken before."""
        for iteration in as_iterations(found, self._origin, len(self.iterations)):
            self.progress_ps = max(self.progress_ps, iteration.end_ps)
            self.found(iteration)

    def share(self, counters: Mapping[str, int]) -> float | None:
        total = None if self.traffic is None else self.traffic.payload_total()
        return min(counters["payload"] / total, 1.0) if total else None

    def outcome(self) -> tuple[Ending, str | None] | None:
        if not self.done:
            return None
        with self.clock.held():
            self.errors += self._failures()
        if not (
            self.errors
            or self.asked.stop_ps
            or self.of_compute_alone
            or self.run_counters()["finished"]
        ):
            # No operation ended, so the figures would say nothing. Excepted is a job with a stop=,
            # which may come before it has sent anything.
            self.errors.append(RunFault(self.now(), "job", NOTHING_SENT))
        return ("failed", self.errors[0].message) if self.errors else ("finished", None)

    @property
    def of_compute_alone(self) -> bool:
        """Whether the job's description has nothing to send, as a trace may; a note says so."""
        return self.traffic is not None and self.traffic.payload_total() == 0

    def stop(self) -> None:
        if not self.done and self.traffic is not None:
            with self.clock.held():
                found = self.traffic.iterations(len(self.iterations))
                self.errors += self._failures()
            self.take(found)  # may begin and end phases

    def _failures(self) -> list[RunFault]:
        """The traffic's errors in the job's own time, which starts with the job."""
        assert self.traffic is not None
        return [
            replace(each, at_ps=max(each.at_ps - self._origin, 0)) for each in self.traffic.errors()
        ]

    def fill(self, data: RunData, origin_ps: int) -> None:
        if self.traffic is None:  # the run was ended while it was being prepared
            return
        data.flows = self.traffic.flows().since(origin_ps)
        if isinstance(self.traffic, FlowTraffic):
            with self.clock.held():
                data.timeout_waits = self.traffic.timeout_waits()
        data.experts = self.traffic.experts()
        data.ring_steps = self.traffic.ring_steps(origin_ps)
        data.wrong = self.traffic.wrong() if self.payload_moves else None
        if data.wrong:
            altered = RunFault(data.end_ps, "job", f"{data.wrong} elements arrived altered")
            data.errors.append(altered)
            if data.ended == "finished":
                data.ended, data.reason = "failed", data.errors[0].message

    def notes(self) -> Notes:
        return {} if self.traffic is None else self.traffic.notes()


class VirtualTraffic(TrafficPlay):
    """On the virtual clock, which knows when nothing is left to happen."""

    def __init__(self, clock: VirtualTrafficClock, request: RunRequest, asked: JobRequest) -> None:
        super().__init__(clock, request, asked)
        self.virtual = clock

    @property
    def stall_ps(self) -> int | None:
        stall = self.asked.stall_after
        return None if stall is None else stall.count

    def horizon(self) -> int:
        ahead = max(self.clock.now_ps - self._origin, 0) + LOOK_AHEAD_PS
        if self.stall_ps is not None:
            ahead = min(ahead, self.progress_ps + self.stall_ps)
        return self._origin + ahead

    def trouble(self, stop: str) -> str | None:
        if stop == "looked":
            return None
        idle = self.virtual.idle and not self.request.changes_to_come
        found = self.engine.run_counters(self.asked)
        # The engine knows since when nothing has come: when Python looks must not matter. A flow
        # yet to start and a rank that computes wait for nothing that the network owes.
        quiet_ps = (
            found["quiet_since_ps"] - self._origin if found["working"] or idle else self.now()
        )
        self.progress_ps = max(self.progress_ps, quiet_ps)
        stall = self.stall_ps
        over = stall is not None and self.now() - self.progress_ps >= stall
        if idle and (over or stall is None):
            return (
                f"nothing left to happen at {Time.of(self.now())} and the job is not done"
                f"{self.engine.stall(self.asked)}"
            )
        if stall is not None and over:
            return (
                f"no operation finished for {Time.of(stall)} (stall_timeout); "
                f"the network delivers nothing{self.engine.deadlock()}"
                f"{self.engine.stall(self.asked)}"
            )
        return None


class VirtualTrafficClock(TrafficClock, Protocol):
    @property
    def idle(self) -> bool:
        """Whether nothing is left to happen on the network, and no process is to act on it."""
        ...
