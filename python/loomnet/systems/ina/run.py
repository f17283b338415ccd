"""Jobs whose all-reduces switches sum: what of a run's plan their switches, workers and parameter
servers are told."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import loomnet._core as _core
from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean, quoted
from loomnet.base.units import Time
from loomnet.faults.expected_capacity import sum_capacity
from loomnet.faults.timetable import LinkState
from loomnet.jobs.kinds import is_model_job
from loomnet.jobs.model import TorchJob
from loomnet.measures.run_data import OwnFigure, RunData
from loomnet.plans.ecmp import EcmpTables
from loomnet.plans.job_request import ONLY_JOB, JobRequest
from loomnet.plans.model import Plan, SwitchPlan
from loomnet.systems.given import Memory, PartClock, PartEngine
from loomnet.systems.ina.options import NAME, SERVER
from loomnet.systems.ina.pool import (
    FIXED_SCALE,
    MOST_SUM_SLOTS,
    MOST_WINDOW,
    QUANTS,
    SCHEMES,
    SUM_STAGING,
    WINDOW,
    SumPool,
)
from loomnet.systems.ina.trees import SumTree, sum_tree
from loomnet.systems.ina.watch import PoolWatch, pools_step
from loomnet.systems.system import RunPart
from loomnet.systems.transport import Notes, Transport


@dataclass(frozen=True)
class SumJob:
    """A job of a run, as switches and hosts know it. `group` is its number on the wire."""

    group: int
    workers: tuple[int, ...]  # hosts by worker number
    server: int  # host
    window: int  # fragments
    trees: tuple[SumTree, ...]

    def member(self, worker: int | None) -> tuple[int, int, int | None, int, list[list[int]]]:
        """A worker's place in the group, or its server's, as connect_qp takes it."""
        return self.group, len(self.workers), worker, self.window, self.hops

    def described(self, names: Sequence[str], server: str | None) -> str:
        """Its trees and, where it has one, its parameter server by name, for a report."""
        parts = []
        for tree in self.trees:
            below = ", ".join(names[node] for node in sorted(tree.places) if node != tree.root)
            parts.append(f"plane {tree.plane}: root {names[tree.root]}"
                         + (f" with {below} below" if below else ""))
        if server is not None:
            parts.append(f"parameter server {server}")
        return "; ".join(parts)

    @property
    def hops(self) -> list[list[int]]:
        """Of each tree the switches that have slots."""
        return [list(tree.hops) for tree in self.trees]

    def paths(self, planes: int) -> list[Any]:
        """Of each plane what connect_qp takes of its paths: a plane without a tree has none."""
        mine = {tree.plane for tree in self.trees}
        return [([], -1, [0] if plane in mine else [], 0, 1, None, 1.0) for plane in range(planes)]


class Sums(RunPart):
    """All jobs of a run that switches sum for. Raises UsageError where there is no way to."""

    allreduce = NAME
    transport = NAME
    moves_hosts = True
    on_packets = True

    @classmethod
    def of(cls, plan: Plan, requests: Sequence[JobRequest], options: Mapping[str, Any]
           ) -> Sums | None:
        asked = [each for each in requests if each.job.allreduce == NAME]
        step = pools_step(options)
        if not asked:
            if step is not None:
                raise UsageError('run: pools: no switch sums for a job of this run; give one '
                                 'allreduce="ina", or leave pools out')
            return None
        return cls(plan, asked, dict(options.get(NAME, {})), step)

    def __init__(self, plan: Plan, asked: Sequence[JobRequest], options: Mapping[str, Any],
                 watched: Time | None = None) -> None:
        """`watched`: the time between two looks at the switches' slots."""
        self.plan, self._asked, self._watched = plan, asked, watched
        self._servers = servers(plan.topology.fabric, asked)
        # Of each job: its workers' queue pairs and its server's.
        self._summing: dict[int, list[tuple[int, int]]] = {}
        window = options.get("window", WINDOW)
        if type(window) is not int or not 1 <= window <= MOST_WINDOW:
            raise UsageError(f"run: ina: window={quoted(window)} must be a whole number from 1 to "
                             f"{MOST_WINDOW}")
        # The root of a tree sends whole sums to the workers as well as to the server.
        self.answers = options.get("result_path", "ps") == "switch"
        # Float gradients; a traffic model's bytes are summed as if they were such.
        self.exponents = options.get("quant", QUANTS[0]) == QUANTS[0]
        # What a fixed scale cannot hold the server adds as float32.
        self.floats = options.get("overflow_fallback", False)
        self.pool = SumPool.of(plan)
        if self.answers and self.pool is not None and self.pool.policy != "esa":
            raise UsageError(f'run: ina: result_path="switch" goes with policy="esa", and the '
                             f"switches sum with {self.pool.policy}; leave it out")
        # A partial sum leaves its slot in the packet that takes the slot, which must have room for
        # bytes: where one job's sums have bytes, all jobs' have.
        self.have_bytes = any(isinstance(each.job, TorchJob) for each in asked)
        # Under SwitchML: of each switch, by job, the first of the slots that are the job's alone.
        self._bases: dict[int, dict[int, int]] = {}
        self.jobs: dict[int, SumJob] = {}
        self._trees_begun: Notes = {}  # for the report, of the trees when the run begins
        for each in asked:
            self.jobs[each.number] = job = self._job(each, window, len(asked))
            key = "trees of sums" if each.name is None else f"trees of sums, {each.name}"
            self._trees_begun[key] = job.described(
                plan.topology.names,
                plan.hosts[job.server].name if self.finished_by_servers else None)

    def staging(self, number: int) -> dict[str, int]:
        """What the memory of a job's ranks has for sums, as RankBridge takes it."""
        assert self.pool is not None
        window = self.jobs[number].window
        request = max(window // 4, 1)  # fragments of the executor's longest
        # Requests complete in order. SwitchML's worker goes on to two windows behind a fragment
        # that is missing, and a small tensor has two requests: as many as their memory allows, but
        # always two windows, the request whose exponents are ahead, and two in preparation.
        each = 2 * request * (4 * self.pool.values + 1)
        slots = max(-(-2 * window // request) + 3, min(MOST_SUM_SLOTS, SUM_STAGING // each))
        return {"sum_slots": slots, "sum_values": self.pool.values,
                "sum_window": window, "sum_scale": 0 if self.exponents else FIXED_SCALE,
                "sum_floats": int(self.floats)}

    def staging_bytes(self, number: int) -> int:
        """Of one rank's memory, for sums."""
        shape = self.staging(number)
        fragment = 4 * shape["sum_values"] + 1
        return 2 * shape["sum_slots"] * max(shape["sum_window"] // 4, 1) * fragment

    @property
    def finished_by_servers(self) -> bool:
        """Whether jobs have parameter servers: SwitchML's have none, and `server` says alone where
        their trees have their roots."""
        return self.pool is not None and self.pool.policy != "switchml"

    def _job(self, asked: JobRequest, window: int, jobs: int) -> SumJob:
        kind = type(asked.job).__name__
        if self.pool is None:
            raise UsageError(f'{kind}: allreduce="ina" needs switches that sum; say which: '
                             'fabric.program("p0.*", "aggregate", policy="esa")')
        if len(asked.placement) > 64:
            raise UsageError(f"{kind}: allreduce=\"ina\": {len(asked.placement)} ranks are more "
                             "than the 64 of one sum; give ranks=")
        if len(asked.hosts) < len(asked.placement):
            raise UsageError(f'{kind}: allreduce="ina" takes one rank of a host, and some hosts '
                             "have several; use hosts of one rank")
        if isinstance(asked.job, TorchJob) and not self.exponents and not self.pool.saturate:
            raise UsageError(f'{kind}: ina={{"quant": "fixed"}} needs switches whose sums saturate '
                             "and do not wrap unseen; say "
                             'fabric.program("p0.*", "aggregate", saturate=True)')
        if self.floats and not self.finished_by_servers:
            raise UsageError(f'{kind}: ina={{"overflow_fallback": True}} needs a parameter server, '
                             'which SwitchML has not; take policy="esa" or "atp"')
        server = self._servers[asked.number]
        trees = self._trees(asked.number, asked.placement, server, self.plan.routes)
        if not trees:
            raise UsageError(
                f'{kind}: allreduce="ina": in no plane do all switches between its hosts run '
                '"aggregate"; say fabric.program("p0.*", "aggregate"), with pool=0 for those that '
                "are to pass sums on alone")
        if self.pool.policy == "switchml":
            window = self._share(kind, trees, window, jobs)
        job = SumJob(asked.number + 1, asked.placement, server, window, trees)
        self.jobs[asked.number] = job
        # As many jobs as there are fit into each switch, of which none takes more than its part.
        assert all(self._has_share(asked.number, tree) for tree in trees)
        return job

    def _share(self, kind: str, trees: Sequence[SumTree], window: int, jobs: int) -> int:
        """SwitchML: the slots of one of a job's two sets, a power of two because the numbers of
        its packets wrap at one."""
        assert self.pool is not None
        least, name = min((self.pool.slots[node], node) for tree in trees for node in tree.holders)
        share = min(window, least // (2 * jobs))
        if share == 0:
            raise UsageError(
                f"{kind}: {self.plan.topology.names[name]} has {least} slots, and SwitchML needs 2 "
                f"or more for each of {jobs} jobs; give a larger pool=")
        return 1 << (share.bit_length() - 1)

    def _trees(self, number: int, workers: Sequence[int], server: int, routes: EcmpTables
               ) -> tuple[SumTree, ...]:
        assert self.pool is not None
        found = (sum_tree(self.plan.topology, routes, number + 1, plane, workers, server,
                          self.pool.slots) for plane in range(self.plan.planes))
        return tuple(tree for tree in found if tree is not None)

    def rerouted(self, routes: EcmpTables) -> list[int]:
        """Moves every job to the trees that these routes leave; the jobs whose trees are others
        now."""
        moved = []
        for number, job in self.jobs.items():
            trees = tuple(tree for tree in self._trees(number, job.workers, job.server, routes)
                          if self._has_share(number, tree))
            if trees != job.trees:
                self.jobs[number] = replace(job, trees=trees)
                moved.append(number)
        return moved

    def _has_share(self, number: int, tree: SumTree) -> bool:
        """Whether a tree's switches have slots for a job of SwitchML's that are no other job's: in
        fewer than two windows, two fragments would meet. The slots are the job's until it ends."""
        assert self.pool is not None
        if self.pool.policy != "switchml":
            return True
        found = {node: self._free(number, node) for node in tree.places}
        size = 2 * self.jobs[number].window
        if any(found[node] + size > self.pool.slots[node] for node in tree.holders):
            return False
        for node, base in found.items():
            self._bases.setdefault(node, {})[number] = base
        return True

    def _free(self, number: int, node: int) -> int:
        """The first of a switch's slots that a job has or can have, were there enough."""
        bases = self._bases.get(node, {})
        if number in bases:
            return bases[number]
        at, size = 0, 2 * self.jobs[number].window
        for other, base in sorted(bases.items(), key=lambda each: each[1]):
            if base - at >= size:
                break
            at = base + 2 * self.jobs[other].window
        return at

    def rows(self, switch: SwitchPlan) -> list[dict[str, Any]]:
        """A switch's rows: of each job whose tree it is on."""
        assert self.pool is not None or not self.jobs
        return [self._row(job, tree, switch.number) for job in self.jobs.values()
                for tree in job.trees if switch.number in tree.places]

    def _row(self, job: SumJob, tree: SumTree, switch: int) -> dict[str, Any]:
        assert self.pool is not None
        place = tree.places[switch]
        address = ipaddress.ip_address(self.plan.hosts[job.server].address).packed
        root = (2 if self.answers else 1) if place.root else 0
        return {"job": job.group, "scheme": SCHEMES.index(self.pool.policy), "root": root,
                "window": job.window, "base": self._bases.get(switch, {}).get(job.group - 1, 0),
                "up": place.up, "server": address,
                "children": list(place.children), "hops": list(place.hops)}

    # --- what a run asks of its parts -------------------------------------------------------------
    def core_options(self, asked: JobRequest) -> dict[str, Any]:
        return {"sums": self.staging(asked.number)}

    def bind(self, engine: PartEngine, asked: JobRequest, core: Any) -> None:
        for rank, number in enumerate(self._connected(engine, asked)):
            core.set_sum_pair(rank, number)

    def bucket_sums(self, engine: PartEngine, asked: JobRequest, *, payload: bool) -> Any:
        assert is_model_job(asked.job)
        core = _core.ExecutorSums(
            engine.network, job=asked.number, hosts=[engine.node(host) for host in asked.placement],
            longest=max(asked.job.bucket_bytes), sums=self.staging(asked.number), payload=payload)
        self.bind(engine, asked, core)
        return core

    def bridge_options(self, asked: JobRequest) -> dict[str, Any]:
        return self.staging(asked.number)

    def bind_ranks(self, engine: PartEngine, asked: JobRequest, bridges: Sequence[Any]) -> None:
        for bridge, number in zip(bridges, self._connected(engine, asked), strict=True):
            bridge.bind_sum(number)

    def has_bytes(self, asked: JobRequest) -> bool:
        return self.have_bytes

    def capacity(self, asked: JobRequest, states: Mapping[int, LinkState], dead: frozenset[int]
                 ) -> float | None:
        return sum_capacity(self.plan, (*asked.hosts, self._servers[asked.number]), states, dead)

    def memory(self, asked: JobRequest, *, payload: bool) -> Iterator[Memory]:
        job, ranks = asked.job, len(asked.placement)
        if isinstance(job, TorchJob) or payload or self.have_bytes:
            yield Memory("staging of sums", ranks * self.staging_bytes(asked.number),
                         "ina's window")
        if is_model_job(job):
            name = type(job).__name__ + (f' "{asked.name}"' if asked.name else "")
            yield Memory(f"{ranks} queue pairs", ranks * Transport.queue_pair_bytes,
                         f"{name}.ranks")
            if payload or self.have_bytes:  # each bucket twice: the values and their sum
                yield Memory("tensors", 2 * ranks * job.gradients.bytes,
                             f"{name}.size or {name}.ranks")

    def on_routes(self, engine: PartEngine, tables: EcmpTables) -> None:
        """Hosts send by the trees that they have now."""
        for number in self.rerouted(tables):
            job = self.jobs[number]
            for node, qp in self._summing.get(number, ()):
                engine.network.set_paths(node, qp, job.paths(self.plan.planes))
                engine.network.set_trees(node, qp, job.hops)

    def forget(self, engine: PartEngine, asked: JobRequest) -> Collection[int]:
        for bases in self._bases.values():
            bases.pop(asked.number, None)
        job = self.jobs.pop(asked.number, None)
        return () if job is None else {node for tree in job.trees for node in tree.places}

    def stall(self, asked: JobRequest) -> str:
        if (job := self.jobs.get(asked.number)) is None:
            return ""
        server = self.plan.hosts[job.server].name
        if not job.trees:
            return f"; no plane joins its hosts and {server} any more, by which switches sum for it"
        if self.finished_by_servers:
            return f"; its sums need its parameter server on {server}"
        roots = ", ".join(self.plan.topology.names[tree.root] for tree in job.trees)
        return f"; its sums are made at {roots}, and SwitchML does not survive their reboot"

    @property
    def step(self) -> tuple[str, Time] | None:
        return None if self._watched is None else ("pools", self._watched)

    def watch(self, clock: PartClock) -> PoolWatch | None:
        if self._watched is None or self.pool is None:
            return None
        held = self.pool.slots
        return PoolWatch(self._watched.count, self._asked,
                         [each for each in self.plan.switches if held.get(each.number)],
                         {each.name: held[each.number] for each in self.plan.switches
                          if held.get(each.number)}, clock)

    def notes(self) -> Notes:
        return self._trees_begun

    def figures(self, asked: JobRequest, data: RunData) -> Iterator[OwnFigure]:
        """Mean and most slots that the job held in each switch, where a run kept them."""
        pools, name = data.pools, asked.name or ONLY_JOB
        for switch in pools.slots if pools is not None and name in pools.jobs else ():
            assert pools is not None
            used = pools.used(switch, name)
            why = None if used else "no sample fell into the time that the job played"
            for figure, value in zip(("mean", "peak"), used or (None, None), strict=True):
                yield f"slots_{figure}.{switch}", value, "slots", why

    def _connected(self, engine: PartEngine, asked: JobRequest) -> list[int]:
        """Connects a job's parameter server and the queue pair of each rank by which switches sum
        for it; returns the numbers, by rank."""
        job, network = self.jobs[asked.number], engine.network
        server = engine.node(job.server)
        own = network.reserve_qps(server, 1)
        ends: list[tuple[int | None, int]] = list(enumerate(asked.placement))
        if self.finished_by_servers:
            ends.append((None, job.server))
        numbers = []
        for rank, host in ends:
            node = engine.node(host)
            number = own if rank is None else network.reserve_qps(node, 1)
            rows = job.paths(self.plan.planes)
            network.connect_qp(node, number, server, own, engine.next_flow(), rows, rows,
                               job=asked.number, transport=NAME, group=job.member(rank),
                               at_ps=asked.start_ps)
            self._summing.setdefault(asked.number, []).append((node, number))
            if rank is not None:
                numbers.append(number)
        return numbers


def servers(fabric: Any, asked: Iterable[JobRequest]) -> dict[int, int]:
    """Host number of each job's parameter server, by the job's number. Raises UsageError for a host
    that is not there."""
    own = [i for i, host in enumerate(fabric.hosts.values()) if host.role == "server"]
    found: dict[int, int] = {}
    for place, each in enumerate(asked):
        if (name := each.job.option(SERVER.name)) is None:
            found[each.number] = own[place % len(own)] if own else each.placement[0]
            continue
        number = fabric.host_number(name)
        if number is None:
            raise UsageError(f'{type(each.job).__name__}.server: no host "{name}"'
                             f"{did_you_mean(name, fabric.hosts)}")
        found[each.number] = number
    return found
