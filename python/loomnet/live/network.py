"""A fabric that stands on this machine: its nodes in Mininet namespaces, the veths and XDP switches
between them, the engine's loop, and captures. Live runs and open labs share it."""

from __future__ import annotations

import contextlib
import os
import resource
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar, assert_never

import loomnet._core as _core
from loomnet.base.errors import PrivilegeError, UnavailableError, UsageError
from loomnet.base.wall_time import unbroken
from loomnet.faults.timetable import (
    Change,
    CircuitChange,
    ControllerChange,
    LinkChange,
    PhaseChange,
    RouteChange,
    SendersChange,
    SwitchChange,
)
from loomnet.live import doctor
from loomnet.live.capture import CaptureServer
from loomnet.live.direct_panels import check_change, direct, fibres
from loomnet.live.kernel_tcp import KernelTcp
from loomnet.live.lateness import lateness_bound_ps
from loomnet.live.nodes import GATEWAY, HostPort, HostSpec, LiveFabric
from loomnet.live.panel_faces import PanelFaces
from loomnet.measures.switch_state import SwitchState
from loomnet.plans.entries import SwitchPlan
from loomnet.plans.job_request import JobRequest
from loomnet.plans.model import Plan
from loomnet.processes.journal import RunLock
from loomnet.running.engine import Engine

T = TypeVar("T")
# Frames to it get the address of the host's port that they come out at (core/live/live_loop.cpp).
GATEWAY_MAC = "02:00:00:00:00:01"


def check_plan(plan: Plan) -> None:
    """Raises UsageError for a fabric that cannot be had on the live clock."""
    if plan.pfc:
        raise UsageError(
            "pfc: live switches send no pause frames; leave pfc out or run on the virtual clock"
        )
    in_kernel = [each.name for each in (*plan.switches, *plan.panels) if each.in_kernel]
    if in_kernel and plan.frame_bytes > LONGEST_FRAME:
        raise UsageError(
            f"Fabric.payload: full packets are frames of {plan.frame_bytes} B, and "
            f"the links of {in_kernel[0]} in the kernel carry {LONGEST_FRAME} B: give "
            'payload="2048 B", or placement "engine"'
        )


LONGEST_FRAME = 3414  # XDP without fragments: an MTU of 3,400 B
LEAST_OPEN = 64  # with fewer not even the way down from half a start works
MOST_OPEN = 65_536  # descriptors; a link with a kernel port takes about six


