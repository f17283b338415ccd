"""Traffic models in the engine: what a job that is no PyTorch script sends, as iterations that end.
Driven by whichever clock runs the engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import loomnet._core as _core
from loomnet.base import bounds
from loomnet.base.units import Time
from loomnet.jobs.collectives import COLLECTIVES, Collective, RingCollective, SendRecv
from loomnet.jobs.flows import Flows
from loomnet.jobs.kinds import is_flows_of_a_file, is_model_job, is_trace
from loomnet.jobs.task_graph import PASSED_OVER, TaskGraph, task_of
from loomnet.measures.flow_rows import FlowRow, FlowRows
from loomnet.measures.lone_ways import LoneWays
from loomnet.measures.ring_steps import RingSteps
from loomnet.measures.run_data import Iteration, RunFault
from loomnet.plans.job_request import JobRequest
from loomnet.plans.model import MESSAGE_BYTES, writes_outstanding
from loomnet.running.engine import FIRST_QP, Engine
from loomnet.running.engine_numbers import EngineNode
from loomnet.running.engine_settings import staging_for
from loomnet.running.flow_rounds import (
    LIVING_BYTES,
    FlowOfRound,
    begun_before,
    check_begun,
    living_writes,
    move_apart,
    moved_apart,
    packet_ps,
    rounds_of,
    stop_at,
    told_writes,
)
from loomnet.running.model_traffic import ModelTraffic
from loomnet.running.rank_traffic import RankTraffic
from loomnet.running.ring_traffic import connect_steps, ring_settings
from loomnet.running.traffic_contract import CoreTraffic, Traffic
from loomnet.systems.transport import LIMITED_BY


class CollectiveTraffic(RankTraffic):
    """A collective of all ranks, repeated: every rank's executor inside the engine."""

    def __init__(
        self, engine: Engine, asked: JobRequest, job: Collective, start_ps: int, *, payload: bool
    ) -> None:
        carrier = engine.carrier(job)
        settings: dict[str, Any] = dict(staging_for(engine.plan))
        if isinstance(job, RingCollective):
            settings |= ring_settings(engine, asked, job)
        if (part := engine.carrying(asked)) is not None:
            settings |= part.core_options(asked)
        self.core = _core.CollectiveTraffic(
            engine.network,
            job=asked.number,
            hosts=engine.nodes(asked.placement),
            bytes=job.size.bytes,
            repeat=job.repeat,
            collective="all_to_all" if isinstance(job, SendRecv) else job.kind,
            shift=1 if isinstance(job, SendRecv) else 0,
            start_ps=start_ps,
            stop_ps=stop_at(asked, start_ps),
            compute_ps=job.compute.count,
            gaps_ps=list(asked.gaps_ps),
            payload=payload,
            await_sends=carrier is None or carrier.await_sends,
            **settings,
        )
        for channel in range(settings.get("channels", 1)):
            for (rank, peer), number in engine.connect_mesh(asked).items():
                self.core.set_queue_pair(rank, peer, number, channel)
            if isinstance(job, RingCollective) and job.queue_pair == "per-step":
                connect_steps(engine, asked, self.core, channel)
        if part is not None:
            part.bind(engine, asked, self.core)
        self.core.start()

    def wrong(self) -> int:
        return self.core.wrong

    def ring_steps(self, origin_ps: int) -> RingSteps | None:
        return RingSteps.of(self.core.steps(), origin_ps, self.core.steps_unlogged)


