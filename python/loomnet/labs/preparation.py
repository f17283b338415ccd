"""From what a user asks of a run to what a runner is asked for: everything is checked before
anything starts."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence, Sized
from dataclasses import replace
from pathlib import Path
from typing import Any

from loomnet.base.errors import RunInterrupted, UsageError
from loomnet.base.names import quoted
from loomnet.base.number_text import number_text
from loomnet.base.spec import Spec
from loomnet.base.units import Time
from loomnet.fabrics.facts import facts_of
from loomnet.fabrics.link_settings import LinkDefaults
from loomnet.fabrics.model import Fabric
from loomnet.faults.model import Fault, check_faults
from loomnet.faults.timetable import Timetable
from loomnet.jobs.collectives import Collective
from loomnet.jobs.flows import Flows
from loomnet.jobs.kinds import is_model_job
from loomnet.jobs.model import Job, TorchJob
from loomnet.labs.c_programs import check_c_programs
from loomnet.labs.capacities import Capacities
from loomnet.labs.placement import job_names, placements
from loomnet.labs.run_bounds import check_run, check_stop
from loomnet.measures import training as measure
from loomnet.measures.kind import Kind
from loomnet.measures.run_data import NEVER_CAME, Ending, RunData, RunFault
from loomnet.plans.job_request import JobRequest
from loomnet.plans.make import make_plan
from loomnet.plans.model import Plan
from loomnet.plugins.controllers import ControllerChoice
from loomnet.plugins.priorities import check_priority
from loomnet.results.result import ENDINGS, Result
from loomnet.running.request import RunRequest
from loomnet.systems.controls import with_policies
from loomnet.systems.registry import (
    carriers_of,
    check,
    parts_of,
    transport,
    transports,
    with_servers,
)

OFF = "off"
MOST_DILATION = 10**9
MOST_NAMED = 3  # faults that never came
# Links. A larger regular fabric is built as far as the jobs can reach, and the run ends the same,
# byte for byte. With dead links the part may lack detours that the whole has, so from
# BUILT_WHOLE_FOR_FAULTS links on only runs without faults use it.
BUILT_WHOLE, BUILT_WHOLE_FOR_FAULTS = 500, 10_000


def reroute_time(where: str, value: Time | str | None) -> Time | None:
    """What `reroute_delay=` says; None: never. Raises UnitError."""
    return None if value in (None, OFF) else Time.given(f"{where}: reroute_delay", value)


def check_dilation(where: str, value: float) -> None:
    """Raises UsageError unless the value is a number from 1 to MOST_DILATION."""
    if not isinstance(value, (int, float)) or not 1 <= value <= MOST_DILATION:
        raise UsageError(
            f"{where}: dilation {quoted(value)} must be 1 or more, at most {MOST_DILATION}"
        )


def list_of_jobs(jobs: Any) -> list[Job]:
    """The jobs of a run as a list. Raises UsageError for any other value."""
    found = list(jobs) if isinstance(jobs, (list, tuple)) else [jobs]
    if not found:
        raise UsageError("run: no job in the list; see ln.TorchJob, ln.AllReduce")
    for job in found:
        if not isinstance(job, Job):
            raise UsageError(f"run: {quoted(job)} is not a job; see ln.TorchJob, ln.AllReduce")
    return found


def check_has_twin(jobs: Sized) -> None:
    """Raises UsageError for a run of several jobs: a twin replays the compute times of one."""
    if len(jobs) > 1:
        raise UsageError(
            f"crosscheck: a run has {len(jobs)} jobs, and compute times are replayed for a run of "
            "one; run one job, or run on each clock with `loomnet run` and use `loomnet compare`"
        )


def check_computing(request: RunRequest) -> None:
    """Raises UsageError where a live run does not tell how long each rank computes: what a host
    measures is when none of its ranks does."""
    for asked in request.jobs:
        if isinstance(asked.job, TorchJob) and len(asked.hosts) < len(asked.placement):
            host = next(each for each in asked.hosts if asked.placement.count(each) > 1)
            raise UsageError(
                f"crosscheck: {request.plan.hosts[host].name} has {asked.placement.count(host)} "
                "ranks of a TorchJob, and compute times are known by host; use hosts of one "
                "rank, or run on each clock with `loomnet run` and use `loomnet compare`"
            )


def prepare(
    fabric: Fabric,
    jobs: Sequence[Job],
    faults: Sequence[Fault],
    *,
    clock: str,
    seed: int,
    base: Path,
    reroute_delay: Any,
    dilation: float,
    options: dict[str, Any],
    moments: Mapping[str, tuple[int, int]] | None,
    recorded: bool,
    replayed: tuple[Any, ...] | None,
    controllers: Sequence[ControllerChoice] = (),
) -> RunRequest:
    """The request of a run that is yet to get its folder. `recorded`: whether packets are captured;
    `replayed`: compute times of the live run that this one repeats on the virtual clock; None: it
    repeats none. Raises UsageError, FabricError."""
    if not isinstance(fabric, Fabric):
        raise UsageError(f"run: {quoted(fabric)} is not a fabric; see ln.clos.two_tier, ln.Fabric")
    check_dilation("run", dilation)
    for name in transports():
        given = options.get(name, {})
        if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
            raise UsageError(
                f"run: {name}={quoted(given)} is not a table of its options, "
                'as tcp={"cc": "bbr"} is'
            )
    jobs, options = with_policies(jobs, options, base)
    check_faults(list(faults), fabric)
    check_c_programs(fabric, clock)
    reroute = reroute_time("run", reroute_delay)
    gaps = options.get("gaps_ps", ())
    for job in jobs:
        check_run(job, faults, reroute, gaps)
        check_stop(job)
        check(job, clock)
        if is_model_job(job):
            check_priority("ModelJob.priority", job.priority, clock)
        if isinstance(job, TorchJob) and job.priority is not None:
            check_priority("TorchJob.priority", job.priority, clock)
    if len(jobs) > 1 and gaps:
        raise UsageError(
            "run: gaps_ps: compute times are replayed for a run of one job; leave "
            "gaps_ps= out, or run one job"
        )
    if replayed is not None:
        check_has_twin(jobs)
        gaps = gaps or replayed
    names, placed = job_names(jobs), placements(jobs, fabric)
    # Refuses pairs of ranks that are not there.
    edges = [job.edges(hosts) for job, hosts in zip(jobs, placed, strict=True)]
    in_part = (
        fabric.shape is not None
        and clock == "virtual"
        and not any(isinstance(job, TorchJob) for job in jobs)
        and not controllers  # which may name any link
        and not fabric.programs  # each of which may have a state of its own
        and not recorded  # a recording names links by numbers of the whole fabric
        and fabric.counts[2] > (BUILT_WHOLE_FOR_FAULTS if faults else BUILT_WHOLE)
    )
    # The first host's rate is the job's, wherever its pairs are.
    met = [
        {hosts[0], *itertools.chain(*pairs)} if in_part and _of_given_pairs(job) else {*hosts}
        for job, pairs, hosts in zip(jobs, edges, placed, strict=True)
    ]
    plan = make_plan(
        fabric,
        seed=seed,
        hosts=sorted(set().union(*met)) if in_part else None,
        defaults=LinkDefaults.of_all(
            {
                # A live run's switches have no PFC, so neither has its twin.
                each.model: each.link_defaults(
                    options.get(each.model, {}),
                    switches_pause=clock == "virtual" and replayed is None,
                )
                for each in carriers_of(jobs)
            }
        ),
    )
    timetable = Timetable(plan, list(faults), reroute_delay=reroute, moments=moments)
    requests = tuple(
        JobRequest(
            job=job,
            number=number,
            name=name,
            placement=tuple(hosts),
            script=(job.located(base, Path.cwd()) if isinstance(job, TorchJob) else None),
            stall_after=job.stall_after(timetable.longest_fault()),
            start_ps=job.start.count,
            stop_ps=None if job.stop is None else job.stop.count,
            gaps_ps=tuple(gaps),
            absent=frozenset(hosts) - here,
        )
        for number, (job, name, hosts, here) in enumerate(
            zip(jobs, names, placed, met, strict=True)
        )
    )
    requests = with_servers(fabric, requests)
    parts = parts_of(plan, requests, options)
    for asked in requests:
        _check_addresses(plan, asked)
    return RunRequest(
        plan=plan,
        jobs=requests,
        parts=parts,
        timetable=timetable,
        faults=tuple(faults),
        label="",
        seed=plan.seed,
        directory=Path(),
        reroute_delay=reroute,
        dilation=dilation,
        options=options,
        controllers=tuple(each.made(plan) for each in controllers),
    )


def again(request: RunRequest, seed: int) -> RunRequest:
    """The same run from its begin, with another seed: what holds a state is made anew, and the plan
    stays."""
    timetable = Timetable(request.plan, list(request.faults), reroute_delay=request.reroute_delay)
    return replace(
        request,
        seed=seed,
        timetable=timetable,
        parts=parts_of(request.plan, request.jobs, request.options),
    )


def _check_addresses(plan: Plan, asked: JobRequest) -> None:
    """Raises AddressError where the job's packets carry their way as uSIDs and one of its ways has
    more switches than an address can hold."""
    job = asked.job
    if not transport(job.transport).by_usids:
        return
    plan.addresses.check(
        asked.hosts, job.edges(list(asked.placement)) if _of_given_pairs(job) else None
    )


def _of_given_pairs(job: Job) -> bool:
    """Whether the job's pairs are known before it runs; others connect each host to each."""
    return not job.synchronous and not (isinstance(job, Flows) and not job.pairs)


