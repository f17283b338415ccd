"""What holds of every single run: packets and bytes add up, links carry what they can, times are in
order, shares are shares."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import loomnet as ln
from loomnet.fabrics.link_settings import FRAMING_BYTES
from loomnet.measures.flow_completion import FlowRecord

from . import fabrics, jobs
from .drafts import Draft, a_rate, a_size, a_time, draft
from .relation import Excepted, Found, Trial, Unfit, relation
from .worlds import Wants

ANY = Wants(kinds=jobs.EVERY, more=2)


@relation(ANY)
def all_accounted_for(trial: Trial) -> Found:
    """No packet is unexplained, no byte altered, and each end has its reason."""
    outcome = trial.base
    lines = []
    data = outcome.result.data
    if data.fidelity.unexplained:
        lines.append(f"{data.fidelity.unexplained} packets unexplained")
    for part in outcome.parts:
        if part.data.wrong:
            lines.append(f"{part.data.wrong} altered")
        if (part.data.ended == "finished") != (part.data.reason is None):
            lines.append(f"{part.data.ended} because of {part.data.reason}")
        if part.data.ended == "finished" and part.data.errors:
            lines.append(f"finished with {part.data.errors[0]}")
    return lines


@relation(ANY)
def links_carry_what_they_can(trial: Trial) -> Found:
    """No direction of a link carries more than its rate times the run's time."""
    plan, data = trial.base.result.plan, trial.base.result.data
    lasts = _lasts(trial)
    lines = []
    for link in plan.links:
        for half in (link.forward, link.backward):
            row = data.totals.get(f"link {half.name}", {})
            # A copy that ln.duplicate delivers takes no time on the link.
            packets = row.get("packets", 0) - row.get("duplicated", 0)
            if packets <= 0:
                continue
            size = row["bytes"] * packets / row["packets"] + packets * FRAMING_BYTES
            most = half.rate_bps * lasts / 8e12
            if size > most * 1.0001 + 10_000:
                lines.append(f"{half.name}: {size:,.0f} B in {ln.Time.of(lasts)}, of {most:,.0f}")
    return lines


def _lasts(trial: Trial) -> int:
    """Emulated time from the engine's start to the end of all jobs, at most."""
    plan = trial.base.result.plan
    found = 0
    for part, job in zip(trial.base.parts, trial.world.jobs, strict=True):
        start = job.get("start", ln.Time("0 s")).count
        found = max(found, start + (part.data.completion_ps or 0))
    return found + 200 * plan.base_rtt_ps + 10**11


@relation(ANY, kinds=jobs.KINDS)
def switches_make_no_packets(trial: Trial) -> Found:
    """No more packets leave a switch than came in."""
    plan, totals = trial.base.result.plan, trial.base.result.data.totals
    came: dict[int, int] = defaultdict(int)
    left: dict[int, int] = defaultdict(int)
    for link in plan.links:
        for half in (link.forward, link.backward):
            row = totals.get(f"link {half.name}", {})
            came[half.target] += row.get("packets", 0)
            # Offered to the link: what it delivered once, and what it lost itself.
            left[half.source] += row.get("packets", 0) - row.get("duplicated", 0)
    return [
        f"{switch.name}: {came[switch.number]} in, {left[switch.number]} out"
        for switch in plan.switches
        if left[switch.number]
        > came[switch.number] + totals.get(f"switch {switch.name}", {}).get("pfc_frames", 0)
    ]


@relation(Wants(kinds=jobs.ALL, least_more=1, more=2, faults=()))
def jobs_begin_as_asked(trial: Trial) -> Found:
    """A job begins its start= behind one time, which is the same of all jobs, whatever carries
    them: transports get ready in unlike times where links are long."""
    trial.world = trial.world.but(fabric=fabrics.far(trial.world.fabric, trial.draw))
    begins = {
        part.job_name: part.data.time_zero_ps - job.get("start", ln.Time("0 s")).count
        for part, job in zip(trial.base.parts, trial.world.jobs, strict=True)
        if part.data.time_zero_ps is not None
    }
    return (
        [f"without their start= the jobs begin at {begins}"] if len({*begins.values()}) > 1 else []
    )