class FlowTraffic(CoreTraffic):
    """Point-to-point jobs: rounds of flows, each round one iteration. The engine begins a round at
    the moment at which the one before has ended."""

    def __init__(
        self,
        engine: Engine,
        asked: JobRequest,
        pairs: set[tuple[int, int]],
        flows: Sequence[FlowOfRound],
        start_ps: int,
        *,
        payload: bool,
        rounds: int = 1,
        gap_ps: int = 0,
        jitter_ps: int = 0,
    ) -> None:
        """`flows`: of the first round. `jitter_ps`: by less than which flows that start together
        are moved apart: those of the first round have been."""
        self._engine, self._job = engine, asked
        self._jitter_ps, self._most_rounds = jitter_ps, rounds
        self._asked: list[tuple[int, int, int]] = []  # source, destination (hosts), bytes
        self._sends: list[tuple[EngineNode, int]] = []  # of each flow: sender, queue pair
        self._bytes = 0  # of a round
        self._ended = 0  # flows that ended_senders() has told of
        stop_ps = stop_at(asked, start_ps)
        begun, cut = begun_before(flows, stop_ps)
        check_begun(asked, begun)
        self.core = _core.FlowTraffic(engine.network, payload, job=asked.number)
        self.core.repeat(
            rounds=rounds, gap_ps=gap_ps, apart_ps=jitter_ps, stop_ps=stop_ps, whole=not cut
        )
        self._add(pairs, begun)
        self.core.start()

    def _add(self, pairs: set[tuple[int, int]], flows: Sequence[FlowOfRound]) -> None:
        engine, placement, job = self._engine, self._job.placement, self._job.job
        depth, most = writes_outstanding(engine.plan), MESSAGE_BYTES
        lifetimes = job.lifetimes if isinstance(job, Flows) else ()
        ways = LoneWays(engine.plan)
        # A queue pair carries one flow at a time, so parallel flows of a pair have one each.
        free: dict[tuple[int, int], list[int]] = {pair: [] for pair in pairs}
        used: dict[tuple[int, int], int] = {}
        following = FIRST_QP
        for number, (start, source, destination, size) in enumerate(flows):
            pair = (source, destination)
            numbers = free.setdefault(pair, [])
            index = used.get(pair, 0)
            used[pair] = index + 1
            if index == len(numbers):
                numbers.append(
                    engine.connect_pair(
                        self._job, placement[source], placement[destination], following, start
                    )
                )
                following = numbers[-1] + 2
            self._asked.append((placement[source], placement[destination], size))
            self._bytes += size
            self._sends.append((engine.node(placement[source]), numbers[index]))
            in_ring: dict[str, Any] = {}
            if lifetimes:  # short writes, of which few are under way when the lifetime ends
                in_ring["until_ps"] = start + lifetimes[number].count
                depth, most = (
                    self._living_writes(ways, placement[source], placement[destination]),
                    LIVING_BYTES,
                )
            if isinstance(job, Flows) and job.steps is not None:
                in_ring |= {
                    "steps": job.steps,
                    "rank": number,
                    "ranks": job.count,
                    "claim": job.claims[number % len(job.claims)].numbers() if job.claims else None,
                }
            self.core.add(
                source=engine.node(placement[source]),
                destination=engine.node(placement[destination]),
                qp=numbers[index],
                bytes=size,
                message=min(size, most),
                depth=depth,
                start_ps=start,
                **in_ring,
            )

    def _living_writes(self, ways: LoneWays, source: int, destination: int) -> int:
        carrier = self._engine.carrier(self._job.job)
        if carrier is not None and carrier.tells_when_to_post:
            window = self._engine.window(carrier, source)
            assert window is not None
            return told_writes(window.bytes)
        return living_writes(self._engine.plan, ways, source, destination)

    def iterations(self, since: int = 0) -> list[tuple[int, int]]:
        return self.core.iterations(since).tolist()

    def errors(self) -> list[RunFault]:
        return [
            RunFault(at, f"flow {number}", status) for number, at, status in self.core.failures()
        ]

    def wrong(self) -> int:
        return self.core.wrong

    @property
    def sends_once(self) -> bool:
        """Whether a queue pair that has ended its flow sends nothing more. Flows of another round
        go by the same."""
        return self._most_rounds == 1

    def ended_senders(self) -> list[tuple[EngineNode, int]]:
        """Host and number of each end of the queue pairs whose flows have ended since the last
        call."""
        ended = self.core.ended_flows(self._ended).tolist()
        self._ended += len(ended)
        node = self._engine.node
        return [
            end
            for number in ended
            for end in (
                self._sends[number],
                (node(self._asked[number][1]), self._sends[number][1] + 1),
            )
        ]

    def sender(self, flow: int) -> tuple[EngineNode, int]:
        """Of a flow: its host and queue pair."""
        return self._sends[flow]

    def sending(self) -> list[tuple[int, int, int, EngineNode, int]]:
        """The flows under way, in order: number, source and destination (hosts), sender and its
        queue pair. Those between two ranks of a host have no sender that could be asked."""
        found = []
        for number in self.core.under_way().tolist():
            flow = number % len(self._asked)
            source, destination, _ = self._asked[flow]
            if source != destination:
                found.append((number, source, destination, *self._sends[flow]))
        return found

    def flows(self) -> FlowRows:
        found = self.core.results()
        asked = np.array(self._asked, np.int64)[found["flow"]].T
        if isinstance(self._job.job, Flows) and self._job.job.lifetimes:
            asked[2] = np.where(found["ok"] & (found["end_ps"] >= 0), found["bytes"], asked[2])
        return FlowRows(
            [
                *asked,
                found["start_ps"],
                np.where(found["ok"], found["end_ps"], -1),
                found["arrived_ps"],
            ]
        )

    def timeout_waits(self) -> dict[int, int]:
        """Of the flows that waited for retransmission timeouts: picoseconds of waiting, by place
        in flows()."""
        network, ran_out = self._engine.network, {}
        for host in {host for host, _ in self._sends}:
            for at_ps, queue_pair, waited_ps in network.transport_timeouts(host):
                ran_out.setdefault((host, queue_pair), []).append((at_ps, waited_ps))
        if not ran_out:
            return {}
        found, waits = self.core.results(), {}
        for place, (flow, start, end) in enumerate(
            zip(
                found["flow"].tolist(),
                found["start_ps"].tolist(),
                found["end_ps"].tolist(),
                strict=True,
            )
        ):
            # A queue pair carries one flow at a time.
            if waited := sum(
                waited
                for at_ps, waited in ran_out.get(self._sends[flow], ())
                if at_ps >= start and (end < 0 or at_ps <= end)
            ):
                waits[place] = waited
        return waits

    def notes(self) -> dict[str, float | int | str | None]:
        return _jitter_note(self._jitter_ps)

    def ring_steps(self, origin_ps: int) -> RingSteps | None:
        return RingSteps.of(self.core.steps(), origin_ps, self.core.steps_unlogged)

    def payload_total(self) -> float:
        return self._bytes * self._most_rounds

    def senders(self) -> dict[int, tuple[int, int, int, int]]:
        """Of each flow under way over TCP: bytes acknowledged, window (0 under a control that
        has none), srtt and least RTT (ps)."""
        carrier = self._engine.carrier(self._job.job)
        if carrier is None or not carrier.sender_states:
            return {}
        network, found = self._engine.network, {}
        for number in self.core.under_way().tolist():
            flow = number % len(self._asked)
            source, destination, _ = self._asked[flow]
            if source == destination:
                continue  # of a local link no TCP sender knows
            state = network.transport_state(*self._sends[flow], transport=carrier.model)
            acked, srtt, least = (int(state[name]) for name in ("acked", "srtt_ps", "min_rtt_ps"))
            cwnd = int(state.get("cwnd", 0))
            found[number] = (acked - self.core.acked_before(number, 0), cwnd, srtt, least)
        return found


