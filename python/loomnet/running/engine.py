"""A plan in the engine: the C++ network built from it, queue pairs between ranks, the timetable's
changes applied, and what was measured read back as raw series. Used by both clocks."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, assert_never

import numpy

import loomnet._core as _core
from loomnet.base.errors import UsageError
from loomnet.fabrics.nodes import FORWARD
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
from loomnet.jobs.model import Job
from loomnet.jobs.task_graph import PASSED_OVER
from loomnet.measures.run_data import HostSeries
from loomnet.measures.switch_state import SwitchState
from loomnet.plans.entries import HalfLinkPlan, SwitchPlan
from loomnet.plans.job_request import JobRequest
from loomnet.plans.marks_text import marks_text
from loomnet.plans.model import Plan
from loomnet.plans.usid_plan import PlanePaths
from loomnet.plugins.failures import Pending
from loomnet.programs.c_file import notes_of
from loomnet.running.engine_counters import counters
from loomnet.running.engine_numbers import EngineHalf, EngineLink, EngineNode
from loomnet.running.engine_panels import EnginePanels
from loomnet.running.engine_paths import EnginePaths
from loomnet.running.engine_settings import link_config
from loomnet.running.engine_tables import Batches, EngineTables
from loomnet.running.fluid import fluid_notes, set_fluid_transport
from loomnet.systems.registry import carriers_of, carrying, program, transport
from loomnet.systems.system import RunPart
from loomnet.systems.transport import Notes, Transport, Window

MOST_BINS = 1 << 23  # of payload over time, all hosts together
FIRST_QP = 0x100  # 0 to 2 are taken by the transports' own end points
_HASH_PURPOSE = 0x9E3779B97F4A7C15


class QueuePair(NamedTuple):
    """One end of a queue pair of a job. `number`: at `source`; `connected_ps` and `begins_ps`: when
    the job starts, and before when it sends nothing."""

    job: int
    source: int
    destination: int
    number: int
    connected_ps: int
    begins_ps: int


End = tuple[EngineNode, EngineNode, int]  # of a queue pair: its host, the other's, its number


class Engine:
    """A network of the engine, numbered as its plan. NICs have the transports that carry `jobs`
    beside their hosts' kernel traffic, with the tables of `options` that have their names. `live`:
    jobs over the kernel's sockets have no transport in the engine, switches are where the plan
    places them, and packets of those in the kernel pass the live gate."""

    def __init__(
        self,
        plan: Plan,
        jobs: Iterable[Job] = (),
        *,
        live: bool = False,
        options: Mapping[str, Any] | None = None,
        of_hosts: Mapping[int, Mapping[str, Mapping[str, Any]]] | None = None,
        bin_ps: int = 10**9,
        seed: int | None = None,
        parts: Sequence[RunPart] = (),
        dilation: float = 1.0,
        fluid: bool = False,
    ) -> None:
        self.plan = plan
        self.parts = tuple(parts)
        self.live = live
        self.plugins = Pending()  # exceptions of plug-ins that events of the engine call
        jobs = tuple(jobs)
        carriers = {
            each.name: each for each in map(self._model, carriers_of(jobs)) if each is not None
        }
        self.transports = tuple(carriers.values())
        self._given = given = options or {}
        self._defaults = {
            name: each.live_options(dilation) if live else {} for name, each in carriers.items()
        }
        self._options = {
            name: {**defaults, **given.get(name, {})} for name, defaults in self._defaults.items()
        }
        self._of_hosts = of_hosts or {}  # tables of options of hosts that have their own
        self.seed = plan.seed if seed is None else seed
        # What all hosts' meters keep together stays within a few hundred megabytes.
        bins = max(min(MOST_BINS // max(len(plan.hosts), 1), 1 << 20), 512)
        self.network = _core.Network(seed=self.seed, meter_bin_ps=bin_ps, meter_bins=bins)
        # Live, packets of hosts' kernels need routes beside those that go by uSIDs.
        self.tables = EngineTables(
            plan,
            self.parts,
            routed=live or not (self.transports and all(each.by_usids for each in self.transports)),
        )
        # The engine counts what is there; a plan made in part keeps the numbers of the whole.
        self._node: dict[int, EngineNode] = {}
        for host in plan.hosts:
            node = self.network.add_host(len(host.ports), identity=host.number)
            self._node[host.number] = node
            if host.ranks > 1:
                self.network.set_local_link(
                    node, rate_bps=host.local_rate_bps, delay_ps=host.local_delay_ps
                )
        for switch in plan.switches:
            kernel = live and switch.in_kernel
            node = self.network.add_switch(
                len(switch.ports),
                kernel=kernel,
                hash_seed=self.hash_seed(switch.number),
                buffer_bytes=switch.buffer_bytes,
                pfc=switch.pfc,
                program=switch.program,
                options=self.program_settings(switch),
            )
            self._node[switch.number] = node
            if not kernel:
                self.network.set_tables(node, self.tables.next(switch))
        self.panels = EnginePanels(
            plan,
            self.network,
            self._node,
            live=live,
            reroute=self._reroute,
            single=[each.name for each in self.transports if each.cuts_messages],
            patched=any(job.patches for job in jobs),
        )
        self._paths = EnginePaths(plan, self.panels)
        # Of two hosts: the queue pairs of the first to the second, each with its transport.
        self._between: dict[tuple[int, int], list[tuple[int, Transport]]] = {}
        self._wire()
        # Made here, where all links are there; None: hosts send packets.
        self.fluid = _core.FluidFabric(self.network) if fluid else None
        try:
            for host in plan.hosts:
                self._set_transports(host.number)
        except (ValueError, TypeError, OverflowError) as error:
            # An option by a wrong name, of a wrong type or out of range.
            raise UsageError(f"run: {error}") from None
        self._flow = 0
        self._last_totals: dict[str, dict[str, int]] | None = None  # once counters stand
        self._noted: list[QueuePair] | None = None  # None: note_queue_pairs() was not called

    def _wire(self) -> None:
        """The links, in the order of the plan's columns: a link's place there is its number."""
        links = self.plan.links
        there = numpy.array(list(self._node), numpy.int64)
        order = numpy.argsort(there)
        nodes = numpy.array(list(self._node.values()), numpy.int64)[order]
        rows = links.rows[:, 1:].copy()
        for column in (0, 2):
            rows[:, column] = nodes[numpy.searchsorted(there, rows[:, column], sorter=order)]
        made = self.plan.made
        if "links" not in made:
            made["links"] = [link_config(each) for each in links.settings]
        self.network.connect_many(rows, self._stream(links.numbers), links.kinds, made["links"])

    def _stream(self, link: Any) -> Any:
        """Random stream of a link's first half: the object id it has in a whole fabric."""
        return self.plan.counts[0] + 2 + 2 * link

    # --- the plan's numbers and the engine's ------------------------------------------------------
    def node(self, number: int) -> EngineNode:
        """Of a host or switch of the plan."""
        return self._node[number]

    def nodes(self, numbers: Iterable[int]) -> list[EngineNode]:
        return [self._node[number] for number in numbers]

    def link(self, number: int) -> EngineLink:
        return EngineLink(self.plan.links.place(number))

    def half(self, number: int) -> EngineHalf:
        """Of a direction of a link of the plan."""
        return EngineHalf(2 * self.link(number // 2) + number % 2)

    def halves(self, numbers: Iterable[int]) -> list[EngineHalf]:
        return [self.half(number) for number in numbers]

    def planned(self, half: EngineHalf) -> HalfLinkPlan:
        """What the plan says of a direction of the engine's."""
        return self.plan.half(2 * int(self.plan.links.numbers[half // 2]) + half % 2)

    @cached_property
    def names(self) -> dict[EngineNode, str]:
        """The hosts and switches that are there."""
        return {node: self.plan.topology.names[number] for number, node in self._node.items()}

    def close_meters(self, jobs: Iterable[JobRequest]) -> None:
        """Ends what the hosts' meters of these jobs have open; their series are complete."""
        for asked in jobs:
            for host in asked.hosts:
                self.network.close_meter(self._node[host], asked.number)

    def kernel_traffic_is_of(self, asked: JobRequest) -> None:
        """What the kernels of this job's hosts receive counts for the job."""
        for node in self.nodes(asked.hosts):
            self.network.set_kernel_job(node, asked.number)

    def run_counters(self, asked: JobRequest) -> dict[str, int]:
        """Counters over a job's hosts. Payload, working and finished are the job's, the others
        are what all jobs of these hosts have in common."""
        return self.network.run_counters(self.nodes(asked.hosts), asked.number)

    def hash_seed(self, node: int) -> int:
        """Seed of a switch's ECMP hash; every switch its own, else choices polarise."""
        return ((self.seed + 1) * _HASH_PURPOSE + node * 0xBF58476D1CE4E5B9) % 2**64

    def carrier(self, job: Job) -> Transport | None:
        """The engine's transport that carries a job; None where its hosts' kernels do."""
        return self._model(transport(job.transport))

    def _model(self, asked: Transport) -> Transport | None:
        if not self.live:
            return transport(asked.model)
        return None if asked.by_kernel else asked

    def _set_transports(self, host: int) -> None:
        made = self.plan.made
        if (rates := made.get(("rates", host))) is None:
            rates = made["rates", host] = list(self.plan.port_rates(self.plan.hosts[host]))
        for each in self.transports:
            table = self._table_of(each, host)
            chosen = each.engine_options(table, self.plan, rates)
            self.network.set_transport(self._node[host], each.model, chosen)
            if self.fluid is not None:  # takes its place, once its options have been checked
                set_fluid_transport(
                    self.fluid, self._node[host], each, self._options[each.name], self.plan
                )

    def _table_of(self, carrier: Transport, host: int) -> dict[str, Any]:
        own = self._of_hosts.get(host, {}).get(carrier.model)
        return (
            self._options[carrier.name] if own is None else {**self._defaults[carrier.name], **own}
        )

    def window(self, carrier: Transport, host: int) -> Window | None:
        """What bounds the carrier's senders at a host; None where nothing does."""
        rates = self.plan.port_rates(self.plan.hosts[host])
        return carrier.window(self._table_of(carrier, host), self.plan, rates)

    def transport_notes(self) -> Notes:
        """Notes of a run that is over: first what has no effect of the file or graph that the
        fabric was made from, and C files of switch programs, then the notes of each transport."""
        fabric = self.plan.topology.fabric
        found: Notes = {}
        if fabric.passed:
            found[f"{PASSED_OVER}{fabric.name}"] = "; ".join(fabric.passed)
        found |= notes_of(fabric.programs.values())
        if (marks := marks_text(self.plan)) is not None:
            found["marks by transport"] = marks
        if self.fluid is not None:
            return found | fluid_notes(self.fluid)
        for each in self.transports:
            tables = [self._options[each.name]]
            tables += [self._table_of(each, host) for host in self._of_hosts]
            for table in {repr(table): table for table in tables}.values():
                found |= each.notes(self, table)
        return found

    # --- switches ---------------------------------------------------------------------------------
    def program_settings(self, switch: SwitchPlan) -> dict[str, Any]:
        """Options of a switch's program in this run."""
        found = program(switch.program)
        return found.settings(switch, self.plan, self._given) | found.settings_of(
            switch, self.parts
        )

    def tables_after(self, change: RouteChange | SwitchChange) -> Batches:
        """Which switches get which tables by this change; parts move with the routes."""
        if isinstance(change, RouteChange):
            for part in self.parts:
                part.on_routes(self, change.tables)
        return self.tables.after(change)

    @cached_property
    def with_state(self) -> list[SwitchPlan]:
        """Switches whose program may hold a state: "forward" holds none."""
        return [switch for switch in self.plan.switches if switch.program != FORWARD]

    def switch_state(self, switch: SwitchPlan) -> SwitchState:
        """What a switch's program has counted and holds, where the engine runs it."""
        node = self._node[switch.number]
        return SwitchState.of(
            switch, self.network.switch_counters(node), self.network.switch_snapshot(node)
        )

    def switch_columns(self, switch: SwitchPlan, names: Sequence[str]) -> list[Any]:
        """Fields of the state of a switch's program, where the engine runs it: an array each."""
        return self.network.switch_columns(self._node[switch.number], list(names))

    def reboot(self, switch: int) -> None:
        """The state of a switch's program is zeros and its tables are gone, where the engine runs
        it; what it counted stays."""
        self.network.reset_switch(self._node[switch])

    # --- queue pairs ------------------------------------------------------------------------------
    def connect(
        self,
        asked: JobRequest,
        source: int,
        local: int,
        destination: int,
        remote: int,
        begins_ps: int = 0,
    ) -> None:
        """Connects a queue pair of a job both ways, when the job starts; numbers are the ends' own.
        `begins_ps`: before this nothing is sent. Between two ranks of one host the NIC takes the
        host's local link, which has no paths."""
        by = self.carrier(asked.job)
        assert by is not None
        (there, planes), (back, far_planes) = (
            self._paths.rows(source, destination, by),
            self._paths.rows(destination, source, by),
        )
        first, last = self._node[source], self._node[destination]
        flow = self.next_flow()
        for ends, own in (
            ((first, local, last, remote, flow, there, back), planes),
            ((last, remote, first, local, flow, back, there), far_planes),
        ):
            self.network.connect_qp(
                *ends, job=asked.number, transport=by.model, planes=own, at_ps=asked.start_ps
            )
        if source == destination:
            return
        if self.panels.lead:
            self._between.setdefault((source, destination), []).append((local, by))
            self._between.setdefault((destination, source), []).append((remote, by))
        if self._noted is not None:
            begins = max(begins_ps, asked.start_ps)
            self._noted += [
                QueuePair(asked.number, source, destination, local, asked.start_ps, begins),
                QueuePair(asked.number, destination, source, remote, asked.start_ps, begins),
            ]

    def connect_local(self, asked: JobRequest, host: int) -> tuple[End, End]:
        """Connects a queue pair between two ranks of a host; its ends, as (node, node, number)."""
        node = self._node[host]
        first = self.network.reserve_qps(node, 2)
        self.connect(asked, host, first, host, first + 1)
        return (node, node, first), (node, node, first + 1)

    def note_queue_pairs(self) -> list[QueuePair]:
        """Each end of a queue pair that connect() is asked for from now on."""
        self._noted = [] if self._noted is None else self._noted
        return self._noted

    def path_row(self, paths: PlanePaths, spare: float = 1.0) -> tuple[Any, ...]:
        """A path template as connect_qp takes it."""
        return self._paths.row(paths, spare)

    def _reroute(self, hosts: Iterable[tuple[int, int]]) -> None:
        """Queue pairs of these pairs of hosts leave by the paths that they have now."""
        for source, destination in [way for a, b in hosts for way in ((a, b), (b, a))]:
            for number, by in self._between.get((source, destination), ()):
                rows, planes = self._paths.rows(source, destination, by)
                self.network.set_paths(self._node[source], number, rows, planes=planes)

    def connect_mesh(self, asked: JobRequest) -> dict[tuple[int, int], int]:
        """Queue pairs between all ranks of a job; (rank, peer) -> number at rank."""
        hosts = asked.placement
        first = [self.network.reserve_qps(node, len(hosts)) for node in self.nodes(hosts)]
        numbers: dict[tuple[int, int], int] = {}
        for a, b in itertools.combinations(range(len(hosts)), 2):
            numbers[a, b], numbers[b, a] = first[a] + b, first[b] + a
            self.connect(asked, hosts[a], numbers[a, b], hosts[b], numbers[b, a])
        return numbers

    def carrying(self, asked: JobRequest) -> RunPart | None:
        """The part that makes a job's all-reduces; None where its ranks do."""
        return carrying(self.parts, asked)

    def next_flow(self) -> int:
        """A number that no queue pair has for its flow."""
        self._flow += 1
        return self._flow

    def forget(self, asked: JobRequest) -> Batches:
        """The job is over: tables of switches that hold something for it, without it."""
        return [
            batch
            for part in self.parts
            if (switches := part.forget(self, asked))
            for batch in self.tables.again(switches)
        ]

    def connect_pair(
        self, asked: JobRequest, source: int, destination: int, least: int, begins_ps: int = 0
    ) -> int:
        """Connects a queue pair of a job between two hosts. Returns its number at the source,
        `least` or the next that is free at both ends; at the destination it has the one behind."""
        ends = (self._node[source], self._node[destination])
        number = max(least, *(self.network.reserve_qps(node, 0) for node in ends))
        self.connect(asked, source, number, destination, number + 1, begins_ps)
        return number

    def queued(self, halves: Iterable[int]) -> list[int]:
        """Bytes that wait in the ports that send into these directions, now."""
        return self.network.queued(self.halves(halves))

    def carried(self, halves: Iterable[int]) -> list[int]:
        """Bytes that these directions of links have carried so far."""
        return self.network.carried(self.halves(halves))

    # --- changes ----------------------------------------------------------------------------------
    def apply(self, changes: Iterable[Change], at_ps: int) -> None:
        """Puts the timetable's changes on the engine's schedule at this time (engine clock)."""
        for change in changes:
            if isinstance(change, LinkChange):
                half, state = self.plan.half(change.half), change.state
                ahead = change.half % 2 == 0
                self.panels.carry(change.half // 2, state.up)
                self.network.schedule_link(
                    at_ps,
                    self.link(change.half // 2),
                    forward=ahead,
                    backward=not ahead,
                    up=state.up,
                    rate_bps=None if half.glass else max(round(half.rate_bps * state.share), 1),
                    queue_share=half.queue_share(state.queue_share, self.plan.frame_bytes),
                    delay_ps=half.delay_ps + state.extra_delay_ps,
                    impairment=state.impairment,
                )
            elif isinstance(change, CircuitChange):
                self.panels.patch(change)
            elif isinstance(change, ControllerChange):
                self.panels.control(change)
            elif isinstance(change, RouteChange | SwitchChange):
                if isinstance(change, SwitchChange):
                    self.reboot(change.node)
                for switch, tables in self.tables_after(change):
                    self.network.schedule_tables(at_ps, self._node[switch.number], tables)
            # A phase is of the report alone; senders are the run loop's.
            elif not isinstance(change, PhaseChange | SendersChange):
                assert_never(change)

    # --- figures ----------------------------------------------------------------------------------
    def series(self, host: int, job: int, origin_ps: int) -> HostSeries:
        """What one host saw of a job, in time since `origin_ps`."""
        raw = self.network.meter(self._node[host], job)
        bin_ps = raw["bin_ps"]
        skip = origin_ps // bin_ps  # bins are aligned with the engine's clock
        return HostSeries(
            work=raw["work"] - (origin_ps, origin_ps, 0),
            busy=raw["busy"] - origin_ps,
            silences=raw["silences"] - origin_ps,
            payload=raw["bins"][skip:],
            bin_ps=bin_ps,
            silence_floor_ps=bin_ps // 10,
        )

    def totals(self) -> dict[str, dict[str, int]]:
        """Every counter by object: links with traffic or drops, switches, NICs; zeros left out."""
        return self._counters() if self._last_totals is None else self._last_totals

    def stand(self) -> None:
        """No counter moves any more: totals(), asked for twice at a run's end, are those of now."""
        self._last_totals = self._counters()

    def _counters(self) -> dict[str, dict[str, int]]:
        return counters(self.plan, self.network, self.node)

    def link_bps(self, host: int) -> int:
        """The rate at which a host's ports send together."""
        return sum(self.plan.port_rates(self.plan.hosts[host]))

    def deadlock(self) -> str:
        """The links that PFC holds in a circle now, as what a stall's reason adds; or nothing."""
        circle = [self.planned(half).name for half in self.network.pause_cycle()]
        return f"; PFC deadlock: {', '.join(circle)} wait for one another" if circle else ""

    def remark(self, asked: JobRequest) -> str:
        """What parts of the run say of a job's results while it plays."""
        return "; ".join(said for part in self.parts if (said := part.remark(asked)))

    def stall(self, asked: JobRequest) -> str:
        """Of a job that has stalled: what parts of the run say that it waits for; or nothing."""
        return "".join(part.stall(asked) for part in self.parts)
