"""Collectives of growing size on a fabric, measured as nccl-tests does: time, algorithm and bus
bandwidth, elements that arrived altered."""

from __future__ import annotations

import itertools
import math
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean
from loomnet.base.units import Size, Time
from loomnet.fabrics.model import Fabric
from loomnet.jobs.collectives import (
    AllGather,
    AllReduce,
    AllToAll,
    Broadcast,
    Collective,
    Reduce,
    ReduceScatter,
    SendRecv,
)
from loomnet.labs.lab import Lab
from loomnet.measures.columns import as_rows
from loomnet.measures.run_data import HostSeries
from loomnet.results.result import Result

ELEMENT_BYTES, ELEMENT = 4, "int32"
MOST_SIZES = 10_000


@dataclass(frozen=True)
class Benchmark:
    """A collective of nccl-tests. `blocks`: sizes are of all ranks' blocks together, while the
    count shown is of one."""

    name: str
    job: type[Collective]
    redop: str = "none"
    root: int = -1
    blocks: bool = False


BENCHMARKS = {
    each.name: each
    for each in (
        Benchmark("all_reduce", AllReduce, "sum"),
        Benchmark("all_gather", AllGather, blocks=True),
        Benchmark("reduce_scatter", ReduceScatter, "sum", blocks=True),
        Benchmark("broadcast", Broadcast, root=0),
        Benchmark("reduce", Reduce, "sum", 0),
        Benchmark("alltoall", AllToAll, blocks=True),
        Benchmark("sendrecv", SendRecv),
    )
}
COLUMNS = ("size", "count", "type", "redop", "root", "time_us", "algbw", "busbw", "wrong")


@dataclass(frozen=True)
class Row:
    """One size. Times in microseconds, bandwidths in GB/s (10^9 bytes); None where the collective
    did not finish, with the reason. `wrong`: None where bytes were not compared."""

    size: int
    count: int
    type: str
    redop: str
    root: int
    time_us: float | None
    algbw: float | None
    busbw: float | None
    wrong: int | None
    reason: str | None = None

    def text(self) -> str:
        """A line in nccl-tests' columns, of 80 characters."""
        figures = [
            "N/A" if value is None else f"{value:.{places}f}"
            for value, places in ((self.time_us, 2), (self.algbw, 2), (self.busbw, 2))
        ]
        wrong = "N/A" if self.wrong is None else str(self.wrong)
        time, algbw, busbw = figures
        return (
            f"{self.size:>11}  {self.count:>10}  {self.type:>5}  {self.redop:>5}  "
            f"{self.root:>4}  {time:>9}  {algbw:>7}  {busbw:>7}  {wrong:>6}"
        )


HEAD = (
    f"#{'size':>10}  {'count':>10}  {'type':>5}  {'redop':>5}  {'root':>4}  {'time':>9}  "
    f"{'algbw':>7}  {'busbw':>7}  {'#wrong':>6}\n"
    f"#{'(B)':>10}  {'(elements)':>10}  {'':>5}  {'':>5}  {'':>4}  {'(us)':>9}  {'(GB/s)':>7}  "
    f"{'(GB/s)':>7}"
)


def benchmark_named(name: str) -> Benchmark:
    """By nccl-tests' name, in any usual spelling: all_reduce, AllReduce, all_reduce_perf."""
    plain = {each.replace("_", ""): each for each in BENCHMARKS}
    key = re.sub(r"[_-]|perf$", "", name.lower().removesuffix("_perf"))
    if key not in plain:
        raise UsageError(f'"{name}" is no collective of bench{did_you_mean(name, BENCHMARKS)}')
    return BENCHMARKS[plain[key]]


def size_of(text: str, option: str) -> int:
    """Bytes: nccl-tests' way (8, 64M: powers of 1024) or with a unit (64 MB, 64 MiB)."""
    match = re.fullmatch(r"([0-9]{1,18})([KMGkmg]?)", text.strip())
    if match:
        return int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[match[2].lower()]
    try:
        return Size(text).bytes
    except UsageError as error:
        raise UsageError(f"{option} {text}: {error}; or write 64M as nccl-tests does") from None


def sizes(first: str, last: str, factor: int, step: str | None) -> list[int]:
    """All sizes from first to last, each `factor` times the one before, or `step` bytes more."""
    begin, end = size_of(first, "-b"), size_of(last, "-e")
    if not ELEMENT_BYTES <= begin <= end:
        raise UsageError(
            f"-b {first} -e {last}: begin with {ELEMENT_BYTES} B or more, and end "
            "with no less than that"
        )
    if step is None and factor < 2:
        raise UsageError(f"-f {factor}: the factor must be 2 or more; for steps in bytes use -i")
    more = None if step is None else size_of(step, "-i")
    if more is not None and more < 1:
        raise UsageError(f"-i {step}: the step must be 1 B or more")
    steps = math.log(end / begin, factor) if more is None else (end - begin) / more
    if steps > MOST_SIZES:
        raise UsageError(
            f"-b {first} -e {last}: {steps:,.0f} sizes are more than {MOST_SIZES:,}; "
            "take longer steps"
        )
    found = [begin]
    while (after := found[-1] * factor if more is None else found[-1] + more) <= end:
        found.append(after)
    return found