class GraphTraffic(CoreTraffic):
    """Execution traces and connection matrices: a graph of transfers and delays."""

    def __init__(
        self,
        engine: Engine,
        asked: JobRequest,
        graph: TaskGraph,
        start_ps: int,
        *,
        jitter_ps: int = 0,
    ) -> None:
        placement = asked.placement
        self._graph, self._placement, self._start = graph, placement, start_ps
        self._jitter_ps = jitter_ps
        self._of = "" if asked.name is None else f" of {asked.name}"  # of several jobs
        self._payload = sum(task.bytes for task in graph.tasks if task.source >= 0)
        self.core = _core.GraphTraffic(
            engine.network, depth=writes_outstanding(engine.plan), job=asked.number
        )
        # Both directions of a pair share a queue pair; so do all transfers of one channel.
        numbers: dict[tuple[int, int, int], int] = {}
        number = FIRST_QP
        for task in graph.tasks:
            if task.source < 0:
                bounds.check_at(task.what or graph.name, task.duration_ps)
                self.core.delay(
                    task.duration_ps,
                    task.lane,
                    task.any,
                    None if task.rank < 0 else engine.node(placement[task.rank]),
                )
                continue
            bounds.check_job_bytes(task.what or graph.name, task.bytes)
            key = (task.source, task.destination, task.channel)
            if key not in numbers:
                number = engine.connect_pair(
                    asked, placement[task.source], placement[task.destination], number
                )
                numbers[key] = number
                numbers[task.destination, task.source, task.channel] = number + 1
                number += 2
            self.core.transfer(
                engine.node(placement[task.source]),
                engine.node(placement[task.destination]),
                numbers[key],
                task.bytes,
            )
        for task, after in enumerate(graph.after):
            for other in after:
                self.core.depend(task, task_of(other), acked=other < 0)
        self.core.start(start_ps, stop_at(asked, start_ps))

    def iterations(self, since: int = 0) -> list[tuple[int, int]]:
        if since > 0 or not self.core.done or self.core.failed:
            return []
        ends = self.core.results()
        if (ends < 0).any():
            return []  # it stopped before all of it had begun
        return [(self._start, int(ends[:, 1:].max()) if len(ends) else self._start)]

    def errors(self) -> list[RunFault]:
        if not self.core.failed:
            return []
        task, at, status = self.core.failed
        return [RunFault(at, self._graph.tasks[task].what, status)]

    def wrong(self) -> int:
        return 0

    def flows(self) -> FlowRows:
        times = self.core.results().tolist()
        return FlowRows.of(
            FlowRow(
                self._placement[task.source],
                self._placement[task.destination],
                task.bytes,
                begin,
                acked if acked >= 0 else None,
                arrived if arrived >= 0 else None,
            )
            for task, (begin, arrived, acked) in zip(self._graph.tasks, times, strict=True)
            if task.flow and begin >= 0
        )

    def notes(self) -> dict[str, float | int | str | None]:
        never = self._graph.never
        found = _jitter_note(self._jitter_ps)
        if not self._payload:
            found[f"{LIMITED_BY}compute alone{self._of}"] = "it has nothing to send between ranks"
        if never:
            found[f"never started{self._of}"] = f"{len(never)}: {', '.join(never[:8])}"
        if self._graph.passed:
            name = f"{PASSED_OVER}{Path(self._graph.name).name}{self._of}"
            found[name] = "; ".join(self._graph.passed)
        return found

    def ring_steps(self, origin_ps: int) -> None:
        return None

    def payload_total(self) -> float:
        return self._payload


