"""What a run will do that its author may not expect, said before its traffic: a fault shorter than
an iteration, links slower than their packets, files of hundreds of MB, minutes of waiting.

Each is an estimate from sizes and rates alone, and left out where those do not settle it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from loomnet.base.number_text import number_text
from loomnet.base.units import Rate, Time
from loomnet.fabrics.link_settings import FRAMING_BYTES, MIN_QUEUE_PACKETS
from loomnet.jobs.collectives import (
    AllGather,
    AllReduce,
    AllToAll,
    Collective,
    ReduceScatter,
    SendRecv,
)
from loomnet.jobs.flows import Flows, Incast, Permutation
from loomnet.jobs.kinds import is_model_job
from loomnet.jobs.model import Job, TorchJob
from loomnet.labs.binding_limits import small_queues, small_windows
from loomnet.plans.job_request import JobRequest
from loomnet.plans.model import Plan
from loomnet.running.request import RunRequest
from loomnet.running.run_options import unused_tables
from loomnet.systems.registry import transport

if TYPE_CHECKING:
    from loomnet.jobs.model_job import ModelJob

LARGE_CAPTURE = 100 * 10**6  # bytes
LONG_WALL_S = 60.0
HOPS_PER_SECOND = 4e6  # of the virtual clock, by the half of it; payload that moves costs more
SLOW_LINK = 10  # a full packet takes so many times the link's delay: slower than its packets
# Kinds in which every rank sends and receives so much: shares of `size` for n ranks.
_EVEN = {
    AllReduce: lambda n: 2 * (n - 1) / n,
    AllToAll: lambda n: (n - 1) / n,
    AllGather: lambda n: (n - 1) / n,
    ReduceScatter: lambda n: (n - 1) / n,
    SendRecv: lambda n: 1.0,
}


def foreseen(request: RunRequest, clock: str) -> list[str]:
    """Lines to say before the run; none where nothing is out of the ordinary."""
    return [
        f"note: {line}"
        for line in (
            *_short_faults(request, clock),
            *_nameless_faults(request),
            *_unused_options(request),
            *_slow_links(request.plan),
            *small_windows(request, clock),
            *small_queues(request.plan),
            *(line for part in request.parts for line in part.lint()),
            *_large_captures(request),
            *_long_waits(request, clock),
        )
    ]


# --- estimates ------------------------------------------------------------------------------------
def bytes_each(job: Job, ranks: int) -> float | None:
    """Payload bytes that each rank sends in an iteration, where all send alike; else None."""
    if is_model_job(job):
        return job.gradients.bytes * (_EVEN[AllReduce](ranks) if job.allreduce == "ring" else 1.0)
    share = _EVEN.get(type(job))
    if share is None or not isinstance(job, Collective):
        return None
    return job.size.bytes * share(ranks)


def bytes_by_host(asked: JobRequest) -> dict[int, tuple[float, float]] | None:
    """Payload bytes that each host's ranks send in an iteration by its NIC and by its local link,
    where all ranks send alike or each pair of ranks does; else None."""
    if isinstance(asked.job, (Incast, Permutation)):
        return {host: (apart, here) for host, (apart, _, here) in _pairwise(asked).items()}
    each, ranks = bytes_each(asked.job, len(asked.placement)), len(asked.placement)
    if each is None:
        return None
    here = Counter(asked.placement)
    if isinstance(asked.job, AllToAll):
        peer = each / (ranks - 1)
        return {host: (n * (ranks - n) * peer, n * (n - 1) * peer) for host, n in here.items()}
    # In a ring the last rank of a host sends to another host, if there is one.
    apart = min(len(here) - 1, 1)
    return {host: (apart * each, (n - apart) * each) for host, n in here.items()}


def _pairwise(asked: JobRequest) -> dict[int, tuple[float, float, float]]:
    """Payload bytes of a round that each host sends and receives by its NIC, and by its local
    link."""
    job, placed = asked.job, asked.placement
    assert isinstance(job, (Incast, Permutation))
    sent, received, here = Counter[int](), Counter[int](), Counter[int]()
    for a, b in job.pairs_of(list(placed)):
        if placed[a] == placed[b]:
            here[placed[a]] += job.size.bytes
        else:
            sent[placed[a]] += job.size.bytes
            received[placed[b]] += job.size.bytes
    return {host: (sent[host], received[host], here[host]) for host in set(placed)}


def least_iteration_s(request: RunRequest, clock: str) -> float | None:
    """Emulated seconds that an iteration of the first job takes at least: bytes over the rate of a
    NIC's ports or of a local link, or the compute time that a PyTorch job declares for the virtual
    clock. None where neither is known."""
    return _least_iteration_s(request.plan, request.lead, clock)


def _least_iteration_s(plan: Plan, asked: JobRequest, clock: str) -> float | None:
    job = asked.job
    if isinstance(job, TorchJob):
        if clock != "virtual" or not isinstance(job.compute, Time):
            return None
        return job.compute.seconds
    loads = bytes_by_host(asked)
    if loads is None:
        return None
    sent = max(
        max(by_nic * 8 / _nic_bps(plan, host), local * 8 / max(plan.hosts[host].local_rate_bps, 1))
        for host, (by_nic, local) in loads.items()
    )
    # A model's gradients travel while backward goes on.
    return max(sent, least_compute_ps(job) / 1e12) if is_model_job(job) else sent


def least_compute_ps(job: ModelJob) -> int:
    """Of an iteration, on the rank that draws the shortest time."""
    return int(job.compute_time.count * (1 - job.jitter))


def most_rounds(plan: Plan, asked: JobRequest) -> int:
    """How many rounds of a job may begin: those it has, or fewer because of its stop."""
    job, lasts = asked.job, asked.begins_for_ps
    if not (isinstance(job, Collective) or is_model_job(job)) or lasts is None:
        return getattr(job, "repeat", 1)
    size = bytes_each(job, len(asked.placement))
    if size is None:
        assert isinstance(job, Collective)
        size = job.size.bytes  # a rank that sends sends all
    rate = max(max(_nic_bps(plan, host), plan.hosts[host].local_rate_bps) for host in asked.hosts)
    sent_ps = size * 8 * 10**12 / rate
    each_ps = max(
        1, max(sent_ps, least_compute_ps(job)) if is_model_job(job) else sent_ps + job.compute.count
    )
    return min(job.repeat, int(lasts / each_ps) + 1)


def most_flows(plan: Plan, asked: JobRequest) -> int:
    """How many flows of a job may begin, nearly always where their arrivals are random."""
    job, lasts = asked.job, asked.begins_for_ps
    if not isinstance(job, Flows):
        return len(asked.placement) * most_rounds(plan, asked)
    if lasts is None:
        return job.count
    if job.starts:
        return sum(start.count < lasts for start in job.starts)
    host = asked.placement[0]
    nic = _nic_bps(plan, host)
    senders = len({asked.placement[a] for a, _ in job.pairs}) if job.pairs else len(asked.hosts)
    gap = job.mean_gap_ps(nic, senders)
    if gap is None:
        return job.count
    expected = lasts / max(gap, 1)
    return min(job.count, int(expected + 6 * expected**0.5) + 6)  # six standard deviations


def _nic_bps(plan: Plan, host: int) -> int:
    """What the ports of a host send together."""
    return sum(plan.port_rates(plan.hosts[host]))


def _seconds(value: float) -> str:
    """Two digits: it is an estimate."""
    if value < 120:
        return number_text(float(f"{value:.2g}"), "s")
    return f"{value / 60:.2g} min" if value < 6000 else f"{value / 3600:.2g} h"


# --- what may surprise ----------------------------------------------------------------------------
def _short_faults(request: RunRequest, clock: str) -> Iterator[str]:
    least = least_iteration_s(request, clock)
    for fault in request.faults:
        lasts = fault.duration
        if least is not None and fault.phase and isinstance(lasts, Time) and lasts.seconds < least:
            yield (
                f"fault {fault.label} lasts {lasts}, but one iteration takes {_seconds(least)} "
                "or more: no whole iteration will lie in its phase, so its iteration_s will be "
                "null; duration=ln.iterations(30) follows the job"
            )
    # From time 0 on there is no phase before, which the report says itself.
    begins = [
        (fault.at.seconds, fault)
        for fault in request.faults
        if fault.phase and isinstance(fault.at, Time) and fault.at.count
    ]
    at, first = min(begins, key=lambda each: each[0], default=(0.0, None))
    if first is not None and least is not None and at < least:
        yield (
            f"fault {first.label} begins at {first.at}, but one iteration takes "
            f"{_seconds(least)} or more: no whole iteration will lie in the phase before it, "
            "to which goodput_ratio of the other phases is relative; at=ln.step(10) follows "
            "the job"
        )


def _nameless_faults(request: RunRequest) -> Iterator[str]:
    """Without any phase of a fault, `before` is the whole run and holds what the faults did. A
    fault from time 0 on is a condition of the whole run, and is not spoken of."""
    later = [fault for fault in request.faults if fault.at != Time.of(0)]
    if later and not any(fault.phase for fault in request.faults):
        yield (
            f"fault {later[0].label} has no phase=, so the run's numbers do not tell the time "
            'of the fault from the rest: all stand under "before"; phase="fault" gives it '
            "numbers of its own"
        )


def _unused_options(request: RunRequest) -> Iterator[str]:
    jobs = [asked.job for asked in request.jobs]
    for name in unused_tables(request.options, jobs):
        over = " and ".join(dict.fromkeys(job.transport for job in jobs))
        yield (
            f"no job uses {name}, so its options have no effect: the run is over {over}; "
            f'transport="{name}" gives a job another'
        )


def _slow_links(plan: Plan) -> Iterator[str]:
    """Queues are sized by rate times round trip, and at least 8 packets. Where packets themselves
    fill the round trip, queues have that least."""
    if plan.partial:
        return
    bits = (plan.frame_bytes + FRAMING_BYTES) * 8
    for link in plan.links.firsts():
        if link.plane is None:
            continue  # a panel's: no switch queues there
        half = link.forward
        limits = (half.data_limit_bytes, link.backward.data_limit_bytes)
        if min(limits) > 2 * MIN_QUEUE_PACKETS * plan.frame_bytes:
            continue  # the fabric gives its queues more
        packet_ps = bits * 10**12 // half.rate_bps
        held = half.rate_bps * plan.base_rtt_ps / 8e12 / plan.frame_bytes
        if packet_ps > SLOW_LINK * half.delay_ps and held < MIN_QUEUE_PACKETS:
            rate, delay = Rate.of(half.rate_bps), Time.of(half.delay_ps)
            yield (
                f"links of {rate} and {delay}, such as {half.name}, are slower than their "
                f"packets: a full packet takes {_seconds(packet_ps / 1e12)} to leave, so the "
                f"longest round trip holds {held:.2g} packets, and queues have their least, "
                f"{MIN_QUEUE_PACKETS}{'' if plan.pfc else ', which bursts may overflow'}; "
                "data_limit= sets the queues that your switches have, and delay= is to "
                "include the time in which they forward"
            )
            return


def _large_captures(request: RunRequest) -> Iterator[str]:
    recording, plan = request.recording, request.plan
    for port, half in recording.ports.items() if recording is not None else ():
        host = min(half.source, half.target)  # hosts have the lowest numbers
        data = total = 0.0
        for asked in request.jobs:
            job = asked.job
            loads = bytes_by_host(asked)
            each = transport(job.transport).captured_bytes
            if loads is None or each is None:
                continue
            if host not in loads:
                continue  # by which switches packets go is the transport's choice
            size, full = loads[host][0], _full_payload(request, asked)
            back = _pairwise(asked)[host][1] if isinstance(job, (Incast, Permutation)) else size
            if request.options.get("payload"):
                each += full
            moved = (size + back) * most_rounds(plan, asked) / len(plan.hosts[host].ports)
            packets = moved / full
            data, total = data + packets, total + packets * each
        if total >= LARGE_CAPTURE:
            yield (
                f"the capture of {port} will be about {number_text(float(f'{total:.2g}'), 'B')}:"
                f" some {number_text(float(f'{data:.2g}'))} data packets and their "
                "acknowledgements; a smaller size= or repeat= makes it smaller"
            )


def _full_payload(request: RunRequest, asked: JobRequest) -> int:
    """Bytes of payload in a full packet of the job's transport."""
    carrier = transport(asked.job.transport)
    options = request.options.get(carrier.model, {})
    return max(carrier.frames(options, request.plan).payload, 1)


