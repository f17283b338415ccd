"""Jobs whose all-reduces switches sum: what of a run's plan their switches, workers and parameter
servers are told."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from loomnet.base.errors import UsageError
from loomnet.base.names import quoted
from loomnet.jobs.model import TorchJob
from loomnet.plans.ecmp import EcmpTables
from loomnet.plans.model import Plan, SwitchPlan
from loomnet.plans.sum_pool import (
    FIXED_SCALE,
    MOST_WINDOW,
    QUANTS,
    SCHEMES,
    WINDOW,
    SumPool,
)
from loomnet.plans.sum_trees import SumTree, sum_tree
from loomnet.running.job_request import JobRequest


@dataclass(frozen=True)
class SumJob:
    """A job of a run, as switches and hosts know it. `group` is its number on the wire. `bases`:
    under SwitchML its first slot at each switch."""

    group: int
    workers: tuple[int, ...]  # hosts by worker number
    server: int  # host
    window: int  # fragments
    base: int
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


class Sums:
    """All jobs of a run that switches sum for. Raises UsageError where there is no way to."""

    def __init__(self, plan: Plan, requests: Iterable[JobRequest], options: Mapping[str, Any]
                 ) -> None:
        self.plan = plan
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
        asked = [each for each in requests if each.job.allreduce == "ina"]
        self.pool = SumPool.of(plan) if asked else None
        if self.answers and self.pool is not None and self.pool.policy != "esa":
            raise UsageError(f'run: ina: result_path="switch" goes with policy="esa", and the '
                             f"switches sum with {self.pool.policy}; leave it out")
        # A partial sum leaves its slot in the packet that takes the slot, which must have room for
        # bytes: where one job's sums have bytes, all jobs' have.
        self.have_bytes = any(isinstance(each.job, TorchJob) for each in asked)
        self.jobs: dict[int, SumJob] = {}
        self.notes: dict[str, str] = {}  # for the report, of the trees when the run begins
        for place, each in enumerate(asked):
            self.jobs[each.number] = job = self._job(each, window, place, len(asked))
            key = "trees of sums" if each.name is None else f"trees of sums, {each.name}"
            self.notes[key] = job.described(
                plan.topology.names,
                plan.hosts[job.server].name if self.finished_by_servers else None)

    def staging(self, number: int) -> dict[str, int]:
        """What the memory of a job's ranks has for sums, as RankBridge takes it."""
        assert self.pool is not None
        window = self.jobs[number].window
        request = max(window // 4, 1)  # fragments of the executor's longest
        # A window of requests and the one whose exponents are ahead of it; two are being prepared.
        return {"sum_slots": -(-window // request) + 3, "sum_values": self.pool.values,
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

    def _job(self, asked: JobRequest, window: int, place: int, jobs: int) -> SumJob:
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
        assert asked.server is not None
        trees = self._trees(asked.number, asked.placement, asked.server, self.plan.routes)
        if not trees:
            raise UsageError(
                f'{kind}: allreduce="ina": in no plane do all switches between its hosts run '
                '"aggregate"; say fabric.program("p0.*", "aggregate"), with pool=0 for those that '
                "are to pass sums on alone")
        base = 0
        if self.pool.policy == "switchml":
            window = self._share(kind, trees, window, jobs)
            base = 2 * window * place
        return SumJob(asked.number + 1, asked.placement, asked.server, window, base, trees)

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
                          if self._has_share(job, tree))
            if trees != job.trees:
                self.jobs[number] = replace(job, trees=trees)
                moved.append(number)
        return moved

    def _has_share(self, job: SumJob, tree: SumTree) -> bool:
        """Whether a tree's switches have the slots that SwitchML gave the job in its first trees:
        in fewer, two fragments of a window would meet."""
        assert self.pool is not None
        return self.pool.policy != "switchml" or all(
            self.pool.slots[node] >= job.base + 2 * job.window for node in tree.holders)

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
                "window": job.window, "base": job.base, "up": place.up, "server": address,
                "children": list(place.children), "hops": list(place.hops)}


def sums_of(plan: Plan, requests: Iterable[JobRequest], options: Mapping[str, Any]) -> Sums | None:
    """Of a run with these options; None where switches sum for no job."""
    asked = list(requests)
    if not any(each.job.allreduce == "ina" for each in asked):
        return None
    return Sums(plan, asked, dict(options.get("ina", {})))
