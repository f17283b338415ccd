"""A scenario over many parameters and seeds on Dask: resumable, each point kept as it ends."""

from __future__ import annotations

import contextlib
import hashlib
import html
import io
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from loomnet.base.arguments import checked_call
from loomnet.base.errors import (
    EXIT_CHECK_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    UsageError,
)
from loomnet.base.names import quoted
from loomnet.base.notebook import image_html, in_notebook
from loomnet.base.reading import user_path
from loomnet.base.table import Table
from loomnet.base.wall_time import WallTime
from loomnet.labs.parcel import parcel_of
from loomnet.labs.scenario import Scenario, load
from loomnet.processes.inputs import build
from loomnet.results.run_directory import RUNS
from loomnet.sweeps.cluster import SchedulerGone, client_of, cpus, import_distributed, remote_client
from loomnet.sweeps.points import (
    FAILED,
    MOST_POINTS,
    Point,
    Results,
    frame,
    import_polars,
    points_of,
    seeds_of,
    write_atomically,
)
from loomnet.sweeps.sweep_folder import TABLE, SweepIndex, held
from loomnet.sweeps.worker import run_point

MOST_JOBS = 4096  # processes
MOST_ERRORS = 3  # of points that failed, in a notebook
Watch = Callable[[int, int, int], None]  # points ended, points in all, points failed


