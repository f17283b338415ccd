"""A fabric that stays up for commands and changes: `with ln.lab(fabric, clock="live") as lab:`."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from loomnet.base.arguments import checked_call
from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean, how_many, in_quotes, quoted
from loomnet.base.units import Time
from loomnet.base.wall_time import uninterrupted
from loomnet.fabrics.model import Fabric
from loomnet.fabrics.panels import Circuit
from loomnet.faults.model import Fault, list_of_faults
from loomnet.faults.model import down as down_fault
from loomnet.faults.timetable import LinkChange, LinkState, RouteChange
from loomnet.jobs.model import Job
from loomnet.labs.c_programs import check_c_programs
from loomnet.labs.lab import Lab
from loomnet.labs.preparation import check_dilation, reroute_time
from loomnet.measures.switch_state import SwitchState, switch_named
from loomnet.plans.make import make_plan
from loomnet.plans.model import Plan
from loomnet.plugins.change import circuits as circuits_change
from loomnet.results.result import Result
from loomnet.running.request import CLOCKS

if TYPE_CHECKING:
    from loomnet.live.standing import Standing


class OpenLab:
    """Made by :func:`lab`. It stands between `open()` and `close()`, which a `with` block calls.

    On the live clock nodes, links and switches are there for `exec`, for what it starts, and for
    `loomnet exec`, `shell` and `capture` in another terminal. On the virtual clock no time passes
    but in `run`, which starts with the links as they are then.
    """

    def __init__(
        self,
        fabric: Fabric,
        *,
        clock: str,
        seed: int,
        dilation: float,
        reroute_delay: Time | str | None,
        directory: Path | None,
    ) -> None:
        if not isinstance(fabric, Fabric):
            raise UsageError(
                f"lab: {quoted(fabric)} is not a fabric; see ln.clos.two_tier, ln.Fabric"
            )
        if clock not in CLOCKS:
            raise UsageError(f"lab: clock {in_quotes(clock)} is not one of {', '.join(CLOCKS)}")
        check_dilation("lab", dilation)
        fabric.check()
        self.fabric, self.clock, self.seed, self.dilation = fabric, clock, seed, dilation
        self._reroute = reroute_time("lab", reroute_delay)
        self._down: set[int] = set()  # numbers of half-links
        self._lab = Lab("lab", clock=clock, seed=seed, directory=directory)
        self._standing: Standing | None = None
        self._timers: list[threading.Timer] = []
        self._guard = threading.RLock()
        self._opened: float | None = None

    @cached_property
    def _plan(self) -> Plan:
        # When first needed: the whole of a large fabric takes a while.
        return make_plan(self.fabric, seed=self.seed)

    # --- up and down ------------------------------------------------------------------------------
    @uninterrupted
    def open(self) -> OpenLab:
        """Brings the fabric up and returns itself. Raises PrivilegeError or UnavailableError, in
        one line, where the live clock is not to be had; nothing is left behind then."""
        if self._opened is not None:
            raise UsageError("lab: it is open already")
        if self.clock == "live":
            from loomnet.live.standing import Standing

            check_c_programs(self.fabric, self.clock)
            self._standing = Standing(
                self._plan, dilation=self.dilation, on_end=self.close, guard=self._guard
            )
        self._opened = time.monotonic()
        self._show(set(), self._down)
        return self

    @uninterrupted
    def close(self) -> None:
        """Takes everything down. Idempotent."""
        with self._guard:
            timers, self._timers = self._timers, []
            standing, self._standing = self._standing, None
            self._opened = None
        for timer in timers:
            timer.cancel()
        for timer in timers:
            timer.join()
        try:
            if standing is not None:
                standing.close()
        finally:
            if self._lab.results:
                self._lab.write()

    def __enter__(self) -> OpenLab:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _check_open(self, verb: str) -> None:
        if self._opened is None:
            raise UsageError(f"{verb}: the lab is closed: with ln.lab(fabric) as lab: …")

    # --- links ------------------------------------------------------------------------------------
    @uninterrupted
    @checked_call
    def down(self, link: str) -> None:
        """Takes a link (`a--b`) or one direction (`a->b`) down, as ln.down does; globs allowed.
        ECMP tables reconverge `reroute_delay` later. Raises UsageError for an unknown link."""
        self._change("down", link, lambda halves: self._down | halves)

    @uninterrupted
    @checked_call
    def restore(self, link: str | None = None) -> None:
        """Heals what `down` broke, by default all of it. Raises UsageError for an unknown link."""
        self._change("restore", link, lambda halves: self._down - halves)

    @property
    def links_down(self) -> list[str]:
        """Names of the links that are down."""
        return [
            self._plan.links[number].name for number in sorted({half // 2 for half in self._down})
        ]

    def _change(self, verb: str, link: str | None, after: Callable[[set[int]], set[int]]) -> None:
        self._check_open(verb)
        halves = set(self._down)
        if link is not None:
            halves = set()
            for found, _ in self.fabric.match(link):
                number = 2 * self._plan.topology.link_number[found.name]
                halves |= {number, number + 1}  # carrier is lost at both ends
        with self._guard:
            before, self._down = self._down, after(halves)
            self._show(before, self._down)

    def _show(self, before: set[int], now: set[int]) -> None:
        if self._standing is None or before == now:
            return
        self._standing.network.apply(
            [LinkChange(half, LinkState(up=half not in now)) for half in sorted(before ^ now)]
        )
        if self._reroute is None:
            return
        dead = frozenset(half // 2 for half in now)
        timer = threading.Timer(self._reroute.seconds * self.dilation, self._reconverge, (dead,))
        timer.daemon = True
        self._timers = [each for each in self._timers if each.is_alive()] + [timer]
        timer.start()

    def _reconverge(self, dead: frozenset[int]) -> None:
        with self._guard:
            if self._standing is not None:
                self._standing.network.apply([RouteChange(self._plan.reconverged(dead))])

    # --- circuits ---------------------------------------------------------------------------------
    @uninterrupted
    @checked_call
    def circuits(
        self, panel: str, pairs: Iterable[Circuit], *, at: Time | str | None = None
    ) -> None:
        """Patches these circuits of a panel, and no others; pairs as Panel.circuits takes them.
        Live: now. On the virtual clock: at this time of the next run. Raises UsageError."""
        changes = circuits_change(panel, pairs).resolved(self._plan)
        self._check_open("circuits")
        if self.clock != "live":
            if at is None:
                raise UsageError(
                    "circuits: on the virtual clock no time passes but in a run: say "
                    'when in the next one, as at="2 ms"'
                )
            self._lab.circuits(panel, pairs, at=at)
            return
        if at is not None:
            raise UsageError("circuits: a live lab patches at once: leave at= out")
        with self._guard:
            assert self._standing is not None
            self._standing.network.apply(changes)

    # --- nodes ------------------------------------------------------------------------------------
    @checked_call
    def address(self, host: str) -> str:
        """A host's IPv6 address on the fabric, the same on all planes."""
        for each in self._plan.hosts:
            if each.name == host:
                return each.address
        names = [each.name for each in self._plan.hosts]
        raise UsageError(f"lab: no host {in_quotes(host)}{did_you_mean(host, names)}")

    @checked_call
    def exec(
        self,
        node: str,
        command: str | Sequence[str],
        *,
        timeout: float | None = None,
        **options: Any,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command inside a host or kernel switch, as root, and returns it completed, with
        `returncode`, `stdout` and `stderr`. A string goes through the shell. `options` are those of
        subprocess.run. Live only; raises UsageError for an unknown node, subprocess.TimeoutExpired
        after `timeout` seconds."""
        argv = self._command("exec", node, command)
        given = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL} | options
        if "input" in options:
            del given["stdin"]
        return subprocess.run(argv, env=self._environment(), timeout=timeout, **given)

    @checked_call
    def popen(
        self, node: str, command: str | Sequence[str], **options: Any
    ) -> subprocess.Popen[Any]:
        """Starts a command inside a node and goes on; it is killed at the latest with the lab.
        `options` are those of subprocess.Popen. Live only; raises as `exec`."""
        argv = self._command("popen", node, command)
        return subprocess.Popen(argv, env=self._environment(), **options)

    def _command(self, verb: str, node: str, command: str | Sequence[str]) -> list[str]:
        if self.clock != "live":
            raise UsageError(
                f"{verb}: the virtual clock has no kernel to run a command in; open "
                'the lab with clock="live"'
            )
        self._check_open(verb)
        assert self._standing is not None
        nodes = self._standing.network.glue.nodes
        if node not in nodes:
            raise UsageError(f'{verb}: no node "{node}"{did_you_mean(node, nodes)}')
        words = ["sh", "-c", command] if isinstance(command, str) else list(command)
        return ["mnexec", "-a", str(nodes[node].pid), *words]

    def _environment(self) -> dict[str, str]:
        assert self._standing is not None
        return {**os.environ, **self._standing.lock.environment()}

    # --- jobs and figures -------------------------------------------------------------------------
    @uninterrupted
    @checked_call
    def run(
        self, job: Job, faults: Sequence[Fault] = (), *, label: str | None = None, **options: Any
    ) -> Result:
        """Runs a job as Lab.run does, with the links as they are: what is down is a fault from the
        job's first iteration on. Virtual clock only: a live job is timed on a fabric of its own."""
        if self.clock == "live":
            raise UsageError(
                "run: a live job brings up a fabric of its own, so that nothing else "
                'is on it: ln.run(fabric, job, clock="live")'
            )
        self._check_open("run")
        standing = [down_fault(name, at="0 s") for name in self.links_down]
        if label is None and self._lab.results:
            label = f"run{len(self._lab.results) + 1}"
        given: dict[str, Any] = {"reroute_delay": self._reroute} | options
        return self._lab.run(
            self.fabric, job, [*standing, *list_of_faults(faults)], label=label, **given
        )

    def counters(self) -> dict[str, dict[str, int]]:
        """What every link, switch and NIC has counted so far: object -> counter -> value, zeros
        left out. Live only; of a run they are in its result's data."""
        if self.clock != "live":
            raise UsageError("counters: on the virtual clock a run has them: result.data.totals")
        self._check_open("counters")
        assert self._standing is not None
        with self._guard:
            return self._standing.counters()

    def switch(self, name: str) -> SwitchState:
        """What the program of a switch has counted so far, and its `snapshot()`. Live only; of a
        run its result has it: result.switch(name). Raises UsageError with the nearest names."""
        if self.clock != "live":
            raise UsageError("switch: on the virtual clock a run has it: result.switch(name)")
        self._check_open("switch")
        assert self._standing is not None
        found = switch_named(self._plan, name)
        assert not isinstance(found, str)  # this plan is of the whole fabric
        with self._guard:
            return self._standing.network.switch_state(found)

    def __repr__(self) -> str:
        hosts, switches, links = self.fabric.counts
        state = "closed"
        if self._opened is not None:
            state = f"up for {time.monotonic() - self._opened:.1f} s"
            if self._standing is not None:
                state += f", run {self._standing.lock.run_id}"
                if trouble := self._standing.network.glue.trouble():
                    state += f"; {trouble}"
        gone = f"; down: {', '.join(self.links_down)}" if self._down else ""
        return (
            f"Lab({self.fabric.name}: {how_many(hosts, 'host')}, "
            f"{how_many(switches, 'switch', 'switches')}, {how_many(links, 'link')}; "
            f"{self.clock} clock, {state}{gone})"
        )


@checked_call
def lab(
    fabric: Fabric,
    *,
    clock: str = "virtual",
    seed: int = 0,
    dilation: float = 1.0,
    reroute_delay: Time | str | None = "1 s",
    directory: Path | None = None,
) -> OpenLab:
    """A fabric that stays up: `with ln.lab(fabric, clock="live") as lab:` brings it up, and
    `lab.down(link)`, `lab.restore(link)` and `lab.exec("h0", cmd)` act on it at once. The end of
    the block, an exception and Ctrl-C take it down and leave nothing behind.

    `reroute_delay`: ECMP tables reconverge so long after a change; "off" never. `dilation`: live
    clock only. Raises UsageError or FabricError for what does not fit; a live lab needs root.
    """
    return OpenLab(
        fabric,
        clock=clock,
        seed=seed,
        dilation=dilation,
        reroute_delay=reroute_delay,
        directory=directory,
    )