@relation(ANY)
def times_in_order(trial: Trial) -> Found:
    """Rounds follow one another, a flow arrives after it has begun and before it has ended, and a
    job's completion is no earlier than its last event."""
    lines = []
    for part, took in zip(trial.base.parts, trial.base.took(), strict=True):
        data, at = part.data, 0
        for each in data.iterations:
            if each.start_ps < at or each.end_ps < each.start_ps:
                lines.append(f"round {each.number}: {each.start_ps} to {each.end_ps} after {at}")
            at = each.end_ps
        for flow in data.flows:
            known = [
                each for each in (flow.start_ps, flow.arrived_ps, flow.end_ps) if each is not None
            ]
            if known != sorted(known) or flow.start_ps < 0:
                lines.append(f"flow {flow}")
        if data.end_ps < took:
            lines.append(f"the job ends at {data.end_ps}, its last event was at {took}")
        for host, series in data.hosts.items():
            for begin, end, _ in series.work:
                if end < begin:
                    lines.append(f"work of {host}: {begin} to {end}")
    return lines


@relation(ANY, kinds=("Flows", "Permutation", "Incast", "Trace", "Matrix"), more=0)
def completion_is_the_last_end(trial: Trial) -> Found:
    """A job of flows is complete when the last of them has ended, to the picosecond."""
    outcome = trial.finished()
    [took] = outcome.took()
    return (
        []
        if outcome.parts[0].data.end_ps == took
        else [f"end {outcome.parts[0].data.end_ps}, the last flow's end {took}"]
    )


@relation(ANY, kinds=("Broadcast",), more=0)
def a_broadcast_ends_with_its_last_round(trial: Trial) -> Found:
    """A round of a broadcast is over when all ranks have it, not when its root has sent it."""
    [part] = trial.finished().parts
    return (
        []
        if part.data.iterations[-1].end_ps == part.data.end_ps
        else [
            f"the last round ends at {part.data.iterations[-1].end_ps}, "
            f"the job at {part.data.end_ps}"
        ]
    )


@relation(ANY, kinds=("Flows", "Permutation", "Incast", "Trace", "Matrix"), more=1)
def no_flow_beats_its_ideal(trial: Trial) -> Found:
    """No flow is faster than it would be alone in the fabric without faults: slowdown is 1 or more,
    but where a fault makes flows go by more links, which are faster."""
    lines = []
    for part in trial.base.parts:
        for flow in part.flow_records:
            took = flow.completion_ps
            if took is not None and took < flow.ideal_ps:
                lines.append(f"{flow}: slowdown {took / flow.ideal_ps:.4f}")
    broken = any(fault.name in ("down", "kill") for fault in trial.world.faults)
    if lines and broken and trial.world.options["reroute_delay"] != "off":
        raise Excepted("after a fault flows go by more links, which may be faster")
    return lines


@relation(Wants(kinds=("Flows",), more=0, faults=()))
def short_flows_have_their_ideals(trial: Trial) -> Found:
    """Flows one after the other, of some bytes and of some packets, take no picosecond less than
    their ideals, on links whose directions differ."""
    [job] = trial.world.jobs
    made = fabrics.build(trial.world.fabric)
    hosts = len(made.hosts)
    ranks = [trial.draw.sample(range(hosts), 2) for _ in range(8)]
    ends = ((1, 8), (200, 5_000), (5_000, 50_000))
    short = Draft(
        "Flows",
        ([a_size(trial.draw, *each) for each in ends],),
        {
            "pairs": tuple(map(tuple, ranks)),
            "ranks": hosts,
            "count": 24,
            "gap": ln.Time("200 us"),
            "transport": job.get("transport"),
        },
    )
    unlike = [
        draft(
            "override",
            trial.draw.choice(made.half_names()),
            rate=a_rate(trial.draw),
            delay=a_time(trial.draw, 1e3, 1e7),
        )
        for _ in range(3)
    ]
    world = trial.world.but(jobs=(short,), fabric=(*trial.world.fabric, *unlike))
    [part] = trial.run(world).parts
    return [
        f"{flow}: {flow.ideal_ps - flow.completion_ps} ps less than its ideal"
        for flow in part.flow_records
        if flow.completion_ps is not None and flow.completion_ps < flow.ideal_ps
    ]


