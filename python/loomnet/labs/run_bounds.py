"""Jobs, faults and times of a run that the engine's whole numbers cannot count are refused here,
before the run starts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from loomnet.base.bounds import (
    MOST_COLLECTIVE,
    MOST_ROUNDS,
    MOST_TIME,
    check_job_bytes,
    hours,
)
from loomnet.base.errors import UsageError
from loomnet.base.units import Size, Time
from loomnet.faults.model import Fault
from loomnet.jobs.kinds import is_model_job
from loomnet.jobs.model import Job

if TYPE_CHECKING:
    from loomnet.jobs.model_job import ModelJob


def check_run(job: Job, faults: Iterable[Fault], reroute: Time | None, gaps_ps: Any) -> None:
    """Raises UsageError for a job, fault or time of a run that the engine cannot count. `gaps_ps`:
    compute times that are replayed between iterations."""
    _check_times(type(job).__name__, _times(job), job)
    _check_job(job)
    delays, ends = 0, 0
    for fault in faults:
        _check_times(f"fault {fault.label}", _times(fault))
        delays += fault.extra.count if fault.extra is not None else 0
        ends = max(ends, sum(t.count for t in (fault.at, fault.duration) if isinstance(t, Time)))
    for what, total in (
        ("faults: extra: delays together", delays),
        ("faults: at + duration", ends),
    ):
        if total > MOST_TIME.count:
            raise UsageError(
                f"{what} are {total / 3.6e15:g} h, more than the {hours(MOST_TIME)} "
                "that a run has; give shorter ones"
            )
    _check_times("run", [("reroute_delay", reroute)])
    if not isinstance(gaps_ps, Sequence) or not all(
        isinstance(gap, int) and 0 <= gap <= MOST_TIME.count for gap in gaps_ps
    ):
        raise UsageError(
            f"run: gaps_ps: must be whole picoseconds, each between 0 and {hours(MOST_TIME)}"
        )


def check_stop(job: Job) -> None:
    """Raises UsageError for a job of flows that is to stop before the first of them begins."""
    if job.stop is not None and job.stop.count - job.start.count <= job.first_ps:
        first = Time.of(job.start.count + job.first_ps)
        raise UsageError(
            f"{type(job).__name__}.stop: {job.stop} is not after {first}, when the job's first "
            "flow begins; give a later stop"
        )


def _check_model(job: ModelJob) -> None:
    """Its iterations overlap compute and communication, and its sizes follow from a scale."""
    rounds = job.iterations if job.stop is None else 1  # what begins is not known
    if job.iterations > MOST_ROUNDS:
        raise UsageError(f"ModelJob.iterations: {job.iterations} is above {MOST_ROUNDS}")
    if job.compute_time.count * rounds > MOST_TIME.count:
        raise UsageError(
            f"ModelJob.compute: {rounds} times {job.compute_time.seconds:g} s is more than the "
            f"{hours(MOST_TIME)} that a run has; give less of either"
        )
    check_job_bytes("ModelJob.size", job.gradients.bytes, rounds)
    if max(job.bucket_bytes) > MOST_COLLECTIVE.bytes:
        raise UsageError(
            f"ModelJob.buckets: one of {Size.of(max(job.bucket_bytes))} is above "
            f"{MOST_COLLECTIVE}, the largest collective; give more buckets"
        )


def _check_job(job: Job) -> None:
    if is_model_job(job):
        return _check_model(job)
    name = type(job).__name__
    rounds = {field: getattr(job, field) for field in ("repeat", "count") if hasattr(job, field)}
    for field, number in rounds.items():
        if number > MOST_ROUNDS:
            raise UsageError(f"{name}.{field}: {number} is above {MOST_ROUNDS}")
        for pause in ("compute", "gap"):
            each = getattr(job, pause, None)
            pauses = each.count * number if isinstance(each, Time) else 0
            if pauses > MOST_TIME.count and job.stop is None:
                raise UsageError(
                    f"{name}.{pause}: {number} times {each} is more than the "
                    f"{hours(MOST_TIME)} that a run has; give less of either"
                )
    size = getattr(job, "size", None)
    if isinstance(size, Size):
        repeat = rounds.get("repeat", 1) if job.stop is None else 1  # what begins is not known
        check_job_bytes(f"{name}.size", size.bytes, repeat)
        if not job.over_sockets and size > MOST_COLLECTIVE:
            raise UsageError(
                f"{name}.size: {size} is above {MOST_COLLECTIVE}, the largest "
                "collective; repeat a smaller one"
            )
    for each in getattr(job, "sizes", ()) if isinstance(getattr(job, "sizes", ()), tuple) else ():
        check_job_bytes(
            f"{name}.sizes", each.bytes, rounds.get("count", 1) if job.stop is None else 1
        )


def _times(spec: Any) -> Iterator[tuple[str, Any]]:
    for field in type(spec).model_fields:
        yield field, getattr(spec, field)


def _check_times(owner: str, values: Iterable[tuple[str, Any]], job: Any = None) -> None:
    for field, value in values:
        where = f"{owner}.{field}" if job is not None else f"{owner}: {field}"
        if isinstance(value, Time):
            if value > MOST_TIME:
                raise UsageError(
                    f"{where}: {hours(value)} is more than the {hours(MOST_TIME)} that a run has"
                )
        elif isinstance(value, Mapping):
            _check_times(owner, ((field, each) for each in value.values()), job)
        elif isinstance(value, (tuple, list)) and value and isinstance(value[0], (Time, tuple)):
            _check_times(owner, ((field, each) for each in value), job)