class Sweep:
    """What a sweep has found.

    Attributes: `frame`: the table as a polars.DataFrame; `path`: its Parquet file; `kept`: how many
    points were there already and were not run; `gone`: why the sweep was given up, None where it
    was not; `remarks`: why results that were there were not taken, a line each.
    """

    def __init__(
        self,
        points: list[Point],
        results: Results,
        *,
        kept: int = 0,
        interrupted: bool = False,
        gone: str | None = None,
    ) -> None:
        self.directory, self.points, self.results = results.directory, points, results
        self.interrupted, self.kept, self.gone = interrupted, kept, gone
        self.path = results.directory / TABLE
        self.frame = frame(points, results)
        self.remarks = results.remarks()

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
        """130 interrupted; 2 where the Dask scheduler went away; 1 where a point failed, is
        missing, or has a check that does not hold."""
        if self.interrupted:
            return EXIT_INTERRUPTED
        if self.gone is not None:
            return EXIT_USAGE
        good = len(self.frame) == len(self.points) and bool(self.frame["ok"].fill_null(False).all())
        return EXIT_OK if good and not self.failed else EXIT_CHECK_FAILED

    def __repr__(self) -> str:
        return (
            f"Sweep({len(self)} points, {len(self.failed)} failed, {self.missing} missing: "
            f"{self.path})"
        )

    def table(self, *, ci: float | None = None) -> Table:
        """A row for each combination of values, with medians over its seeds, in brackets the least
        and the greatest. `ci`: a confidence, as 0.95: means, each ± half of its confidence
        interval, by Student's t, of which two seeds or more are needed; seeds count as independent
        of one another. Raises UsageError where no point has ended."""
        from loomnet.sweeps.summary import summary_table

        ci = self._confidence("table", ci)
        found = summary_table(self, ci=ci)
        if found is None:
            raise UsageError("table: no point of the sweep has ended")
        return found.table

    def differences(
        self,
        over: str,
        a: Any,
        b: Any,
        what: str | Sequence[str] | None = None,
        *,
        ci: float = 0.95,
    ) -> Table:
        """What the parameter `over` makes of each number: b less a, seed by seed, so that what a
        seed does to both is taken out. A row for each number and each combination of the other
        parameters: the two means, the mean difference and its confidence interval, low to high, by
        Student's t; an interval without 0 is a difference that is seen with this confidence.
        `what`: names of numbers; None: all. Raises UsageError for names and values that the sweep
        does not have."""
        from loomnet.sweeps.paired import differences

        confidence = self._confidence("differences", ci)
        assert confidence is not None
        return differences(self, over, a, b, what, confidence)

    def _confidence(self, where: str, ci: float | None) -> float | None:
        from loomnet.sweeps.student_t import check_confidence

        if ci is None:
            return None
        ci = check_confidence(f"{where}: ci", ci)
        if len({point.seed for point in self.points}) < 2:
            raise UsageError(f"{where}: ci= needs two seeds or more, as seeds=5 gives")
        return ci

    def plot(
        self, what: str | None = None, *, over: str | None = None, ci: float | None = None
    ) -> Any:
        """A picture, a matplotlib Figure: `what`, a number of the frame or a check by its name, by
        default the first that the scenario checks or records, else the one that says most of its
        job, over the parameter `over`, by default the one with most values, or "seed". A line for
        each combination of the others; with several seeds medians, and bars from the least to the
        greatest; with `ci`, as 0.95, means with their confidence intervals. Raises UsageError."""
        from loomnet.sweeps.picture import sweep_figure

        return sweep_figure(self, what, over, self._confidence("plot", ci))

    def _repr_html_(self) -> str:
        """In a notebook: the picture, and a row for each combination of values."""
        from loomnet.sweeps.summary import MOST_NUMBERS, SPREAD, summary_table

        errors = [f"{point}: {error}" for point, error in self.failed[:MOST_ERRORS]]
        above = "".join(f"<p>{html.escape(line)}</p>" for line in (repr(self), *errors))
        found = summary_table(self, most=MOST_NUMBERS)
        if found is None:
            return above
        try:
            picture = image_html(self.plot(), "sweep")
        except UsageError:  # its points have no numbers
            picture = ""
        said = [*found.remarks, *([SPREAD] if found.seeds > 1 else [])]
        if said:
            said.append(".frame has all points and numbers")
        below = "".join(f"<p>{html.escape(line)}</p>" for line in said)
        return f"{above}{picture}{found.table._repr_html_()}{below}"


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
    default one under runs/ that the same sweep finds again. Points that ended are not run again
    while all that they have read is as it was: the scenario's file and modules, and each file that
    a run has opened. `retry_failed` runs those alone that failed. `max_wall_s` ends a point that
    takes longer.
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
    distributed = import_distributed()
    folder = _default_directory(scenario, points)
    if out is not None:
        folder = user_path("sweep: out", out)
    home = scenario.file.parent if scenario.file else None
    with contextlib.ExitStack() as stack:
        remote = None
        if scheduler is not None and not os.path.lexists(folder):
            # An address may be wrong, and then no folder is made.
            remote = stack.enter_context(remote_client(distributed, scheduler))
        stack.enter_context(held(folder))
        index = SweepIndex(folder)
        index.write(scenario, values, wanted, points)
        results = Results(folder, home)
        results.tidy()
        known = {p.index: results.read(p) for p in points}
        todo = [
            p
            for p in points
            if (known[p.index] is None and not retry_failed)
            or ((found := known[p.index]) and found["status"] == FAILED and retry_failed)
        ]
        kept = sum(known[p.index] is not None for p in points) - (len(todo) if retry_failed else 0)
        before, interrupted, gone = results.remarks(), False, None
        with _bar(watch, scenario.name) as told:
            failed = sum(bool(k) and k["status"] == FAILED for k in known.values())
            counts = _Counts(len(points), sum(k is not None for k in known.values()), failed, told)
            if retry_failed:
                counts.ended, counts.failed = kept, 0
            told(counts.ended, counts.all, counts.failed)
            if todo:
                try:
                    processes = min(jobs or cpus(), len(todo))
                    if scheduler is not None and remote is None:
                        remote = stack.enter_context(remote_client(distributed, scheduler))
                    with client_of(distributed, processes, index, remote) as client:
                        # Here one point per process is under way, so that one which takes its
                        # process down takes no other with it; a cluster sees all, to grow by them.
                        at_once = processes if scheduler is None else len(todo)
                        _run_all(
                            distributed,
                            client,
                            scenario,
                            todo,
                            results,
                            max_wall_s,
                            counts,
                            at_once,
                        )
                except KeyboardInterrupt:
                    interrupted = True
                except SchedulerGone:
                    gone = f"the Dask scheduler at {scheduler} has gone"
        made = Sweep(points, Results(folder, home), kept=kept, interrupted=interrupted, gone=gone)
        made.remarks = list(dict.fromkeys([*before, *made.remarks]))
        _write_table(made)
    if interrupted and in_notebook():  # the cell goes on with its next line
        print(
            f"sweep {scenario.name}: interrupted; {len(made.frame)} of {len(points)} points are "
            "kept, and the same call goes on from there",
            file=sys.stderr,
        )
    return made


