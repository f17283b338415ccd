"""What of a job one parameter server finishes, and which hosts have the servers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean
from loomnet.plans.job_request import JobRequest
from loomnet.systems.ina.options import SERVER, SERVERS
from loomnet.systems.ina.trees import SumTree


@dataclass(frozen=True)
class SumShare:
    """What of a job one parameter server finishes, as switches and hosts know it: to them it is a
    job of its own. `group` is its number on the wire."""

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


def servers(fabric: Any, asked: Iterable[JobRequest]) -> dict[int, tuple[int, ...]]:
    """Host numbers of each job's parameter servers, by the job's number. Jobs that name none take
    the hosts of role server in turn: those that no job names, where there are enough. Raises
    UsageError for a host that is not there."""
    asked = list(asked)
    own = [i for i, host in enumerate(fabric.hosts.values()) if host.role == "server"]
    named = {fabric.host_number(name) for each in asked for name in _named(each)}
    unnamed = [i for i in own if i not in named]
    found: dict[int, tuple[int, ...]] = {}
    turn = 0
    for each in asked:
        job, kind = each.job, type(each.job).__name__
        names, wanted, field = None, 1, SERVERS.name
        if (name := job.option(SERVER.name)) is not None:
            names, field = [name], SERVER.name
        elif (given := job.option(SERVERS.name)) is not None:
            names, wanted = (None, given) if isinstance(given, int) else (given, len(given))
        if names is not None:
            found[each.number] = tuple(_number(fabric, f"{kind}.{field}", name) for name in names)
            continue
        free = unnamed if wanted <= len(unnamed) else own
        hosts = free or list(dict.fromkeys(each.placement))
        if wanted > len(hosts):
            whose = "hosts of role server" if own else "hosts with a rank"
            raise UsageError(f"{kind}.servers={wanted}: there are {len(hosts)} {whose}; add some, "
                             "or name hosts")
        first = turn if free else 0
        found[each.number] = tuple(hosts[(first + i) % len(hosts)] for i in range(wanted))
        turn += wanted
    return found


def _named(asked: JobRequest) -> Sequence[str]:
    given = asked.job.option(SERVERS.name)
    one = asked.job.option(SERVER.name)
    return [one] if one is not None else [] if given is None or isinstance(given, int) else given


def _number(fabric: Any, field: str, name: str) -> int:
    number = fabric.host_number(name)
    if number is None:
        raise UsageError(f'{field}: no host "{name}"{did_you_mean(name, fabric.hosts)}')
    return number
