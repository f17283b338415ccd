"""A scenario over many parameters and seeds on Dask: resumable, each point kept as it ends."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import itertools
import json
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from loomnet.base.arguments import checked_call
from loomnet.base.errors import (
    EXIT_CHECK_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    UnavailableError,
    UsageError,
)
from loomnet.base.installing import install_line
from loomnet.base.names import quoted
from loomnet.base.reading import user_path
from loomnet.base.wall_time import WallTime
from loomnet.labs.scenario import Scenario, load
from loomnet.processes.invoking_user import rights_of, writer_of
from loomnet.results.run_directory import RUNS
from loomnet.sweeps.points import (
    FAILED,
    MOST_POINTS,
    SWEEP_VERSION,
    Point,
    Results,
    frame,
    import_polars,
    points_of,
    seeds_of,
    write_atomically,
)
from loomnet.sweeps.worker import ignore_interrupts, run_point

MOST_JOBS = 4096  # processes
TABLE, INDEX = "table.parquet", "sweep.json"
Watch = Callable[[int, int, int], None]  # points ended, points in all, points failed


class Sweep:
    """What a sweep has found. `frame`: the table as a polars.DataFrame; `path`: its Parquet
    file."""

    def __init__(self, directory: Path, points: list[Point], *, interrupted: bool = False) -> None:
        self.directory, self.points, self.interrupted = directory, points, interrupted
        self.path = directory / TABLE
        self.frame = frame(points, Results(directory))

    def __len__(self) -> int:
        return len(self.points)

    @property
    def failed(self) -> list[tuple[Point, str]]:
        """Points that gave no result, with the reason; `retry_failed=True` runs these alone."""
        rows = self.frame.filter(self.frame["status"] == FAILED).select("point", "error").rows()
        return [(self.points[index], error) for index, error in rows]

    @property
    def missing(self) -> int:
        """Points that have not ended: the sweep was interrupted, or only failed ones were run."""
        return len(self.points) - len(self.frame)

    @property
    def ok(self) -> bool:
        return self.exit_code == EXIT_OK

    @property
    def exit_code(self) -> int:
        """130 interrupted; 1 where a point failed, is missing, or has a check that does not
        hold."""
        if self.interrupted:
            return EXIT_INTERRUPTED
        good = len(self.frame) == len(self.points) and bool(self.frame["ok"].fill_null(False).all())
        return EXIT_OK if good and not self.failed else EXIT_CHECK_FAILED

    def __repr__(self) -> str:
        return (f"Sweep({len(self)} points, {len(self.failed)} failed, {self.missing} missing: "
                f"{self.path})")

    def _repr_html_(self) -> str:
        return self.frame._repr_html_()


@checked_call
def sweep(
    scenario: Scenario | str | Path,
    *,
    seeds: int | Iterable[int] = 1,
    scheduler: str | None = None,
    jobs: int | None = None,
    out: str | Path | None = None,
    retry_failed: bool = False,
    max_wall_s: float | None = None,
    watch: Watch | None = None,
    axes: Mapping[str, Any] | None = None,
    **more: Any,
) -> Sweep:
    """Runs a scenario at every combination of the values given per parameter, with every seed:
    `sweep(s, planes=[2, 4], seeds=5)`. A parameter that bears the name of an option of this
    function goes in `axes`.

    `seeds`: how many (0, 1, …), or which. `jobs`: processes of the local cluster, by default one
    per CPU; `scheduler`: the address of a Dask scheduler instead. `out`: the sweep's directory; by
    default one under runs/ that the same sweep finds again. Points that ended are not run again;
    `retry_failed` runs those alone that failed. `max_wall_s` ends a point that takes longer.
    `watch` is told how far it is; by default a progress bar is shown.

    Raises UsageError for an unknown name (with the three nearest) or value, before anything starts,
    UnavailableError without Dask or polars.
    """
    scenario = scenario if isinstance(scenario, Scenario) else load(scenario)
    values = {name: _as_list(name, given) for name, given in {**_table(axes), **more}.items()}
    scenario.known(values, "sweep")
    points = points_of(scenario, values, wanted := seeds_of(seeds))
    if jobs is not None and (type(jobs) is not int or not 1 <= jobs <= MOST_JOBS):
        raise UsageError(f"sweep: jobs={quoted(jobs)} must be 1 to {MOST_JOBS}")
    WallTime(max_wall_s)  # raises for a value that is not a time
    import_polars()
    distributed = _distributed()
    folder = _default_directory(scenario, points)
    if out is not None:
        folder = user_path("sweep: out", out)
    with contextlib.ExitStack() as stack:
        remote = None
        if scheduler is not None and not os.path.lexists(folder):
            # An address may be wrong, and then no folder is made.
            remote = stack.enter_context(_remote(distributed, scheduler))
        stack.enter_context(_held(folder))
        results = Results(folder)
        results.tidy()
        _write_index(folder, scenario, values, wanted, points)
        known = {p.index: results.read(p) for p in points}
        todo = [
            p for p in points
            if (known[p.index] is None and not retry_failed)
            or ((found := known[p.index]) and found["status"] == FAILED and retry_failed)
        ]
        interrupted = False
        with _bar(watch, scenario.name) as told:
            failed = sum(bool(k) and k["status"] == FAILED for k in known.values())
            counts = _Counts(len(points), sum(k is not None for k in known.values()), failed, told)
            if retry_failed:
                counts.ended, counts.failed = counts.ended - len(todo), 0
            told(counts.ended, counts.all, counts.failed)
            if todo:
                try:
                    processes = min(jobs or _cpus(), len(todo))
                    if scheduler is not None and remote is None:
                        remote = stack.enter_context(_remote(distributed, scheduler))
                    with _client(distributed, processes, folder, remote) as client:
                        # Here one point per process is under way, so that one which takes its
                        # process down takes no other with it; a cluster sees all, to grow by them.
                        at_once = processes if scheduler is None else len(todo)
                        _run_all(distributed, client, scenario, todo, results, max_wall_s, counts,
                                 at_once)
                except KeyboardInterrupt:
                    interrupted = True
        made = Sweep(folder, points, interrupted=interrupted)
        _write_table(made)
    return made


class _Counts:
    def __init__(self, total: int, ended: int, failed: int, told: Watch) -> None:
        self.all, self.ended, self.failed, self._told = total, ended, failed, told

    def add(self, failed: bool) -> None:
        self.ended, self.failed = self.ended + 1, self.failed + failed
        self._told(self.ended, self.all, self.failed)


def _run_all(distributed: Any, client: Any, scenario: Scenario, todo: list[Point],
             results: Results, max_wall_s: float | None, counts: _Counts,
             at_once: int) -> None:
    """Every point as a task of its own; results are kept in the order in which they come."""
    parcel = scenario.parcel()
    # A name of its own per attempt: a scheduler remembers results, and failures, by name.
    attempt = os.urandom(4).hex()
    futures: dict[Any, Point] = {}

    def submit(point: Point) -> Any:
        future = client.submit(run_point, parcel, dict(point.parameters), point.seed, max_wall_s,
                               key=f"loomnet-{point.key}-{attempt}", pure=False)
        futures[future] = point
        return future

    waiting = iter(todo)
    try:
        first = [submit(point) for point in itertools.islice(waiting, at_once)]
        under_way = distributed.as_completed(first, loop=client.loop)
        for future in under_way:
            if (following := next(waiting, None)) is not None:
                under_way.add(submit(following))
            point = futures.pop(future)
            error = future.exception()
            outcome = future.result() if error is None else {
                "report": None, "wall_s": None, "error": _one_line(error)}
            results.keep(point, outcome)
            counts.add(bool(outcome["error"]))
            future.release()
    except BaseException:
        client.cancel(list(futures), force=True)
        raise


def _one_line(error: BaseException) -> str:
    if type(error).__name__ == "KilledWorker":
        return "the process that ran it died (killed, or out of memory)"
    return " ".join(f"{type(error).__name__}: {error}".split())


def _table(axes: Any) -> Mapping[str, Any]:
    if axes is None:
        return {}
    if not isinstance(axes, Mapping) or not all(isinstance(name, str) for name in axes):
        raise UsageError(f'sweep: axes={quoted(axes)} is not a table, as {{"planes": [2, 4]}} is')
    return axes


def _as_list(name: str, given: Any) -> list[Any]:
    values = [given] if isinstance(given, (str, bytes)) or not isinstance(given, Iterable) \
        else list(itertools.islice(given, MOST_POINTS + 1))
    if not values:
        raise UsageError(f"sweep: {name} has no value")
    if len(values) > MOST_POINTS:
        raise UsageError(f"sweep: {name} has more values than the {MOST_POINTS:,} points of one "
                         "sweep")
    return values


def _default_directory(scenario: Scenario, points: list[Point]) -> Path:
    """The same sweep finds the same directory, and so what was done of it."""
    digest = hashlib.sha256(" ".join(point.key for point in points).encode()).hexdigest()[:10]
    return Path(RUNS) / f"sweep-{re.sub(r'[^A-Za-z0-9_.]+', '_', scenario.name)[:80]}-{digest}"


def _write_index(folder: Path, scenario: Scenario, axes: Mapping[str, list[Any]],
                 seeds: list[int], points: list[Point]) -> None:
    content = {
        "sweep_version": SWEEP_VERSION,
        "scenario": scenario.name,
        "file": str(scenario.file) if scenario.file else None,
        "axes": {name: [v if isinstance(v, (int, float, str)) else str(v) for v in values]
                 for name, values in axes.items()},
        "seeds": seeds,
        "points": {point.key: {"parameters": dict(point.parameters), "seed": point.seed}
                   for point in points},
    }
    write_atomically(folder / INDEX, (json.dumps(content, indent=1) + "\n").encode())


def _write_table(made: Sweep) -> None:
    buffer = io.BytesIO()
    made.frame.write_parquet(buffer)
    write_atomically(made.path, buffer.getvalue())


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    """One sweep at a time works in a directory."""
    try:
        with rights_of(writer_of(folder)):
            folder.mkdir(parents=True, exist_ok=True)
            lock = (folder / ".lock").open("w")
    except OSError as error:
        raise UsageError(f"sweep: --out {folder}: {error.strerror}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(f"sweep: another one works in {folder}; wait, or use --out") from None
        yield


@contextlib.contextmanager
def _bar(watch: Watch | None, title: str) -> Iterator[Watch]:
    if watch is not None:
        yield watch
        return
    from loomnet.labs.progress import progress_bar

    with progress_bar(f"sweep {title}") as told:
        yield told


def _cpus() -> int:
    return len(os.sched_getaffinity(0))


def _distributed() -> Any:
    try:
        import distributed
    except ImportError:
        raise UnavailableError(f"a sweep needs Dask: {install_line('sweep')}") from None
    return distributed


@contextlib.contextmanager
def _remote(distributed: Any, scheduler: str) -> Iterator[Any]:
    """A client of the scheduler at that address. Raises UnavailableError where there is none."""
    if not isinstance(scheduler, str) or not scheduler:
        raise UsageError(f"sweep: scheduler={quoted(scheduler)} is not an address, as "
                         '"tcp://10.0.0.1:8786" is')
    from distributed.comm import addressing

    try:  # a client of an address that cannot be read complains once more when it is collected
        addressing.get_address_host_port(addressing.normalize_address(scheduler), strict=True)
    except ValueError as error:
        raise UsageError(f"sweep: scheduler: {error}") from None
    # Dask logs a traceback of what it raises besides.
    loggers = [logging.getLogger(name) for name in ("distributed", "tornado", "asyncio")]
    before = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL + 1)
        client = distributed.Client(scheduler, timeout="10s", set_as_default=False)
    except Exception as error:  # OSError, ValueError, and what the address's own protocol raises
        text = " ".join(str(error).split())
        raise UnavailableError(f"sweep: no Dask scheduler at {scheduler}: {text}") from None
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
    with client:
        yield client


@contextlib.contextmanager
def _client(distributed: Any, jobs: int, folder: Path, remote: Any) -> Iterator[Any]:
    """The client of a scheduler elsewhere, or one of a cluster of processes on this machine."""
    import dask.config

    if remote is not None:
        yield remote
        return
    # Under sudo the cluster's processes are root's, which writes into no folder of the user's.
    scratch = folder / ".dask" if writer_of(folder).uid is None else Path(
        tempfile.mkdtemp(prefix="loomnet-dask-"))
    shutil.rmtree(scratch, ignore_errors=True)
    with (
        # What takes its process down once would do so again.
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        distributed.LocalCluster(
            n_workers=jobs, threads_per_worker=1, processes=True, dashboard_address=None,
            silence_logs="CRITICAL", local_directory=str(scratch),
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        client.run(ignore_interrupts)  # Ctrl-C reaches all processes; this one decides
        yield client
    shutil.rmtree(scratch, ignore_errors=True)
