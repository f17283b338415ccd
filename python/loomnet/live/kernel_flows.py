"""A job of flows over the hosts' own kernel TCP: an agent in every host's namespace sends and
receives, this end tells it when, and keeps what it reports as any traffic model's results."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loomnet.base.errors import UnavailableError
from loomnet.measures.flow_rows import FlowRow, FlowRows
from loomnet.measures.run_data import HostSeries, Interval, RunFault
from loomnet.measures.samples import Sampler, Samples
from loomnet.plans.job_request import JobRequest
from loomnet.processes.invoking_user import RankUser
from loomnet.processes.ranks import RankGroup, RankSpec
from loomnet.running.flow_rounds import Round, begun_before, check_begun, rounds_of, stop_at
from loomnet.running.request import RunRequest

if TYPE_CHECKING:
    from loomnet.live.kernel_tcp import KernelTcp
    from loomnet.live.nodes import LiveFabric

_AGENT = Path(__file__).with_name("flow_agent.py")
PORT = 7000  # where every host's agent accepts
CONNECT_S = 10.0  # wall seconds in which all connections must be up
LEAD_PS = 100 * 10**9  # from the last order to the first flow: orders reach agents in time
ROUND_LEAD_PS = 5 * 10**9  # the same between two rounds
PROGRESS_NS = 250_000_000  # between two reports of the agents, where the run asks for no samples
# An agent that did not run for longer lets a sender's buffer run dry: 4 MB at 40 Mb/s last 0.8 s.
STANDSTILL_NS = 500_000_000


class _Agent:
    """Our end of one host's agent."""

    def __init__(self) -> None:
        self.control, self.theirs = socket.socketpair()
        self._rest = b""

    def order(self, name: str, **values: Any) -> None:
        with contextlib.suppress(BrokenPipeError):  # its end is seen by its exit status
            self.control.sendall(json.dumps({"order": name, **values}).encode() + b"\n")

    def reports(self) -> Iterator[dict[str, Any]]:
        with contextlib.suppress(BlockingIOError, ConnectionResetError):
            while data := self.control.recv(1 << 20, socket.MSG_DONTWAIT):
                *lines, self._rest = (self._rest + data).split(b"\n")
                yield from map(json.loads, lines)


