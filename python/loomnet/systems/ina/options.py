"""What a user writes of aggregation: the name of its transport, and its options of jobs."""

from __future__ import annotations

from typing import Any

from loomnet.base.errors import UsageError
from loomnet.base.names import quoted
from loomnet.jobs.model import Job
from loomnet.systems.system import JobOption

NAME = "ina"


class _Server(JobOption):
    def check(self, job: Job, value: Any) -> None:
        if value is not None and not isinstance(value, str):
            raise UsageError(f"server={quoted(value)} is not the name of a host")
        if value is not None and job.allreduce != NAME:
            raise UsageError('server= goes with allreduce="ina"')


SERVER = _Server("server", "the host of a job's parameter server, which finishes the sums that "
                           "switches do not; None: the hosts of role server in turn, or without "
                           "one the host of rank 0")
