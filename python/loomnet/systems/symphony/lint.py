"""Switches that run "symphony" and cannot read the ring steps of a job, or whose marks slow no
host: packets that do not say their step, steps read from what is none, hosts without congestion
control. Such a run ends well and says nothing of marks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from loomnet.base.names import in_quotes
from loomnet.base.units import Size
from loomnet.jobs.collectives import RingCollective
from loomnet.plans.job_request import JobRequest
from loomnet.plans.model import Plan
from loomnet.systems.registry import transport
from loomnet.systems.symphony.identity import Reading, reading, step_bytes, tracked
from loomnet.systems.symphony.ways import PROGRAM, ring_ways
from loomnet.systems.transport import Transport

_FEW_UNITS = 1000  # of progress, 65,536 to a step: as tau less than a packet of most steps
_NEAR = 0.05  # of a step: padding of its bytes


def silent_rings(
    plan: Plan, jobs: Sequence[JobRequest], options: Mapping[str, Any]
) -> Iterator[str]:
    """A line for each job with a ring whose steps the fabric's switches cannot read."""
    programs = {
        each.options: dict(each.options) for each in plan.switches if each.program == PROGRAM
    }
    said = [
        line
        for asked in programs.values()
        if asked.get("enable", True)
        for read in (reading(asked, plan, jobs, options),)
        for job in jobs
        if ring_ways(job) and tracked(job, asked)
        for line in (
            *_of_job(job, asked, read, plan, options),
            *_short_distance(asked, read.identity),
        )
    ]
    yield from dict.fromkeys(said)


def _of_job(
    asked: JobRequest,
    program: Mapping[str, Any],
    read: Reading,
    plan: Plan,
    options: Mapping[str, Any],
) -> Iterator[str]:
    identity = read.identity
    carrier = transport(asked.job.transport)
    model = carrier.model
    own = options.get(model, {})
    written = own.get("identity", "none")
    known = carrier.step_identities
    numbered = carrier.sequence_numbers(own, plan) is not None
    reads = f'program "{PROGRAM}" reads ring steps by identity="{identity}"'
    if read.why is not None:
        reads += f", since {read.why}"
    if identity in ("hdr", "sport") and written != identity:
        if identity in known:
            remedy = f'give {model}={{"identity": "{identity}"}}'
        elif known:
            remedy = f'give {model}={{"identity": "hdr"}}, and the program identity="hdr"'
        else:
            remedy = "give the job another transport, for example roce"
            if numbered:
                remedy = 'give the program identity="seq" and step=, the bytes of a ring step'
        reason = (
            f"and packets of {model} do not say theirs that way, so no packet is marked"
            if identity == "hdr" or not known
            else f"and source ports of {model} are hashes here, so it takes hashes for steps"
        )
        yield f"{reads}, {reason}; {remedy}"
    elif read.why is not None:
        yield reads
    elif identity == "seq":
        yield from _by_sequence(asked, carrier, numbered, program["step"], reads)
    needed = carrier.needed_for_marks(own)
    if needed is not None and identity != "none":
        yield (
            f'program "{PROGRAM}": hosts of {model} have no congestion control here that reads '
            f"marks, so marks slow none of them; give {needed}"
        )


def _short_distance(program: Mapping[str, Any], identity: str) -> Iterator[str]:
    """A number without a word counts units of progress: by "seq" bytes, else parts of a step."""
    tau = program.get("tau", "1 step")
    if identity != "seq" and tau.isdigit() and 0 < int(tau) < _FEW_UNITS:
        yield (
            f'program "{PROGRAM}": tau={tau} is {tau}/65,536 of a ring step; write '
            f'tau="{tau} step{"" if tau == "1" else "s"}" for whole steps'
        )


def _by_sequence(
    asked: JobRequest, carrier: Transport, numbered: bool, step: int, reads: str
) -> Iterator[str]:
    job = asked.job
    if not numbered:
        yield f"{reads}, which packets of {carrier.model} do not have, so no packet is marked; " + (
            'give the program identity="hdr"'
            if carrier.step_identities
            else "give the job another transport, for example roce"
        )
    elif isinstance(job, RingCollective) and job.channels == 1:
        own = step_bytes(asked) or step
        if abs(step - own) > _NEAR * own:
            name = "" if asked.name is None else f" of job {in_quotes(asked.name)}"
            yield (
                f"{reads} of {Size.of(step)}, but ring steps{name} have "
                f'{Size.of(own)}; give the program step="{Size.of(own)}"'
            )
