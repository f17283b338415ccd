"""What runs on a fabric: a real PyTorch job, a collective, or a traffic model. Specifications only,
validated on construction."""

from __future__ import annotations

import abc
import json
import random
import re
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    field_validator,
    model_validator,
)

from loomnet import flowsizes
from loomnet.compute import ComputeModel, compute_model
from loomnet.errors import UsageError
from loomnet.expected import Edge, ring
from loomnet.naming import did_you_mean
from loomnet.spec import Spec
from loomnet.taskgraph import TaskGraph
from loomnet.units import Size, Time

# What carries a job's bytes. Live, `gloo` is stock torch Gloo and carries PyTorch jobs, `tcp` is
# the kernel's sockets and carries flows; on the virtual clock both are the model of kernel TCP.
TRANSPORTS: dict[str, str] = {
    "mrc": "spraying, SRv6 source routing, selective acknowledgement",
    "roce": "RC with go-back-N, one queue pair per plane, ECMP; over PFC on the virtual clock",
    "gloo": "stock torch Gloo over kernel TCP, ECMP; on the virtual clock its model, tcp",
    "tcp": "kernel TCP, one connection per flow, ECMP; on the virtual clock its model",
}
MOST_PAIRED = 64  # ranks; among more, not every pair is looked at
MIN_STALL = Time("5 s")


def _transport(value: str) -> str:
    if value not in TRANSPORTS:
        raise UsageError(f'"{value}" is not a transport{did_you_mean(value, TRANSPORTS)}')
    return value


def _stall(value: Any) -> Any:
    return value if value is None or value == "auto" else Time(value)


Transport = Annotated[str, AfterValidator(_transport)]
Count = Annotated[int, Field(ge=1, strict=True)]


class Job(Spec):
    """Common to all jobs. `ranks` None: every host of role rank; rank r runs on the r-th of them.

    `stall_timeout`: emulated time without progress after which the job is ended; "auto" is three
    times the longest fault and at least 5 s, None waits for ever.
    """

    kind: ClassVar[str] = "job"
    transport: Transport = "mrc"
    ranks: Count | None = None
    stall_timeout: Annotated[Time | Literal["auto"] | None, BeforeValidator(_stall)] = "auto"

    def place(self, hosts: list[int]) -> list[int]:
        """Host numbers of ranks 0, 1, …. Raises UsageError when there are more ranks than hosts."""
        wanted = len(hosts) if self.ranks is None else self.ranks
        if wanted > len(hosts):
            raise UsageError(
                f"{type(self).__name__}.ranks: {wanted} ranks but {len(hosts)} hosts; "
                "one rank runs per host"
            )
        if wanted < 2:
            raise UsageError(f"{type(self).__name__}.ranks: a job needs 2 ranks or more")
        return hosts[:wanted]

    def edges(self, hosts: list[int]) -> list[Edge]:
        """Pairs of hosts that exchange data, for the expected capacity."""
        return ring(self.place(hosts))

    @property
    def synchronous(self) -> bool:
        """True where the slowest pair sets the pace of all."""
        return True

    def stall_after(self, longest_fault: Time) -> Time | None:
        """The stall timeout in force."""
        if self.stall_timeout == "auto":
            return max(longest_fault * 3, MIN_STALL)
        return self.stall_timeout  # type: ignore[return-value]

    def describe(self) -> str:
        return f"{type(self).__name__} over {self.transport}"

    @property
    def over_sockets(self) -> bool:
        """Whether, live, sockets of the hosts' kernels can carry it: flows between pairs do."""
        return False

    def check_clock(self, clock: str) -> None:
        """Raises UsageError if this job cannot run on the clock."""
        if clock != "live" or self.transport not in ("gloo", "tcp"):
            return
        field = f"{type(self).__name__}.transport"
        if self.transport == "gloo":
            fix = ('flows over kernel TCP are transport="tcp"' if self.over_sockets
                   else "use TorchJob, or mrc or roce")
            raise UsageError(f'{field}: live, "gloo" is stock Gloo and carries PyTorch jobs; {fix}')
        if not self.over_sockets:
            raise UsageError(f'{field}: live, "tcp" is the kernel\'s sockets and carries flows '
                             'alone; use TorchJob(transport="gloo"), or mrc or roce')