class _Counts:
    def __init__(self, total: int, ended: int, failed: int, told: Watch) -> None:
        self.all, self.ended, self.failed, self._told = total, ended, failed, told

    def add(self, failed: bool) -> None:
        self.ended, self.failed = self.ended + 1, self.failed + failed
        self._told(self.ended, self.all, self.failed)


def _run_all(
    distributed: Any,
    client: Any,
    scenario: Scenario,
    todo: list[Point],
    results: Results,
    max_wall_s: float | None,
    counts: _Counts,
    at_once: int,
) -> None:
    """Every point as a task of its own; results are kept in the order in which they come."""
    parcel, own_build = parcel_of(scenario), build()
    # A name of its own per attempt: a scheduler remembers results, and failures, by name.
    attempt = os.urandom(4).hex()
    futures: dict[Any, Point] = {}

    def submit(point: Point) -> Any:
        future = client.submit(
            run_point,
            parcel,
            dict(point.parameters),
            point.seed,
            max_wall_s,
            key=f"loomnet-{point.key}-{attempt}",
            pure=False,
        )
        futures[future] = point
        return future

    def keep(future: Any) -> bool:
        """Whether the point failed."""
        error = future.exception()
        if error is not None and type(error).__name__ in _LOST:
            raise SchedulerGone
        outcome = (
            _NOTHING | {"error": _one_line(error)} if error is not None else {**future.result()}
        )
        if (theirs := outcome.pop("build", own_build)) != own_build:
            outcome |= {
                "report": None,
                "error": f"its worker has build {theirs} of Loomnet, "
                f"and this process {own_build}; install the same and restart it",
            }
        results.keep(futures[future], outcome)
        return bool(outcome["error"])

    waiting = iter(todo)
    try:
        first = [submit(point) for point in itertools.islice(waiting, at_once)]
        under_way = distributed.as_completed(first, loop=client.loop)
        for future in under_way:
            if (following := next(waiting, None)) is not None:
                under_way.add(submit(following))
            failed = keep(future)
            del futures[future]
            counts.add(failed)
            future.release()
    except (KeyboardInterrupt, SystemExit):
        for future in futures:
            if future.status == "finished":  # since the last look
                keep(future)
        client.cancel(list(futures), force=True)
        raise
    except BaseException as error:
        if type(error).__name__ in _LOST:
            raise SchedulerGone from None
        raise


# What a client raises, or says of a task, when its scheduler has gone: classes of distributed's.
_LOST = frozenset(
    {
        "FutureCancelledError",
        "CancelledError",
        "CommClosedError",
        "ClosedClientError",
        "StreamClosedError",
    }
)
_NOTHING: dict[str, Any] = {"report": None, "wall_s": None, "inputs": {}, "recorded": []}


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
    values = (
        [given]
        if isinstance(given, (str, bytes)) or not isinstance(given, Iterable)
        else list(itertools.islice(given, MOST_POINTS + 1))
    )
    if not values:
        raise UsageError(f"sweep: {name} has no value")
    if len(values) > MOST_POINTS:
        raise UsageError(
            f"sweep: {name} has more values than the {MOST_POINTS:,} points of one sweep"
        )
    return values


def _default_directory(scenario: Scenario, points: list[Point]) -> Path:
    """The same sweep finds the same directory, and so what was done of it."""
    digest = hashlib.sha256(" ".join(point.key for point in points).encode()).hexdigest()[:10]
    return Path(RUNS) / f"sweep-{re.sub(r'[^A-Za-z0-9_.]+', '_', scenario.name)[:80]}-{digest}"


def _write_table(made: Sweep) -> None:
    buffer = io.BytesIO()
    made.frame.write_parquet(buffer)
    write_atomically(made.path, buffer.getvalue())


@contextlib.contextmanager
def _bar(watch: Watch | None, title: str) -> Iterator[Watch]:
    if watch is not None:
        yield watch
        return
    if in_notebook():
        from loomnet.labs.notebook_bar import notebook_count as shown
    else:
        from loomnet.labs.progress import progress_bar as shown
    with shown(f"sweep {title}") as told:
        yield told
