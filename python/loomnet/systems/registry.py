"""The systems by name: each module of this package is one, found by its file."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean, in_quotes, quoted
from loomnet.base.wall_time import importing
from loomnet.jobs.collectives import RingCollective
from loomnet.jobs.model import Job
from loomnet.jobs.of_systems import RING
from loomnet.plans.job_request import JobRequest
from loomnet.plans.model import Plan
from loomnet.systems.servers import JOB_OPTIONS as OF_SERVERS
from loomnet.systems.servers import with_servers
from loomnet.systems.system import JobOption, Program, RunPart
from loomnet.systems.transport import Notes, Transport

__all__ = [
    "carriers_of",
    "carrying",
    "check",
    "forget",
    "job_options",
    "notes_of",
    "option_tables",
    "parts_of",
    "program",
    "reducers",
    "renamed",
    "transport",
    "transports",
    "with_servers",
]

_PLAIN = Program()

_OTHERS = ("answers", "controls", "given", "registry", "servers", "system", "transport")


_KINDS = {
    "PROGRAMS": Program,
    "JOB_OPTIONS": JobOption,
    "RUN_PARTS": RunPart,
    "TRANSPORTS": Transport,
}


@functools.cache
def _rows(kind: str) -> tuple[Any, ...]:
    """What all systems have under this name, in the alphabetical order of their modules."""
    package = importlib.import_module("loomnet.systems")
    found: list[Any] = [*OF_SERVERS] if kind == "JOB_OPTIONS" else []
    for entry in sorted(pkgutil.iter_modules(package.__path__), key=lambda each: each.name):
        if entry.name not in _OTHERS:
            found += _members(_module(entry.name), kind)
    names = [getattr(each, "allreduce" if kind == "RUN_PARTS" else "name") for each in found]
    twice = {each for each in names if each is not None and names.count(each) > 1}
    if kind == "JOB_OPTIONS":
        twice |= {each for each in names if each in Job.model_fields}
    if kind == "RUN_PARTS" and RING in names:
        twice.add(RING)
    if twice:
        raise ImportError(
            f"loomnet.systems: {kind}: {', '.join(sorted(twice))}: another system or "
            "every job has it"
        )
    return tuple(found)


def _members(module: Any, kind: str) -> Iterable[Any]:
    """What a system has under this name. Raises ImportError for what is none."""
    listed, base = getattr(module, kind, ()), _KINDS[kind]
    for each in listed if isinstance(listed, (tuple, list)) else (listed,):
        if kind == "RUN_PARTS":
            fits, wanted = isinstance(each, type) and issubclass(each, base), "a class, a"
        else:
            fits, wanted = isinstance(each, base), "a"
        if not fits or each is listed:
            raise ImportError(
                f"{module.__name__}: {kind}: each of a tuple must be {wanted} {base.__name__}, "
                f"not {each!r}"
            )
    return listed


def _module(name: str) -> Any:
    try:
        with importing():
            return importlib.import_module(f"loomnet.systems.{name}")
    except Exception as error:  # whatever a system's own code raises
        raise ImportError(
            f"loomnet.systems.{name} cannot be imported: {type(error).__name__}: {error}"
        ) from error


def forget() -> None:
    """Systems are looked for again, where the package has got another folder."""
    _rows.cache_clear()
    transports.cache_clear()


@functools.cache
def transports() -> Mapping[str, Transport]:
    """Every transport by its name."""
    return MappingProxyType({each.name: each for each in _rows("TRANSPORTS")})


def program(name: str) -> Program:
    """The switch program of that name, in a run."""
    return next((each for each in _rows("PROGRAMS") if each.name == name), _PLAIN)


def job_options() -> Mapping[str, JobOption]:
    """Options that jobs have by systems, by their names."""
    return {each.name: each for each in _rows("JOB_OPTIONS")}


def reducers() -> Mapping[str, type[RunPart]]:
    """Parts that make jobs' all-reduces, by `allreduce=`."""
    return {each.allreduce: each for each in _rows("RUN_PARTS") if each.allreduce is not None}


