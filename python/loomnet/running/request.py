"""The seam between what a user says and what an engine does: one request in, raw series out. An
engine is a Runner; there is one per clock, found by name."""

from __future__ import annotations

import contextlib
import importlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from loomnet.base.errors import UnavailableError, UsageError
from loomnet.base.names import did_you_mean
from loomnet.base.units import Time
from loomnet.base.wall_time import over_text
from loomnet.faults.model import Fault
from loomnet.faults.timetable import Timetable
from loomnet.measures.run_data import Iteration, RunData
from loomnet.plans.job_request import JobRequest
from loomnet.plans.model import Plan
from loomnet.plugins.controllers import Seat
from loomnet.processes.folder import Folder
from loomnet.systems.system import RunPart

if TYPE_CHECKING:
    from loomnet.running.recording import Recording

CLOCKS = ("virtual", "live")
# clock -> "module:factory"; the factory takes no argument and returns a Runner.
RUNNERS: dict[str, str] = {
    "virtual": "loomnet.running.virtual_clock:VirtualRunner",
    "live": "loomnet.live.run:LiveRunner",
}


@dataclass(frozen=True)
class RunRequest:
    """Jobs on one fabric under faults.

    The first job leads: `timetable` is fresh, the run drives it with time 0 at the start of that
    job's first iteration, and applies the changes it returns. `directory` exists; rank n writes
    `ranks/<n>.log` below it; `folder` is the same, held open. `max_wall_s`: wall seconds after
    which all jobs are ended; `max_wall_of_s` is the whole of --max-wall, where runs before this one
    have used a part.
    """

    plan: Plan
    jobs: tuple[JobRequest, ...]
    timetable: Timetable
    faults: tuple[Fault, ...]
    label: str
    seed: int
    directory: Path
    reroute_delay: Time | None = None
    dilation: float = 1.0
    max_wall_s: float | None = None
    max_wall_of_s: float | None = None
    options: dict[str, Any] = field(default_factory=dict)
    fluid: bool = False  # links are shared max-min by flows, without packets
    parts: tuple[RunPart, ...] = ()  # that systems have in the run
    recording: Recording | None = None  # files that are open, for the engine to fill
    folder: Folder | None = None
    controllers: tuple[Seat, ...] = ()  # fresh, as the timetable is

    @property
    def changes_to_come(self) -> bool:
        """Whether a fault or a controller is due at a known time."""
        return any(each.next_time() is not None for each in (self.timetable, *self.controllers))

    @property
    def lead(self) -> JobRequest:
        return self.jobs[0]

    @property
    def hosts(self) -> tuple[int, ...]:
        """All hosts that a job runs on."""
        return tuple(sorted({host for each in self.jobs for host in each.hosts}))

    @cached_property
    def jobs_on(self) -> Counter[int]:
        """How many jobs run on each host."""
        return Counter(host for each in self.jobs for host in set(each.placement))

    @property
    def wall_reason(self) -> str:
        """What a run that `max_wall_s` ends gives as its reason."""
        return over_text(self.max_wall_of_s or self.max_wall_s)

    def opened(self) -> Folder:
        """`folder`, or `directory` opened now."""
        return self.folder or Folder.at(self.directory)


@dataclass(frozen=True)
class Progress:
    """Where a run stands, a few times per second at most. Unknown values are None.

    `total` and `until`: the iterations and the emulated time the job ends after, which the Lab adds
    from the job. `share`: how much of the job is done, from 0 to 1, where only its bytes tell.
    `waits`: what the engine waits for outside the network, as the end of "waiting for
    …"; it is shown once nothing has moved for some seconds. `remark`: what of the job's results a
    user should know before its end.
    """

    now: Time
    step: int | None = None
    loss: float | None = None
    iteration: Time | None = None
    phase: str | None = None
    paths_good: int | None = None
    paths_total: int | None = None
    total: int | None = None
    until: Time | None = None
    share: float | None = None
    waits: str | None = None
    remark: str = ""

    @classmethod
    def of(
        cls,
        now_ps: int,
        iterations: Sequence[Iteration],
        table: Timetable,
        counters: Mapping[str, int],
        log: Sequence[Mapping[str, str]] = (),
        *,
        share: float | None = None,
        waits: str | None = None,
        remark: str = "",
    ) -> Progress:
        """From what an engine has: finished iterations, the engine's run counters, and what was
        read of rank 0's output, in order. A loss that is no number is unknown."""
        loss = None
        with contextlib.suppress(IndexError, KeyError, ValueError):
            loss = float(log[-1]["loss"])
        open_phases = [window.phase for window in table.windows if window.end_ps is None]
        last = iterations[-1] if iterations else None
        return cls(
            now=Time.of(now_ps),
            step=last.number if last else None,
            loss=loss,
            iteration=Time.of(last.length_ps) if last else None,
            phase=open_phases[-1] if open_phases else None,
            paths_good=counters["paths_good"] if counters["paths_total"] else None,
            paths_total=counters["paths_total"] or None,
            share=share,
            waits=waits,
            remark=remark,
        )


@runtime_checkable
class Runner(Protocol):
    """An engine on one clock.

    `describe` returns the line printed before traffic (fabric, D, offered load against the
    machine's budget, expected wall time). It and `run` raise UsageError, PrivilegeError or
    UnavailableError before anything is started and leave nothing behind.

    `run` returns the data of each job, also when one stalls, a rank fails or the engine falls
    behind: that is in RunData. Ctrl-C (KeyboardInterrupt) inside it ends the jobs within 2 s and
    returns what there is with ended="interrupted".
    """

    def describe(self, request: RunRequest) -> str: ...

    def run(
        self, request: RunRequest, on_progress: Callable[[Progress], None]
    ) -> list[RunData]: ...


def get_runner(clock: str) -> Runner:
    """The engine of a clock. Raises UsageError for an unknown clock, UnavailableError where the
    engine's module was not built."""
    if clock not in RUNNERS:
        raise UsageError(f'clock: "{clock}" is not a clock{did_you_mean(clock, RUNNERS)}')
    module, _, factory = RUNNERS[clock].partition(":")
    try:
        return getattr(importlib.import_module(module), factory)()
    except ImportError as error:
        raise UnavailableError(
            f"the {clock} clock is not available here: {error}; see `loomnet doctor`"
        ) from error
