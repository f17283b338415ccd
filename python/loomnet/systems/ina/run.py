"""Jobs whose all-reduces switches sum: what of a run's plan their switches, workers and parameter
servers are told."""

from __future__ import annotations

import ipaddress
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import loomnet._core as _core
from loomnet.base.errors import UsageError
from loomnet.base.names import quoted
from loomnet.base.units import Time
from loomnet.faults.expected_capacity import sum_capacity
from loomnet.faults.timetable import LinkState
from loomnet.jobs.kinds import is_model_job
from loomnet.jobs.model import TorchJob
from loomnet.measures.run_data import OwnFigure, RunData
from loomnet.plans.ecmp import EcmpTables
from loomnet.plans.entries import SwitchPlan
from loomnet.plans.job_request import ONLY_JOB, JobRequest
from loomnet.plans.model import Plan
from loomnet.systems.given import Memory, PartClock, PartEngine
from loomnet.systems.ina.checks import check_sums
from loomnet.systems.ina.figures import slot_figures
from loomnet.systems.ina.own_slots import OwnSlots
from loomnet.systems.ina.pool import MOST_WINDOW, QUANTS, WINDOW, Policy, SumPool, falls_back
from loomnet.systems.ina.share import SumShare
from loomnet.systems.ina.staging import staging, staging_bytes
from loomnet.systems.ina.transport import NAME
from loomnet.systems.ina.trees import SumTree, sum_tree
from loomnet.systems.ina.watch import SUMMING, PoolWatch, pools_step
from loomnet.systems.system import RunPart
from loomnet.systems.transport import Notes, Transport