def results_of(
    request: RunRequest, found: Sequence[RunData], label: str | None, settle: Time
) -> list[Result]:
    """The figures of each job."""
    left, fabric = Capacities(request), facts_of(request.plan.topology.fabric)
    results = [
        result_of(request, asked, data, label, settle, left)
        for asked, data in zip(request.jobs, found, strict=True)
    ]
    for result in results:
        result.fabric_facts = fabric
    return results


def result_of(
    request: RunRequest,
    asked: JobRequest,
    data: RunData,
    label: str | None,
    settle: Time,
    left: Capacities,
) -> Result:
    """One job's figures."""
    job = asked.job
    data.windows = data.windows or request.timetable.windows
    data.directory = data.directory or request.directory
    _note_faults_to_come(request, data)
    if data.ended in ("stalled", "failed") and not data.errors:
        data.errors.append(RunFault(data.end_ps, "job", data.reason or data.ended))
    data.of_systems = [each for own in request.parts for each in own.figures(asked, data)]
    capacity = left.of(asked, data.windows)
    planned = [fault.phase for fault in request.faults if fault.phase]
    # One round has no recovery, and of many flows the solver takes its time.
    rounds = left.of_rounds(asked, data.windows) if len(data.iterations) > 1 else None
    phases = measure.phases_of(data, capacity, settle.count, planned, rounds)
    return Result(
        request.plan,
        data,
        phases,
        label,
        job.transport,
        kind=_kind(asked),
        setup=_setup(asked.job),
        job=asked.name,
    )