def parts_of(
    plan: Plan, requests: Sequence[JobRequest], options: Mapping[str, Any]
) -> tuple[RunPart, ...]:
    """The parts that systems have in a run. Raises UsageError."""
    found = (each.of(plan, requests, options) for each in _rows("RUN_PARTS"))
    return tuple(each for each in found if each is not None)


def notes_of(parts: Iterable[RunPart]) -> Notes:
    """What parts say of a run. Raises UsageError for what a report cannot hold."""
    found: Notes = {}
    for part in parts:
        for name, value in part.notes().items():
            if value is not None and not isinstance(value, (str, int, float)):
                raise UsageError(
                    f"{type(part).__name__}.notes: {in_quotes(name)} is a "
                    f"{type(value).__name__}, no number, text or None"
                )
            found[name] = value
    return found


def carrying(parts: Iterable[RunPart], asked: JobRequest) -> RunPart | None:
    """The part that makes a job's all-reduces; None where its ranks do."""
    return next((part for part in parts if part.carries(asked)), None)


def transport(name: str) -> Transport:
    """The transport of that name, which check() has let pass."""
    return transports()[name]


def carriers_of(jobs: Iterable[Job]) -> list[Transport]:
    """The transports that jobs ask for, each once: their own, and those of their all-reduces."""
    jobs = list(jobs)
    names = [job.transport for job in jobs]
    names += [
        by.transport
        for name, by in reducers().items()
        if by.transport is not None and any(job.allreduce == name for job in jobs)
    ]
    return [transport(name) for name in dict.fromkeys(names)]


def option_tables() -> tuple[str, ...]:
    """Names by which lab.run takes a transport's own options, as tcp={"cc": "bbr"}."""
    return tuple(name for name, each in transports().items() if each.has_options)


def renamed(options: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Options of a run with the names that they have today, and a line for each that was given by
    a former one. Raises UsageError for one that is given by both."""
    found, said = dict(options), []
    for table in option_tables():
        given = options.get(table)
        if not isinstance(given, Mapping):
            continue
        former = transports()[table].former_options
        for name in [name for name in given if name in former]:
            if former[name] in given:
                raise UsageError(
                    f"run: {table}: {name} and {former[name]} are one option; give {former[name]}"
                )
            said.append(
                f'{table}={{"{name}": …}} is {table}={{"{former[name]}": …}}; the old name '
                "is taken for one version more"
            )
        found[table] = {former.get(name, name): value for name, value in given.items()}
    return found, said


def check(job: Job, clock: str) -> None:
    """Raises UsageError where the job cannot run on the clock: there is no transport of that name,
    or the transport does not carry such a job there, or the job itself says so."""
    known = transports()
    if job.transport not in known:
        raise UsageError(
            f"{type(job).__name__}.transport: {in_quotes(job.transport)} is not a "
            f"transport{did_you_mean(job.transport, known)}"
        )
    if (model := known[job.transport].model) not in known:
        raise UsageError(
            f'{type(job).__name__}.transport: "{job.transport}" is carried by a model '
            f'"{model}", which is not registered{did_you_mean(model, known)}'
        )
    if clock == "live" and job.allreduce != RING and known[job.transport].stock_gloo:
        raise UsageError(
            f'{type(job).__name__}: allreduce="{job.allreduce}": live, '
            f'"{job.transport}" is stock Gloo, whose sums no switch makes; give '
            'transport="mrc" or "roce"'
        )
    if isinstance(job, RingCollective) and job.queue_pair == "per-step":
        able = [name for name, each in known.items() if each.renews]
        if job.transport not in able:
            raise UsageError(
                f'{type(job).__name__}.queue_pair: over "{job.transport}" a queue pair does not '
                f"begin anew with each ring step; give transport={' or '.join(map(quoted, able))}"
            )
    known[job.transport].check(job, clock)
    job.check_clock(clock)
