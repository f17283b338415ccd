"""Regions of real ranks whose circuits are patched: makes their queue pairs by wires and by light,
and their controllers, and reads their figures."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import loomnet._core as _core
from loomnet.base.errors import UsageError
from loomnet.base.names import quoted
from loomnet.jobs.circuit_control import CircuitControl
from loomnet.jobs.model import TorchJob
from loomnet.measures.expert_rounds import (
    ExpertRound,
    ExpertRounds,
    RegionSpan,
    RegionWait,
    kept_maps,
)
from loomnet.measures.gate_trace import GateTrace
from loomnet.plans.entries import HostPlan
from loomnet.plans.job_request import JobRequest
from loomnet.plugins.assignments import RULES
from loomnet.systems.given import PartEngine
from loomnet.systems.mixnet.traffic import KEPT_MAPS
from loomnet.systems.mixnet.ways import Ways, panel_of

# Time that a rank's report takes to its controller, and its answer back: both are messages on the
# management network.
REPORT_LATENCY_PS = 10_000_000
_LEAST_CROSSING_PS = 20_000_000
# In a live run a packet may be later than its links say, by as much as the engine is late.
_LIVE_CROSSING_PS = 100_000_000
_DISPATCH = 0


class ServerRanks:
    """Ranks of a job by server: those that share a host. `optical`: the rank in its server that has
    each optical NIC; `electrical`: those with electrical ones. Where a server has as many ranks as
    NICs, each has one, electrical ones as MixNet takes them: from the top of each NUMA node in
    turn. Else the last ranks have the electrical NICs."""

    def __init__(self, engine: PartEngine, asked: JobRequest) -> None:
        self._engine, self.hosts = engine, list(asked.hosts)
        plan = engine.plan
        sizes = {asked.placement.count(host) for host in self.hosts}
        self.size = sizes.pop() if len(sizes) == 1 else 0
        first = plan.hosts[self.hosts[0]]
        wires = sum(plane is not None for plane in first.planes)
        self.alpha = len(first.ports) - wires
        self.optical, self.electrical = _owners(self.size, self.alpha, wires)

    def environment(self, regions: int, control: CircuitControl | None) -> str:
        """As torch.expert_routes.Servers reads it; "null" where servers differ in size."""
        reuses = control is not None and control.fp_dispatch == "reuse"
        weighted = control is not None and control.split == "weighted"
        if not self.size:
            return "null"
        return json.dumps(
            {
                "size": self.size,
                "optical": self.optical,
                "reuses": reuses,
                "electrical": self.electrical,
                "regions": regions * self.size,
                "rates": self.rates() if weighted else None,
            }
        )

    def rates(self) -> tuple[int, int]:
        """Bits per second of a circuit, and of a server's electrical NICs together."""
        plan = self._engine.plan
        first = plan.hosts[self.hosts[0]]
        rates = [
            (plane is None, plan.links[link].forward.rate_bps)
            for link, plane in zip(first.ports, first.planes, strict=True)
        ]
        return (
            max(rate for light, rate in rates if light),
            sum(rate for light, rate in rates if not light),
        )