def _long_waits(request: RunRequest, clock: str) -> Iterator[str]:
    plan, packets, wall = request.plan, 0.0, 0.0
    for asked in request.jobs:
        job, loads = asked.job, bytes_by_host(asked)
        if loads is None:
            continue
        if clock == "live":
            rounds = most_rounds(plan, asked)
            least = (_least_iteration_s(plan, asked, clock) or 0) * rounds * request.dilation
            if least > LONG_WALL_S:
                yield (
                    f"{rounds} iterations take {_seconds(least)} of wall time or more, at "
                    f"D = {request.dilation:g}"
                )
            continue
        own = sum(by_nic for by_nic, _ in loads.values()) * most_rounds(plan, asked)
        own /= _full_payload(request, asked)
        packets += own
        wall += own * _hops(plan, job, asked.placement) / HOPS_PER_SECOND
    if wall > LONG_WALL_S:
        yield (
            f"some {number_text(float(f'{packets:.2g}'))} packets will take about "
            f"{_seconds(float(f'{wall:.1g}'))} of wall time"
        )


def _hops(plan: Plan, job: Job, placement: tuple[int, ...]) -> float:
    """Mean links between two ranks of two hosts that exchange data, in the first plane or over a
    panel."""
    apart = [(a, b) for a, b in job.edges(list(placement)) if a != b][:64]
    leaf = plan.topology.leaf_of
    by_planes = [(a, b) for a, b in apart if plan.joined(a, b)]
    chains = [plan.topology.chain(leaf(a, 0).node, leaf(b, 0).node) for a, b in by_planes]
    circuits = 2 * (len(apart) - len(by_planes))
    return (sum(len(chain) + 1 for chain in chains) + circuits) / max(len(apart), 1)
