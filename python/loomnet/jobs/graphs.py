"""Jobs read from files: traces and connection matrices, whose transfers wait for one another."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Unpack

from pydantic import Field, PositiveInt, model_validator

from loomnet.base.constructor import constructor
from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean, how_many, quoted
from loomnet.base.reading import is_file, parse_json, read_bytes
from loomnet.base.spec import given
from loomnet.base.transport_names import TRANSPORT
from loomnet.base.units import Rate, Size, Time
from loomnet.jobs.edges import Pair, checked_pairs
from loomnet.jobs.model import Job, MeasuredAs, check_places, check_ranks
from loomnet.jobs.options import NamedOptions, TransportName
from loomnet.jobs.task_graph import MOST_TASKS, TaskGraph


def _flow(row: Any) -> tuple[Time, int, int, Size]:
    """One row of a JSON Lines trace. Raises UsageError."""
    if not isinstance(row, dict):
        raise UsageError(f"{quoted(row)} is no row")
    known = ("at", "source", "destination", "size")
    for name in known:
        if name not in row:
            raise UsageError(f"{name} is missing")
    for name in row:
        if name not in known:
            raise UsageError(f"unknown name {quoted(name)}{did_you_mean(name, known)}")
    ends = row["source"], row["destination"]
    if not all(type(end) is int and end >= 0 for end in ends):
        raise UsageError(
            f"source {quoted(ends[0])}, destination {quoted(ends[1])}: ranks are whole numbers, "
            "0 or more"
        )
    return Time.given("at", row["at"]), *ends, Size.given("size", row["size"])


def _path_or_none(value: str | Path | None) -> Path | None:
    return None if value is None else Path(value)


def _time_or_none(value: Time | str | None) -> Time | None:
    return None if value is None else Time(value)


def _rate_or_none(value: Rate | str | None) -> Rate | None:
    return None if value is None else Rate(value)


class GraphJob(Job, abc.ABC):
    """Common to jobs that are a graph of transfers and delays; as many ranks as it has."""

    path: Path = given(converter=Path, kw_only=False)

    @abc.abstractmethod
    def graph(self) -> TaskGraph:
        """Reads and checks the file. Raises UsageError."""

    @cached_property
    def _graph(self) -> TaskGraph:
        return self.graph()

    def place(self, places: list[int]) -> list[int]:
        ranks = self._graph.ranks
        if self.ranks not in (None, ranks):
            raise UsageError(f"{type(self).__name__}.ranks: {self.path} has {ranks} ranks")
        check_ranks(str(self.path), ranks)
        check_places(str(self.path), ranks, places)
        return places[:ranks]

    def pairs_of(self, placed: list[int]) -> list[Pair]:
        return self._graph.pairs

    @property
    def synchronous(self) -> bool:
        return False

    def describe(self) -> str:
        return f"{self.path.name} over {self.transport}"


class FlowsOfAFile(GraphJob, abc.ABC):
    """Common to flows that a file lists: rank i is its node i. Read when made; raises UsageError
    naming the line at fault."""

    measured_as: ClassVar[MeasuredAs] = "flows"
    positional: ClassVar[tuple[str, ...]] = ("path", "transport")

    @property
    def sends_immediates(self) -> bool:
        return True

    @property
    def first_ps(self) -> int:
        graph = self._graph
        return min(
            (
                task.duration_ps
                for task, after in zip(graph.tasks, graph.after, strict=True)
                if task.source < 0 and not after
            ),
            default=0,
        )

    def describe(self) -> str:
        waiting = len(self._graph.never)
        return super().describe() + bool(waiting) * (
            f"; {how_many(waiting, 'connection')} never start: no other one fires their trigger"
        )

    @model_validator(mode="after")
    def _read(self) -> FlowsOfAFile:
        self._graph  # noqa: B018 (refused here rather than when it runs)
        return self


class Ns3Flows(FlowsOfAFile):
    """The flows of a `flow.txt` of HPCC's simulator for ns-3, each at its own start, which its
    generator counts from 2 s on. Nodes are hosts by number, from 0 to the largest that the file
    names. Priority groups have no effect; where a file has several, the run's notes say so."""

    kind: ClassVar[str] = "ns3_flows"

    @constructor
    def __init__(
        self, path: str | Path, transport: TransportName = TRANSPORT, **rest: Unpack[NamedOptions]
    ) -> None: ...

    def graph(self) -> TaskGraph:
        from loomnet.jobs.ns3_flows import read_flows

        return read_flows(self.path)