@relation(Wants(kinds=jobs.FLOWS, more=0, faults=()), settings=False, simple=True)
def lone_flow_has_its_ideal(trial: Trial) -> Found:
    """A lone long flow takes hardly more than its ideal: slowdown is 1 to 1.4. (By MRC 1 to 1.8
    over planes of which one has ways half as long again as another: NSCC knows one round trip, the
    shortest, and holds a longer one for a queue. A plane that could not carry what all hosts send
    gets fewer turns than another, idle hosts counted: then 1 to 1.4 holds for equal turns.)"""
    [job] = trial.world.jobs
    transport = job.get("transport")
    made = fabrics.build(trial.world.fabric)
    rtt = trial.base.result.plan.base_rtt_ps
    rate = sum(link.forward.rate.count for link in made.links_of("h0"))
    # Long enough that a window that opens, and one round trip, are little of it.
    size = max(int(rate * rtt / 8e12) * 40, 400_000)
    if size > 6_000_000:
        raise Unfit("it would be long")
    lone = Draft(
        "Flows", (ln.Size.of(size),), {"pairs": ((0, 1),), "ranks": 2, "transport": transport}
    )

    def flow(options: dict[str, Any]) -> FlowRecord:
        outcome = trial.run(trial.world.but(jobs=(lone,), options=options))
        return outcome.parts[0].flow_records[0]

    usual = flow({})
    if usual.completion_ps is None:
        return [f"it never ended: {usual}"]
    # Of TCP's ports one carries a connection.
    limit = _LONE[transport] * (made.planes if transport == "tcp" else 1)
    if transport == "mrc" and fabrics.planes_unlike(made, trial.base.result.plan):
        limit = 1.8
    longest = limit * usual.ideal_ps
    if usual.ideal_ps <= usual.completion_ps <= longest:
        return []
    if transport == "mrc" and longest < usual.completion_ps <= made.planes * longest:
        equal = flow({"mrc": {"plane_turns": "equal"}}).completion_ps
        if equal is not None and equal <= longest:
            raise Excepted("a plane that could not carry what all hosts send gets fewer turns")
    return [f"slowdown {usual.completion_ps / usual.ideal_ps:.4f} of {size:,} B: {usual}"]


_LONE = {"mrc": 1.4, "roce": 1.4, "tcp": 1.6}  # TCP opens its window from ten packets


@relation(Wants(kinds=jobs.ALL, more=1, least_faults=1, most_faults=3))
def shares_are_shares(trial: Trial) -> Found:
    """expected_capacity is from 0 to 1, and so is every share of the report."""
    lines = []
    for part in trial.base.parts:
        for row in part.rows:
            if row.value is None:
                continue
            if not math.isfinite(row.value):
                lines.append(f"{row.within_job}: {row.value}")
            elif row.name == "expected_capacity" and not -1e-9 <= row.value <= 1 + 1e-9:
                lines.append(f"{row.within_job}: {row.value}")
            elif row.unit in ("s", "packets", "paths", "errors") and row.value < 0:
                lines.append(f"{row.within_job}: {row.value}")
    return lines


@relation(ANY)
def figures_follow_from_flows_and_rounds(trial: Trial) -> Found:
    """Figures of flows are nearest ranks of their times, those that never ended being the slowest;
    each flow is of some phase where none is between phases; a collective is not faster than the
    links of its hosts; and one sentence says what happened."""
    lines = []
    for part, drawn in zip(trial.base.parts, trial.world.jobs, strict=True):
        if not part.summary or "\n" in part.summary or part.summary.count(". ") > 1:
            lines.append(f"summary: {part.summary!r}")
        if part.kind.measured_as == "flows":
            lines += _wrong_flows(part)
        job = part.kind
        if job.measured_as != "collective" or drawn.get("allreduce") == "ina":
            continue
        plan = part.plan
        most = max(
            max(
                sum(plan.links[link].forward.rate_bps for link in host.ports),
                host.local_rate_bps or 0,
            )
            for host in plan.hosts
        )
        # Of these two some ranks run ahead, and bytes move while others compute.
        ahead = drawn.name in ("Broadcast", "Reduce") and drawn.get("compute")
        meanwhile = ahead.count / 1e12 if ahead else 0
        for row in part.rows:
            if row.name != "busbw" or row.value is None:
                continue
            seconds = drawn.given[0].count / (row.value * 1e9)  # of an iteration
            if row.value * 8e9 * seconds / (seconds + meanwhile) > most:
                lines.append(f"{row.within_job}: {row.value} GB/s over links of {most} b/s")
    return lines