def _jitter_note(jitter_ps: int) -> dict[str, float | int | str | None]:
    return {"start jitter": f"below {Time.of(jitter_ps)}"} if jitter_ps else {}


def start_traffic(
    engine: Engine,
    asked: JobRequest,
    start_ps: int,
    *,
    payload: bool,
    seed: int,
    jitter: Time | str | None = None,
) -> Traffic:
    """Begins a job of traffic at this time of the engine's clock. `jitter`: flows that start
    together do so within this time; None: within that of a packet."""
    job, placement = asked.job, asked.placement
    if isinstance(job, COLLECTIVES):
        return CollectiveTraffic(engine, asked, job, start_ps, payload=payload)
    if is_model_job(job):
        return ModelTraffic(engine, asked, job, start_ps, payload=payload)
    for part in engine.parts:
        if (own := part.traffic(engine, asked, start_ps)) is not None:
            return own
    if is_trace(job) and job.chakra:
        return GraphTraffic(engine, asked, job.graph(), start_ps)
    apart = packet_ps(engine.plan, placement) if jitter is None else Time(jitter).count
    if is_flows_of_a_file(job):
        graph = job.graph()
        if apart > 0:
            move_apart(graph, apart, seed)
        return GraphTraffic(engine, asked, graph, start_ps, jitter_ps=apart)
    rounds, gap, pairs = rounds_of(engine.plan, job, placement, seed)
    flows = moved_apart(rounds[0](start_ps), apart, seed)
    return FlowTraffic(
        engine,
        asked,
        pairs,
        flows,
        start_ps,
        payload=payload,
        rounds=len(rounds),
        gap_ps=gap,
        jitter_ps=apart,
    )


def as_iterations(
    found: Sequence[tuple[int, int]], origin_ps: int, since: int = 0
) -> list[Iteration]:
    """`since`: iterations before the first of these."""
    return [
        Iteration(i, begin - origin_ps, end - origin_ps)
        for i, (begin, end) in enumerate(found, since + 1)
    ]
