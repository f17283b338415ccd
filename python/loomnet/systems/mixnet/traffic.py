"""Runs a mixture of experts in the engine: makes its regions with their circuits and its queue
pairs, and reads its figures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import loomnet._core as _core
from loomnet.base.errors import UsageError
from loomnet.jobs.moe_job import GPUS, MoeJob
from loomnet.measures.expert_rounds import (
    ExpertRound,
    ExpertRounds,
    RegionSpan,
    kept_maps,
)
from loomnet.measures.flow_rows import FlowRows
from loomnet.measures.run_data import RunFault
from loomnet.plans.job_request import JobRequest
from loomnet.plans.model import MESSAGE_BYTES, writes_outstanding
from loomnet.plugins.assignments import assigner_made, check_rule, circuits_of
from loomnet.systems.given import PartEngine
from loomnet.systems.mixnet.gates import gate_counts
from loomnet.systems.mixnet.ways import Way, Ways, panel_of

_WHOLE = 1 << 30  # bytes of a fluid write; shorter writes would gain nothing
# share of a circuit's rate that is payload: 4,096 of 4,202 bytes, with headers and gaps
_PAYLOAD = 0.975
KEPT_MAPS = 1 << 12  # circuit maps of the first region
_SPANS = 1 << 16  # of the first region, which are kept to be drawn


class MoeTraffic:
    """Iterations of a mixture of experts. Packets have lengths but carry no bytes."""

    def __init__(self, engine: PartEngine, asked: JobRequest, job: MoeJob, start_ps: int) -> None:
        self._engine, self._job, self._start_ps = engine, job, start_ps
        self._ways = ways = Ways(engine, asked)
        self._servers = job.servers_of(asked.placement)
        self._replicas = job.replicas(len(asked.placement))
        self.regions = self._replicas * job.stages
        self._direct = len(set(self._servers[0])) > 1
        control = job.circuits
        places = [
            None
            if self._direct or control is None
            else panel_of(engine, [server[0] for server in self._region(r)], ways)
            for r in range(self.regions)
        ]
        self.patched = [r for r, place in enumerate(places) if place is not None]
        optical = {len(place[2]) // job.region_servers for place in places if place is not None}
        alpha = optical.pop() if len(optical) == 1 else 0
        carrier = engine.carrier(job)
        if alpha and carrier is not None and carrier.sprays:
            raise UsageError(
                f"run: transport {job.transport} sprays over all paths of two hosts, "
                "and circuits need queue pairs with one path: use roce or tcp"
            )
        if optical:
            raise UsageError(
                "run: regions have panels of different sizes; give all servers "
                "equally many links to their panels"
            )
        first_hop = engine.plan.hosts[self._servers[0][0]]
        rates = [engine.plan.links[link].forward.rate_bps for link in first_hop.ports]
        wires = [rates[port] for port in ways.electrical(first_hop.number)]
        fluid = engine.fluid is not None
        eps_first = control is not None and control.eps_during_dark == "eps_first"
        counts = gate_counts(job, self._replicas, engine.seed)
        self.core = _core.MoeTraffic(
            engine.network,
            job=asked.number,
            degrees=[job.expert_ranks, job.tensor_ranks, job.stages, self._replicas],
            gpus=GPUS,
            micro_batches=job.micro_batches,
            layers=job.stage_layers,
            counts=counts,
            work={
                "attention_ps": job.attention_ps,
                "experts_ps": job.experts_ps,
                "per_rank": job.bytes_per_rank,
                "local_bps": self._local_bps(first_hop),
                "direct": self._direct,
                "fp_dispatch": control.fp_dispatch if control else "block",
                "repatch": control.repatch if control and control.repatch != "rotor" else "never",
                "demand": control.demand if control else "max",
                "eps_first": eps_first,
            },
            exchange={
                "alpha": alpha,
                "split": control.split if control else "all_or_nothing",
                # A transport whose queue pairs have one path divides bytes evenly; a fluid
                # one shares links.
                "even": control is not None and control.members == "lumped" and not fluid,
                "circuit_bps": float(
                    max(rates) if not alpha else rates[ways.optical(first_hop.number)[0]]
                ),
                "electrical_bps": float(sum(wires)) * (GPUS if self._direct else 1),
            },
            activations=job.activation_bytes,
            gradients=job.gradient_bytes,
            iterations=job.iterations,
            start_ps=start_ps,
            stop_ps=None if asked.begins_for_ps is None else start_ps + asked.begins_for_ps,
            message=_WHOLE if fluid and not eps_first else MESSAGE_BYTES,
            depth=writes_outstanding(engine.plan),
        )
        self._connect(alpha)
        for server, gpu in job.spares:
            if server >= len(self._servers):
                raise UsageError(
                    f"MoeJob.spares: no server {server}: the job has {len(self._servers)}"
                )
            self.core.set_spare(server // job.region_servers, server % job.region_servers, gpu)
        self._rotating: list[int] = []  # regions
        rotates = control is not None and control.repatch == "rotor"
        for region in self.patched:
            assert control is not None
            place = places[region]
            assert place is not None
            panel, first, nics = place
            if rotates:
                if alpha == 0 or job.region_servers < 2:
                    continue
                rate = rates[ways.optical(first_hop.number)[0]]
                self.core.set_rotor(
                    region,
                    engine.node(panel),
                    nics,
                    first_port=first,
                    slot_ps=control.slot.count,
                    slot_bytes=max(round(rate / 8 * control.slot.count / 1e12 * _PAYLOAD), 1),
                )
                self._rotating.append(region)
                continue
            check_rule("CircuitControl", control.rule)
            self.core.set_circuits(
                region,
                engine.node(panel),
                nics,
                first_port=first,
                nics_of_server=len(first_hop.ports) if len(wires) > 1 else GPUS,
                rule=control.rule,
                ties=control.ties,
                seed=engine.seed + region,
                all_dark=control.dark_scope == "all",
                drain_limit_ps=control.drain.count,
                assigner=self._assigner(control.rule, region, alpha),
            )
            name = next(each.name for each in engine.plan.panels if each.number == panel)
            engine.panels.region_controllers.setdefault(name, []).append(self._fate(region))
        if rotates:
            self.patched = []  # there are no controllers to report on
        if 0 in self.patched:
            self.core.driver(0).keep_maps(KEPT_MAPS)
        self.core.keep_spans(0, _SPANS)
        self.core.start()

    def _fate(self, region: int) -> Callable[[bool], None]:
        def lives(alive: bool) -> None:
            driver = self.core.driver(region)
            (driver.restart if alive else driver.stop)(self._engine.network.now_ps)

        return lives

    def _local_bps(self, host: Any) -> int:
        if self._job.nvlink is not None:
            return self._job.nvlink.count
        return host.local_rate_bps

    def _region(self, region: int) -> list[tuple[int, ...]]:
        each = self._job.region_servers
        return self._servers[region * each : (region + 1) * each]

    # --- queue pairs ------------------------------------------------------------------------------
    def _connect(self, alpha: int) -> None:
        job, control = self._job, self._job.circuits
        servers = job.region_servers
        for region in range(self.regions):
            mine = self._region(region)
            for i in range(servers):
                for j in range(i + 1, servers):
                    there, back = self._wires(mine[i], mine[j])
                    self.core.set_electrical(region, i, j, there)
                    self.core.set_electrical(region, j, i, back)
                    if region in self.patched:
                        assert control is not None
                        one = control.members == "lumped" and self._engine.fluid is not None
                        count = 1 if one else alpha
                        a, b = mine[i][0], mine[j][0]
                        there, back = self._ways.by_light(a, b, count)
                        self.core.set_optical(region, i, j, there, self._ways.fallback(a, b))
                        self.core.set_optical(region, j, i, back, self._ways.fallback(b, a))
        if job.activation_bytes:
            for region in range(self.regions):
                if (region + 1) % job.stages == 0:
                    continue
                for server, (a, b) in enumerate(
                    zip(self._region(region), self._region(region + 1), strict=True)
                ):
                    there, back = self._parallel(a, b)
                    self.core.set_stage_ways(region, server, False, there)
                    self.core.set_stage_ways(region + 1, server, True, back)
        if self._replicas > 1 and job.gradient_bytes:
            for region in range(self.regions):
                following = (region + job.stages) % self.regions
                for server, (a, b) in enumerate(
                    zip(self._region(region), self._region(following), strict=True)
                ):
                    self.core.set_ring_ways(region, server, self._parallel(a, b)[0])

    def _wires(self, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[list[Way], list[Way]]:
        """Ways between two servers of a region. Where GPUs have NICs of their own, entry
        from * GPUS + to is the way between these two GPUs, for those that experts use."""
        if not self._direct:
            return self._ways.by_wire(a[0], b[0])
        # Queue pairs between GPUs of one rank of their experts' tensor-parallel groups.
        tensor = self._job.tensor_ranks
        there: list[Way | None] = [None] * GPUS**2
        back: list[Way | None] = [None] * GPUS**2
        for x in range(GPUS):
            for y in range(GPUS):
                if x % tensor == y % tensor:
                    ahead, behind = self._ways.by_wire(a[x], b[y])
                    there[x * GPUS + y], back[y * GPUS + x] = ahead[0], behind[0]
        return _filled(there), _filled(back)

    def _parallel(self, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[list[Way], list[Way]]:
        """Ways from each NIC of a server to the NIC of the same number of the other."""
        if not self._direct:
            return self._ways.by_wire(a[0], b[0])
        both = [self._ways.by_wire(x, y) for x, y in zip(a, b, strict=True)]
        return [ahead[0] for ahead, _ in both], [behind[0] for _, behind in both]

    def _assigner(self, rule: str, region: int, alpha: int) -> Any:
        made = assigner_made(rule)
        if made is None:
            return None
        servers, pending = self._job.region_servers, self._engine.plugins

        def ask(demand: list[int], free: list[int]) -> list[int]:
            previous = np.zeros((servers, servers), np.int64)
            for port, peer in enumerate(self.core.driver(region).circuits()):
                if peer >= 0:
                    previous[port // alpha, peer // alpha] += 1
            if pending.raised is not None:
                return previous.ravel().tolist()
            wanted = np.array(demand, np.int64).reshape(servers, servers)
            try:
                return (
                    circuits_of(rule, made, wanted, np.array(free, np.int64), previous)
                    .ravel()
                    .tolist()
                )
            # raised by check(): the engine cannot pass it on from an event
            except BaseException as error:
                pending.raised = error
                return previous.ravel().tolist()

        return ask

    # --- a job under way --------------------------------------------------------------------------
    @property
    def done(self) -> bool:
        return self.core.done

    @property
    def ended_ps(self) -> int:
        return self.core.ended_ps

    def iterations(self, since: int = 0) -> list[tuple[int, int]]:
        return self.core.spans_of_iterations(since).tolist()

    def errors(self) -> list[RunFault]:
        return [
            RunFault(at, f"region {region} server {server}", message)
            for region, server, at, message in self.core.failures()
        ]

    def check(self) -> None:
        self._engine.plugins.check()

    def wrong(self) -> int | None:
        return None

    def flows(self) -> FlowRows:
        return FlowRows()

    def notes(self) -> dict[str, float | int | str | None]:
        refused = [why for region in self.patched if (why := self.core.driver(region).refusal)]
        found: dict[str, float | int | str | None] = {}
        if refused:
            found["circuits refused"] = refused[0]
        if self._rotating:
            turns, longer = zip(*map(self.core.turns, self._rotating), strict=True)
            found["turns of circuits"] = sum(turns)
            # Time beyond their slots, until the bytes that they had sent had arrived.
            found["longer by, us each"] = sum(longer) / max(sum(turns), 1) / 1e6
        return found

    def ring_steps(self, origin_ps: int) -> None:
        return None

    def payload_total(self) -> None:
        return None

    def experts(self) -> ExpertRounds:
        core, origin = self.core, self._start_ps
        found = ExpertRounds(regions=self.regions, rotates=bool(self._rotating))
        for begin, end, exposed, mean, most, optical, electrical in core.iterations():
            found.rounds.append(
                ExpertRound(
                    begin - origin,
                    end - origin,
                    exposed,
                    mean[0],
                    most[0],
                    mean[1],
                    mean[2],
                    optical,
                    electrical,
                )
            )
        for region in self.patched:
            driver = core.driver(region)
            found.patches += driver.patches
            found.left_out += driver.events_left_out
            found.maps = max(found.maps, driver.maps)
            found.events.add(region, driver.events(), origin)
        if 0 in self.patched:
            found.kept = kept_maps(core.driver(0).kept_maps(), origin, self._job.region_servers)
        found.spans = [
            RegionSpan(*row[:5], row[5] - origin, row[6] - origin) for row in core.spans(0)
        ]
        return found


def _filled(ways: list[Way | None]) -> list[Way]:
    """Replaces None, at numbers that no flow uses, by the way of another number."""
    some = next(way for way in ways if way is not None)
    return [some if way is None else way for way in ways]
