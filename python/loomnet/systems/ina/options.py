"""What a user writes of aggregation: the name of its transport, and its options of jobs."""

from __future__ import annotations

from typing import Any

from loomnet.base.errors import UsageError
from loomnet.base.names import quoted
from loomnet.jobs.model import Job
from loomnet.systems.system import JobOption

NAME = "ina"
MOST_SERVERS = 64  # of a job: core/collective/staging.cpp


class _Server(JobOption):
    def check(self, job: Job, value: Any) -> None:
        if value is None:
            return
        if not isinstance(value, str):
            raise UsageError(f"server={quoted(value)} is not the name of a host; servers= takes "
                             "several")
        if job.allreduce != NAME:
            raise UsageError('server= goes with allreduce="ina"')
        if job.option("servers") is not None:
            raise UsageError("server= and servers= say the same; give one of them")


class _Servers(JobOption):
    def check(self, job: Job, value: Any) -> None:
        if value is None:
            return
        if isinstance(value, int) and not isinstance(value, bool):
            if not 1 <= value <= MOST_SERVERS:
                raise UsageError(f"servers={value} must be 1 to {MOST_SERVERS}")
        elif (isinstance(value, str) or not isinstance(value, (list, tuple))
                or not all(isinstance(each, str) for each in value)):
            raise UsageError(f"servers={quoted(value)} is neither a number nor a list of hosts")
        elif not 1 <= len(value) <= MOST_SERVERS:
            raise UsageError(f"servers={quoted(value)} must be 1 to {MOST_SERVERS} hosts")
        elif len(set(value)) < len(value):
            raise UsageError(f"servers={quoted(value)} has a host twice")
        if job.allreduce != NAME:
            raise UsageError('servers= goes with allreduce="ina"')


SERVER = _Server("server", "the host of a job's parameter server, which finishes the sums that "
                           "switches do not; None: the hosts of role server in turn, or without "
                           "one the host of rank 0")
SERVERS = _Servers("servers", "several parameter servers, which take a job's keys in turn: hosts, "
                              "or how many; a number takes hosts of role server, or without one "
                              "those of the first ranks")
