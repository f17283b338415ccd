"""Servers of jobs: hosts that do a part of a job's work beside its ranks, as a parameter server
does. A system whose jobs have some says so (RunPart.has_servers); the run places them, by what the
job names or else on the fabric's hosts of role server, and the system reads JobRequest.servers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean, quoted
from loomnet.jobs.model import Job
from loomnet.jobs.of_systems import have_servers
from loomnet.plans.job_request import JobRequest
from loomnet.systems.system import JobOption

MOST_SERVERS = 64  # of a job: core/collective/staging.cpp


class _OfServers(JobOption):
    def check(self, job: Job, value: Any) -> None:
        if value is None:
            return
        self.check_value(job, value)
        if job.allreduce not in (takers := have_servers()):
            raise UsageError(
                f"{self.name}= goes with "
                f"{' or '.join(f'allreduce={quoted(each)}' for each in takers)}"
            )

    def check_value(self, job: Job, value: Any) -> None:
        raise NotImplementedError


class _Server(_OfServers):
    def check_value(self, job: Job, value: Any) -> None:
        if not isinstance(value, str):
            raise UsageError(
                f"server={quoted(value)} is not the name of a host; servers= takes several"
            )
        if job.option(SERVERS.name) is not None:
            raise UsageError("server= and servers= say the same; give one of them")


class _Servers(_OfServers):
    def check_value(self, job: Job, value: Any) -> None:
        if isinstance(value, int) and not isinstance(value, bool):
            if not 1 <= value <= MOST_SERVERS:
                raise UsageError(f"servers={value} must be 1 to {MOST_SERVERS}")
        elif (
            isinstance(value, str)
            or not isinstance(value, (list, tuple))
            or not all(isinstance(each, str) for each in value)
        ):
            raise UsageError(f"servers={quoted(value)} is neither a number nor a list of hosts")
        elif not 1 <= len(value) <= MOST_SERVERS:
            raise UsageError(f"servers={quoted(value)} must be 1 to {MOST_SERVERS} hosts")
        elif len(set(value)) < len(value):
            raise UsageError(f"servers={quoted(value)} has a host twice")


SERVER = _Server(
    "server",
    "the host of a job's parameter server, which finishes the sums that "
    "switches do not; None: the hosts of role server in turn, or without "
    "one the host of rank 0",
)
SERVERS = _Servers(
    "servers",
    "several parameter servers, which take a job's keys in turn: hosts, "
    "or how many; a number takes hosts of role server, or without one "
    "those of the first ranks",
)
JOB_OPTIONS = (SERVER, SERVERS)


def with_servers(fabric: Any, asked: Iterable[JobRequest]) -> tuple[JobRequest, ...]:
    """The jobs with their servers. Those that name none take the hosts of role server in turn:
    those that no job names, where there are enough. Raises UsageError for a host that is not there.
    """
    takers, asked = have_servers(), list(asked)
    own = [i for i, host in enumerate(fabric.hosts.values()) if host.role == "server"]
    named = {fabric.host_number(name) for each in asked for name in _named(each)}
    unnamed = [i for i in own if i not in named]
    found = []
    turn = 0
    for each in asked:
        if each.job.allreduce not in takers:
            found.append(each)
            continue
        job, kind = each.job, type(each.job).__name__
        names, wanted, field = None, 1, SERVERS.name
        if (name := job.option(SERVER.name)) is not None:
            names, field = [name], SERVER.name
        elif (given := job.option(SERVERS.name)) is not None:
            names, wanted = (None, given) if isinstance(given, int) else (given, len(given))
        if names is not None:
            found.append(
                replace(
                    each, servers=tuple(_number(fabric, f"{kind}.{field}", name) for name in names)
                )
            )
            continue
        free = unnamed if wanted <= len(unnamed) else own
        hosts = free or list(dict.fromkeys(each.placement))
        if wanted > len(hosts):
            whose = "hosts of role server" if own else "hosts with a rank"
            raise UsageError(
                f"{kind}.servers={wanted}: there are {len(hosts)} {whose}; add some, or name hosts"
            )
        first = turn if free else 0
        found.append(
            replace(each, servers=tuple(hosts[(first + i) % len(hosts)] for i in range(wanted)))
        )
        turn += wanted
    return tuple(found)


def _named(asked: JobRequest) -> Sequence[str]:
    given = asked.job.option(SERVERS.name)
    one = asked.job.option(SERVER.name)
    return [one] if one is not None else [] if given is None or isinstance(given, int) else given


def _number(fabric: Any, field: str, name: str) -> int:
    number = fabric.host_number(name)
    if number is None:
        raise UsageError(f'{field}: no host "{name}"{did_you_mean(name, fabric.hosts)}')
    return number