class Sums(RunPart):
    """All jobs of a run that switches sum for. Raises UsageError where there is no way to."""

    allreduce = NAME
    has_servers = True
    transport = NAME
    moves_hosts = True
    on_packets = True

    @classmethod
    def of(
        cls, plan: Plan, requests: Sequence[JobRequest], options: Mapping[str, Any]
    ) -> Sums | None:
        asked = [each for each in requests if each.job.allreduce == NAME]
        step = pools_step(options)
        if not asked:
            if step is not None:
                raise UsageError(
                    "run: pools: no switch sums for a job of this run; give one "
                    'allreduce="ina", or leave pools out'
                )
            return None
        own = dict(options.get(NAME, {}))
        for name in ("server", "servers"):
            if name in own:
                raise UsageError(
                    f'run: ina: {name} is a job\'s: AllReduce(…, allreduce="ina", {name}=…)'
                )
        return cls(plan, asked, own, step)

    def __init__(
        self,
        plan: Plan,
        asked: Sequence[JobRequest],
        options: Mapping[str, Any],
        watched: Time | None = None,
    ) -> None:
        """`watched`: the time between two looks at the switches' slots."""
        self.plan, self._asked, self._watched = plan, asked, watched
        # By a share's group: its workers' queue pairs and then its server's.
        self._summing: dict[int, list[tuple[int, int]]] = {}
        self._bridges: dict[int, list[Any]] = {}  # of a job's real ranks
        # Weak, since both have this part: a circle would keep the ranks' memory after the run.
        self._engine: Callable[[], PartEngine | None] = lambda: None
        self._clock: Callable[[], PartClock | None] = lambda: None
        window = options.get("window", WINDOW)
        if type(window) is not int or not 1 <= window <= MOST_WINDOW:
            raise UsageError(
                f"run: ina: window={quoted(window)} must be a whole number from 1 to {MOST_WINDOW}"
            )
        # The root of a tree sends whole sums to the workers as well as to the server.
        self.answers = options.get("result_path", "ps") == "switch"
        # Float gradients; a traffic model's bytes are summed as if they were such.
        self.exponents = options.get("quant", QUANTS[0]) == QUANTS[0]
        self.pool = SumPool.of(plan)
        # What a fixed scale cannot hold the server adds as float32.
        self.floats = self.pool is not None and falls_back(options, self.pool.policy)
        # A traffic model's numbers fit, and its buckets need not follow one another for that.
        self._with_floats = {
            each.number
            for each in asked
            if self.floats and (isinstance(each.job, TorchJob) or options.get("overflow_fallback"))
        }
        if self.answers and self.pool is not None and not self.pool.policy.root_may_answer:
            raise UsageError(
                f'run: ina: result_path="switch" goes with policy='
                f"{Policy.names('root_may_answer')}, and the switches sum with "
                f"{self.pool.policy.name}; leave it out"
            )
        # A partial sum leaves its slot in the packet that takes the slot, which must have room for
        # bytes: where one job's sums have bytes, all jobs' have.
        self.have_bytes = any(isinstance(each.job, TorchJob) for each in asked)
        self._own_slots = OwnSlots({} if self.pool is None else self.pool.slots)
        # Of each job, by its number, one for each of its servers.
        self.jobs: dict[int, tuple[SumShare, ...]] = {}
        self._next_group = max(each.number for each in asked) + 2
        self._trees_begun: Notes = {}  # for the report, of the trees when the run begins
        for each in asked:
            self.jobs[each.number] = shares = self._job(each, window, len(asked))
            key = "trees of sums" if each.name is None else f"trees of sums, {each.name}"
            for share in shares:
                server = plan.hosts[share.server].name if self.finished_by_servers else None
                self._trees_begun[key + f", {server}" * (len(shares) > 1)] = share.described(
                    plan.topology.names, server
                )

    def staging(self, number: int) -> dict[str, int]:
        """What the memory of a job's ranks has for sums, as RankBridge takes it."""
        assert self.pool is not None
        return staging(
            self.pool,
            self.jobs[number],
            exponents=self.exponents,
            floats=number in self._with_floats,
        )

    def staging_bytes(self, number: int) -> int:
        """Of one rank's memory, for sums."""
        return staging_bytes(self.staging(number), self.jobs[number])

    @property
    def finished_by_servers(self) -> bool:
        """Whether jobs have parameter servers: SwitchML's have none, and `server` says alone where
        their trees have their roots."""
        return self.pool is not None and self.pool.policy.has_servers

    def _job(self, asked: JobRequest, window: int, jobs: int) -> tuple[SumShare, ...]:
        kind = type(asked.job).__name__
        check_sums(asked, self.pool, window, exponents=self.exponents, floats=self.floats)
        hosts = asked.servers
        shares = []
        for i, server in enumerate(hosts):
            group = asked.number + 1 if i == 0 else self._next_group
            self._next_group += i > 0
            trees = self._trees(group, asked.placement, server, self.plan.routes)
            if not trees:
                raise UsageError(
                    f'{kind}: allreduce="ina": in no plane do all switches between its hosts run '
                    '"aggregate"; say fabric.program("p0.*", "aggregate"), with pool=0 for those '
                    "that are to pass sums on alone"
                )
            each = window // len(hosts)
            if not self.finished_by_servers:
                each = self._own_window(kind, trees, window, jobs)
            shares.append(SumShare(group, asked.placement, server, each, trees))
            # As many jobs as there are fit into each switch, and none takes more than its part.
            assert all(self._has_slots(shares[-1], tree) for tree in trees)
        return tuple(shares)

    def _own_window(self, kind: str, trees: Sequence[SumTree], window: int, jobs: int) -> int:
        """SwitchML: the slots of one of a job's two sets."""
        assert self.pool is not None
        least, name = min((self.pool.slots[node], node) for tree in trees for node in tree.holders)
        share = min(window, least // (2 * jobs))
        if share == 0:
            raise UsageError(
                f"{kind}: {self.plan.topology.names[name]} has {least} slots, and SwitchML needs 2 "
                f"or more for each of {jobs} jobs; give a larger pool="
            )
        return share

    def _trees(
        self, group: int, workers: Sequence[int], server: int, routes: EcmpTables
    ) -> tuple[SumTree, ...]:
        assert self.pool is not None
        found = (
            sum_tree(self.plan.topology, routes, group, plane, workers, server, self.pool.slots)
            for plane in range(self.plan.planes)
        )
        return tuple(tree for tree in found if tree is not None)

    def rerouted(self, routes: EcmpTables) -> list[SumShare]:
        """Moves every job to the trees that these routes leave; what has other trees now."""
        moved = []
        for number, shares in self.jobs.items():
            found = tuple(
                replace(
                    share,
                    trees=tuple(
                        tree
                        for tree in self._trees(share.group, share.workers, share.server, routes)
                        if self._has_slots(share, tree)
                    ),
                )
                for share in shares
            )
            moved += [new for new, old in zip(found, shares, strict=True) if new != old]
            self.jobs[number] = found
        return moved

    def _has_slots(self, share: SumShare, tree: SumTree) -> bool:
        """Whether the switches of a tree have slots for it. Where slots are shared they do."""
        return self.finished_by_servers or self._own_slots.take(share.group, share.window, tree)

    def rows(self, switch: SwitchPlan) -> list[dict[str, Any]]:
        """A switch's rows: of each job whose tree it is on."""
        assert self.pool is not None or not self.jobs
        return [
            self._row(share, tree, switch.number)
            for shares in self.jobs.values()
            for share in shares
            for tree in share.trees
            if switch.number in tree.places
        ]

    def _row(self, share: SumShare, tree: SumTree, switch: int) -> dict[str, Any]:
        assert self.pool is not None
        place = tree.places[switch]
        address = ipaddress.ip_address(self.plan.hosts[share.server].address).packed
        root = (2 if self.answers else 1) if place.root else 0
        return {
            "job": share.group,
            "scheme": self.pool.policy.number,
            "root": root,
            "window": share.window,
            "base": self._own_slots.base(share.group, switch),
            "up": place.up,
            "server": address,
            "children": list(place.children),
            "hops": list(place.hops),
        }

    # --- what a run asks of its parts -------------------------------------------------------------
    def core_options(self, asked: JobRequest) -> dict[str, Any]:
        return {"sums": self.staging(asked.number)}

    def bind(self, engine: PartEngine, asked: JobRequest, core: Any) -> None:
        for rank, numbers in enumerate(self._connected(engine, asked)):
            for number in numbers:
                core.set_sum_pair(rank, number)

    def bucket_sums(self, engine: PartEngine, asked: JobRequest, *, payload: bool) -> Any:
        assert is_model_job(asked.job)
        core = _core.ExecutorSums(
            engine.network,
            job=asked.number,
            hosts=[engine.node(host) for host in asked.placement],
            longest=max(asked.job.bucket_bytes),
            sums=self.staging(asked.number),
            payload=payload,
        )
        self.bind(engine, asked, core)
        return core

    def bridge_options(self, asked: JobRequest) -> dict[str, Any]:
        return self.staging(asked.number)

    def bind_ranks(self, engine: PartEngine, asked: JobRequest, bridges: Sequence[Any]) -> None:
        if not self.exponents:
            self._bridges[asked.number] = list(bridges)
        for bridge, numbers in zip(bridges, self._connected(engine, asked), strict=True):
            for number in numbers:
                bridge.bind_sum(number)

    def has_bytes(self, asked: JobRequest) -> bool:
        return self.have_bytes

    def capacity(
        self, asked: JobRequest, states: Mapping[int, LinkState], dead: frozenset[int]
    ) -> float | None:
        # Keys go to the servers in turn, so the slowest server's trees set the pace of all.
        return min(
            sum_capacity(self.plan, (*asked.hosts, server), states, dead)
            for server in asked.servers
        )

    def memory(self, asked: JobRequest, *, payload: bool) -> Iterator[Memory]:
        job, ranks = asked.job, len(asked.placement)
        if isinstance(job, TorchJob) or payload or self.have_bytes:
            yield Memory(
                "staging of sums", ranks * self.staging_bytes(asked.number), "ina's window"
            )
        if is_model_job(job):
            name = type(job).__name__ + (f' "{asked.name}"' if asked.name else "")
            yield Memory(
                f"{ranks} queue pairs", ranks * Transport.queue_pair_bytes, f"{name}.ranks"
            )
            if payload or self.have_bytes:  # each bucket twice: the values and their sum
                yield Memory(
                    "tensors", 2 * ranks * job.gradients.bytes, f"{name}.size or {name}.ranks"
                )

    def on_routes(self, engine: PartEngine, tables: EcmpTables) -> None:
        """Hosts send by the trees that they have now."""
        for share in self.rerouted(tables):
            for node, qp in self._summing.get(share.group, ()):
                engine.network.set_paths(node, qp, share.paths(self.plan.planes))
                engine.network.set_trees(node, qp, share.hops)

    def forget(self, engine: PartEngine, asked: JobRequest) -> Collection[int]:
        shares = self.jobs.pop(asked.number, ())
        for share in shares:
            self._own_slots.forget(share.group)
        return {node for share in shares for tree in share.trees for node in tree.places}

    def stall(self, asked: JobRequest) -> str:
        shares = self.jobs.get(asked.number, ())
        if not shares:
            return ""
        for share in shares:
            if not share.trees:
                return (
                    f"; no plane joins its hosts and {self.plan.hosts[share.server].name} any "
                    "more, by which switches sum for it"
                )
        if self.finished_by_servers:
            return "; its sums are finished on " + ", ".join(
                f"{self.plan.hosts[share.server].name}, "
                + (self._lacks(share) or "which knows of no sum that lacks a part")
                for share in shares
            )
        [share] = shares
        roots = ", ".join(self.plan.topology.names[tree.root] for tree in share.trees)
        return f"; its sums are made at {roots}, " + (
            self._lacks(share)
            or "where no slot has a part of one: SwitchML does not survive a switch's reboot"
        )

    def _lacks(self, share: SumShare) -> str:
        missing = [self.plan.hosts[share.workers[i]].name for i in self._missing(share)]
        return f"where the oldest lacks the part of {', '.join(missing)}" if missing else ""

    def _beyond(self, asked: JobRequest) -> tuple[int, int]:
        """Blocks of sums of real ranks that a fixed scale could not hold, and those of them that
        the server added as float32."""
        bridges = self._bridges.get(asked.number, ())
        return (
            max((each.sum_overflows for each in bridges), default=0),
            max((each.sums_as_floats for each in bridges), default=0),
        )

    def remark(self, asked: JobRequest) -> str:
        beyond, floats = self._beyond(asked)
        if not beyond:
            return ""
        return f"{beyond} blocks of sums beyond the fixed scale" + (
            f", {floats} summed as float32" if self.floats else ": their values are wrong"
        )

    def _missing(self, share: SumShare) -> list[int]:
        """Numbers of the workers whose parts the oldest fragment that is not whole lacks, as the
        parameter server knows, or else the slots of the switches of a tree."""
        engine, clock = self._engine(), self._clock()
        if engine is None or clock is None or self.pool is None:
            return []
        everyone = (1 << len(share.workers)) - 1
        lacks = 0
        if self.finished_by_servers:
            node, qp = self._summing[share.group][-1]
            state = engine.network.transport_state(node, qp, transport=NAME)
            lacks = int(state["lacks_0_31"]) | int(state["lacks_32_63"]) << 32
        switches = {each.number: each for each in self.plan.switches}
        for tree in share.trees if not lacks else ():
            parts: dict[int, int] = {}  # of each fragment that is not whole, whose have come
            for node in tree.holders:
                columns = clock.switch_columns(
                    switches[node], ("state", "job", "sequence", "workers")
                )
                for state, job, sequence, workers in zip(
                    *(column.tolist() for column in columns), strict=True
                ):
                    if state == SUMMING and job == share.group + 1:
                        parts[sequence] = parts.get(sequence, 0) | workers
            if parts:
                lacks |= everyone & ~parts[min(parts)]
        return [i for i in range(len(share.workers)) if lacks >> i & 1]

    @property
    def step(self) -> tuple[str, Time] | None:
        return None if self._watched is None else ("pools", self._watched)

    def watch(self, clock: PartClock) -> PoolWatch | None:
        self._clock = weakref.ref(clock)
        if self._watched is None or self.pool is None:
            return None
        held = self.pool.slots
        owners = {share.group: number for number, shares in self.jobs.items() for share in shares}
        return PoolWatch(
            self._watched.count,
            self._asked,
            owners,
            [each for each in self.plan.switches if held.get(each.number)],
            {each.name: held[each.number] for each in self.plan.switches if held.get(each.number)},
            clock,
        )

    def notes(self) -> Notes:
        return self._trees_begun

    def figures(self, asked: JobRequest, data: RunData) -> Iterator[OwnFigure]:
        """Mean and most slots that the job held in each switch, where a run kept them; of real
        ranks with a fixed scale, the blocks that it could not hold."""
        if asked.number in self._bridges:
            beyond, floats = self._beyond(asked)
            del self._bridges[asked.number]  # they hold the ranks' memory
            yield "blocks_saturated", beyond, "blocks", None
            yield "blocks_as_floats", floats, "blocks", None
        yield from slot_figures(data, asked.name or ONLY_JOB)

    def lint(self) -> Iterator[str]:
        """Of each job whose parameter server shares a worker's link, of this job or another: its
        NIC carries the data of one and all that the other finishes."""
        working = {
            host for shares in self.jobs.values() for share in shares for host in share.workers
        }
        for asked in self._asked if self.finished_by_servers else ():
            shared = [
                self.plan.hosts[share.server].name
                for share in self.jobs[asked.number]
                if share.server in working
            ]
            if shared:
                whose = f' of "{asked.name}"' if asked.name else ""
                one = len(shared) == 1
                yield (
                    f"the parameter server{'' if one else 's'}{whose} on "
                    f"{', '.join(shared)} share{'s' if one else ''} a worker's link, which then "
                    "carries its part and what the server finishes; hosts of role server have "
                    'links of their own: fabric.add_host("ps", role="server")'
                )

    def _connected(self, engine: PartEngine, asked: JobRequest) -> list[list[int]]:
        """Connects a job's parameter servers and the queue pairs of each rank by which switches sum
        for it; returns the numbers, by rank and server."""
        network, self._engine = engine.network, weakref.ref(engine)
        numbers: list[list[int]] = [[] for _ in asked.placement]
        for share in self.jobs[asked.number]:
            server = engine.node(share.server)
            own = network.reserve_qps(server, 1)
            ends: list[tuple[int | None, int]] = list(enumerate(asked.placement))
            if self.finished_by_servers:
                ends.append((None, share.server))
            rows = share.paths(self.plan.planes)
            for rank, host in ends:
                node = engine.node(host)
                number = own if rank is None else network.reserve_qps(node, 1)
                network.connect_qp(
                    node,
                    number,
                    server,
                    own,
                    engine.next_flow(),
                    rows,
                    rows,
                    job=asked.number,
                    transport=NAME,
                    group=share.member(rank),
                    at_ps=asked.start_ps,
                )
                self._summing.setdefault(share.group, []).append((node, number))
                if rank is not None:
                    numbers[rank].append(number)
        return numbers
