"""Jobs of flows between pairs of ranks, none of which waits for another: patterns of equal rounds,
and arrivals drawn from a distribution."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Unpack

from pydantic import BeforeValidator, Field, model_validator

from loomnet.base.arguments import checked_call
from loomnet.base.constructor import constructor
from loomnet.base.errors import UsageError
from loomnet.base.names import quoted
from loomnet.base.spec import Spec, given
from loomnet.base.transport_names import TRANSPORT
from loomnet.base.units import Size, Time, time_or_none
from loomnet.jobs import flow_sizes as flowsizes
from loomnet.jobs.collectives import Collective
from loomnet.jobs.edges import Pair, checked_pairs
from loomnet.jobs.model import MOST_COUNT, Count, Job, MeasuredAs, Seed
from loomnet.jobs.options import JobOptions, RoundOptions, TransportName

if TYPE_CHECKING:
    from loomnet.jobs.graphs import ConnectionMatrix, Ns3Flows

MOST_PAIRED = 64  # ranks; among more, not every pair is looked at
MOST_SENDERS = 4096  # ranks; among more, not every rank is looked at
MOST_SIZES = 100_000  # of one list
MOST_STEPS, MOST_RING = 1 << 16, 8192  # of a flow; flows that are ranks of one ring
MOST_FLOWS = MOST_ROUNDS = 1_000_000  # each is an entry of some hundred bytes, and a row
MOST_LOAD = 10  # of the sending NICs' rate


class _Pairwise(Spec):
    """Common to jobs of flows between pairs: sockets can carry them, and none waits for another."""

    measured_as: ClassVar[MeasuredAs] = "flows"

    @property
    def over_sockets(self) -> bool:
        return True

    @property
    def synchronous(self) -> bool:
        return False


class Permutation(_Pairwise, Collective):
    """Rank r sends `size` bytes to rank (r + `shift`) mod ranks, all at once, `repeat` times. With
    `shift="random"` the receivers are a random permutation, drawn from `seed`, that leaves no rank
    in its place."""

    kind: ClassVar[str] = "permutation"
    shift: Count | Literal["random"] = 1
    seed: Seed = 0
    repeat: Annotated[Count, Field(le=MOST_ROUNDS)] = Field(default=1, kw_only=False)

    @constructor
    def __init__(
        self,
        size: Size | str,
        repeat: int = 1,
        transport: TransportName = TRANSPORT,
        *,
        shift: int | Literal["random"] = 1,
        seed: int = 0,
        **rest: Unpack[RoundOptions],
    ) -> None: ...

    def pairs_of(self, placed: list[int]) -> list[Pair]:
        ranks = len(placed)
        if self.shift == "random":
            # One cycle through all ranks in random order: every rank sends to the next on it.
            order = list(range(ranks))
            random.Random(f"permutation {self.seed} {ranks}").shuffle(order)
            return sorted(
                zip(order, order[1:] + order[:1], strict=True),
                key=lambda pair: (placed[pair[0]], pair),
            )
        if self.shift % ranks == 0:
            raise UsageError(f"Permutation.shift: {self.shift} sends every rank to itself")
        return [(rank, (rank + self.shift) % ranks) for rank in range(ranks)]


class Incast(_Pairwise, Collective):
    """All other ranks send `size` bytes to rank `receiver` at once, `repeat` times."""

    kind: ClassVar[str] = "incast"
    receiver: Annotated[int, Field(ge=0, le=MOST_COUNT, strict=True)] = 0
    repeat: Annotated[Count, Field(le=MOST_ROUNDS)] = Field(default=1, kw_only=False)

    @constructor
    def __init__(
        self,
        size: Size | str,
        repeat: int = 1,
        transport: TransportName = TRANSPORT,
        *,
        receiver: int = 0,
        **rest: Unpack[RoundOptions],
    ) -> None: ...

    def pairs_of(self, placed: list[int]) -> list[Pair]:
        if self.receiver >= len(placed):
            raise UsageError(f"Incast.receiver: rank {self.receiver} of {len(placed)}")
        return [(rank, self.receiver) for rank in range(len(placed)) if rank != self.receiver]


def _share(value: Any) -> Any:
    """Raises UsageError for a load in percent."""
    percent = isinstance(value, str) and value.strip().endswith("%")
    if percent or (isinstance(value, (int, float)) and value > MOST_LOAD):
        raise UsageError(
            f"{quoted(value)} must be a share of the NICs' rate, up to {MOST_LOAD}: 0.5 is 50 %"
        )
    return value


def _sizes(
    value: Size | str | Path | flowsizes.FlowSizes | Iterable[Size | str],
) -> tuple[Size, ...] | flowsizes.FlowSizes:
    if isinstance(value, Path):
        return flowsizes.from_csv(value)
    if isinstance(value, str):
        found = flowsizes.named(value)
        return (Size(value),) if found is None else found
    if isinstance(value, (Size, flowsizes.FlowSizes)):
        return (value,) if isinstance(value, Size) else value
    if not isinstance(value, Iterable) or isinstance(value, (bytes, Mapping)):
        raise UsageError(f"{quoted(value)} is no size, list of sizes or distribution")
    found = tuple(Size(each) for each in itertools.islice(value, MOST_SIZES + 1))
    if len(found) > MOST_SIZES:
        raise UsageError(f"more than {MOST_SIZES:,} sizes; a CSV file holds a distribution")
    return found


def _pairs(values: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    return tuple(values)


def _times(values: Iterable[Time | str]) -> tuple[Time, ...]:
    return tuple(map(Time, values))


_U16 = Annotated[int, Field(ge=0, lt=1 << 16, strict=True)]


class RingClaim(Spec):
    """What packets of a hostile sender say of themselves: that they are in ring `ring` of the job
    with this number (jobs of a run count from 0), of its `gen`-th communicator, from rank `rank` of
    `ranks`, and that their first ring step is `step`. No value is checked against the run."""

    kind: ClassVar[str] = "ring_claim"
    job: _U16 = 0
    ring: _U16 = 0
    gen: Annotated[int, Field(ge=0, lt=1 << 8, strict=True)] = 0
    rank: _U16 = 0
    ranks: _U16 = 2
    step: _U16 = 0

    def numbers(self) -> tuple[int, int, int, int, int]:
        """As the engine takes it."""
        return self.job, self.gen << 16 | self.ring, self.step, self.rank, self.ranks


def _claims(values: Iterable[RingClaim]) -> tuple[RingClaim, ...]:
    if isinstance(values, (RingClaim, str)) or not isinstance(values, Iterable):
        raise UsageError("give a list of claims, as claims=[RingClaim(…)]")
    return tuple(values)


class Flows(_Pairwise, Job):
    """`count` independent flows between random pairs of ranks, or the given `pairs` in turn;
    without a count as many as there are `pairs` or `starts`, else one.

    `sizes`: one size, or several of which each flow draws one, all with equal weight: the sizes of
    a list do not go to the `pairs` in turn (a list of flows with their sizes is a file for
    ln.Flows.from_ns3). Or a published distribution ("websearch",
    "datamining"), or a file of a cumulative table, by its name or as a Path: rows of bytes,share or
    bytes and percent, or as Homa's simulator has them. Flows arrive as a Poisson process, `gap`
    apart on average or at the `load` that offers this share of the sending NICs' rate; or each at
    its own time in `starts`; all at once without any of these. `lifetimes`: how long each flow
    lasts: from then on it sends nothing new, and ends with what is under way, unless its size has
    ended it before; flows that come and go. `steps`: each flow is sent in so
    many equal steps, and its packets say the step, as if flow k were rank k of a ring of `count`
    ranks; no flow waits for another. `result.ring_steps` tells when senders knew that a step had
    arrived. `claims`: what the packets of each flow in turn say instead, for switches under attack.
    """

    kind: ClassVar[str] = "flows"
    positional: ClassVar[tuple[str, ...]] = ("sizes",)
    sizes: Annotated[Any, BeforeValidator(_sizes)] = given(converter=_sizes, kw_only=False)
    count: Annotated[Count, Field(le=MOST_FLOWS)] = 1
    gap: Time | None = given(default=None, converter=time_or_none)
    load: Annotated[Annotated[float, Field(gt=0, le=MOST_LOAD)] | None, BeforeValidator(_share)] = (
        None
    )
    pairs: Annotated[tuple[tuple[int, int], ...], Field(max_length=MOST_FLOWS, fail_fast=True)] = (
        given(default=(), converter=_pairs)
    )
    starts: Annotated[tuple[Time, ...], Field(max_length=MOST_FLOWS, fail_fast=True)] = given(
        default=(), converter=_times
    )
    lifetimes: Annotated[tuple[Time, ...], Field(max_length=MOST_FLOWS, fail_fast=True)] = given(
        default=(), converter=_times
    )
    steps: Annotated[Count, Field(le=MOST_STEPS)] | None = Field(default=None, repr=False)
    claims: Annotated[
        tuple[RingClaim, ...],
        Field(max_length=MOST_FLOWS, fail_fast=True, repr=False),
        BeforeValidator(_claims),
    ] = given(default=(), converter=_claims)

    @model_validator(mode="after")
    def _counted(self) -> Flows:
        if "count" not in self.model_fields_set and (
            given := self.pairs or self.starts or self.lifetimes
        ):
            object.__setattr__(self, "count", len(given))
        return self

    @model_validator(mode="after")
    def _of_a_ring(self) -> Flows:
        if self.steps is not None and not 2 <= self.count <= MOST_RING:
            raise UsageError(
                f"steps: steps of a ring go with 2 to {MOST_RING:,} flows, not count={self.count}"
            )
        if self.claims and self.steps is None:
            raise UsageError(
                "claims: packets say a ring step of flows with steps= only; give steps="
            )
        return self

    @constructor
    def __init__(
        self,
        sizes: Size | str | Path | flowsizes.FlowSizes | Iterable[Size | str],
        *,
        count: int = 1,
        gap: Time | str | None = None,
        load: float | None = None,
        pairs: Iterable[tuple[int, int]] = (),
        starts: Iterable[Time | str] = (),
        lifetimes: Iterable[Time | str] = (),
        steps: int | None = None,
        claims: Iterable[RingClaim] = (),
        **rest: Unpack[JobOptions],
    ) -> None: ...

    @staticmethod
    @checked_call
    def from_htsim(path: str | Path, **values: Any) -> ConnectionMatrix:
        """The flows of an htsim connection matrix (.cm), triggers included; values as for a job."""
        from loomnet.jobs.graphs import ConnectionMatrix

        return ConnectionMatrix(path=path, **values)

    @staticmethod
    @checked_call
    def from_ns3(path: str | Path, **values: Any) -> Ns3Flows:
        """The flows of a `flow.txt` of HPCC's simulator for ns-3; values as for a job."""
        from loomnet.jobs.graphs import Ns3Flows

        return Ns3Flows(path=path, **values)

    @property
    def first_ps(self) -> int:
        return min((start.count for start in self.starts), default=0)

    @property
    def until(self) -> Time | None:
        """By when all flows have ended, where each has a time to last and a time to start."""
        if not self.lifetimes or self.gap is not None or self.load is not None:
            return None
        starts = [each.count for each in self.starts] or [0] * len(self.lifetimes)
        pairs = zip(starts, self.lifetimes, strict=True)
        return Time.of(max(start + each.count for start, each in pairs))

    @property
    def distribution(self) -> flowsizes.FlowSizes:
        if isinstance(self.sizes, flowsizes.FlowSizes):
            return self.sizes
        return flowsizes.of_list(self.sizes)

    def mean_gap_ps(self, nic_bps: int, senders: int) -> float | None:
        """Mean time between two arrivals; None where all flows start at once."""
        if self.load is not None:
            return self.distribution.mean * 8e12 / (self.load * nic_bps * senders)
        return None if self.gap is None else float(self.gap.count)

    @model_validator(mode="after")
    def _consistent(self) -> Flows:
        if not self.sizes:
            raise UsageError("sizes is empty: give one size or more")
        if self.gap is not None and self.load is not None:
            raise UsageError("gap and load both set the arrivals; give one")
        if self.starts and (self.gap is not None or self.load is not None):
            raise UsageError("starts and gap or load both set the arrivals; give one")
        if self.starts and len(self.starts) != self.count:
            raise UsageError(f"starts has {len(self.starts)} times for {self.count} flows (count)")
        if self.lifetimes and len(self.lifetimes) != self.count:
            raise UsageError(
                f"lifetimes has {len(self.lifetimes)} times for {self.count} flows (count)"
            )
        if any(each.count <= 0 for each in self.lifetimes):
            raise UsageError("lifetimes: a flow lasts for longer than 0 s")
        if self.lifetimes and self.steps is not None:
            raise UsageError(
                "lifetimes and steps: a flow in steps ends with its last step; give one"
            )
        if self.steps is not None and (least := self.distribution.at(0)) < self.steps:
            raise UsageError(
                f"steps: {self.steps} steps of a flow of {Size.of(least)} would be "
                "shorter than a byte; give fewer steps or larger flows"
            )
        if len(self.claims) > self.count:
            raise UsageError(
                f"claims: {len(self.claims)} claims for {self.count} flows (count); "
                "each flow makes one"
            )
        return self

    def pairs_of(self, placed: list[int]) -> list[Pair]:
        ranks = len(placed)
        if self.pairs:
            return checked_pairs(self.pairs, ranks, "Flows.pairs")
        if ranks > MOST_PAIRED:  # what capacity is judged by: neighbours near and far
            distances = [1 << bit for bit in range((ranks - 1).bit_length())]
            every = -(-ranks // MOST_SENDERS)
            return [(a, (a + d) % ranks) for a in range(0, ranks, every) for d in distances]
        return [(a, b) for a in range(ranks) for b in range(ranks) if a != b]
