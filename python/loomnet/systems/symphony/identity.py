"""Where the packets of a run say their ring steps, for a switch that is told identity="auto"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loomnet.base.errors import UsageError
from loomnet.base.names import in_quotes
from loomnet.base.units import Size
from loomnet.jobs.collectives import RingCollective
from loomnet.jobs.flows import Flows
from loomnet.plans.job_request import JobRequest
from loomnet.plans.model import Plan
from loomnet.systems.registry import transport
from loomnet.systems.symphony.ways import PROGRAM, ring_ways

AUTO = "auto"
_COMPARABLE = 1 << 31  # progress of 32 bits: two senders must be less than this apart


@dataclass(frozen=True)
class Reading:
    """`identity` is never "auto". `steps`: bytes of a ring step by a job's number, of identity
    "seq"; `why`: of "auto", what it was decided by, None where hosts or the program state it."""

    identity: str
    steps: Mapping[int, int] = field(default_factory=dict)
    why: str | None = None


def reading(
    asked: Mapping[str, Any], plan: Plan, jobs: Sequence[JobRequest], options: Mapping[str, Any]
) -> Reading:
    """How a switch of these options reads the steps of the run's rings: what the program or the
    hosts state, else "seq" where every ring keeps its queue pairs, else "hdr". Raises UsageError
    for a stated "seq" of a ring that takes a new queue pair for each step."""
    rings = [each for each in jobs if ring_ways(each) and tracked(each, asked)]
    stated = asked.get("identity", AUTO)
    if stated == "seq":
        for each in rings:
            if _by_step(each):
                raise UsageError(
                    f'program "{PROGRAM}": identity="seq" cannot read the steps of {_name(each)}: '
                    'queue_pair="per-step" gives each step another queue pair, whose first number '
                    'no switch knows; leave queue_pair out, or give identity="hdr" to the program '
                    f"and to {transport(each.job.transport).model}"
                )
        return Reading("seq", {each.number: asked.get("step", 0) for each in rings})
    if stated != AUTO:
        return Reading(stated)
    written = {
        options.get(transport(each.job.transport).model, {}).get("identity", "none")
        for each in rings
    } - {"none"}
    if written or not rings:
        return Reading("sport" if written == {"sport"} else "hdr")
    for each in rings:
        if why := _not_by_sequence(each, plan, options):
            return Reading("hdr", why=why)
    if why := _shared_ways(rings, plan):
        return Reading("hdr", why=why)
    steps = {each.number: step_bytes(each) or 0 for each in rings}
    of_steps = ", ".join(dict.fromkeys(str(Size.of(each)) for each in steps.values()))
    return Reading("seq", steps, f"every ring keeps its queue pairs, and its steps have {of_steps}")


def tracked(job: JobRequest, asked: Mapping[str, Any]) -> bool:
    """Whether a switch of these options looks at the job."""
    names = [each.strip() for each in asked.get("jobs", "").split(",") if each]
    return not names or job.name in names


def step_bytes(asked: JobRequest) -> int | None:
    """What a rank sends in each ring step of a job; None where that is not known or not equal."""
    job = asked.job
    if isinstance(job, RingCollective):
        return max(round(job.size.bytes / len(asked.placement)), 1)
    if isinstance(job, Flows) and job.steps is not None and isinstance(job.sizes, tuple):
        sizes = {each.bytes for each in job.sizes}
        return max(round(sizes.pop() / job.steps), 1) if len(sizes) == 1 else None
    return None


def _by_step(asked: JobRequest) -> bool:
    return getattr(asked.job, "queue_pair", "persistent") == "per-step"


def _not_by_sequence(asked: JobRequest, plan: Plan, options: Mapping[str, Any]) -> str | None:
    """Why sequence numbers do not say the steps of a ring; None where they do."""
    carrier, name = transport(asked.job.transport), _name(asked)
    step = step_bytes(asked)
    if carrier.sequence_numbers(options.get(carrier.model, {}), plan) is None:
        return f"packets of {carrier.model} have no sequence number that counts bytes"
    if _by_step(asked):
        return f'queue_pair="per-step" gives each step of {name} another queue pair'
    if getattr(asked.job, "channels", 1) > 1:
        return f"channels of {name} send between the same hosts"
    if step is None:
        return f"what {name} sends in a step is not known beforehand"
    if 2 * len(ring_ways(asked)) * step >= _COMPARABLE:
        return f"32 bits cannot tell a lead from a lag in the bytes of {name}"
    return None


def _shared_ways(rings: Sequence[JobRequest], plan: Plan) -> str | None:
    seen: set[tuple[int, int, str]] = set()
    for each in rings:
        for source, target in ring_ways(each):
            way = source, target, transport(each.job.transport).model
            if source != target and way in seen:
                return (
                    f"several ranks or rings send from {plan.hosts[source].name} to "
                    f"{plan.hosts[target].name}"
                )
            seen.add(way)
    return None


def _name(asked: JobRequest) -> str:
    return "the job" if asked.name is None else f"job {in_quotes(asked.name)}"
