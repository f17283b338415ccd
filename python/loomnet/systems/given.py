"""What parts of systems are given in a run, and what they give back: see system.RunPart."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from loomnet.jobs.model import Job
from loomnet.plans.entries import SwitchPlan
from loomnet.plans.job_request import JobRequest
from loomnet.plans.usid_plan import PlanePaths
from loomnet.systems.transport import Notes, RunEngine, Transport


class PartEngine(RunEngine, Protocol):
    """What a part does with the engine of its run. Hosts and switches are the plan's numbers."""

    network: Any  # _core.Network, which has numbers of its own
    panels: Any
    plugins: Any  # exceptions of plug-ins that events of the engine call
    fluid: Any  # None: hosts send packets
    live: bool
    seed: int

    def node(self, number: int) -> Any:
        """The network's number of a host or switch."""
        ...

    def carrier(self, job: Job) -> Transport | None:
        """The engine's transport that carries a job; None where its hosts' kernels do."""
        ...

    def next_flow(self) -> int:
        """A number that no queue pair of the run has for its flow."""
        ...

    def connect(
        self, asked: JobRequest, source: int, local: int, destination: int, remote: int
    ) -> None:
        """Connects a queue pair of a job both ways, when the job starts."""
        ...

    def connect_local(self, asked: JobRequest, host: int) -> tuple[Any, Any]:
        """Connects a queue pair between two ranks of a host; its ends."""
        ...

    def connect_pair(self, asked: JobRequest, source: int, destination: int, least: int) -> int:
        """Connects a queue pair with the next free number from `least` on, which it returns."""
        ...

    def path_row(self, paths: PlanePaths, spare: float = 1.0) -> tuple[Any, ...]:
        """A path template as the network takes it."""
        ...


class PartClock(Protocol):
    """What a part's watch asks of the clock of its run."""

    def switch_columns(self, switch: SwitchPlan, names: Sequence[str]) -> list[Any]:
        """Of each field its values in all rows of the state of a switch's program."""
        ...


class Watch(Protocol):
    """Looks at a run at times of its own. Times are in picoseconds since the first job's begin."""

    @property
    def due_ps(self) -> int:
        """When it looks next."""
        ...

    def take(self, at_ps: int, playing: Collection[int]) -> None:
        """One look; `playing`: numbers of the jobs that have begun and not ended."""
        ...

    def found(self) -> Mapping[str, Any]:
        """What it has seen, by the names of RunData's fields."""
        ...


class RankWork(Protocol):
    """What a part does with the ranks of one PyTorch job."""

    queue_pairs: int  # between two ranks
    connects: bool  # whether it connects the ranks' queue pairs, which else are a mesh

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables of the ranks' processes."""
        ...

    def connect(self, bridges: Sequence[Any]) -> None:
        """Connects the queue pairs of ranks, in the engine."""
        ...

    def found(self, origin_ps: int, iterations: Sequence[tuple[int, int]]) -> Mapping[str, Any]:
        """What it has seen, by the names of RunData's fields. `origin_ps`: of the job, on the
        engine's clock; `iterations`: their begin and end since then."""
        ...

    def notes(self) -> Notes:
        """What the report says of it."""
        ...


@dataclass(frozen=True)
class Memory:
    """Bytes that a part needs, and what the user lowers to lower it."""

    what: str
    bytes: int
    lower: str
