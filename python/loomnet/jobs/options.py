"""What every job can be told by name: the types that a user may give, for constructors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from loomnet.base.system_options import SystemOptions
from loomnet.base.transport_names import TransportName as TransportName
from loomnet.base.units import Rate, Size, Time
from loomnet.jobs.circuit_control import CircuitControl


class NamedOptions(SystemOptions, total=False):
    """See Job."""

    ranks: int | None
    name: str | None
    start: Time | str
    stop: Time | str | None
    hosts: Sequence[str] | None
    alone: bool
    stall_timeout: Time | str | None
    allreduce: str
    cc: str | Mapping[str, Any] | None


class JobOptions(NamedOptions, total=False):
    """The same, with the transport that carries the job."""

    transport: TransportName


class RoundOptions(NamedOptions, total=False):
    """Of jobs of equal rounds: `compute` is between two rounds."""

    compute: Time | str


class RingOptions(RoundOptions, total=False):
    """Of collectives that go round a ring; see RingCollective."""

    channels: int
    queue_pair: Literal["persistent", "per-step"]
    whole_steps: bool
    step_jitter: float
    first_step: int
    new_communicator_every: int | None


class ExpertOptions(NamedOptions, total=False):
    """Of mixtures of experts alone; see MoeJob."""

    data: int | None
    tensor: int | None
    pipeline: int | None
    expert: int | None
    layers: int | None
    micro_batches: int
    micro_batch: int
    sequence: int
    exchange: Size | str | None
    matrix: Any
    matrix_scale: Literal["row_sum", "simulator"]
    nvlink: Rate | str | None
    spares: Sequence[tuple[int, int]]
    seed: int | None
    circuits: CircuitControl | None


class ModelOptions(JobOptions, ExpertOptions, total=False):
    """Of any model. Those of ExpertOptions are refused where it is no mixture of experts."""
