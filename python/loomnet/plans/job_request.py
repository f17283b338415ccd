"""One job of a run, as an engine is asked for it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loomnet.base.units import Time
from loomnet.jobs.model import Job
from loomnet.processes.folder import Folder

ONLY_JOB = "job"  # name of the only job of a run that has none


@dataclass(frozen=True)
class JobRequest:
    """One job of a run.

    `placement[r]` is the host number of rank r; ranks on one host follow one another. `number`: the
    job's place in the run's list, by which the engine knows it. `name`: where the run has several
    jobs. `script` is the resolved path of a TorchJob, else None. `stall_after`: emulated time
    without a finished operation or iteration after which the engine ends the job ("stalled", one
    error); None: never. `start_ps`: emulated time from the run's begin to the job's; `stop_ps`: to
    when it begins nothing new; None: it ends by itself. `gaps_ps`: compute times of another run
    that are replayed. `servers`: hosts of its servers, where it has some (systems.servers).
    `absent`: hosts of ranks that neither send nor receive, which a fabric built in part is without.
    """

    job: Job
    placement: tuple[int, ...]
    number: int = 0
    name: str | None = None
    script: Path | None = None
    stall_after: Time | None = None
    start_ps: int = 0
    stop_ps: int | None = None
    gaps_ps: tuple[Any, ...] = ()
    servers: tuple[int, ...] = ()
    absent: frozenset[int] = frozenset()

    @property
    def begins_for_ps(self) -> int | None:
        """From the job's start to its stop."""
        return None if self.stop_ps is None else self.stop_ps - self.start_ps

    @property
    def hosts(self) -> tuple[int, ...]:
        """Numbers of its hosts that are built, each once, in the order of their first rank."""
        return tuple(host for host in dict.fromkeys(self.placement) if host not in self.absent)

    def folder_in(self, folder: Folder) -> Folder:
        """The job's own part of a run's folder."""
        return folder if self.name is None else folder.folder(self.name)
