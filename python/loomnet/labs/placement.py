"""On which hosts the jobs of a run have their ranks."""

from __future__ import annotations

from collections.abc import Sequence

from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean, how_many, in_quotes
from loomnet.fabrics.model import Fabric
from loomnet.jobs.model import Job


def job_names(jobs: Sequence[Job]) -> list[str | None]:
    """The jobs' names: their own, else job0, job1, …; None for the only job of a run. Raises
    UsageError where two have the same."""
    if len(jobs) == 1:
        return [None]
    names: list[str | None] = [job.name or f"job{i}" for i, job in enumerate(jobs)]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f'run: two jobs are named "{name}"; give each its own name=')
    return names


def placements(jobs: Sequence[Job], fabric: Fabric) -> list[list[int]]:
    """Host numbers of each job's ranks, which fill the hosts in order. A job that names no hosts
    has the next that no other job has, be it with fewer ranks than the host has room for. Raises
    UsageError for hosts that are not there, of which too few are left, or that a job wanted for
    itself alone."""
    found = [None if job.hosts is None else _named(job, fabric) for job in jobs]
    taken = {host for named in found for host in named or ()}
    placed: list[list[int]] = []
    ranks = free = fabric.rank_numbers
    for job, named in zip(jobs, found, strict=True):
        candidates = named
        if candidates is None:
            free = candidates = [host for host in free if host not in taken]
            if not ranks:
                raise UsageError(_no_ranks(fabric, job))
            if len(jobs) > 1 and not candidates:
                raise UsageError(_all_taken(fabric, job, jobs[: len(placed)], placed))
        hosts = job.place(fabric.places(candidates))
        taken.update(hosts)
        placed.append(hosts)
    sets = [set(hosts) for hosts in placed]
    alone = [number for number, job in enumerate(jobs) if job.alone]
    for number, hosts in enumerate(sets):
        for other in range(len(jobs)) if jobs[number].alone else alone:
            if other != number and not hosts.isdisjoint(sets[other]):
                only, second = (number, other) if jobs[number].alone else (other, number)
                raise UsageError(
                    f"{_shown(jobs[second])}: host {fabric.host_name(min(hosts & sets[other]))} "
                    f"is of {_shown(jobs[only])}, which is to be alone on its hosts; choose another"
                )
    return placed


def _no_ranks(fabric: Fabric, job: Job) -> str:
    """Why no host of the fabric can have a rank, and how one gets it."""
    where = f"{_shown(job)}: {fabric.name} has"
    if not fabric.hosts:
        return (
            f'{where} no host: no node of it is one; a host has kind="host" or a name such as '
            "h0 in a graph, and is made by add_host in Python"
        )
    roles = sorted({host.role for host in fabric.hosts.values()})
    given = (
        'the roles are from the graph\'s attribute role; remove it, or set it to "rank"'
        if fabric.roles_from_graph
        else 'add_host(…, role="rank") makes hosts with ranks'
    )
    return (
        f"{where} {how_many(len(fabric.hosts), 'host')}, all of role "
        f"{' or '.join(in_quotes(role) for role in roles)}, which have no rank; {given}"
    )


def _all_taken(fabric: Fabric, job: Job, before: Sequence[Job], placed: Sequence[list[int]]) -> str:
    """Why no host is left for a job, and how to leave one."""
    text = f"{_shown(job)}: every host has another job; "
    held = [len(set(each)) for each in placed]
    count = max(held, default=0)
    greedy = next(
        (i for i, each in enumerate(before) if held[i] == count and each.hosts is None), None
    )
    if greedy is None:
        return f"{text}give hosts=, which jobs may share"
    whole = len(fabric.rank_numbers)
    share = f"all {whole}" if count == whole else f"{count} of {whole}"
    return (
        f"{text}job {greedy + 1} of the list, {_shown(before[greedy])}, took {share} hosts: "
        "lower its ranks=, or give hosts=, which jobs may share"
    )


def _named(job: Job, fabric: Fabric) -> list[int]:
    assert job.hosts is not None
    where = f"{type(job).__name__}.hosts"
    numbers = []
    for name in job.hosts:
        number = fabric.host_number(name)
        if number is None:
            raise UsageError(f'{where}: no host "{name}"{did_you_mean(name, fabric.ranks)}')
        numbers.append(number)
    if len(set(numbers)) < len(numbers):
        raise UsageError(
            f"{where}: a host is named twice; name it once, and a job has "
            "as many ranks there as the host's ranks= says"
        )
    ranks = set(fabric.rank_numbers)
    for name, number in zip(job.hosts, numbers, strict=True):
        if number not in ranks:
            raise UsageError(f"{where}: {name} has another role than rank")
    return numbers


def _shown(job: Job) -> str:
    return f'{type(job).__name__} "{job.name}"' if job.name else type(job).__name__