def _owners(ranks: int, optical: int, wires: int) -> tuple[list[int], list[int]]:
    if ranks == 0:
        return [], []
    nics = optical + wires
    if ranks == nics:
        half = nics // 2
        order = [
            rank
            for pair in zip(range(nics - 1, half - 1, -1), range(half - 1, -1, -1), strict=False)
            for rank in pair
        ]
        order += [rank for rank in range(nics) if rank not in order]
        electrical = sorted(order[:wires])
    else:
        count = min(max(ranks * wires // max(nics, 1), 1), ranks)
        electrical = list(range(ranks - count, ranks))
    others = [rank for rank in range(ranks) if rank not in electrical]
    return (
        [others[k * len(others) // optical] for k in range(optical)] if others else [0] * optical
    ), electrical


class RankRegions:
    """Those of one TorchJob with circuits=. Servers of one panel are a region."""

    def __init__(
        self, engine: PartEngine, asked: JobRequest, servers: ServerRanks, *, live: bool
    ) -> None:
        job = asked.job
        assert isinstance(job, TorchJob) and job.circuits is not None
        self._engine, self._asked, self._servers, self._live = engine, asked, servers, live
        self.control = job.circuits
        self._check(engine.carrier(job), job)
        self._ways = Ways(engine, asked)
        places = [self._panel(group) for group in self._groups()]
        self.size = len(servers.hosts) // len(places)  # servers of a region
        self._places = places
        # Writes use the queue pairs in turn, and the queue pairs use parallel circuits in turn.
        self.queue_pairs = 2 * servers.alpha
        self.cores: list[Any] = []
        self._pairs: dict[int, list[Any]] = {region: [] for region in range(len(places))}

    def _check(self, carrier: Any, job: TorchJob) -> None:
        servers, hosts = self._servers, self._servers.hosts
        if carrier is None or carrier.sprays:
            raise UsageError(
                f"TorchJob.circuits: transport {job.transport} does not go by one "
                "path for a queue pair, as circuits need: use roce or tcp"
            )
        if self.control.rule not in RULES:
            raise UsageError(
                f"TorchJob.circuits: rule {quoted(self.control.rule)}: of real ranks "
                f"there are {', '.join(RULES)}"
            )
        if servers.size < 2:
            raise UsageError(
                "TorchJob.circuits: every server needs the same number of ranks, 2 or "
                "more: one with its electrical NICs, others with those at the panel"
            )
        if len(hosts) < 2:
            raise UsageError("TorchJob.circuits: a region needs 2 servers or more")

    def _groups(self) -> list[list[int]]:
        """Groups of consecutive hosts that are at the same panel."""
        plan = self._engine.plan

        def panel(host: int) -> tuple[int, ...]:
            return tuple(sorted({p for p in plan.hosts[host].panels if p is not None}))

        found = [list(group) for _, group in itertools.groupby(self._servers.hosts, panel)]
        if len({len(group) for group in found}) > 1:
            raise UsageError(
                "TorchJob.circuits: regions of "
                f"{sorted({len(group) for group in found})} servers; a job's regions "
                "need the same number of servers"
            )
        return found

    def _panel(self, hosts: list[int]) -> tuple[int, int, Any]:
        found = panel_of(self._engine, hosts, self._ways)
        if found is None:
            raise UsageError(
                f"TorchJob.circuits: {self._host(hosts[0]).name} has no link to a "
                "panel; leave circuits out, or give hosts at panels"
            )
        return found

    def _host(self, number: int) -> HostPlan:
        return self._engine.plan.hosts[number]

    # --- queue pairs ------------------------------------------------------------------------------
    def connect(self, bridges: Sequence[Any]) -> None:
        """Connects all ranks, and has the controllers begin. Ranks with optical NICs of two servers
        of a region go by light where there is some, all others by wires."""
        placed = self._asked.placement
        for a, b in itertools.combinations(range(len(placed)), 2):
            for number, (there, back) in enumerate(self._between(placed[a], placed[b])):
                bridges[a].bind(b, there[2], bridges[b].key, number)
                bridges[b].bind(a, back[2], bridges[a].key, number)
                if (region := self._by_light(a, b)) is not None:
                    i, j = (self._server(rank) % self.size for rank in (a, b))
                    for (node, _, qp), ends, hosts in (
                        (there, (i, j), (placed[a], placed[b])),
                        (back, (j, i), (placed[b], placed[a])),
                    ):
                        wires = self._ways.wires(*hosts, number)
                        self._pairs[region].append((*ends, node, qp, number, wires))
        for region in range(len(self._places)):
            self.cores.append(self._region(region, bridges))

    def _server(self, rank: int) -> int:
        return rank // self._servers.size

    def _by_light(self, a: int, b: int) -> int | None:
        """The region of two ranks whose queue pairs go by its circuits."""
        owners, size = self._servers.optical, self._servers.size
        first, second = self._server(a), self._server(b)
        light = (
            first != second
            and first // self.size == second // self.size
            and a % size in owners
            and b % size in owners
        )
        return first // self.size if light else None

    def _between(self, source: int, destination: int) -> list[tuple[Any, Any]]:
        if source == destination:
            return [
                self._engine.connect_local(self._asked, source) for _ in range(self.queue_pairs)
            ]
        there, back = self._ways.spread(source, destination, self.queue_pairs)
        return list(zip(there, back, strict=True))

    # --- controllers ------------------------------------------------------------------------------
    def _region(self, region: int, bridges: Sequence[Any]) -> Any:
        each = self.size * self._servers.size
        control, engine = self.control, self._engine
        circuit, electrical = map(float, self._servers.rates())
        core = _core.RankRegion(
            engine.network,
            region=region,
            ranks=list(bridges[region * each : (region + 1) * each]),
            server_of=[rank // self._servers.size for rank in range(each)],
            repatch=control.repatch,
            fp_dispatch=control.fp_dispatch,
            demand=control.demand,
            split=control.split,
            circuit_bps=circuit,
            electrical_bps=electrical,
            latency_ps=REPORT_LATENCY_PS,
        )
        panel, first, nics = self._places[region]
        alpha = self._servers.alpha
        core.set_circuits(
            engine.node(panel),
            nics,
            first_port=first,
            servers=self.size,
            alpha=alpha,
            nics_of_server=len(self._host(self._servers.hosts[0]).ports),
            rule=control.rule,
            ties=control.ties,
            seed=engine.seed + region,
            all_dark=control.dark_scope == "all",
            drain_limit_ps=control.drain.count,
            pairs=self._pairs[region],
            crossing_ps=self._crossing(panel),
        )
        if region == 0:
            core.driver.keep_maps(KEPT_MAPS)

        def lives(alive: bool) -> None:
            (core.driver.restart if alive else core.driver.stop)(engine.network.now_ps)

        name = next(each.name for each in engine.plan.panels if each.number == panel)
        engine.panels.region_controllers.setdefault(name, []).append(lives)
        return core

    def _crossing(self, panel: int) -> int:
        """The longest that a packet is on a circuit: two fibres, and twice as long as its frame
        takes."""
        plan = self._engine.plan
        of_panel = next(each for each in plan.panels if each.number == panel)
        links = [plan.links[link].forward for link in of_panel.ports]
        delay = max(link.delay_ps for link in links)
        frame = max(10**12 * 8 * 10_000 // link.rate_bps for link in links if link.rate_bps)
        least = _LIVE_CROSSING_PS if self._live else _LEAST_CROSSING_PS
        return max(2 * delay + 2 * frame, least)

    # --- what was seen ----------------------------------------------------------------------------
    def experts(self, origin_ps: int, iterations: Sequence[tuple[int, int]]) -> ExpertRounds:
        """`origin_ps`: of the job, on the engine's clock; `iterations`: their begin and end since
        then."""
        found = ExpertRounds(regions=len(self.cores))
        for region, core in enumerate(self.cores):
            driver = core.driver
            found.patches += driver.patches
            found.left_out += driver.events_left_out + core.rounds_left_out
            found.maps = max(found.maps, driver.maps)
            found.events.add(region, driver.events(), origin_ps)
            found.waits += [
                RegionWait(
                    region,
                    iteration,
                    layer,
                    micro_batch,
                    phase,
                    asked - origin_ps,
                    answered - asked,
                )
                for iteration, layer, micro_batch, phase, asked, answered, _ in core.rounds()
            ]
        # Of the first region, as a traffic model has them, to be drawn.
        for each in found.waits:
            if each.region == 0:
                span = (
                    each.phase >= 2,
                    each.layer,
                    each.micro_batch,
                    each.iteration,
                    each.at_ps,
                    each.at_ps + each.exposed_ps,
                )
                if each.phase == _DISPATCH:
                    found.spans.append(RegionSpan("dispatch", *span))
                found.spans.append(RegionSpan("blocked", *span))
        if self.cores:
            found.kept = kept_maps(self.cores[0].driver.kept_maps(), origin_ps, self.size)
        for begin, end in iterations:
            waited = [0] * found.regions
            for each in found.waits:
                if begin < each.at_ps + each.exposed_ps <= end:
                    waited[each.region] += each.exposed_ps
            found.rounds.append(
                ExpertRound(
                    begin,
                    end,
                    max(waited),
                    sum(waited) // found.regions,
                    max(waited),
                    None,
                    None,
                    None,
                    None,
                )
            )
        return found

    def refusal(self) -> str | None:
        """The reason for which a panel refused the last request."""
        return next((core.driver.refusal for core in self.cores if core.driver.refusal), None)

    def trace(self) -> GateTrace:
        """The counts of the job's gates."""
        found = GateTrace()
        for region, core in enumerate(self.cores):
            for iteration, layer, micro_batch, phase, _, _, tokens in core.rounds():
                if phase == _DISPATCH:
                    found.add(iteration, micro_batch, region, layer, tokens)
        return found
