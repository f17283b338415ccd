"""The systems by name: each module of this package is one, found by its file."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterable, Mapping

from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean, in_quotes, quoted
from loomnet.jobs.collectives import RingCollective
from loomnet.jobs.model import Job
from loomnet.systems.transport import Transport

_OTHERS = ("registry", "transport")


@functools.cache
def transports() -> Mapping[str, Transport]:
    """Every transport by its name, in alphabetical order."""
    package = importlib.import_module("loomnet.systems")
    found = {}
    for entry in sorted(pkgutil.iter_modules(package.__path__), key=lambda each: each.name):
        if entry.name not in _OTHERS:
            module = importlib.import_module(f"loomnet.systems.{entry.name}")
            found |= {each.name: each for each in getattr(module, "TRANSPORTS", ())}
    return found


def transport(name: str) -> Transport:
    """The transport of that name, which check() has let pass."""
    return transports()[name]


def carriers_of(jobs: Iterable[Job]) -> list[Transport]:
    """The transports that jobs ask for, each once: their own, and that of switches that sum."""
    names = dict.fromkeys(job.transport for job in jobs)
    if any(job.allreduce == "ina" for job in jobs):
        names["ina"] = None
    return [transport(name) for name in names]


def option_tables() -> tuple[str, ...]:
    """Names by which lab.run takes a transport's own options, as tcp={"cc": "bbr"}."""
    return tuple(name for name, each in transports().items() if each.has_options)


def check(job: Job, clock: str) -> None:
    """Raises UsageError where the job cannot run on the clock: there is no transport of that name,
    or the transport does not carry such a job there, or the job itself says so."""
    known = transports()
    if job.transport not in known:
        raise UsageError(f"{type(job).__name__}.transport: {in_quotes(job.transport)} is not a "
                         f"transport{did_you_mean(job.transport, known)}")
    if (model := known[job.transport].model) not in known:
        raise UsageError(f'{type(job).__name__}.transport: "{job.transport}" is carried by a model '
                         f'"{model}", which is not registered{did_you_mean(model, known)}')
    if clock == "live" and job.allreduce == "ina" and known[job.transport].stock_gloo:
        raise UsageError(f'{type(job).__name__}: allreduce="ina": live, "{job.transport}" is stock '
                         'Gloo, whose sums no switch makes; give transport="mrc" or "roce"')
    if isinstance(job, RingCollective) and job.queue_pair == "per-step":
        able = [name for name, each in known.items() if each.renews]
        if job.transport not in able:
            raise UsageError(
                f'{type(job).__name__}.queue_pair: over "{job.transport}" a queue pair does not '
                f"begin anew with each ring step; give transport={' or '.join(map(quoted, able))}")
    known[job.transport].check(job, clock)
    job.check_clock(clock)
