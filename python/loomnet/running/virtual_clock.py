"""The virtual clock: a job on the deterministic event loop, unprivileged, as fast as it goes."""

from __future__ import annotations

import time
from collections.abc import Callable

from loomnet.base.units import Time
from loomnet.jobs.model import TorchJob
from loomnet.measures.run_data import Fidelity, RunData, RunFault
from loomnet.measures.samples import Sampler
from loomnet.processes.interrupts import Interrupts
from loomnet.running.engine import Engine, check_options, model_of
from loomnet.running.request import Progress, RunRequest
from loomnet.running.traffic import FlowTraffic, Traffic, as_iterations, start_traffic
from loomnet.systems.registry import transport

MOST_EVENTS = 500_000  # per call into the engine: about 0.1 s between looks at the keyboard
PROGRESS_S = 0.25


class VirtualRunner:
    """Runs requests on the virtual clock."""

    def describe(self, request: RunRequest) -> str:
        plan = request.plan
        hosts, switches, links = plan.counts
        built = f" ({len(plan.links)} built)" if plan.partial else ""
        return (f"{plan.name}: {hosts} hosts, {plan.planes} planes, {switches} switches, {links} "
                f"links{built}; virtual clock, seed {request.seed}; {request.job.describe()}")

    def run(self, request: RunRequest, on_progress: Callable[[Progress], None]) -> RunData:
        check_options(request.options)
        # SIGTERM and a closed terminal end a run as Ctrl-C does, with a partial report.
        with Interrupts() as interrupts, interrupts.listen():
            if isinstance(request.job, TorchJob):
                from loomnet.running.virtual_torch import VirtualTorchRun

                return VirtualTorchRun(request, on_progress).go()
            return _Run(request, on_progress).go()