class ConnectionMatrix(FlowsOfAFile):
    """The flows of an htsim connection matrix: rank i is its node i. Starts are in `start_unit`,
    by default as htsim reads them: picoseconds, and microseconds in a matrix with uet-htsim's
    `msg`; matrices made for other loaders count microseconds. Read when made; raises UsageError
    naming the line at fault."""

    kind: ClassVar[str] = "connection_matrix"
    start_unit: Time | None = given(default=None, converter=_time_or_none)

    @constructor
    def __init__(
        self,
        path: str | Path,
        transport: TransportName = TRANSPORT,
        *,
        start_unit: Time | str | None = None,
        **rest: Unpack[NamedOptions],
    ) -> None: ...

    def graph(self) -> TaskGraph:
        from loomnet.jobs.htsim_matrix import read_matrix

        return read_matrix(self.path, self.start_unit).graph()


class Trace(GraphJob):
    """An execution trace. Either MLCommons Chakra, one file <prefix>.<rank>.et per rank: `path` is
    their folder, their common prefix or one of them, and `groups` a JSON file of communicator
    groups {"name": [ranks]}. Compute nodes that count operations instead of time take
    max(num_ops / peak, tensor_size / memory): `peak_tflops` in 10^12 operations per second and
    `memory_bandwidth`, both of one GPU. `dims`: the sizes of the dimensions that `involved_dim`
    speaks of, the first one of neighbouring ranks; collectives of all ranks then go along one
    dimension after another. Or flows from a JSON Lines file, a row per flow, its ranks by number:
    {"at": "2 us", "source": 0, "destination": 1, "size": "1 MB"}"""

    kind: ClassVar[str] = "trace"
    positional: ClassVar[tuple[str, ...]] = ("path", "transport")
    groups: Path | None = given(default=None, converter=_path_or_none)
    peak_tflops: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    memory_bandwidth: Rate | None = given(default=None, converter=_rate_or_none)
    dims: Annotated[tuple[PositiveInt, ...], Field(min_length=1, max_length=16)] | None = None

    @constructor
    def __init__(
        self,
        path: str | Path,
        transport: TransportName = TRANSPORT,
        *,
        groups: str | Path | None = None,
        peak_tflops: float | None = None,
        memory_bandwidth: Rate | str | None = None,
        dims: Sequence[int] | None = None,
        **rest: Unpack[NamedOptions],
    ) -> None: ...

    @model_validator(mode="after")
    def _check(self) -> Trace:
        if (self.peak_tflops is None) != (self.memory_bandwidth is None):
            raise UsageError("Trace: peak_tflops and memory_bandwidth are one roofline; give both")
        return self

    @property
    def chakra(self) -> bool:
        """True for Chakra's files, False for a JSON Lines file."""
        return not is_file(self.path) or self.path.name.endswith((".et", ".et.gz"))

    def graph(self) -> TaskGraph:
        from loomnet.jobs.chakra_graph import Reading, read_graph

        memory = 0 if self.memory_bandwidth is None else self.memory_bandwidth.bits_per_second / 8
        return read_graph(
            self.path, self.groups, Reading((self.peak_tflops or 0) * 1e12, memory, self.dims or ())
        )

    def measured(self) -> MeasuredAs:
        return "training" if self.chakra else "flows"

    @property
    def first_ps(self) -> int:
        return 0 if self.chakra else min((at.count for at, *_ in self.rows()), default=0)

    def place(self, places: list[int]) -> list[int]:
        if self.chakra:
            return super().place(places)
        for name in ("groups", "peak_tflops", "dims"):
            if getattr(self, name) is not None:
                raise UsageError(f"Trace.{name}: {self.path} is no Chakra trace; leave it out")
        return Job.place(self, places)

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
        for number, line in enumerate(read_bytes(self.path).split(b"\n"), 1):
            if not line.strip():
                continue
            where = f"{self.path}:{number}"
            try:
                found.append(_flow(parse_json(line, where)))
            except UsageError as error:
                text = str(error) if str(error).startswith(where) else f"{where}: {error}"
                raise UsageError(
                    f"{text}; a row is {(Trace.__doc__ or '').splitlines()[-1].strip()}"
                ) from None
            if len(found) > MOST_TASKS:
                raise UsageError(f"{self.path}: more than {MOST_TASKS:,} flows")
        return sorted(found, key=lambda row: row[0].count)

    def pairs_of(self, placed: list[int]) -> list[Pair]:
        if self.chakra:
            return super().pairs_of(placed)
        pairs = sorted({(a, b) for _, a, b, _ in self.rows()})
        return checked_pairs(pairs, len(placed), str(self.path))
