"""What flows a job sends: rounds of flows between ranks, drawn or given, and how they are moved
apart, cut short and kept under way."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence

from loomnet.base import bounds
from loomnet.base.errors import UsageError
from loomnet.fabrics.link_settings import FRAMING_BYTES
from loomnet.jobs.flows import Flows, Incast, Permutation
from loomnet.jobs.kinds import is_trace
from loomnet.jobs.model import Job
from loomnet.jobs.task_graph import Task, TaskGraph, task_of
from loomnet.measures.lone_ways import LoneWays
from loomnet.plans.job_request import JobRequest
from loomnet.plans.model import Plan

# Of a flow that ends by its time: bytes of a write, and how many bandwidth-delay products it keeps
# under way: one on the links, five in a queue that drops, and some for acknowledgements.
LIVING_BYTES, LIVING_BDPS = 1 << 14, 8
AHEAD_BYTES = 1 << 14  # posted and unsent, over a transport that tells when to post more

FlowOfRound = tuple[int, int, int, int]  # start ps, source rank, destination rank, bytes
Round = Callable[[int], list[FlowOfRound]]  # flows of one that begins at this time


def stop_at(asked: JobRequest, origin_ps: int) -> int | None:
    """When a job that began at this time begins nothing new."""
    return None if asked.begins_for_ps is None else origin_ps + asked.begins_for_ps


def begun_before(
    flows: Sequence[FlowOfRound], stop_ps: int | None
) -> tuple[list[FlowOfRound], bool]:
    """The flows of a round that begin before then, and whether some do not."""
    if stop_ps is None:
        return list(flows), False
    begun = [flow for flow in flows if flow[0] < stop_ps]
    return begun, len(begun) < len(flows)


def check_begun(asked: JobRequest, flows: Sequence[FlowOfRound]) -> None:
    """Raises UsageError for a job of whose first round no flow begins before its stop."""
    if not flows:
        raise UsageError(
            f"{type(asked.job).__name__}.stop: no flow begins before "
            f"{asked.job.stop}; give a later stop"
        )


def rounds_of(
    plan: Plan, job: Job, placement: Sequence[int], seed: int
) -> tuple[list[Round], int, set[tuple[int, int]]]:
    """A job of flows as rounds, the time between two of them in picoseconds, and pairs of ranks
    that are known to talk. Raises UsageError for a job that is none."""
    edges = job.pairs_of(list(placement))
    if isinstance(job, (Permutation, Incast)):
        size = job.size.bytes
        each: Round = lambda now: [(now, a, b, size) for a, b in edges]  # noqa: E731
        return [each] * job.repeat, job.compute.count, set(edges)
    if isinstance(job, Flows):
        nic = sum(plan.links[link].forward.rate_bps for link in plan.hosts[placement[0]].ports)
        lasts = None if job.stop is None else job.stop.count - job.start.count
        return (
            [lambda now: _drawn(job, placement, now, seed, nic, lasts)],
            0,
            set(edges) if job.pairs else set(),
        )
    if is_trace(job):
        rows = [(at.count, a, b, size.bytes) for at, a, b, size in job.rows()]
        bounds.check_at(str(job.path), max((at for at, *_ in rows), default=0))
        bounds.check_job_bytes(str(job.path), sum(size for *_, size in rows))
        return [lambda now: [(now + at, a, b, size) for at, a, b, size in rows]], 0, set(edges)
    raise UsageError(f"{type(job).__name__}: the engine has no traffic model of this job")


def packet_ps(plan: Plan, placement: Sequence[int]) -> int:
    """How long a whole packet takes to leave the slowest port of the first rank's host."""
    rate = min(plan.links[link].forward.rate_bps for link in plan.hosts[placement[0]].ports)
    return (plan.frame_bytes + FRAMING_BYTES) * 8 * 10**12 // rate


def moved_apart(flows: Sequence[FlowOfRound], apart_ps: int, seed: int) -> list[FlowOfRound]:
    """The flows, those that start together moved by less than this each: in lock-step they would
    send in the same picosecond, and always the same one would find room."""
    if apart_ps == 0:
        return list(flows)
    draw = random.Random(f"jitter {seed}")
    together = Counter(start for start, *_ in flows)
    return [
        (start + draw.randrange(apart_ps) if together[start] > 1 else start, a, b, size)
        for start, a, b, size in flows
    ]


def move_apart(graph: TaskGraph, apart_ps: int, seed: int) -> None:
    """Gives flows that wait for one delay a delay each, longer by less than this, as moved_apart
    does."""
    draw = random.Random(f"jitter {seed}")
    together: dict[int, list[int]] = {}
    for number, task in enumerate(graph.tasks):
        if task.flow and len(graph.after[number]) == 1:
            together.setdefault(graph.after[number][0], []).append(number)
    for start, flows in together.items():
        task = graph.tasks[task_of(start)]
        if task.source >= 0 or graph.after[task_of(start)] or len(flows) == 1:
            continue  # one after another, or by a trigger
        for number in flows:
            graph.after[number] = [
                graph.add(
                    Task(duration_ps=task.duration_ps + draw.randrange(apart_ps), what=task.what)
                )
            ]


def _drawn(
    job: Flows, placement: Sequence[int], now_ps: int, seed: int, nic_bps: int, lasts_ps: int | None
) -> list[FlowOfRound]:
    """A job's flows from now on; ranks of one host share its NIC. `lasts_ps`: of those that arrive
    one after another, none is needed after the first that comes so much later."""
    ranks = len(placement)
    draw = random.Random(f"flows {seed} {ranks}")
    flows, at, sizes = [], now_ps, job.distribution
    starts = [now_ps + start.count for start in job.starts]
    senders = len({placement[a] for a, _ in job.pairs} if job.pairs else set(placement))
    gap = job.mean_gap_ps(nic_bps, senders)
    for i in range(job.count):
        if lasts_ps is not None and gap is not None and flows and flows[-1][0] >= now_ps + lasts_ps:
            break
        if job.pairs:
            a, b = job.pairs[i % len(job.pairs)]
        else:
            a = draw.randrange(ranks)
            b = (a + 1 + draw.randrange(ranks - 1)) % ranks
        flows.append((starts[i] if starts else at, a, b, sizes.at(draw.random())))
        if gap is not None:
            at += max(round(-math.log(1 - draw.random()) * gap), 1)
    return flows


def told_writes(window: float) -> int:
    """Writes of LIVING_BYTES that a flow which ends by its time has under way at most, over a
    transport that tells it when to post more, and has `window` bytes unacknowledged at most. No
    fewer, so that the transport alone says when: writes complete in order, so that behind one lost
    packet all bytes of the window wait."""
    return math.ceil((window + AHEAD_BYTES) / LIVING_BYTES) + 2


def living_writes(plan: Plan, ways: LoneWays, source: int, destination: int) -> int:
    """The same over a transport that does not tell: those that keep the narrowest link of a pair's
    ways busy and its queue full."""
    if source == destination:
        return max(plan.most_local_window // LIVING_BYTES, 16)
    rate = sum(ways.of(source, destination, plane).rate_bps for plane in range(plan.planes))
    return max(LIVING_BDPS * rate * plan.base_rtt_ps // (8 * 10**12 * LIVING_BYTES), 16)