class _Run:
    def __init__(self, request: RunRequest, on_progress: Callable[[Progress], None]) -> None:
        self.request, self.on_progress = request, on_progress
        plan, job = request.plan, request.job
        self.sampler = Sampler.of(request.options, plan)
        # A bin of a tenth of the base RTT resolves silences well below any fault's.
        self.model, options, self.labels = model_of(job, request.options, plan)
        self.engine = Engine(plan, transport=self.model, seed=request.seed, options=options,
                             bin_ps=max(plan.base_rtt_ps // 10, 10**6))
        if request.recording is not None:
            request.recording.attach(self.engine)
        self.origin = self.model.start_ps(plan)
        self.traffic: Traffic = start_traffic(
            self.engine, job, request.placement, self.origin,
            payload=self.payload_moves(), seed=request.seed,
            gaps_ps=request.options.get("gaps_ps", ()), jitter=request.options.get("jitter"))
        if isinstance(self.traffic, FlowTraffic):
            # Flows run by themselves: no host hears of another's but by packets.
            self.engine.network.use_lookahead()
        self.counters: dict[str, list[tuple[int, float]]] = {}
        self.seen = self.payload = 0
        self.working = False  # whether a host had an operation under way at the last look
        self.last_progress_ps = 0  # when anything of the job last ended, job time
        self.looked = self.began = time.monotonic()

    def payload_moves(self) -> bool:
        """Whether traffic models move real bytes, which are compared on arrival."""
        return bool(self.request.options.get("payload", False))

    @property
    def network(self):
        return self.engine.network

    def now(self) -> int:
        """Job time."""
        return self.network.now_ps - self.origin

    def go(self) -> RunData:
        ended, reason = "finished", None
        errors: list[RunFault] = []
        try:
            while not self.traffic.done:
                reason = self.advance()
                if reason:
                    ended = "stalled"
                    errors.append(RunFault(self.now(), "job", reason))
                    break
        except KeyboardInterrupt:
            ended, reason = "interrupted", "interrupted"
        errors += self.traffic.errors()
        if wrong := self.traffic.wrong():
            errors.append(RunFault(self.now(), "job", f"{wrong} elements arrived altered"))
        if errors and ended == "finished":
            ended, reason = "failed", errors[0].message
        self.sample()
        return self.collect(ended, reason, errors)

    def advance(self) -> str | None:
        """Runs to the next thing worth a look; why the job must end, or None."""
        request, table = self.request, self.request.timetable
        due = table.next_time()
        horizon = self.now() + 10**15 if due is None else due
        stall = request.stall_after.count if request.stall_after else None
        if stall is not None:
            horizon = min(horizon, self.last_progress_ps + stall)
        if self.sampler is not None:
            horizon = min(horizon, self.sampler.due_ps)
        reached = self.network.run_until(self.origin + horizon, MOST_EVENTS)
        if self.sampler is not None and self.now() >= self.sampler.due_ps:
            self.look(self.sampler)
        if request.recording is not None:
            request.recording.drain()
        self.traffic.poll(self.network.now_ps)
        self.on_iterations()
        due = table.next_time()
        if due is not None and due <= self.now():
            self.sample()
            self.engine.apply(table.advance(self.now()), self.network.now_ps)
        self.report()
        if reached and not self.traffic.done:
            if self.network.next_event_ps >= 2**63 - 1 and table.next_time() is None:
                return f"nothing left to happen at {Time.of(self.now())} and the job is not done"
            payload = self.engine.payload(request.placement)
            # A flow yet to start and a rank that computes wait for nothing that the network owes.
            worked, self.working = self.working, self.engine.working(request.placement)
            if payload > self.payload or not (worked and self.working):
                self.payload, self.last_progress_ps = payload, max(self.now(), 0)
            if stall is not None and self.now() - self.last_progress_ps >= stall:
                return (f"no operation finished for {Time.of(stall)} (stall_timeout); "
                        f"the network delivers nothing{self.engine.deadlock()}")
        if request.max_wall_s and time.monotonic() - self.began > request.max_wall_s:
            return request.wall_reason
        return None

    def on_iterations(self) -> None:
        found = as_iterations(self.traffic.iterations()[self.seen:], self.origin)
        for iteration in found:
            self.seen += 1
            self.last_progress_ps = max(self.last_progress_ps, iteration.end_ps)
            changes = self.request.timetable.on_iteration(self.seen, iteration.start_ps,
                                                          iteration.end_ps)
            if changes:
                self.sample()
                self.engine.apply(changes, self.network.now_ps)

    def sample(self) -> None:
        for name, value in self.engine.figures(self.request.placement).items():
            self.counters.setdefault(name, []).append((max(self.now(), 0), value))

    def look(self, sampler: Sampler) -> None:
        """One sample of queues and senders."""
        senders = self.traffic.senders() if isinstance(self.traffic, FlowTraffic) else {}
        sampler.take(self.now(), self.engine.queued(sampler.halves), senders)

    def report(self) -> None:
        now = time.monotonic()
        if now - self.looked < PROGRESS_S:
            return
        self.looked = now
        found = self.traffic.iterations()
        active = [w.phase for w in self.request.timetable.windows if w.end_ps is None]
        self.on_progress(Progress(
            now=Time.of(max(self.now(), 0)), step=len(found) or None,
            iteration=Time.of(found[-1][1] - found[-1][0]) if found else None,
            phase=active[-1] if active else None))

    def collect(self, ended: str, reason: str | None, errors: list[RunFault]) -> RunData:
        request = self.request
        for host in request.placement:
            self.engine.close_meter(host)
        found = as_iterations(self.traffic.iterations(), self.origin)
        end = max(self.now(), found[-1].end_ps if found else 0)
        self.network.clear()
        fidelity = Fidelity(packets=self.network.packets, unexplained=self.network.leaked,
                            emulated_ps=end, notes={"events": self.network.events, **self.labels,
                                   **self.model.notes(self.engine), **self.traffic.notes()})
        data = RunData(
            ended=ended, end_ps=end,  # type: ignore[arg-type]
            hosts={host: self.engine.series(host, self.origin) for host in request.placement},
            flows=[flow.since(self.origin) for flow in self.traffic.flows()],
            overhead=transport(request.job.transport).overhead, iterations=found,
            samples=self.sampler.samples if self.sampler is not None else None,
            windows=request.timetable.windows, counters=self.counters,
            errors=errors, fidelity=fidelity, totals=self.engine.totals(), reason=reason,
            wrong=self.traffic.wrong() if self.payload_moves() else None,
            directory=request.directory)
        if request.recording is not None:
            request.recording.finish(data, self.origin)
        return data