def raise_open_files() -> None:
    """Lets this process open as many descriptors as a fabric of any size takes. Where the kernel
    refuses, the step that has too few of them raises the error."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(soft, MOST_OPEN), max(hard, MOST_OPEN)
    if resource.RLIM_INFINITY in (soft, hard) or (soft, hard) == wanted:
        return
    for limits in (wanted, (min(hard, MOST_OPEN), hard)):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            break
    if (most := resource.getrlimit(resource.RLIMIT_NOFILE)[0]) < LEAST_OPEN:
        raise UnavailableError(
            f"the live clock: {most} files may be open, fewer than the "
            f"{LEAST_OPEN} of the smallest fabric; raise the limit: "
            "ulimit -n 65536"
        )


def require_live() -> None:
    """Raises PrivilegeError or UnavailableError, one line with the fix, where nothing can be live
    here."""
    if not hasattr(_core, "LiveRun"):
        raise UnavailableError(
            "the live clock is not in this build: it needs clang, bpftool, "
            "libbpf-dev and libxdp-dev when loomnet is installed"
        )
    if os.geteuid() != 0:
        raise PrivilegeError(
            "the live clock needs root (network namespaces, XDP): " + doctor.as_root()
        )
    if (missing := doctor.first_missing(doctor.privileges())) is not None:
        raise PrivilegeError(f"the live clock: {missing}")
    if (missing := doctor.first_missing(doctor.tools())) is not None:
        raise UnavailableError(f"the live clock: {missing}")


class LiveNetwork:
    """Everything it makes is on the caller's `stack` and goes in reverse order. The loop does not
    run yet: call `live.start()`.

    Args:
        engine: made with `live=True`; its switches are where its plan places them.
        recorder: what captures come from; by default one of its own.
        tcp: what the hosts' kernels are told; None leaves them as the machine is.
        look: called between two steps of the bring-up; raises to end it.

    Raises:
        OSError, RuntimeError, SystemExit: the machine refused something.
    """

    def __init__(
        self,
        stack: contextlib.ExitStack,
        lock: RunLock,
        engine: Engine,
        *,
        dilation: float,
        recorder: Any = None,
        tcp: KernelTcp | None = None,
        look: Callable[[], None] = lambda: None,
    ) -> None:
        self.engine, self.plan = engine, engine.plan
        self._routes = _core.HostRoutes()  # to hosts that circuits join
        raise_open_files()
        self.glue = stack.enter_context(
            LiveFabric(
                lock,
                [HostSpec(h.name, h.number) for h in self.plan.hosts],
                [s.name for s in self.plan.switches if s.in_kernel],
                panels=[panel.name for panel in self.plan.panels],
                look=look,
            )
        )
        look()
        self.lateness_bound_ps = lateness_bound_ps(self.plan, dilation)
        self.live = self._bring_up(dilation, tcp)
        stack.callback(self.live.close)
        self.recorder = (
            recorder
            if recorder is not None
            else _core.Recorder(engine.network, seed=engine.seed, timeline=False)
        )
        captures = f"{lock.run_id}-{secrets.token_hex(8)}"
        lock.record("captures", socket=captures)
        self.captures = stack.enter_context(
            CaptureServer(captures, self.plan, self.live, self.recorder)
        )
        # Its owner looks at faces.requests, which nothing else carries out.
        self.faces = stack.enter_context(
            PanelFaces(
                lock,
                self.glue,
                [panel.name for panel in self.plan.panels],
                engine.panels.note_command,
            )
        )
        look()

    def _bring_up(self, dilation: float, tcp: KernelTcp | None) -> Any:
        ports, switches, panels = [], [], []
        for panel in self.plan.panels:
            if panel.in_kernel:
                node = self.glue.panels[panel.name]
                if panel.placement == "tc":
                    panels.append(
                        (
                            panel.number,
                            node.netns,
                            panel.name,
                            [
                                (
                                    host,
                                    port,
                                    self.glue.hosts[self.plan.hosts[host].name].netns,
                                    f"p{port}",
                                    GATEWAY_MAC,
                                )  # light comes as it was sent: to the first hop
                                for host, port in fibres(self.plan, panel)
                            ],
                        )
                    )
                    continue
                panels.append((panel.number, node.netns, panel.name, None))
                ports += [
                    (panel.number, port, "panel", node.netns, f"s{port}", "")
                    for port in range(len(panel.ports))
                ]
        for switch in self.plan.switches:
            if not switch.in_kernel:
                continue
            node = self.glue.switches[switch.name]
            tables = self.engine.tables.next(switch)
            switches.append(
                (
                    switch.number,
                    node.netns,
                    switch.name,
                    self.engine.hash_seed(switch.number),
                    tables,
                    switch.program,
                    self.engine.program_settings(switch),
                )
            )
            ports += [
                (switch.number, port, "xdp", node.netns, f"s{port}", "")
                for port in range(len(switch.ports))
            ]
        configured: dict[str, list[HostPort]] = {}
        joined = {end for panel in direct(self.plan) for end in fibres(self.plan, panel)}
        for host in self.plan.hosts:
            netns = self.glue.hosts[host.name].netns
            for plane in range(len(host.ports)):
                mac = f"02:00:{host.number >> 8:02x}:{host.number & 255:02x}:00:{plane + 2:02x}"
                if (host.number, plane) not in joined:
                    ports.append((host.number, plane, "host", netns, f"p{plane}", mac))
                configured.setdefault(host.name, []).append(
                    HostPort(
                        f"p{plane}",
                        GATEWAY_MAC,
                        routed=host.planes[plane] is not None,
                        direct=(host.number, plane) in joined,
                    )
                )
        live = _core.LiveRun(
            self.engine.network,
            ports=ports,
            switches=switches,
            panels=panels,
            dilation=dilation,
            lateness_bound_ps=self.lateness_bound_ps,
        )
        try:
            self.glue.configure(configured, tcp)
            live.check_panels()
            self._add_routes(0 if tcp is None else tcp.mtu)
        except BaseException:
            live.close()
            raise
        return live

    def apply(self, changes: Iterable[Change]) -> None:
        """Changes links and routes now, while the loop runs."""
        for change in changes:
            if isinstance(change, LinkChange):
                self._change_link(change)
            elif isinstance(change, RouteChange | SwitchChange):
                if isinstance(change, SwitchChange):
                    self._reboot(change.node)
                with (
                    self.held()
                    if any(part.moves_hosts for part in self.engine.parts)
                    else contextlib.nullcontext()
                ):
                    batches = self.engine.tables_after(change)
                self._set_tables(batches)
            elif isinstance(change, CircuitChange):
                self._route(self.engine.panels.patch(change, self.held))
            elif isinstance(change, ControllerChange):
                with self.held():
                    self.engine.panels.control(change)
            # A phase is of the report alone; senders are the run loop's.
            elif not isinstance(change, PhaseChange | SendersChange):
                assert_never(change)

    def panel_totals(self) -> dict[str, dict[str, int]]:
        """Counters of the panels in the kernel, by object; zeros left out."""
        found = {}
        for panel in self.plan.panels:
            if panel.in_kernel:
                counted = self.live.panel_counters(self.engine.node(panel.number))
                if row := {name: n for name, n in counted.items() if n}:
                    found[f"panel {panel.name}"] = row
        return found

    def operate(self, panel: str, request: Callable[[Any, int], T]) -> T:
        """Engine.operate, between two passes of the loop."""
        with self.held():
            result, moved = self.engine.panels.operate(panel, request)
        self._route(moved)
        return result

    def _change_link(self, change: LinkChange) -> None:
        check_change(self.plan, change)
        half, state = self.plan.half(change.half), change.state
        ahead, number = change.half % 2 == 0, change.half // 2
        moved: list[tuple[int, int]] = []
        if self.plan.links[number].plane is None:
            with self.held():
                moved = self.engine.panels.carry(number, state.up)
        self.live.change_link(
            number,
            forward=ahead,
            backward=not ahead,
            up=state.up,
            rate_bps=None if half.glass else max(round(half.rate_bps * state.share), 1),
            queue_share=half.queue_share(state.queue_share, self.plan.frame_bytes),
            delay_ps=half.delay_ps + state.extra_delay_ps,
            impairment=state.impairment,
        )
        self._route(moved)
        if self.plan.links[number].plane is None:
            return  # the engine knows which hosts at a panel have carrier
        for node, port in ((half.source, half.source_port), (half.target, half.target_port)):
            if node < len(self.plan.hosts):
                self.live.set_carrier(node, port, state.up)

    def _add_routes(self, mtu: int) -> None:
        """Hosts at panels get routes of their own to those that circuits join them to."""
        self._numbers: dict[int, int] = {}
        for host in self.plan.hosts:
            if any(panel is not None for panel in host.panels):
                self._numbers[host.number] = self._routes.add(
                    self.glue.hosts[host.name].netns,
                    host.name,
                    [f"p{port}" for port in range(len(host.ports))],
                    host.address,
                    GATEWAY,
                    mtu,
                )
        self._route(self.engine.panels.joined_hosts)

    def _route(self, moved: Iterable[tuple[int, int]]) -> None:
        """Kernels of these pairs of hosts go by the circuits that join them now."""
        for a, b in moved:
            for source, destination in ((a, b), (b, a)):
                self._routes.set(
                    self._numbers[source],
                    self.plan.hosts[destination].address,
                    self.engine.panels.ports_to(source, destination),
                )
        self._routes.commit()

    def _reboot(self, node: int) -> None:
        switch = next(each for each in self.plan.switches if each.number == node)
        if switch.in_kernel:
            self.live.reset_switch(self.engine.node(node))
            return
        with self.held():
            self.engine.reboot(node)

    def switch_state(self, switch: SwitchPlan) -> SwitchState:
        """What a switch's program has counted and holds, while the loop runs."""
        if not switch.in_kernel:
            with self.held():
                return self.engine.switch_state(switch)
        node = self.engine.node(switch.number)
        return SwitchState.of(
            switch, self.live.switch_counters(node), self.live.switch_snapshot(node)
        )

    def switch_columns(self, switch: SwitchPlan, names: Sequence[str]) -> list[Any]:
        """Fields of the state of a switch's program, while the loop runs: an array each."""
        if not switch.in_kernel:
            with self.held():
                return self.engine.switch_columns(switch, names)
        return self.live.switch_columns(self.engine.node(switch.number), list(names))

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """The engine's loop stands: its objects may be touched by this thread."""
        with unbroken():
            try:
                self.live.pause()  # Ctrl-C may come as it returns
                yield
            finally:
                self.live.resume()

    def forget(self, asked: JobRequest) -> None:
        """The job is over: switches sum for it no more, and its slots are free."""
        self._set_tables(self.engine.forget(asked))

    def _set_tables(self, batches: list[tuple[SwitchPlan, Any]]) -> None:
        for switch, tables in batches:
            if switch.in_kernel:
                self.live.set_tables(switch.number, tables)
        native = [(switch, tables) for switch, tables in batches if not switch.in_kernel]
        if not native:
            return
        with self.held():
            for switch, tables in native:
                self.engine.network.set_tables(self.engine.node(switch.number), tables)