def _note_faults_to_come(request: RunRequest, data: RunData) -> None:
    """Of a run that ended by itself: a fault that it did not live to see, or a figure of "before"
    reads as one of the fault."""
    if data.ended != "finished":
        return
    data.never_came = [
        f"{each.kind}({each.target}) at {each.at}" for each in request.timetable.never_came
    ]
    if data.never_came:
        shown, more = data.never_came[:MOST_NAMED], len(data.never_came) - MOST_NAMED
        data.fidelity.notes[NEVER_CAME] = (
            f"{', '.join(shown)}{f' and {more} more' if more > 0 else ''}: the run ended before; "
            "give the job more iterations, or the fault an earlier at="
        )


def _setup(job: Job) -> dict[str, str]:
    """The job's kind, who sums for it, and what of it was given, as text, but its name and
    transport, which results know. Of a value with fields, as circuits=, each field that was given:
    two runs differ in one of them."""
    found = {"job": type(job).__name__, "allreduce": job.allreduce}
    for name in sorted(job.model_fields_set - {"name", "transport"}):
        value = getattr(job, name)
        if isinstance(value, Spec):
            found |= {
                f"{name}.{field}": str(getattr(value, field))
                for field in sorted(value.model_fields_set)
            }
        else:
            found[name] = str(value)
    return found


def _kind(asked: JobRequest) -> Kind:
    job = asked.job
    if isinstance(job, Collective):
        return Kind(job.measured(), False, job.size.bytes, job.bus_factor(len(asked.placement)))
    return Kind(job.measured(), getattr(job, "log", None) is not None)


def interruption_of(result: Result, end_ps: int, reason: str | None) -> RunInterrupted:
    """The error that ends an interrupted run, with what was measured until then."""
    why = (reason or "").removeprefix("interrupted").strip()  # which is said once
    stopped = RunInterrupted(f"interrupted after {number_text(end_ps / 1e12, 's')} {why}".rstrip())
    stopped.result = result
    return stopped


def ending_of(request: RunRequest, found: Sequence[RunData]) -> tuple[Ending, str | None]:
    """How a run ended, and why: as the job of it that ended worst."""
    worst: Ending = next(ended for ended in ENDINGS if any(data.ended == ended for data in found))
    name, data = next(
        (asked.name, data)
        for asked, data in zip(request.jobs, found, strict=True)
        if data.ended == worst
    )
    if len(found) == 1 or data.reason is None:
        return worst, data.reason
    return worst, f"{name}: {data.reason}"
