"""Jobs of flows between pairs of ranks, none of which waits for another: patterns of equal rounds,
and arrivals drawn from a distribution."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from loomnet import flowsizes
from loomnet.errors import UsageError
from loomnet.expected import Edge
from loomnet.graphjobs import ConnectionMatrix
from loomnet.jobs import Collective, Count, Job, edges_of
from loomnet.spec import Spec
from loomnet.units import Size, Time

MOST_PAIRED = 64  # ranks; among more, not every pair is looked at


class _Pairwise(Spec):
    """Common to jobs of flows between pairs: sockets can carry them, and none waits for another."""

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
    seed: Annotated[int, Field(ge=0, strict=True)] = 0

    def edges(self, hosts: list[int]) -> list[Edge]:
        placed = self.place(hosts)
        if self.shift == "random":
            # One cycle through all ranks in random order: every rank sends to the next on it.
            order = list(placed)
            random.Random(f"permutation {self.seed} {len(order)}").shuffle(order)
            return sorted(zip(order, order[1:] + order[:1], strict=True))
        if self.shift % len(placed) == 0:
            raise UsageError(f"Permutation.shift: {self.shift} sends every rank to itself")
        return [(host, placed[(i + self.shift) % len(placed)]) for i, host in enumerate(placed)]


class Incast(_Pairwise, Collective):
    """All other ranks send `size` bytes to rank `receiver` at once, `repeat` times."""

    kind: ClassVar[str] = "incast"
    receiver: Annotated[int, Field(ge=0, strict=True)] = 0

    def edges(self, hosts: list[int]) -> list[Edge]:
        placed = self.place(hosts)
        if self.receiver >= len(placed):
            raise UsageError(f"Incast.receiver: rank {self.receiver} of {len(placed)}")
        return [(host, placed[self.receiver]) for host in placed if host != placed[self.receiver]]


def _sizes(value: Any) -> Any:
    if isinstance(value, str):
        found = flowsizes.named(value)
        return (Size(value),) if found is None else found
    if isinstance(value, (Size, flowsizes.FlowSizes)):
        return (value,) if isinstance(value, Size) else value
    try:
        return tuple(Size(each) for each in value)
    except TypeError:
        raise UsageError(f"{value!r} is no size, list of sizes or distribution") from None


class Flows(_Pairwise, Job):
    """`count` independent flows between random pairs of ranks, or the given `pairs` in turn.

    `sizes`: one size or several of equal weight, a published distribution ("websearch",
    "datamining"), or a CSV file of bytes,share. Flows arrive as a Poisson process, `gap` apart on
    average or at the `load` that offers this share of the sending NICs' rate; or each at its own
    time in `starts`; all at once without any of these.
    """

    kind: ClassVar[str] = "flows"
    positional: ClassVar[tuple[str, ...]] = ("sizes",)
    sizes: Annotated[Any, BeforeValidator(_sizes)]
    count: Count = 1
    gap: Time | None = None
    load: Annotated[float, Field(gt=0, le=10)] | None = None
    pairs: tuple[tuple[int, int], ...] = ()
    starts: tuple[Time, ...] = ()

    @staticmethod
    def from_htsim(path: str | Path, **values: Any) -> ConnectionMatrix:
        """The flows of an htsim connection matrix (.cm), triggers included; values as for a job."""
        return ConnectionMatrix(path=path, **values)

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
        return self

    def edges(self, hosts: list[int]) -> list[Edge]:
        placed = self.place(hosts)
        if self.pairs:
            return edges_of(self.pairs, placed, "Flows.pairs")
        if len(placed) > MOST_PAIRED:  # what capacity is judged by: neighbours near and far
            distances = [1 << bit for bit in range((len(placed) - 1).bit_length())]
            return [(a, placed[(i + d) % len(placed)])
                    for i, a in enumerate(placed) for d in distances]
        return [(a, b) for a in placed for b in placed if a != b]
