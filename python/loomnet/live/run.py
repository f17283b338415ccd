"""The live clock: Mininet namespaces, XDP switches, AF_XDP, real ranks. One run from bring-up to
nothing left behind."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np  # noqa: F401  (what the engine's counters come in: no import after Ctrl-C)

from loomnet.base.errors import UnavailableError, UsageError, WallTimeError
from loomnet.base.units import Time
from loomnet.jobs.model import TorchJob
from loomnet.live import doctor
from loomnet.live.budget import PASSES_PER_SECOND, offered_by
from loomnet.live.kernel_flows import KernelFlows
from loomnet.live.kernel_tcp import KernelTcp
from loomnet.live.network import LiveNetwork, check_plan, require_live
from loomnet.live.nodes import HOST_INTERFACE, MANAGEMENT_INTERFACE
from loomnet.measures.run_data import Fidelity, RunData, RunFault
from loomnet.measures.samples import Sampler
from loomnet.plans.model import Plan
from loomnet.processes.interrupts import Interrupts
from loomnet.processes.journal import RunLock
from loomnet.running.engine import Engine, check_options, figures_of
from loomnet.running.request import Progress, RunRequest
from loomnet.running.torch_ranks import RankJob, environment_of_ranks
from loomnet.running.traffic import CollectiveTraffic, Traffic, as_iterations, start_traffic
from loomnet.systems.registry import transport

# Between two looks at ranks, timetable and keyboard: a fault at a step starts so much late at most.
POLL_S = 0.01
PROGRESS_S = 0.25
LEAST_SAMPLE_PS = 10**9  # wall time: who looks more often has no time for packets
START_PS = 500 * 10**9  # traffic models begin so long after the clock: base RTTs are measured first
GLOO_PORT = 29500
# Wall time from the last rank's goodbye to its end. A framework's exit takes a second of CPU, at
# nice 10 on a busy machine many of the clock's: that is no stall of the job.
EXIT_S = 60.0
_SOCKET_DROPS = ("foreign", "malformed", "too_long", "umem_dry", "tx_ring_full", "no_port")


class LiveRunner:
    """Runs requests on the live clock. Needs root."""

    def describe(self, request: RunRequest) -> str:
        self.check(request)
        plan = request.plan
        load = offered_by(request)
        return (f"{plan.name}: {len(plan.hosts)} hosts, {plan.planes} planes, "
                f"{_switches(plan)}, {len(plan.links)} links; live, D = {request.dilation:g}; "
                f"offered load {load / request.dilation / 1000:.0f} k of "
                f"{PASSES_PER_SECOND / 1000:.0f} k switch passes/s; "
                f"{request.job.describe()}{_expected_wall(request)}")

    def check(self, request: RunRequest) -> None:
        check_options(request.options)
        KernelTcp.wanted_by(request)
        sampler = Sampler.of(request.options, request.plan)
        if sampler is not None and sampler.samples.every_ps * request.dilation < LEAST_SAMPLE_PS:
            raise UsageError(f"run: sample={Time.of(sampler.samples.every_ps)}: live, two looks "
                             f"are {Time.of(LEAST_SAMPLE_PS)} of wall time or more apart")
        check_plan(request.plan)
        load = offered_by(request) / request.dilation
        if load > PASSES_PER_SECOND and not request.options.get("over_budget"):
            raise UsageError(
                f"offered load of {load:,.0f} switch passes/s is over this machine's budget of "
                f"{PASSES_PER_SECOND:,}; lower the rate, or run at dilation="
                f"{load / PASSES_PER_SECOND * request.dilation:.1f} or more")
        require_live()

    def run(self, request: RunRequest, on_progress: Callable[[Progress], None]) -> RunData:
        self.check(request)
        os.environ["PATH"] = doctor.tool_path()  # Mininet ends the process without its tools
        with Interrupts() as interrupts:
            with contextlib.ExitStack() as stack:
                try:
                    run = _Run(request, on_progress, stack, interrupts)
                except WallTimeError as over:
                    raise WallTimeError(f"{over} before the live network was there") from None
                # SystemExit: Mininet ends the process where a tool it calls did not answer.
                except (OSError, RuntimeError, SystemExit) as error:
                    interrupts.check()  # Ctrl-C reaches what bring-up started, too
                    raise UnavailableError(doctor.cannot_start(error)) from error
                data = run.go()
            if interrupts.pending and data.ended != "interrupted":  # on the way down
                data.ended, data.reason = "interrupted", interrupts.pending
        return data


def _switches(plan: Plan) -> str:
    """How many switches, by placement."""
    kernel = sum(switch.in_kernel for switch in plan.switches)
    engine = len(plan.switches) - kernel  # type: ignore[arg-type]
    words = [f"{kernel} XDP switches"] if kernel or not engine else []
    return " and ".join([*words, *([f"{engine} switches in the engine"] if engine else [])])


def _expected_wall(request: RunRequest) -> str:
    until = getattr(request.job, "until", None)
    if until is None:
        return ""
    return f"; about {until.seconds * request.dilation + 15:.0f} s"


class _Run:
    """One live run; everything it makes is on the stack and goes in reverse order."""

    def __init__(self, request: RunRequest, on_progress: Callable[[Progress], None],
                 stack: contextlib.ExitStack, interrupts: Interrupts) -> None:
        self.looked = self.began = time.monotonic()
        self.request, self.on_progress = request, on_progress
        self.interrupts = interrupts
        self.plan, self.job, self.table = request.plan, request.job, request.timetable
        self.lock = stack.enter_context(RunLock())
        self.tcp = KernelTcp.wanted_by(request)
        self.transport = transport(self.job.transport)
        own = None if self.transport.by_kernel else self.transport
        self.engine = Engine(self.plan, transport=own, seed=request.seed, live=True,
                             options=dict(request.options.get(self.job.transport, {})))
        self.sampler = Sampler.of(request.options, self.plan)
        if request.recording is not None:
            request.recording.attach(self.engine, live=True)
        recording = request.recording
        self.network = LiveNetwork(
            stack, self.lock, self.engine, dilation=request.dilation, tcp=self.tcp,
            recorder=None if recording is None else recording.recorder, look=self._check)
        self.glue, self.live = self.network.glue, self.network.live
        self.ranks: RankJob | None = None
        self.traffic: Traffic | None = None
        self.kernel_flows: KernelFlows | None = None
        self.counters: dict[str, list[tuple[int, float]]] = {}
        self.errors: list[RunFault] = []
        self.iterations: list[Any] = []
        self.last_progress_ps = 0
        self.works = self.payload = 0
        self.left: float | None = None  # wall time at which all ranks had left the network

    # --- the run ----------------------------------------------------------------------------------
    def go(self) -> RunData:
        ended, reason = "finished", None
        try:
            self._start()
            ended, reason = self._watch()
        except WallTimeError as over:
            ended, reason = self._stalled(f"{over} before all of the job was started")
        except KeyboardInterrupt:
            ended, reason = "interrupted", self.interrupts.pending or "Ctrl-C"
        finally:
            if self.ranks is not None:
                self.ranks.stop(0.2 if ended == "interrupted" else 1.0)
            if self.kernel_flows is not None:
                self.kernel_flows.stop()
        return self._collect(ended, reason)

    def _start(self) -> None:
        if isinstance(self.job, TorchJob):
            self.ranks = RankJob(self.engine, self.request)
            for bridge in self.ranks.bridges:
                self.live.add_rank(bridge)
            self.live.start()
            self.ranks.launch(self.glue, master_port=GLOO_PORT, environment={
                # Gloo binds to the interface that holds fd00::<host> and nothing else.
                "GLOO_SOCKET_IFNAME": HOST_INTERFACE,
                # RPC is no modelled traffic, so it goes where rendezvous goes. By the host's name
                # TensorPipe would find an address of the machine, which no host here has.
                "TP_SOCKET_IFNAME": MANAGEMENT_INTERFACE,
                "LOOMNET_DILATION": str(self.request.dilation), **environment_of_ranks(),
            }, look=self._check)
        elif self.tcp is not None:
            live = self.live
            self.kernel_flows = KernelFlows(self.glue, self.request, self.tcp, lambda: live.now_ps)
            self.live.start()
            self.kernel_flows.connect(self.sampler, self._check)
        else:
            # Traffic models run on the engine's own thread: real bytes, made and compared there,
            # cost it lateness, so lengths are the default. Ranks always move real bytes.
            self.traffic = start_traffic(
                self.engine, self.job, self.request.placement, START_PS, seed=self.request.seed,
                payload=self.payload_moves,
                gaps_ps=self.request.options.get("gaps_ps", ()),
                jitter=self.request.options.get("jitter"))
            self.live.start()

    @property
    def payload_moves(self) -> bool:
        """Whether traffic models move real bytes, which are compared on arrival."""
        return bool(self.request.options.get("payload", False))

    @property
    def origin(self) -> int | None:
        if self.ranks is not None:
            return self.ranks.origin_ps
        if self.kernel_flows is not None:
            return self.kernel_flows.origin_ps
        return START_PS

    def now(self) -> int:
        """Job time; 0 before its first iteration."""
        origin = self.origin
        return 0 if origin is None else max(self.live.now_ps - origin, 0)

    def _watch(self) -> tuple[str, str | None]:
        while True:
            # Asked for, not raised by the handler wherever it falls: between a lock and its `try`
            # (subprocess's poll of a node's shell has one) it would hang the way down.
            self.interrupts.check()
            verdict = self._look()
            if verdict is not None:
                return verdict
            self._timetable()
            self._look_at_queues()
            self._progress()
            self._drain()
            wait = self._until_next_look()
            if self.ranks is not None:
                if self.ranks.ended(wait):
                    self._on_ended()
            else:
                time.sleep(wait)

    def _until_next_look(self) -> float:
        """Wall seconds: POLL_S, or less where a change or a sample is due before."""
        dues = (self.table.next_time(), self.sampler.due_ps if self.sampler else None)
        due = min((due for due in dues if due is not None), default=None)
        if due is None or self.origin is None:
            return POLL_S
        ahead = (due - self.now()) / 1e12 * self.request.dilation
        return min(max(ahead, 0.0), POLL_S)

    def _on_ended(self) -> None:
        assert self.ranks is not None and self.ranks.group is not None
        for rank in self.ranks.group.ranks:
            number = rank.spec.rank
            if rank.status is None or number in self.ranks.told_gone:
                continue
            self._tell_gone(self.ranks, number, self.ranks.gone_reason(number))

    def _tell_gone(self, ranks: RankJob, gone: int, reason: str) -> None:
        """Tells the other ranks, once."""
        ranks.told_gone.add(gone)
        for peer, bridge in enumerate(ranks.bridges):
            if peer != gone:
                self.live.tell(bridge, "peer_gone", gone, reason)

    def _look(self) -> tuple[str, str | None] | None:
        """Takes in what happened; how the run ends, or None."""
        if trouble := self.glue.trouble():
            self.errors.append(RunFault(self.now(), "run", trouble))
            return "failed", trouble
        if self.ranks is not None:
            ended = self._look_at_ranks()
        elif self.kernel_flows is not None:
            ended = self._look_at_kernel_flows(self.kernel_flows)
        else:
            ended = self._look_at_traffic()
        if ended is not None:
            return ended
        stall = None if self._leaving() else self.request.stall_after
        if stall and self.now() - self.last_progress_ps > stall.count // 4:
            # Bytes that arrive are progress, long before an operation ends.
            found = self.live.run_counters(list(self.request.placement))
            payload = found["payload"]
            # A flow that is yet to start waits for nothing that the network owes.
            if payload > self.payload or (self.traffic is not None and not found["working"]):
                self.payload, self.last_progress_ps = payload, self.now()
        if stall and self.origin is not None and self.now() - self.last_progress_ps > stall.count:
            return self._stalled(
                f"no operation finished and no payload arrived for {stall} (stall_timeout)"
                f"{self.ranks.departed if self.ranks is not None else ''}")
        if self.left is not None and time.monotonic() - self.left > EXIT_S:
            return self._stalled(f"ranks have left the network but not ended for {EXIT_S:g} s")
        if self._wall_is_over():
            return self._stalled(self.request.wall_reason)
        return None

    def _wall_is_over(self) -> bool:
        most = self.request.max_wall_s
        return most is not None and time.monotonic() - self.began > most

    def _check(self) -> None:
        """Between two steps of what the run starts: raises KeyboardInterrupt or WallTimeError."""
        self.interrupts.check()
        if self._wall_is_over():
            raise WallTimeError(self.request.wall_reason)

    def _stalled(self, reason: str) -> tuple[str, str | None]:
        self.errors.append(RunFault(self.now(), "job", reason))
        return "stalled", reason

    def _leaving(self) -> bool:
        """Whether all that is awaited is the ranks' exit."""
        if self.left is None and self.ranks is not None and self.ranks.left:
            self.left = time.monotonic()
        return self.left is not None

    def _look_at_ranks(self) -> tuple[str, str | None] | None:
        assert self.ranks is not None
        ranks = self.ranks
        finished, unfinished = 0, []
        for number, (marks, works, _, count, name, fault) in enumerate(
                self.live.look(ranks.bridges)):
            unfinished.append((count, name))
            for iteration in ranks.take(number, marks):
                self._on_iteration(iteration)
            finished += works
            if fault and number not in ranks.told_gone:
                self.errors.append(RunFault(self.now(), f"rank {number}", f"cut off: {fault}"))
                self._tell_gone(ranks, number, "cut off")
        if finished > self.works:
            self.works, self.last_progress_ps = finished, self.now()
        until = self.job.until  # type: ignore[attr-defined]
        if until is not None and not ranks.stopping and self.now() >= until.count:
            step = ranks.stop_step()
            for bridge in ranks.bridges:
                self.live.stop_at(bridge, step)
        if ranks.failed:
            self.errors.append(ranks.failure(self.now()))
            return "failed", ranks.reason(self.errors)
        if not ranks.running:
            if not self.errors:
                self.errors = ranks.unfinished(unfinished, self.now())
            return ("failed", ranks.reason(self.errors)) if self.errors else ("finished", None)
        return None

    def _look_at_queues(self) -> None:
        sampler = self.sampler
        if sampler is not None and self.origin is not None and self.now() >= sampler.due_ps:
            # Senders report by themselves.
            sampler.take(self.now(), self.live.queued(self.engine.halves(sampler.halves)), {})

    def _look_at_kernel_flows(self, flows: KernelFlows) -> tuple[str, str | None] | None:
        flows.poll()
        assert flows.origin_ps is not None
        for iteration in as_iterations(flows.iterations(), flows.origin_ps)[len(self.iterations):]:
            self._on_iteration(iteration)
        if not flows.done:
            return None
        self.errors += flows.errors()
        return ("failed", self.errors[0].message) if self.errors else ("finished", None)

    def _look_at_traffic(self) -> tuple[str, str | None] | None:
        assert self.traffic is not None
        if isinstance(self.traffic, CollectiveTraffic):
            found, done = self.live.collective_state(self.traffic.core)
        elif not self.live.flows_done(self.traffic.core):
            return None
        else:
            self.live.pause()  # between two rounds: nothing is on its way
            try:
                self.traffic.poll(self.engine.network.now_ps)
                found, done = self.traffic.iterations(), self.traffic.done
            finally:
                self.live.resume()
        for iteration in as_iterations(found, START_PS)[len(self.iterations):]:
            self._on_iteration(iteration)
        if not done:
            return None
        self.network.captures.close()  # their threads reach the network through the loop
        self.live.stop()
        faults = self.traffic.errors()
        self.errors += faults
        return ("failed", faults[0].message) if faults else ("finished", None)

    def _on_iteration(self, iteration: Any) -> None:
        self.iterations.append(iteration)
        self.last_progress_ps = max(self.last_progress_ps, iteration.end_ps)
        self.network.apply(
            self.table.on_iteration(iteration.number, iteration.start_ps, iteration.end_ps))

    # --- faults -----------------------------------------------------------------------------------
    def _timetable(self) -> None:
        due = self.table.next_time()
        if self.origin is not None and due is not None and due <= self.now():
            self._sample()
            self.network.apply(self.table.advance(self.now()))

    def _drain(self) -> None:
        recording = self.request.recording
        if recording is not None:
            recording.drain(lambda number: self.live.take_capture(
                self.network.recorder, number))

    # --- reports ----------------------------------------------------------------------------------
    def _sample(self) -> dict[str, int]:
        found = self.live.run_counters(list(self.request.placement))
        at = self.now()
        if self.kernel_flows is not None:
            found["retransmitted"] = sum(self.kernel_flows.retransmitted)
        for name, value in figures_of(found, self.transport).items():
            self.counters.setdefault(name, []).append((at, value))
        return found

    def _progress(self) -> None:
        wall = time.monotonic()
        if wall - self.looked < PROGRESS_S:
            return
        self.looked = wall
        found = self._sample()
        if self.ranks is not None:
            self.ranks.read_log()
        lines = self.ranks.lines if self.ranks is not None else []
        self.on_progress(Progress.of(self.now(), self.iterations, self.table, found, lines))

    def _collect(self, ended: str, reason: str | None) -> RunData:
        end = self.now()
        if self.origin is not None:
            self._sample()
        if self.ranks is not None:
            for number, (marks, *_) in enumerate(self.live.look(self.ranks.bridges)):
                self.iterations += self.ranks.take(number, marks)
            self.ranks.read_log(to_end=True)
        self.network.captures.close()
        self.live.stop()
        totals = self.engine.totals()
        for switch in filter(lambda each: each.in_kernel, self.plan.switches):
            row = {name: n for name, n in self.live.switch_counters(switch.number).items() if n}
            if row:
                totals[f"switch {switch.name}"] = row
        for host in self.request.placement:
            self.engine.network.close_meter(host)
        origin = self.origin or 0
        hosts = {host: self.engine.series(host, origin) for host in self.request.placement}
        wrong, flows = None, []
        traffic = self.kernel_flows or self.traffic
        if traffic is not None:
            flows = [flow.since(origin) for flow in traffic.flows()]
        if self.kernel_flows is not None:
            hosts = self.kernel_flows.series(hosts, end)
        if self.traffic is not None and self.payload_moves:
            wrong = self.traffic.wrong()
        if wrong:
            self.errors.append(RunFault(end, "job", f"{wrong} elements arrived altered"))
        self.live.close()
        # What reached the engine's own sockets and was no packet of this run, or found no room.
        loop = self.live.fidelity()["counters"]
        totals["engine sockets"] = {
            f"drop_{name}" if name in _SOCKET_DROPS else name: n for name, n in loop.items() if n}
        data = RunData(
            ended=ended, end_ps=end, hosts=hosts, iterations=self.iterations,  # type: ignore[arg-type]
            flows=flows, overhead=self.transport.overhead, wrong=wrong, windows=self.table.windows,
            counters=self.counters, log=self.ranks.log() if self.ranks else [], errors=self.errors,
            fidelity=self._fidelity(end), totals=totals, reason=reason, deterministic=False,
            directory=self.request.directory,
            samples=self.sampler.samples if self.sampler is not None else None)
        if self.ranks is not None:
            data.unequal_hashes = self.ranks.unequal_hashes()
        if self.request.recording is not None:
            self.request.recording.finish(data, origin)
        return data

    def _hosts_behind(self) -> str | None:
        return None if self.kernel_flows is None else self.kernel_flows.fell_behind

    def _fidelity(self, end: int) -> Fidelity:
        raw = self.live.fidelity()
        # Where no packet came out of the kernel, the loop's own lateness is that of every packet.
        late = raw["lateness"] if raw["lateness"]["count"] else raw["event_lateness"]
        notes = {name: raw[name] for name in
                 ("scheduling", "passes", "longest_pass_ps", "given", "returned", "switch_drops",
                  "own_losses", "verdict")}
        notes["event_lateness_p99_ps"] = raw["event_lateness"]["p99_ps"]
        if any(not switch.in_kernel for switch in self.plan.switches):
            notes["placement"] = _switches(self.plan)
        if self.tcp is not None:
            notes[self.job.transport] = self.tcp.note()
        if self.engine.transport is not None:
            notes |= self.engine.transport.notes(self.engine)
        if self.traffic is not None:
            notes |= self.traffic.notes()
        return Fidelity(
            lateness_p50_ps=late["p50_ps"], lateness_p99_ps=late["p99_ps"],
            lateness_max_ps=late["max_ps"], packets=self.engine.network.packets,
            unexplained=raw["unexplained"] + self.engine.network.leaked,
            fell_behind=raw["reason"] or self._hosts_behind(), dilation=self.request.dilation,
            emulated_ps=end, notes=notes)