class KernelFlows:
    """Rounds of flows under way, each round one iteration.

    Args:
        fabric: the hosts; agents start in them at once.
        asked: a job of flows of the run that `request` asks for.
        tcp: what its sockets ask for.
        now_ps: the engine's clock, whose emulated time is wall time (D = 1).
    """

    def __init__(
        self,
        fabric: LiveFabric,
        request: RunRequest,
        asked: JobRequest,
        tcp: KernelTcp,
        now_ps: Callable[[], int],
    ) -> None:
        self._now, self._tcp = now_ps, tcp
        self._placement = asked.placement
        self._plan = request.plan
        self._rounds: list[Round]
        self._rounds, self._gap, _ = rounds_of(
            request.plan, asked.job, asked.placement, request.seed
        )
        self._agents = [_Agent() for _ in asked.placement]
        self._connections: dict[tuple[int, int, int], int] = {}  # (source, destination, index)
        self._pending = 0
        self.origin_ps: int | None = None
        self._rows: list[tuple[int, int, int, int]] = []  # start, source rank, destination, bytes
        self._ends: dict[int, int] = {}
        self._begun: list[int] = []  # starts of rounds
        self._ended: list[tuple[int, int]] = []
        self._faults: list[RunFault] = []
        self.retransmitted = [0] * len(self._agents)
        self._asked = asked
        self._stop_ps: int | None = None
        self._cut = False  # the last round has begun in part
        self.fell_behind: str | None = None  # why the first host that got no processor fell behind
        self._samples = Samples(0)  # replaced where the run was given sample=
        specs = [
            RankSpec(
                rank,
                self._plan.hosts[host].name,
                [sys.executable, "-I", "-S", str(_AGENT), str(agent.theirs.fileno())],
                pass_fds=[agent.theirs.fileno()],
            )
            for rank, (host, agent) in enumerate(zip(self._placement, self._agents, strict=True))
        ]
        # As root, whom TCP_CONGESTION lets have any; what it runs is ours alone.
        logs = asked.folder_in(request.opened()).folder("ranks")
        self._group = RankGroup(fabric, specs, logs, cwd=Path("/"), user=RankUser())
        for agent in self._agents:
            agent.theirs.close()
        self._address = [fabric.hosts[self._plan.hosts[h].name].address for h in self._placement]

    # --- bringing it up -----------------------------------------------------------------------
    def connect(self, sampler: Sampler | None, check: Callable[[], None]) -> None:
        """Once packets travel: establishes all connections of all rounds, then orders the first.
        The senders' samples go to `sampler`. `check` is called while waiting. Raises
        UnavailableError if it takes too long."""
        for agent in self._agents:
            agent.order("listen", port=PORT)
        self._wait(len(self._agents), "listen", check)
        for make in self._rounds:
            used: dict[tuple[int, int], int] = {}
            for _, source, destination, _ in begun_before(make(0), self._asked.begins_for_ps)[0]:
                index = used.get((source, destination), 0)
                used[source, destination] = index + 1
                self._connections.setdefault((source, destination, index), len(self._connections))
        for (source, destination, _), number in self._connections.items():
            self._agents[source].order(
                "connect",
                number=number,
                address=self._address[destination],
                port=PORT,
                cc=self._tcp.cc,
            )
        self._wait(len(self._connections), "connect", check)
        self.origin_ps = self._now() + LEAD_PS
        self._stop_ps = stop_at(self._asked, self.origin_ps)
        step = PROGRESS_NS
        if sampler is not None:
            step, self._samples = sampler.samples.every_ps // 1000, sampler.samples
        for agent in self._agents:
            agent.order("sample", every_ns=step, first_ns=self._wall_ns(self.origin_ps))
        self._launch(self.origin_ps)

    def _wait(self, answers: int, what: str, check: Callable[[], None]) -> None:
        deadline = time.monotonic() + CONNECT_S
        self._pending = answers
        while self._pending > 0:
            check()
            self.poll()
            if self._faults:
                raise UnavailableError(f"kernel flows: {self._faults[0].message}")
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"kernel flows: {self._pending} of {answers} sockets did "
                    f"not {what} in {CONNECT_S:g} s"
                )
            time.sleep(0.002)

    def _wall_ns(self, at_ps: int) -> int:
        return time.monotonic_ns() + (at_ps - self._now()) // 1000

    def _launch(self, at_ps: int) -> None:
        used: dict[tuple[int, int], int] = {}
        flows, self._cut = begun_before(self._rounds[len(self._begun)](at_ps), self._stop_ps)
        if not flows:
            if not self._begun:
                check_begun(self._asked, flows)
            self._rounds, self._cut = self._rounds[: len(self._begun)], False
            return
        if self._cut:
            self._rounds = self._rounds[: len(self._begun) + 1]
        for start, source, destination, size in flows:
            index = used.get((source, destination), 0)
            used[source, destination] = index + 1
            self._agents[source].order(
                "send",
                flow=len(self._rows),
                size=size,
                at_ns=self._wall_ns(start),
                connection=self._connections[source, destination, index],
            )
            self._rows.append((start, source, destination, size))
        self._begun.append(min(start for start, *_ in flows))

    # --- while it runs ------------------------------------------------------------------------
    def poll(self) -> None:
        """Takes in what agents have reported; begins the next round."""
        at_ps, at_ns = self._now(), time.monotonic_ns()
        for rank, agent in enumerate(self._agents):
            for report in agent.reports():
                self._take(rank, report, at_ps - at_ns * 1000)
        for gone in self._group.poll(0):
            rank = gone.spec.rank
            if not any(fault.who == f"host {self._name(rank)}" for fault in self._faults):
                self._fail(rank, gone.error() or "its agent ended")
        if len(self._ends) < len(self._rows) or len(self._ended) == len(self._begun):
            return
        self._ended.append((self._begun[-1], max(self._ends.values())))
        if not self._faults and len(self._begun) < len(self._rounds):
            self._launch(max(self._ended[-1][1] + self._gap, self._now() + ROUND_LEAD_PS))

    def _take(self, rank: int, report: dict[str, Any], offset_ps: int) -> None:
        """`offset_ps`: the engine's clock minus the agents'."""
        if "listening" in report or "connected" in report:
            self._pending -= 1
        elif "failed" in report:
            self._fail(rank, report["failed"])
        elif "done" in report:
            self._ends[report["done"]] = report["at_ns"] * 1000 + offset_ps
        for flow, at_ns, acked, cwnd, rtt_us, least_us in report.get("sampled", ()):
            self._samples.take_sender(
                flow,
                at_ns * 1000 + offset_ps - (self.origin_ps or 0),
                acked,
                cwnd,
                rtt_us * 10**6,
                least_us * 10**6,
            )
        self.retransmitted[rank] = report.get("retransmitted", self.retransmitted[rank])
        if self.fell_behind is None and (late := report.get("late_ns", 0)) > STANDSTILL_NS:
            self.fell_behind = (
                f"host {self._name(rank)} got no processor for {late / 1e9:.2g} s: "
                "its TCP had nothing to send"
            )

    def _name(self, rank: int) -> str:
        return self._plan.hosts[self._placement[rank]].name

    def _fail(self, rank: int, message: str) -> None:
        at = 0 if self.origin_ps is None else max(self._now() - self.origin_ps, 0)
        self._faults.append(RunFault(at, f"host {self._name(rank)}", message))

    @property
    def done(self) -> bool:
        return bool(self._faults) or len(self._ended) == len(self._rounds)

    @property
    def ended_ps(self) -> int:
        """When the last flow of the last round that ended did."""
        return self._ended[-1][1]

    def iterations(self) -> list[tuple[int, int]]:
        return self._ended[: len(self._begun) - self._cut]

    def errors(self) -> list[RunFault]:
        return self._faults

    def flows(self) -> FlowRows:
        return FlowRows.of(
            FlowRow(self._placement[a], self._placement[b], size, start, self._ends.get(flow))
            for flow, (start, a, b, size) in enumerate(self._rows)
        )

    # --- afterwards ---------------------------------------------------------------------------
    def stop(self) -> None:
        self._group.stop(grace=0)
        for agent in self._agents:
            agent.control.close()

    def series(self, measured: dict[int, HostSeries], end_ps: int) -> dict[int, HostSeries]:
        """What the job saw at every host: `measured` are the bytes that their ports saw arrive."""
        return {host: self._at(host, series, end_ps) for host, series in measured.items()}

    def _at(self, host: int, measured: HostSeries, end_ps: int) -> HostSeries:
        origin = self.origin_ps or 0
        rows = [
            flow for flow in self.flows().since(origin) if host in (flow.source, flow.destination)
        ]
        work = sorted(
            (flow.start_ps, flow.end_ps, flow.bytes if flow.destination == host else 0)
            for flow in rows
            if flow.end_ps is not None
        )
        spans = ((flow.start_ps, end_ps if flow.end_ps is None else flow.end_ps) for flow in rows)
        busy = _union([span for span in spans if span[1] > span[0]])
        return replace(
            measured,
            work=work,
            busy=busy,
            silence_floor_ps=measured.bin_ps,
            silences=_silences(measured, busy),
        )


def _union(spans: list[Interval]) -> list[Interval]:
    merged: list[Interval] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def _silences(series: HostSeries, busy: list[Interval]) -> list[Interval]:
    """Runs of whole bins without payload inside busy intervals."""
    found, width = [], series.bin_ps
    for begin, end in busy:
        quiet = begin
        for number in range(begin // width, -(-end // width)):
            if number < len(series.payload) and series.payload[number] > 0:
                found.append((quiet, number * width))
                quiet = (number + 1) * width
        found.append((quiet, end))
    return [(begin, end) for begin, end in found if end - begin > width]
