"""What a system brings beside its transports. Every method has a plain system's answer."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from loomnet.base.units import Time
from loomnet.jobs.model import Job
from loomnet.measures.run_data import OwnFigure, RunData
from loomnet.plans.ecmp import EcmpTables
from loomnet.plans.entries import SwitchPlan
from loomnet.plans.job_request import JobRequest
from loomnet.plans.model import Plan
from loomnet.systems.answers import Answering
from loomnet.systems.given import Memory, PartClock, PartEngine, RankWork, Watch
from loomnet.systems.transport import Notes, Options


@dataclass(frozen=True)
class JobOption:
    """A keyword that every job takes, which `job.option(name)` reads."""

    name: str
    what: str  # a line for help
    default: Any = None

    def check(self, job: Job, value: Any) -> None:
        """Raises UsageError, of which the job's class is put in front."""


class Program(Answering):
    """A switch program in a run. One that needs nothing of the run needs none of these."""

    name: ClassVar[str]

    def settings(self, switch: SwitchPlan, plan: Plan, options: Options) -> dict[str, Any]:
        """Options of the program here: those given, and what a run of these options knows."""
        return dict(switch.options)

    def settings_of(self, switch: SwitchPlan, parts: Iterable[RunPart]) -> dict[str, Any]:
        """Options that follow from the run's jobs, of which its parts know; they win."""
        return {}

    def rows(self, switch: SwitchPlan, parts: Iterable[RunPart]) -> Mapping[str, Any]:
        """Its rows beside forward's, by names of tables, as _core.table_batch takes them."""
        return {}


class RunPart(Answering):
    """A system's part in one run, which of() makes from the run's plan, jobs and options."""

    # The `allreduce=` by which a job has its all-reduces made here, and the transport for them.
    allreduce: ClassVar[str | None] = None
    transport: ClassVar[str | None] = None
    has_servers: ClassVar[bool] = False  # its jobs have some: systems.servers
    moves_hosts: ClassVar[bool] = False  # whether on_routes() touches hosts
    on_packets: ClassVar[bool] = False  # its jobs are refused where a run has no packets

    @classmethod
    def of(cls, plan: Plan, requests: Sequence[JobRequest], options: Options) -> Self | None:
        """None where it has no part in such a run. Raises UsageError."""
        return None

    def carries(self, asked: JobRequest) -> bool:
        """Whether the job's all-reduces are made by this part."""
        return self.allreduce is not None and asked.job.allreduce == self.allreduce

    # --- of the jobs that it carries --------------------------------------------------------------
    def core_options(self, asked: JobRequest) -> dict[str, Any]:
        """Keywords for the engine's model of a collective …"""
        return {}

    def bind(self, engine: PartEngine, asked: JobRequest, core: Any) -> None:
        """… whose queue pairs of this part are connected, when the model is made."""

    def bucket_sums(self, engine: PartEngine, asked: JobRequest, *, payload: bool) -> Any:
        """What sums a model's buckets, as ExecutorSums of the engine; None: its ranks do."""
        return None

    def bridge_options(self, asked: JobRequest) -> dict[str, Any]:
        """Keywords for the engine's side of a real rank …"""
        return {}

    def bind_ranks(self, engine: PartEngine, asked: JobRequest, bridges: Sequence[Any]) -> None:
        """… whose queue pairs of this part are connected, when all ranks have theirs."""

    def has_bytes(self, asked: JobRequest) -> bool:
        """Whether a traffic model must move bytes even without payload=True."""
        return False

    def capacity(self, asked: JobRequest, states: Any, dead: Any) -> float | None:
        """Expected share of the healthy fabric under these faults; None: as of its ranks' pairs."""
        return None

    def memory(self, asked: JobRequest, *, payload: bool) -> Iterable[Memory]:
        """What a job needs beside what every job does."""
        return ()

    # --- of a job that only this part plays -------------------------------------------------------
    def traffic(self, engine: PartEngine, asked: JobRequest, start_ps: int) -> Any:
        """Of a job that is no Collective or ModelJob its Traffic; None: it is not this part's."""
        return None

    def rank_work(self, engine: PartEngine, asked: JobRequest) -> RankWork | None:
        """What it does with the ranks of a PyTorch job."""
        return None

    # --- of the run -------------------------------------------------------------------------------
    def stall(self, asked: JobRequest) -> str:
        """What a stalled job, of all jobs, waits for, as the end of a sentence; or nothing."""
        return ""

    def remark(self, asked: JobRequest) -> str:
        """What the progress line says of a job's results."""
        return ""

    def on_routes(self, engine: PartEngine, tables: EcmpTables) -> None:
        """Routes are these from now on; the switches' tables follow."""

    def forget(self, engine: PartEngine, asked: JobRequest) -> Collection[int]:
        """A job is over while others go on: switches that get tables without it."""
        return ()

    def watch(self, clock: PartClock) -> Watch | None:
        """What looks at the run while it goes on."""
        return None

    @property
    def step(self) -> tuple[str, Time] | None:
        """The option that asks for the watch, and the time between two of its looks."""
        return None

    @property
    def reads_steps(self) -> bool:
        """Whether ranks note the ring steps that they receive."""
        return False

    def notes(self) -> Notes:
        """What the report says of it."""
        return {}

    def figures(self, asked: JobRequest, data: RunData) -> Iterable[OwnFigure]:
        """Figures of a job beside those that every job has."""
        return ()

    def lint(self) -> Iterator[str]:
        """Lines that a run prints before it begins."""
        yield from ()