def measured(
    benchmark: Benchmark,
    fabric: Fabric,
    wanted: list[int],
    *,
    transport: str,
    ranks: int | None = None,
    repeat: int = 5,
    warm_up: int = 1,
    compare_bytes: bool = True,
    seed: int = 0,
    clock: str = "virtual",
    options: dict[str, Any] | None = None,
) -> Iterator[Row]:
    """Runs every size in turn, each on a fresh fabric, and yields its row. `ranks` None: as many as
    the hosts have places for. Nothing is written.

    The time is the mean over `repeat` rounds that follow one another without a pause, and over
    ranks. Where one rank is the root, which would run ahead of the others, rounds are kept apart,
    and the time is from the first rank's begin to the last rank's end.
    """
    if repeat < 1 or warm_up < 0:
        raise UsageError("bench: -n must be 1 or more, -w 0 or more")
    for size in wanted:
        n = ranks or len(fabric.places(fabric.rank_numbers))
        count = size // ELEMENT_BYTES // (n if benchmark.blocks else 1)
        moved = count * ELEMENT_BYTES * (n if benchmark.blocks else 1)
        if count == 0:
            continue
        job = benchmark.job(
            f"{moved} B",
            repeat + warm_up,
            transport=transport,
            ranks=n,
            compute=_pause(benchmark, fabric, moved),
        )
        with tempfile.TemporaryDirectory(prefix="loomnet-bench-") as folder:
            lab = Lab("bench", clock=clock, seed=seed, directory=Path(folder))
            result = lab.run(fabric, job, payload=compare_bytes, **(options or {}))
        yield _row(benchmark, result, moved, count, n, warm_up, repeat)


def _pause(benchmark: Benchmark, fabric: Fabric, size: int) -> Time:
    """Long enough between two rounds for the slowest of them to end; 0 where ranks pace each
    other."""
    if benchmark.root < 0:
        return Time.of(0)
    slowest = min(half.rate for link in fabric.all_links() for _, half in link.halves)
    longest = max(half.delay for link in fabric.all_links() for _, half in link.halves)
    for local in fabric.local_ranks:
        slowest, longest = min(slowest, local.rate), max(longest, local.delay)
    ranks = len(fabric.places(range(len(fabric.hosts))))
    return (longest * 16 + slowest.serialization(Size.of(size + (1 << 16)))) * 2 * ranks


def _by_round(series: HostSeries, rounds: int) -> list[list[tuple[int, int, int]]]:
    """A host's operations, one of each of its ranks, by round. All ranks end a round before any of
    them ends the next; where ranks await their neighbours only, a round of one may stand among
    those before or behind it, which leaves the sum of all as it is."""
    each, ordered = len(series.work) // rounds, sorted(as_rows(series.work), key=lambda row: row[1])
    return [ordered[i * each : (i + 1) * each] for i in range(rounds)]


def _row(
    benchmark: Benchmark,
    result: Result,
    size: int,
    count: int,
    ranks: int,
    warm_up: int,
    repeat: int,
) -> Row:
    data = result.data
    fixed = (size, count, ELEMENT, benchmark.redop, benchmark.root)
    if len(data.iterations) < warm_up + repeat or (data.ended != "finished" and not data.wrong):
        return Row(*fixed, None, None, None, data.wrong, data.reason or data.ended)
    spans = [_by_round(series, warm_up + repeat)[warm_up:] for series in data.hosts.values()]
    if benchmark.root >= 0:
        rounds = [list(itertools.chain(*row)) for row in zip(*spans, strict=True)]
        mean = sum(max(e for _, e, _ in row) - min(b for b, _, _ in row) for row in rounds) / repeat
    elif len(spans) == ranks:
        mean = sum((each[-1][0][1] - each[0][0][0]) / repeat for each in spans) / ranks
    else:  # a rank's rounds follow one another, so their lengths add up to its time
        mean = sum(e - b for span in spans for row in span for b, e, _ in row) / repeat / ranks
    algbw = size * 1e3 / mean  # bytes per picosecond are 10^12 B/s
    return Row(*fixed, mean / 1e6, algbw, algbw * benchmark.job.bus_factor(ranks), data.wrong)