class TorchJob(Job):
    """A PyTorch script and its arguments, as for torchrun; the script holds nothing of Loomnet.

    `compute`: emulated compute time on the virtual clock; a live run computes for real. One time is
    an iteration's. A table has a row per layer, by qualified module name or pattern, {"layers.*":
    "0.1 ms"} or {"layers.*": (forward, backward)} (one time is forward's, backward takes twice
    that), and "optimizer" for the step; gradients then leave while backward goes on. "measured" is
    each rank's own CPU time, "measured x 0.1" a share of it: such a run is not deterministic.
    `log`: a regular expression with named groups, read from rank 0's output, `step` and `loss`
    among them. `until`: emulated time, from the first iteration on, at which the ranks are told to
    stop after the iteration at hand.
    """

    kind: ClassVar[str] = "torch"
    positional: ClassVar[tuple[str, ...]] = ("script",)
    script: Path
    args: tuple[str, ...] = ()
    compute: Annotated[ComputeModel | None, PlainValidator(compute_model)] = None
    log: str | None = None
    map_backend: bool = True
    until: Time | None = None
    env: dict[str, str] = Field(default_factory=dict)

    @field_validator("log")
    @classmethod
    def _pattern(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                names = re.compile(value).groupindex
            except re.error as error:
                raise UsageError(f"{value!r} is not a regular expression: {error}") from None
            if "step" not in names:
                raise UsageError(f"{value!r} has no group (?P<step>…): the step a line speaks of")
        return value

    def located(self, *folders: Path) -> Path:
        """The script's path, tried in each folder. Raises UsageError if it is in none."""
        for folder in folders:
            if (folder / self.script).is_file():
                return (folder / self.script).resolve()
        tried = ", ".join(str(folder) for folder in folders)
        raise UsageError(f"TorchJob.script: no file {self.script} in {tried}")

    def check_clock(self, clock: str) -> None:
        if clock == "live" and self.transport == "tcp":
            raise UsageError('TorchJob.transport: "tcp" is a model, of the virtual clock; live, '
                             'kernel TCP under PyTorch is transport="gloo"')
        if clock == "virtual" and self.compute is None:
            raise UsageError(
                "TorchJob.compute: the virtual clock needs the compute time of an "
                'iteration, for example compute="2 ms", or a table by layer'
            )

    def describe(self) -> str:
        return f"{self.script.name} over {self.transport}"


class Collective(Job):
    """Common to jobs of `repeat` equal rounds, each round one iteration."""

    positional: ClassVar[tuple[str, ...]] = ("size", "repeat", "transport")
    size: Size
    repeat: Count = 1
    compute: Time = Time("0 s")  # between two repetitions

    @field_validator("size")
    @classmethod
    def _some(cls, value: Size) -> Size:
        if value.bytes < 1:
            raise UsageError("must be 1 B or more")
        return value

    def describe(self) -> str:
        return f"{self.repeat} x {type(self).__name__} of {self.size} over {self.transport}"


class AllReduce(Collective):
    """Ring all-reduce of `size` bytes per rank, `repeat` times, each repetition one iteration."""

    kind: ClassVar[str] = "all_reduce"


class AllToAll(Collective):
    """Every rank sends `size`/ranks bytes to every other, `repeat` times."""

    kind: ClassVar[str] = "all_to_all"

    def edges(self, hosts: list[int]) -> list[Edge]:
        placed = self.place(hosts)
        return [(a, b) for a in placed for b in placed if a != b]


class AllGather(Collective):
    """Ring all-gather: every rank ends with `size` bytes, `size`/ranks of them from each."""

    kind: ClassVar[str] = "all_gather"


class ReduceScatter(Collective):
    """Ring reduce-scatter of `size` bytes per rank, of which each keeps its `size`/ranks."""

    kind: ClassVar[str] = "reduce_scatter"


class Broadcast(Collective):
    """Rank 0 sends `size` bytes to all others, down a chain or, if small, a tree."""

    kind: ClassVar[str] = "broadcast"


class Reduce(Collective):
    """The sum of `size` bytes of every rank ends at rank 0, up a chain or, if small, a tree."""

    kind: ClassVar[str] = "reduce"


class SendRecv(Collective):
    """Every rank sends `size` bytes to the next and receives as much from the one before; a round
    ends with both."""

    kind: ClassVar[str] = "send_recv"


# What the engine runs as an operation of all ranks together.
COLLECTIVES = (AllReduce, AllToAll, AllGather, ReduceScatter, Broadcast, Reduce, SendRecv)


class Permutation(Collective):
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

    @property
    def over_sockets(self) -> bool:
        return True

    @property
    def synchronous(self) -> bool:
        return False


class Incast(Collective):
    """All other ranks send `size` bytes to rank `receiver` at once, `repeat` times."""

    kind: ClassVar[str] = "incast"
    receiver: Annotated[int, Field(ge=0, strict=True)] = 0

    def edges(self, hosts: list[int]) -> list[Edge]:
        placed = self.place(hosts)
        if self.receiver >= len(placed):
            raise UsageError(f"Incast.receiver: rank {self.receiver} of {len(placed)}")
        return [(host, placed[self.receiver]) for host in placed if host != placed[self.receiver]]

    @property
    def over_sockets(self) -> bool:
        return True

    @property
    def synchronous(self) -> bool:
        return False


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


class Flows(Job):
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
        for a, b in self.pairs:
            if not (0 <= a < len(placed) and 0 <= b < len(placed)) or a == b:
                raise UsageError(
                    f"Flows.pairs: ({a}, {b}) is no pair of two of {len(placed)} ranks"
                )
        if self.pairs:
            return [(placed[a], placed[b]) for a, b in self.pairs]
        if len(placed) > MOST_PAIRED:  # what capacity is judged by: neighbours near and far
            distances = [1 << bit for bit in range((len(placed) - 1).bit_length())]
            return [(a, placed[(i + d) % len(placed)])
                    for i, a in enumerate(placed) for d in distances]
        return [(a, b) for a in placed for b in placed if a != b]

    @property
    def over_sockets(self) -> bool:
        return True

    @property
    def synchronous(self) -> bool:
        return False


class GraphJob(Job, abc.ABC):
    """Common to jobs that are a graph of transfers and delays; as many ranks as it has."""

    path: Path

    @abc.abstractmethod
    def graph(self) -> TaskGraph:
        """Reads and checks the file. Raises UsageError."""

    @cached_property
    def _graph(self) -> TaskGraph:
        return self.graph()

    def place(self, hosts: list[int]) -> list[int]:
        ranks = self._graph.ranks
        if self.ranks not in (None, ranks):
            raise UsageError(f"{type(self).__name__}.ranks: {self.path} has {ranks} ranks")
        if ranks > len(hosts):
            raise UsageError(
                f"{self.path}: {ranks} ranks but {len(hosts)} hosts; one rank runs per host"
            )
        return hosts[:ranks]

    def edges(self, hosts: list[int]) -> list[Edge]:
        placed = self.place(hosts)
        return [(placed[a], placed[b]) for a, b in self._graph.pairs]

    @property
    def synchronous(self) -> bool:
        return False

    def describe(self) -> str:
        return f"{self.path.name} over {self.transport}"


class ConnectionMatrix(GraphJob):
    """The flows of an htsim connection matrix: rank i is its node i. Read when made; raises
    UsageError naming the line at fault."""

    kind: ClassVar[str] = "connection_matrix"
    positional: ClassVar[tuple[str, ...]] = ("path", "transport")

    def graph(self) -> TaskGraph:
        from loomnet.htsim import read_matrix

        return read_matrix(self.path).graph()

    @model_validator(mode="after")
    def _read(self) -> ConnectionMatrix:
        self._graph  # noqa: B018 (refused here rather than when it runs)
        return self


class Trace(GraphJob):
    """An execution trace. Either MLCommons Chakra, one file <prefix>.<rank>.et per rank: `path` is
    their folder, their common prefix or one of them, and `groups` a JSON file of communicator
    groups {"name": [ranks]}. Or flows from a JSON Lines file, a row per flow, its ranks by number:
    {"at": "2 us", "source": 0, "destination": 1, "size": "1 MB"}"""

    kind: ClassVar[str] = "trace"
    positional: ClassVar[tuple[str, ...]] = ("path", "transport")
    groups: Path | None = None

    @property
    def chakra(self) -> bool:
        """True for Chakra's files, False for a JSON Lines file."""
        return not self.path.is_file() or self.path.name.endswith((".et", ".et.gz"))

    def graph(self) -> TaskGraph:
        from loomnet.chakra import read_graph

        return read_graph(self.path, self.groups)

    def place(self, hosts: list[int]) -> list[int]:
        return super().place(hosts) if self.chakra else Job.place(self, hosts)

    @property
    def synchronous(self) -> bool:
        return self.chakra

    @property
    def over_sockets(self) -> bool:
        return not self.chakra

    def rows(self) -> list[tuple[Time, int, int, Size]]:
        """(start, source rank, destination rank, size) in order of start. Raises UsageError naming
        the line at fault."""
        found = []
        try:
            text = self.path.read_text()
        except OSError as error:
            raise UsageError(f"Trace.path: {self.path}: {error.strerror}") from None
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                found.append(
                    (
                        Time(row["at"]),
                        int(row["source"]),
                        int(row["destination"]),
                        Size(row["size"]),
                    )
                )
            except (ValueError, KeyError, TypeError) as error:
                raise UsageError(
                    f"{self.path}:{number}: {error}; a row is "
                    f"{(Trace.__doc__ or '').splitlines()[-1].strip()}"
                ) from None
        return sorted(found, key=lambda row: row[0].count)

    def edges(self, hosts: list[int]) -> list[Edge]:
        if self.chakra:
            return super().edges(hosts)
        placed = self.place(hosts)
        pairs = sorted({(a, b) for _, a, b, _ in self.rows()})
        for a, b in pairs:
            if not (0 <= a < len(placed) and 0 <= b < len(placed)) or a == b:
                raise UsageError(
                    f"{self.path}: ({a}, {b}) is no pair of two of {len(placed)} ranks"
                )
        return [(placed[a], placed[b]) for a, b in pairs]
