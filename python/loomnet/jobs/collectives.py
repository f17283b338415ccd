"""Collectives as jobs of their own, without PyTorch: rounds of one collective among all ranks."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Unpack

from pydantic import Field, StrictBool, field_validator, model_validator

from loomnet.base.constructor import constructor
from loomnet.base.errors import UsageError
from loomnet.base.spec import given
from loomnet.base.transport_names import TRANSPORT
from loomnet.base.units import Size, Time
from loomnet.jobs.edges import Pair, chain
from loomnet.jobs.model import Count, Job, MeasuredAs, check_meshed
from loomnet.jobs.of_systems import RING
from loomnet.jobs.options import RingOptions, RoundOptions, TransportName

MOST_CHANNELS = 64  # rings of a collective
MOST_JITTER = 1000  # steps that a rank computes for between two of them
MOST_INCARNATIONS = 16  # of a ring's communicator, in 4 bits of its number


class Collective(Job):
    """Common to jobs of `repeat` equal rounds, each round one iteration. `compute`: emulated time
    that ranks compute between two rounds; iterations and their figures are of the rounds alone, as
    nccl-tests time them, and `ln.iterations(…)` of a fault counts it in."""

    measured_as: ClassVar[MeasuredAs] = "collective"
    positional: ClassVar[tuple[str, ...]] = ("size", "repeat", "transport")
    size: Size = given(converter=Size, kw_only=False)
    repeat: Count = Field(default=1, kw_only=False)
    compute: Time = given(default=Time("0 s"), converter=Time)  # between two repetitions

    @field_validator("size")
    @classmethod
    def _some(cls, value: Size) -> Size:
        if value.bytes < 1:
            raise UsageError("must be 1 B or more")
        return value

    def place(self, places: list[int]) -> list[int]:
        placed = super().place(places)
        if isinstance(self, COLLECTIVES):
            check_meshed(type(self).__name__, len(placed))
        return placed

    @staticmethod
    def bus_factor(ranks: int) -> float:
        """Bus bandwidth over algorithm bandwidth (nccl-tests, "Performance reported by NCCL
        tests")."""
        return 1.0

    def describe(self) -> str:
        return f"{self.repeat} x {type(self).__name__} of {self.size} {self._carried_by}"


class RingCollective(Collective):
    """Common to collectives that go round a ring in steps: in each step every rank sends one block
    of `size`/ranks bytes to the next rank.

    `channels`: rings, each with a share of the data, a communicator and queue pairs of its own.
    `queue_pair`: "persistent", one for every two ranks, or "per-step": each ring step takes a new
    one, with another UDP source port and a congestion control in its first state. `whole_steps`: a
    rank sends a step once the step before has come whole; False: each chunk as soon as it has come.
    `step_jitter`: what a rank computes between a step's arrival and the next step, exponentially
    distributed, its mean as a share of a step's time on the wire at the host's rate; above 0,
    steps are whole. `first_step`: number of the first ring step; all later ones count on from it,
    over all repetitions. `new_communicator_every`: repetitions after which the communicators are
    closed and made anew; their steps then begin at `first_step`. Sizes of up to 4 KiB per channel
    go over a tree, which has no ring steps.
    """

    channels: Annotated[int, Field(ge=1, le=MOST_CHANNELS, strict=True)] = Field(
        default=1, repr=False
    )
    queue_pair: Literal["persistent", "per-step"] = Field(default="persistent", repr=False)
    whole_steps: StrictBool = Field(default=False, repr=False)
    step_jitter: Annotated[float, Field(ge=0, le=MOST_JITTER)] = Field(default=0.0, repr=False)
    first_step: Annotated[int, Field(ge=0, lt=2**32, strict=True)] = Field(default=0, repr=False)
    new_communicator_every: Count | None = Field(default=None, repr=False)

    @model_validator(mode="after")
    def _in_a_ring(self) -> RingCollective:
        if self.allreduce != RING:
            for name in (
                "channels",
                "queue_pair",
                "whole_steps",
                "step_jitter",
                "first_step",
                "new_communicator_every",
            ):
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise UsageError(
                        f'{name}= goes with allreduce="ring": switches that sum know no ring steps'
                    )
        every = self.new_communicator_every
        if every is not None and (self.repeat - 1) // every >= MOST_INCARNATIONS:
            raise UsageError(
                f"new_communicator_every={every}: {self.repeat} repetitions would make the "
                f"communicators anew more than {MOST_INCARNATIONS - 1} times; give a larger one"
            )
        return self


class AllReduce(RingCollective):
    """All-reduce of `size` bytes per rank, `repeat` times, each repetition one iteration: round a
    ring, or with allreduce="ina" by the switches."""

    kind: ClassVar[str] = "all_reduce"
    reduces: ClassVar[bool] = True

    @staticmethod
    def bus_factor(ranks: int) -> float:
        return 2 * (ranks - 1) / ranks

    @constructor
    def __init__(
        self,
        size: Size | str,
        repeat: int = 1,
        transport: TransportName = TRANSPORT,
        **rest: Unpack[RingOptions],
    ) -> None: ...

    @model_validator(mode="after")
    def _a_value_to_sum(self) -> AllReduce:
        if self.allreduce != RING and self.size.bytes < 4:
            raise UsageError(
                "size: switches sum values of 4 B; with "
                f'allreduce="{self.allreduce}" give 4 B or more'
            )
        return self


class AllToAll(Collective):
    """Every rank sends `size`/ranks bytes to every other, `repeat` times."""

    kind: ClassVar[str] = "all_to_all"

    @staticmethod
    def bus_factor(ranks: int) -> float:
        return (ranks - 1) / ranks

    @constructor
    def __init__(
        self,
        size: Size | str,
        repeat: int = 1,
        transport: TransportName = TRANSPORT,
        **rest: Unpack[RoundOptions],
    ) -> None: ...

    def pairs_of(self, placed: list[int]) -> list[Pair]:
        ranks = range(len(placed))
        return [(a, b) for a in ranks for b in ranks if a != b]


class AllGather(RingCollective):
    """Ring all-gather: every rank ends with `size` bytes, `size`/ranks of them from each."""

    kind: ClassVar[str] = "all_gather"

    @staticmethod
    def bus_factor(ranks: int) -> float:
        return (ranks - 1) / ranks

    @constructor
    def __init__(
        self,
        size: Size | str,
        repeat: int = 1,
        transport: TransportName = TRANSPORT,
        **rest: Unpack[RingOptions],
    ) -> None: ...


class ReduceScatter(RingCollective):
    """Ring reduce-scatter of `size` bytes per rank, of which each keeps its `size`/ranks."""

    kind: ClassVar[str] = "reduce_scatter"

    @staticmethod
    def bus_factor(ranks: int) -> float:
        return (ranks - 1) / ranks

    @constructor
    def __init__(
        self,
        size: Size | str,
        repeat: int = 1,
        transport: TransportName = TRANSPORT,
        **rest: Unpack[RingOptions],
    ) -> None: ...


class Broadcast(Collective):
    """Rank 0 sends `size` bytes to all others, down a chain or, if small, a tree. A round ends when
    all have them: rank 0, which receives nothing, may have sent what follows by then."""

    kind: ClassVar[str] = "broadcast"

    @constructor
    def __init__(
        self,
        size: Size | str,
        repeat: int = 1,
        transport: TransportName = TRANSPORT,
        **rest: Unpack[RoundOptions],
    ) -> None: ...

    def pairs_of(self, placed: list[int]) -> list[Pair]:
        return chain(len(placed))


class Reduce(Collective):
    """The sum of `size` bytes of every rank ends at rank 0, up a chain or, if small, a tree."""

    kind: ClassVar[str] = "reduce"

    @constructor
    def __init__(
        self,
        size: Size | str,
        repeat: int = 1,
        transport: TransportName = TRANSPORT,
        **rest: Unpack[RoundOptions],
    ) -> None: ...

    def pairs_of(self, placed: list[int]) -> list[Pair]:
        return [(b, a) for a, b in chain(len(placed))]


class SendRecv(Collective):
    """Every rank sends `size` bytes to the next and receives as much from the one before; a round
    ends with both."""

    kind: ClassVar[str] = "send_recv"

    @constructor
    def __init__(
        self,
        size: Size | str,
        repeat: int = 1,
        transport: TransportName = TRANSPORT,
        **rest: Unpack[RoundOptions],
    ) -> None: ...


# What the engine runs as an operation of all ranks together.
COLLECTIVES = (AllReduce, AllToAll, AllGather, ReduceScatter, Broadcast, Reduce, SendRecv)
