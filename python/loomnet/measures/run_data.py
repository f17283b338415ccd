"""Raw series of one run, as any engine hands them over and training.py reads them. Times are int
picoseconds since the job's first iteration began; hosts are numbers of the plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from loomnet.fabrics.link_settings import Frames
from loomnet.faults.timetable import Window
from loomnet.measures.flow_rows import FlowRows
from loomnet.measures.switch_state import Snapshot

if TYPE_CHECKING:
    from loomnet.measures.expert_rounds import ExpertRounds
    from loomnet.measures.observed import Observed
    from loomnet.measures.panel_events import PanelEvents
    from loomnet.measures.pools import PoolSeries
    from loomnet.measures.ring_steps import RingSteps
    from loomnet.measures.samples import Samples

Interval = tuple[int, int]


@dataclass
class HostSeries:
    """What one host's job saw of the network.

    `work`: finished operations (begin, end, payload bytes moved for this host); an operation is one
    collective, or one message of a traffic model. `busy`: the union of intervals with operations
    outstanding, those that never finished included. `silences`: while busy, the longer spans in
    which no payload reached this host; complete above `silence_floor_ps`. `payload`: bytes received
    per bin of `bin_ps`, from `begin_ps`: time 0, but in a picture on the run's clock.
    """

    # Lists, or numpy arrays of as many columns.
    work: Sequence[tuple[int, int, int]] | Any = field(default_factory=list)
    busy: Sequence[Interval] | Any = field(default_factory=list)
    silences: Sequence[Interval] | Any = field(default_factory=list)
    payload: Sequence[int] | Any = field(default_factory=list)
    bin_ps: int = 10**9
    silence_floor_ps: int = 0
    begin_ps: int = 0


@dataclass(frozen=True)
class Iteration:
    """One iteration of rank 0. `number` counts optimizer steps from 1."""

    number: int
    start_ps: int
    end_ps: int

    @property
    def length_ps(self) -> int:
        return self.end_ps - self.start_ps


@dataclass(frozen=True)
class RunFault:
    """Something that went wrong for the job: a rank, a queue pair, or its stall timeout."""

    at_ps: int
    who: str  # "rank 2", "h1 qp 7", "job"
    message: str


@dataclass(frozen=True)
class StageLateness:
    """How late one stage of a live run was in one phase, emulated times in picoseconds. `stage`:
    "packet" (a packet's whole way), "engine" (events of the models), "timer" (transports'
    deadlines), "kernel" (a frame in the kernel, in whole passes of the loop), "pass" (one pass of
    the loop), "sleep" (beyond what was asked), "post" (a rank's request), "table" (a
    panel's, until it is in force in the kernel)."""

    phase: str
    stage: str
    count: int
    p50_ps: int
    p99_ps: int
    p999_ps: int
    max_ps: int


@dataclass(frozen=True)
class ProcessorWait:
    """Waits of 50 us and more for a processor, by who waited ("engine", "softirq") and by the task
    that ran there last before: `holder` is what that is to the run ("rank", "engine", "softirq",
    "idle processor", "other"), `name` its name in the kernel, "?" where the kernel shows no events
    of its scheduler: then all waits are summed. Wall time in nanoseconds."""

    who: str
    holder: str
    name: str
    count: int
    total_ns: int
    longest_ns: int

    @property
    def behind(self) -> str:
        if self.name == "?":
            return "programs that this kernel does not name"
        if self.holder == "idle processor":
            return "nothing (an idle processor that woke)"
        return f"{self.name} ({'a rank' if self.holder == 'rank' else self.holder})"


@dataclass
class Fidelity:
    """How well the engine kept its promises. Percentiles of lateness in picoseconds; None on the
    virtual clock, which is never late. `unexplained`: packets not delivered and in no counter."""

    lateness_p50_ps: int | None = None
    lateness_p99_ps: int | None = None
    lateness_max_ps: int | None = None
    packets: int = 0
    unexplained: int = 0
    fell_behind: str | None = None  # why engine or hosts could not keep up; None: they did
    dilation: float = 1.0
    emulated_ps: int = 0
    notes: dict[str, float | int | str | None] = field(default_factory=dict)
    stages: list[StageLateness] = field(default_factory=list)  # of live runs
    waits: list[ProcessorWait] = field(default_factory=list)  # the same


NEVER_CAME = "faults that never came"  # a note of a run

# Of a system: name, value, unit, and why there is no value.
OwnFigure = tuple[str, float | None, str, str | None]
Ending = Literal["finished", "stalled", "failed", "interrupted"]


@dataclass
class RunData:
    """Everything one run produced. `counters`: cumulative totals over all hosts, as steps (time,
    value); the names `lost`, `retransmitted`, `readmitted` become figures, absent ones null, and so
    does `timeouts`, which is there where any ran out."""

    ended: Ending
    end_ps: int
    hosts: dict[int, HostSeries] = field(default_factory=dict)
    iterations: list[Iteration] = field(default_factory=list)
    no_iterations: str | None = None  # why a job that counts steps has none
    windows: list[Window] = field(default_factory=list)
    counters: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    log: list[tuple[int, dict[str, str]]] = field(default_factory=list)  # rank 0, by TorchJob.log
    errors: list[RunFault] = field(default_factory=list)
    fidelity: Fidelity = field(default_factory=Fidelity)
    totals: dict[str, dict[str, int]] = field(default_factory=dict)  # object -> counter -> value
    unequal_hashes: int | None = None  # steps at which the ranks' parameters differed
    flows: FlowRows = field(default_factory=FlowRows)  # of jobs that have flows
    # Of these flows that waited for retransmission timeouts: picoseconds, by the flow's place.
    timeout_waits: dict[int, int] = field(default_factory=dict)
    never_came: list[str] = field(default_factory=list)  # faults that the run's end came before
    samples: Samples | None = None  # where the run was asked for them
    observed: Observed | None = None  # the same
    pools: PoolSeries | None = None  # the same
    events: PanelEvents | None = None  # of a fabric with panels
    experts: ExpertRounds | None = None  # of a mixture of experts
    ring_steps: RingSteps | None = None  # of a job whose ranks go round a ring in steps
    # Of the job's packets: flows are compared with what they would take alone. None: no engine ran.
    frames: Frames | None = None
    reason: str | None = None  # why it ended, unless "finished"
    deterministic: bool = True
    # State of the switch programs at the run's end, by switch; of those that have any.
    snapshots: dict[str, Snapshot] = field(default_factory=dict)
    earlier_snapshots: dict[str, dict[int, Snapshot]] = field(default_factory=dict)  # by time
    directory: Path | None = None  # holds ranks/<n>.log
    # The job's time 0 on the engine's clock, by which plug-ins and switch programs are told times.
    time_zero_ps: int | None = None
    completion_ps: int | None = None  # from the job's start to its end
    # Whether another job of the run has a host of this one: what NICs count is then no job's own.
    shares_hosts: bool = False
    fluid: bool = False  # there were no packets
    of_systems: list[OwnFigure] = field(default_factory=list)  # figures that systems bring
    # Elements (collectives) or bytes (flows) that arrived altered; None: lengths only, no bytes.
    wrong: int | None = None
    zero_ps: int = 0  # where time 0 lies in the time of the run's first job
