"""The live clock: emulated time is wall time over the dilation, and the engine's loop runs on a
thread of its own."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import loomnet._core as _core
from loomnet.base.errors import PluginError, WallTimeError
from loomnet.base.names import how_many
from loomnet.faults.timetable import Change
from loomnet.jobs.model import TorchJob
from loomnet.live import direct_panels
from loomnet.live.kernel_flows_play import KernelFlowsPlay
from loomnet.live.kernel_tcp import KernelTcp
from loomnet.live.lateness import LatenessLog, RunQueues, blame, stolen_s, waits
from loomnet.live.machine_budget import budget, contradict
from loomnet.live.network import LiveNetwork
from loomnet.live.pace import Pace
from loomnet.live.plays import LiveTorch, LiveTraffic
from loomnet.live.steering import Steering
from loomnet.measures.observed import Observed
from loomnet.measures.run_data import Fidelity, ProcessorWait
from loomnet.measures.samples import Sampler
from loomnet.measures.switch_state import SwitchState
from loomnet.plans.entries import SwitchPlan
from loomnet.plans.job_request import JobRequest
from loomnet.plans.model import Plan
from loomnet.processes.interrupts import Interrupts
from loomnet.processes.journal import RunLock
from loomnet.programs.c_file import fault_text
from loomnet.running.engine import Engine
from loomnet.running.model_traffic import ModelTraffic
from loomnet.running.play import Play
from loomnet.running.recording import Recording
from loomnet.running.request import RunRequest
from loomnet.running.traffic import CollectiveTraffic, FlowTraffic
from loomnet.running.traffic_contract import Traffic
from loomnet.running.traffic_play import TrafficPlay
from loomnet.systems.controls import by_host
from loomnet.systems.registry import notes_of, transport
from loomnet.systems.transport import START_RTTS

T = TypeVar("T")

# Between two looks at ranks, timetable and keyboard: a fault at a step starts so much late at most.
POLL_S = 0.01
# Between two looks at whether what the run stands on lives: each reads files of /proc, and a
# hundred looks a second took a tenth of a core.
_GLUE_S = 0.25
# Traffic models begin so much wall time after the clock, and no sooner than base RTTs are measured.
START_PS = 500 * 10**9
_NEVER_LATE = {"p50_ps": 0, "p99_ps": 0, "max_ps": 0}
_SOCKET_DROPS = ("foreign", "malformed", "too_long", "umem_dry", "tx_ring_full", "no_port")


class LiveClock:
    """A network on this machine. Everything it makes is on the stack and goes in reverse order.

    Raises OSError, RuntimeError or SystemExit where the machine refused something.
    """

    deterministic = False

    def __init__(
        self, request: RunRequest, stack: contextlib.ExitStack, interrupts: Interrupts
    ) -> None:
        self.began = time.monotonic()
        self.stolen_before = stolen_s()
        self.request, self.plan, self.interrupts = request, request.plan, interrupts
        self.lock = stack.enter_context(RunLock())
        self.tcp = KernelTcp.wanted_by(request)
        self.steering: Steering | None = None
        if self.tcp is not None and self.tcp.steered is not None:
            self.steering = stack.enter_context(
                Steering(
                    self.lock,
                    self.tcp.steered,
                    self.tcp.options,
                    record="observe" in request.options,
                )
            )
            self.tcp = replace(self.tcp, cc=self.steering.name)
        self.engine = Engine(
            self.plan,
            [asked.job for asked in request.jobs],
            live=True,
            options=request.options,
            of_hosts=by_host(request.jobs, request.options),
            seed=request.seed,
            parts=request.parts,
            dilation=request.dilation,
        )
        for asked in request.jobs:
            if transport(asked.job.transport).by_kernel:
                self.engine.kernel_traffic_is_of(asked)
        recording = request.recording
        if recording is not None:
            recording.attach(self.engine, live=True)
        self.network = LiveNetwork(
            stack,
            self.lock,
            self.engine,
            dilation=request.dilation,
            tcp=self.tcp,
            recorder=None if recording is None else recording.recorder,
            look=self.check,
        )
        self.glue, self.live = self.network.glue, self.network.live
        with self.held():  # `loomnet capture` asks from now on
            self.network.recorder.set_zero(None)
        self.requests = self.network.faces.requests
        self.lateness = LatenessLog(self.live)
        self.run_queues: RunQueues | None = None  # from the loop's start on
        self.summed_waits: list[ProcessorWait] = []
        self.pace = Pace(self.live, budget(), self.network.lateness_bound_ps, request.dilation)
        self.late: str | None = None  # why the run was ended early
        self.zero_ns = 0  # CLOCK_MONOTONIC at the engine's time 0, where dilation is 1
        self._glue_due = 0.0  # when the next look at the glue is due
        self._totals: dict[str, dict[str, int]] = {}

    def play(self, asked: JobRequest, sampler: Sampler | None) -> Play:
        """The job as this clock plays it."""
        if isinstance(asked.job, TorchJob):
            return LiveTorch(self, self.request, asked)
        if self.tcp is not None and transport(asked.job.transport).by_kernel:
            return KernelFlowsPlay(self, self.request, asked, self.tcp, sampler)
        return LiveTraffic(self, self.request, asked)

    # --- time -------------------------------------------------------------------------------------
    @property
    def now_ps(self) -> int:
        return self.live.now_ps

    def start(self, plays: Sequence[Play]) -> None:
        self.live.start()
        self.zero_ns = time.monotonic_ns() - self.now_ps // 1000
        self.run_queues = RunQueues(self.live.thread_id)

    def check(self) -> None:
        """Between two steps of what a run starts: raises KeyboardInterrupt or WallTimeError."""
        self.interrupts.check()
        most = self.request.max_wall_s
        if most is not None and time.monotonic() - self.began > most:
            raise WallTimeError(self.request.wall_reason)

    def pass_time(self, until_ps: int, plays: Sequence[Play]) -> str:
        # Asked for, not raised by the handler wherever it falls: between a lock and its `try`
        # (subprocess's poll of a node's shell has one) it would hang the way down.
        self.interrupts.check()
        ahead_s = (until_ps - self.now_ps) / 1e12 * self.request.dilation
        wait_s = min(max(ahead_s, 0.0), POLL_S)
        ranks = next((play for play in plays if isinstance(play, LiveTorch)), None)
        if self.plan.panels:
            self.requests.wait(wait_s)
            self.requests.serve(self.operate)
            wait_s = 0.0
        if ranks is not None:
            ranks.wait(wait_s)
        elif not self.plan.panels:
            time.sleep(wait_s)
        return "looked"

    def moved(self) -> None:
        return None

    def skip_to(self, at_ps: int) -> None:
        raise AssertionError("the wall clock goes by itself")

    @property
    def interrupted(self) -> str:
        return self.interrupts.pending or "Ctrl-C"

    @property
    def trouble(self) -> str | None:
        if fault := self.live.program_fault():
            raise PluginError(fault_text(fault))
        if time.monotonic() < self._glue_due:
            return None
        self._glue_due = time.monotonic() + _GLUE_S
        return self.glue.trouble()

    @property
    def behind(self) -> str | None:
        if self.late is None and not self.request.options.get("over_budget"):
            self.late = self.pace.look()
        return self.late

    # --- traffic ----------------------------------------------------------------------------------
    def traffic_start_ps(self, play: TrafficPlay) -> int:
        measured = self.plan.base_rtt_ps * START_RTTS
        return min(START_PS, max(round(START_PS / self.request.dilation), measured))

    def held(self) -> contextlib.AbstractContextManager[None]:
        return self.network.held()

    def traffic_state(self, traffic: Traffic, since: int) -> tuple[list[tuple[int, int]], bool]:
        if isinstance(traffic, (CollectiveTraffic, FlowTraffic, ModelTraffic)):
            found, done = self.live.traffic_state(traffic.core, since)
            return found.tolist(), done
        if not self.live.graph_done(traffic.core):
            return [], False
        with self.held():
            return traffic.iterations(since), traffic.done

    # --- what the run loop asks -------------------------------------------------------------------
    def apply(self, changes: Iterable[Change]) -> None:
        changes = list(changes)
        self.lateness.look(changes)
        self.network.apply(changes)

    def operate(self, panel: str, request: Callable[[Any, int], T]) -> T:
        return self.network.operate(panel, request)

    def forget(self, asked: JobRequest) -> None:
        self.network.forget(asked)

    def run_counters(self, asked: JobRequest) -> dict[str, int]:
        return self.live.run_counters(self.engine.nodes(asked.hosts), asked.number)

    def queued(self, halves: Iterable[int]) -> list[int]:
        return self.live.queued(self.engine.halves(halves))

    def carried(self, halves: Iterable[int]) -> list[int]:
        return self.live.carried(self.engine.halves(halves))

    def probe(self, probe: _core.FlowProbe) -> Any:
        return self.live.take(probe)

    def fill(self, observed: Observed, origin_ps: int) -> None:
        if self.steering is None:
            return
        hosts = {os.fstat(h.netns).st_ino: name for name, h in self.glue.hosts.items()}
        self.steering.fill(observed, hosts, self.zero_ns + origin_ps // 1000)  # at dilation 1

    def senders(self, plays: Sequence[Play]) -> Mapping[int, tuple[int, int, int, int]]:
        return {}  # the hosts' agents report theirs

    def count_from(self, origin_ps: int) -> None:
        with self.held():
            self.network.recorder.set_zero(origin_ps)

    def drain(self, recording: Recording) -> None:
        recording.drain(lambda number: self.live.take_capture(self.network.recorder, number))

    def finish(self) -> None:
        self.network.faces.close()
        self.network.captures.close()  # their threads reach the network through the loop
        if self.run_queues is not None:
            self.summed_waits = self.run_queues.waits()
        self.live.stop()
        if self.steering is not None:
            self.steering.stop()
        self.lateness.close()  # with the packets that came back while the loop ended
        totals = self.engine.totals()
        for switch in filter(lambda each: each.in_kernel, self.plan.switches):
            counters = self.live.switch_counters(self.engine.node(switch.number))
            if row := {name: n for name, n in counters.items() if n}:
                totals[f"switch {switch.name}"] = row
        totals |= self.network.panel_totals()
        self.engine.close_meters(self.request.jobs)
        self.live.close()
        # What reached the engine's own sockets and was no packet of this run, or found no room.
        loop = self.live.fidelity()["counters"]
        totals["engine sockets"] = {
            f"drop_{name}" if name in _SOCKET_DROPS else name: n for name, n in loop.items() if n
        }
        self._totals = totals

    def switch_state(self, switch: SwitchPlan) -> SwitchState:
        return self.network.switch_state(switch)

    def switch_columns(self, switch: SwitchPlan, names: Sequence[str]) -> list[Any]:
        return self.network.switch_columns(switch, names)

    def totals(self) -> dict[str, dict[str, int]]:
        return self._totals

    def fidelity(self, lead: Play, plays: Sequence[Play]) -> Fidelity:
        raw = self.live.fidelity()
        # Where no packet came out of the kernel, the loop's own lateness is that of every packet.
        stages = raw["stages"]
        # Where the kernel alone carries the frames, no stage of the engine has anything.
        late = stages.get("packet") or stages.get("engine") or _NEVER_LATE
        notes = {
            name: raw[name]
            for name in (
                "scheduling",
                "passes",
                "longest_pass_ps",
                "given",
                "returned",
                "switch_drops",
                "own_losses",
                "verdict",
            )
        }
        notes["event_lateness_p99_ps"] = stages.get("engine", _NEVER_LATE)["p99_ps"]
        held = self.summed_waits if raw["waits_missing"] else waits(raw)
        if self.pace.most_per_s:
            notes["load"] = self.pace.counted
        if (doubt := self.pace.against_the_budget()) is not None:
            contradict(doubt)
        notes["waits"] = blame(held, time.monotonic() - self.began, stolen_s() - self.stolen_before)
        if self.plan.panels or any(not switch.in_kernel for switch in self.plan.switches):
            notes["placement"] = switches_text(self.plan)
        notes |= direct_panels.note(self.plan)
        notes |= carrier_notes(raw)
        for play in plays:
            if self.tcp is not None and play.transport.by_kernel:
                notes[play.transport.name] = self.tcp.note()
        notes |= self.engine.transport_notes()
        for play in plays:
            notes |= play.notes()
        notes |= notes_of(self.engine.parts)
        behind = [play.fell_behind for play in plays if play.fell_behind]
        if self.steering is not None:
            notes |= self.steering.notes()
            behind += [late for late in (self.steering.fell_behind,) if late]
        return Fidelity(
            lateness_p50_ps=late["p50_ps"],
            lateness_p99_ps=late["p99_ps"],
            lateness_max_ps=late["max_ps"],
            packets=self.engine.network.packets,
            unexplained=raw["unexplained"] + self.engine.network.leaked,
            fell_behind=self.late or raw["reason"] or next(iter(behind), None),
            dilation=self.request.dilation,
            emulated_ps=lead.length_ps,
            notes=notes,
            stages=self.lateness.rows,
            waits=held,
        )


def carrier_notes(raw: Mapping[str, Any]) -> dict[str, int]:
    """Changes of circuits that took carriers from hosts, `carriers_down`, or brought them, and
    the wall time from the change of light until the kernel had changed all of them, in ps."""
    found = {}
    for name in ("carriers_down", "carriers_up"):
        if raw[name]["count"]:
            found[f"{name}_changes"] = raw[name]["count"]
            found |= {f"{name}_{key}": raw[name][key] for key in ("p50_ps", "p99_ps", "max_ps")}
    return found


def switches_text(plan: Plan) -> str:
    """How many switches and panels, by placement."""
    kernel = sum(switch.in_kernel for switch in plan.switches)
    engine = sum(not switch.in_kernel for switch in plan.switches)
    words = []
    if kernel or not (engine or plan.panels):
        words.append(how_many(kernel, "XDP switch", "XDP switches"))
    words += [how_many(engine, "switch", "switches") + " in the engine"] if engine else []
    for where, how in (("xdp", "by XDP"), ("tc", "by tc"), ("engine", "in the engine")):
        panels = sum(panel.placement == where for panel in plan.panels)
        words += [f"{how_many(panels, 'panel')} {how}"] if panels else []
    return " and ".join(words)
