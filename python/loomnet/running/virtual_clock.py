"""The virtual clock: jobs on the deterministic event loop, unprivileged, as fast as it goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import loomnet._core as _core
from loomnet.base.errors import PluginError, WallTimeError
from loomnet.base.names import how_many
from loomnet.faults.timetable import Change
from loomnet.jobs.model import TorchJob
from loomnet.measures.observed import Observed
from loomnet.measures.run_data import Fidelity, RunData
from loomnet.measures.samples import Sampler
from loomnet.measures.switch_state import SwitchState
from loomnet.plans.entries import SwitchPlan
from loomnet.plans.job_request import JobRequest
from loomnet.plugins.congestions import failure_of
from loomnet.processes.interrupts import Interrupts
from loomnet.processes.journal import RunLock
from loomnet.running.engine import Engine
from loomnet.running.play import FOREVER, Play
from loomnet.running.request import Progress, RunRequest
from loomnet.running.run_loop import RunLoop
from loomnet.running.run_options import check_options, model_notes
from loomnet.running.traffic import FlowTraffic
from loomnet.running.traffic_contract import Traffic
from loomnet.running.traffic_play import TrafficPlay, VirtualTraffic
from loomnet.systems.controls import by_host
from loomnet.systems.registry import notes_of, transport
from loomnet.systems.transport import Notes

if TYPE_CHECKING:
    from loomnet.running.recording import Recording

T = TypeVar("T")

MOST_EVENTS = 500_000  # per call into the engine: about 0.1 s between looks at the keyboard
LOOK_MS = 50  # wall time between two looks at processes while a rank computes


@contextmanager
def plugins_named() -> Iterator[None]:
    """Around calls of the engine that call congestion controls in Python, or switch programs of C
    files. Raises PluginError, and PluginInterrupted for Ctrl-C in a control, by its name."""
    try:
        yield
    except _core.ProgramFault as error:
        from loomnet.programs.c_file import fault_text

        raise PluginError(fault_text(str(error))) from None
    except _core.PluginError as error:
        raise failure_of(error) from error


class VirtualRunner:
    """Runs requests on the virtual clock."""

    def describe(self, request: RunRequest) -> str:
        plan = request.plan
        hosts, switches, links = plan.counts
        built = f" ({len(plan.links)} built)" if plan.partial else ""
        jobs = "; ".join(each.job.describe() for each in request.jobs)
        return (
            f"{plan.name}: {how_many(hosts, 'host')}, {how_many(plan.planes, 'plane')}, "
            f"{how_many(switches, 'switch', 'switches')}, {how_many(links, 'link')}{built}; "
            f"virtual clock, seed {request.seed}\n{jobs}"
        )

    def run(self, request: RunRequest, on_progress: Callable[[Progress], None]) -> list[RunData]:
        check_options(request.options, [asked.job for asked in request.jobs])
        # SIGTERM and a closed terminal end a run as Ctrl-C does, with a partial report.
        with Interrupts() as interrupts, interrupts.listen(), ExitStack() as stack:
            with plugins_named():
                sampler = Sampler.of(request.options, request.plan)
                clock = VirtualClock(request, stack)
                plays = [clock.play(asked) for asked in request.jobs]
                return RunLoop(request, clock, plays, on_progress, sampler).go()


class VirtualClock:
    """Emulated time of a network in this process. It passes in pass_time() and skip_to() alone."""

    interrupted = "interrupted"
    trouble: str | None = None
    behind: str | None = None

    def __init__(self, request: RunRequest, stack: ExitStack) -> None:
        self.request, plan = request, request.plan
        self.began = time.monotonic()
        jobs = [asked.job for asked in request.jobs]
        self.labels = {} if request.fluid else model_notes(jobs, request.options, plan)
        # A bin of a tenth of the base RTT resolves silences well below any fault's.
        self.engine = Engine(
            plan,
            jobs,
            seed=request.seed,
            options=request.options,
            of_hosts=by_host(request.jobs, request.options),
            parts=request.parts,
            fluid=request.fluid,
            bin_ps=max(plan.base_rtt_ps // 10, 10**6),
        )
        self.network = self.engine.network
        if request.recording is not None:
            request.recording.attach(self.engine)
        self.ranks: Any = None
        self._places = 0
        self._undecided: dict[int, list[int]] = {}  # by a job's first place
        self.lock: Any = None
        if any(isinstance(asked.job, TorchJob) for asked in request.jobs):
            self.lock = stack.enter_context(RunLock())
            self.ranks = _core.VirtualRanks(self.network)

    def play(self, asked: JobRequest) -> Play:
        """The job as this clock plays it."""
        if isinstance(asked.job, TorchJob):
            from loomnet.running.virtual_torch import VirtualTorch  # and all of processes

            return VirtualTorch(self, self.request, asked)
        return VirtualTraffic(self, self.request, asked)

    @property
    def now_ps(self) -> int:
        return self.network.now_ps

    # --- time -------------------------------------------------------------------------------------
    def start(self, plays: Sequence[Play]) -> None:
        if all(
            isinstance(play, TrafficPlay) and isinstance(play.traffic, FlowTraffic)
            for play in plays
        ):
            # Flows run by themselves: no host hears of another's but by packets.
            self.network.use_lookahead()
        self.network.watch_iterations(
            bool(self.request.controllers) or self.request.timetable.counts_iterations
        )

    def check(self) -> None:
        """Raises what a plug-in has raised in an event, or WallTimeError once the run has had its
        wall time."""
        self.engine.plugins.check()
        most = self.request.max_wall_s
        if most is not None and time.monotonic() - self.began > most:
            raise WallTimeError(self.request.wall_reason)

    def pass_time(self, until_ps: int, plays: Sequence[Play]) -> str:
        with plugins_named():
            if self.ranks is None:
                return "reached" if self.network.run_until(until_ps, MOST_EVENTS) else "looked"
            stop = self.ranks.run(until_ps, LOOK_MS)
        return stop if stop in ("reached", "stuck") else "looked"

    def moved(self) -> Collection[int] | None:
        found = self.network.take_moved()
        # Ranks' processes move without a word of the engine's.
        return found if found and self.ranks is None else None

    def skip_to(self, at_ps: int) -> None:
        with plugins_named():
            self.network.run_until(at_ps)

    # --- ranks ------------------------------------------------------------------------------------
    def add_rank(self, bridge: Any, job: int) -> int:
        self.ranks.add(bridge, job)
        self._places += 1
        return self._places - 1

    def others_wait(self, places: list[int], but: list[int]) -> bool:
        others = [place for place in range(self._places) if place not in places]
        return self.ranks.others_wait([*others, *but])

    def may_yet_communicate(self, places: list[int], undecided: list[int]) -> None:
        self._undecided[places[0]] = undecided
        self.ranks.may_yet_communicate(
            [place for each in self._undecided.values() for place in each]
        )

    # --- traffic ----------------------------------------------------------------------------------
    def traffic_start_ps(self, play: TrafficPlay) -> int:
        return self._traffic_start_ps

    @cached_property
    def _traffic_start_ps(self) -> int:
        # Jobs whose `start` is the same begin together, whichever transport takes longest to get
        # ready.
        plan = self.request.plan
        carriers = {
            each.job.transport: self.engine.carrier(each.job) or transport(each.job.transport)
            for each in self.request.jobs
            if not isinstance(each.job, TorchJob)
        }
        return max(each.start_ps(plan) for each in carriers.values())

    def traffic_state(self, traffic: Traffic, since: int) -> tuple[list[tuple[int, int]], bool]:
        traffic.check()
        return traffic.iterations(since), traffic.done

    @contextmanager
    def held(self) -> Iterator[None]:
        yield

    @property
    def idle(self) -> bool:
        return self.network.next_event_ps >= FOREVER and self.ranks is None

    # --- what the run loop asks -------------------------------------------------------------------
    def apply(self, changes: Iterable[Change]) -> None:
        self.engine.apply(changes, self.network.now_ps)

    def operate(self, panel: str, request: Callable[[Any, int], T]) -> T:
        return self.engine.panels.operate(panel, request)[0]

    def forget(self, asked: JobRequest) -> None:
        for switch, tables in self.engine.forget(asked):
            self.network.set_tables(self.engine.node(switch.number), tables)

    def run_counters(self, asked: JobRequest) -> dict[str, int]:
        return self.engine.run_counters(asked)

    def queued(self, halves: Iterable[int]) -> list[int]:
        return self.engine.queued(halves)

    def carried(self, halves: Iterable[int]) -> list[int]:
        return self.engine.carried(halves)

    def probe(self, probe: _core.FlowProbe) -> Any:
        with plugins_named():
            return probe.take()

    def fill(self, observed: Observed, origin_ps: int) -> None:
        pass  # an Observer has read all there is

    def senders(self, plays: Sequence[Play]) -> Mapping[int, tuple[int, int, int, int]]:
        found: dict[int, tuple[int, int, int, int]] = {}
        for play in plays:
            if isinstance(play, TrafficPlay) and isinstance(play.traffic, FlowTraffic):
                found |= play.traffic.senders()
        return found

    def count_from(self, origin_ps: int) -> None:
        if self.request.recording is not None:
            self.request.recording.recorder.set_zero(origin_ps)

    def drain(self, recording: Recording) -> None:
        recording.drain()

    def finish(self) -> None:
        self.engine.close_meters(self.request.jobs)
        self.network.clear()
        self.engine.stand()

    def switch_state(self, switch: SwitchPlan) -> SwitchState:
        return self.engine.switch_state(switch)

    def switch_columns(self, switch: SwitchPlan, names: Sequence[str]) -> list[Any]:
        return self.engine.switch_columns(switch, names)

    def totals(self) -> dict[str, dict[str, int]]:
        return self.engine.totals()

    def fidelity(self, lead: Play, plays: Sequence[Play]) -> Fidelity:
        notes: Notes = {} if self.ranks else {"events": self.network.events}
        notes |= {**self.labels, **self.engine.transport_notes()}
        for play in plays:
            notes |= play.notes()
        notes |= notes_of(self.engine.parts)
        return Fidelity(
            packets=self.network.packets,
            unexplained=self.network.leaked,
            emulated_ps=lead.length_ps,
            notes=notes,
        )

    @property
    def deterministic(self) -> bool:
        return self.ranks is None or not self.ranks.wall_paced_ps