def _wrong_flows(part: Any) -> Found:
    times = sorted(
        math.inf if each.completion_ps is None else each.completion_ps for each in part.flow_records
    )
    if part["flows"] != len(times) or part["unfinished"] != sum(map(math.isinf, times)):
        return [f"{part['flows']} flows, {part['unfinished']} unfinished of {len(times)}"]
    lines = []
    for name, percent in (("p50", 50), ("p99", 99), ("max", 100)):
        rank = max(0, -(-len(times) * percent // 100) - 1)
        value = times[rank] if times else math.inf
        shown = part[f"fct_{name}_s"]
        if shown != (None if math.isinf(value) else value / 1e12):
            lines.append(f"fct_{name}_s: {shown}, not {value}")
    return lines


@relation(
    Wants(
        kinds=jobs.ALL,
        more=0,
        least_faults=1,
        most_faults=1,
        faults=("down", "loss", "degrade", "kill"),
    )
)
def one_fault_more(trial: Trial) -> Found:
    """One more fault leaves no more capacity to a job that is alone."""
    at = {"at": ln.Time("0 s"), "duration": ln.Time("10 s")}
    first = trial.world.faults[0]
    first = Draft(first.name, first.given, {**first.values, **at, "phase": "one"})
    link = trial.draw.choice(fabrics.build(trial.world.fabric).link_names())
    second = Draft("degrade", (link, round(trial.draw.uniform(0.1, 0.9), 2)), {**at})
    found = []
    for faults in ((first,), (second, first)):
        outcome = trial.run(trial.world.but(faults=faults))
        found.append(outcome.result["one.expected_capacity"])
    if None in found:
        raise Unfit("no capacity is known")
    one, two = map(float, found)
    return [] if two <= one * (1 + 1e-6) + 1e-9 else [f"{one} with one fault, {two} with two"]


@relation(Wants(kinds=jobs.ALL, least_faults=1, most_faults=1, more=0))
def phases_add_up(trial: Trial) -> Found:
    """What was lost and repeated in the phases is what was lost and repeated in all."""
    fault = trial.world.faults[0].change(phase="fault")
    outcome = trial.run(trial.world.but(faults=(fault,)))
    lines = []
    [part] = outcome.parts
    for name, steps in part.data.counters.items():
        rows = [part.by_name.get(f"{phase}.{name}") for phase in ("before", "fault", "after")]
        values = [row.value for row in rows if row is not None]
        if None in values or not part.data.windows:
            continue
        total = steps[-1][1] - max((value for at, value in steps if at <= 0), default=0)
        if sum(values) != total:
            lines.append(f"{name}: {values} of {total}")
    return lines


@relation(Wants(kinds=jobs.FLOWS, more=0))
def payload_is_whole(trial: Trial) -> Found:
    """Hosts receive as many payload bytes as flows have, each once."""
    [part] = trial.finished().parts
    received = sum(int(sum(series.payload)) for series in part.data.hosts.values())
    sent = sum(flow.bytes for flow in part.data.flows)
    return [] if received == sent else [f"{received:,} of {sent:,} bytes received"]


@relation(Wants(kinds=jobs.KINDS, more=0, settings=False, faults=()))
def payload_by_any_transport(trial: Trial) -> Found:
    """A job moves the same payload bytes to the same hosts over any transport."""
    found = {}
    for transport in jobs.TRANSPORTS:
        outcome = trial.run(
            trial.world.with_jobs(
                lambda job, by=transport: job.change(transport=by, queue_pair=None)
            )
        )
        if not outcome.finished:
            raise Unfit("a job did not finish")
        found[transport] = {
            host: int(sum(series.payload)) for host, series in outcome.parts[0].data.hosts.items()
        }
    return [
        f"{transport}: {each}, mrc: {found['mrc']}"
        for transport, each in found.items()
        if each != found["mrc"]
    ]
