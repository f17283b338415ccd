"""The same thing built or asked for in another way: by hand, as a graph, as a trace, by the model
without packets."""

from __future__ import annotations

import json
import statistics

import loomnet as ln
from loomnet.measures.flow_completion import FlowRecord
from loomnet.measures.lone_ways import LoneWays

from . import fabrics, jobs
from .drafts import Draft, Written, a_size, a_time, mapped
from .facts import differences, facts, not_above, within
from .link_draws import at_the_end, but_for_draws
from .relation import Excepted, Found, Trial, Unfit, relation
from .worlds import HARMLESS, Wants

BUILT = ("star", "rails", "dumbbell", "two_tier", "three_tier", "fat_tree")


def _unlike(trial: Trial, fabric: fabrics.Calls) -> Found:
    return differences(trial.facts, facts(trial.run(trial.world.but(fabric=fabric))))


@relation(Wants(kinds=jobs.ALL, fabrics=BUILT))
def built_by_hand(trial: Trial) -> Found:
    """A builder's fabric made node by node and link by link is the same fabric."""
    return _unlike(trial, fabrics.by_hand(trial.world.fabric))


@relation(Wants(kinds=jobs.ALL, fabrics=BUILT, faults=(*HARMLESS, "down", "kill")))
def built_from_a_graph(trial: Trial) -> Found:
    """A builder's fabric through networkx is the same fabric, but for the numbers of its links: a
    graph lists them node by node, and what links draw at random is drawn by a link's number."""
    return but_for_draws(trial, fabrics.through_networkx, excuse=at_the_end)


@relation(Wants(transports=("tcp",)))
def factor_of_one(trial: Trial) -> Found:
    """A learned factor of an inner rule's window that is always 1 is the inner rule: to the byte
    and the picosecond, however often it decides."""
    draw, inner = trial.draw, trial.draw.choice(("cubic", "reno", "vegas"))
    own = {**trial.world.options.get("tcp", {}), "cc": inner}
    wake_us = draw.choice((0, 10, 500, 5_000))
    never = {
        "cc": "astraea",
        "action": "factor",
        "inner": inner,
        "policy": "hold",
        "wake_us": wake_us,
        "interval_us": max(wake_us, draw.choice((10, 300, 30_000))),
        "features": draw.choice(("ours11", "aurora3")),
    }
    alone, beneath = (
        facts(trial.run(trial.world.with_options(tcp={**own, **each}))) for each in ({}, never)
    )
    return differences(alone, beneath)


@relation(Wants(kinds=("Permutation",), more=0))
def permutation_of_flows(trial: Trial) -> Found:
    """One round of a Permutation is Flows of the same pairs."""
    [job] = trial.world.jobs
    if any(isinstance(fault.get("at"), type(ln.step(1))) for fault in trial.world.faults):
        raise Unfit("a round is one iteration, of flows each is one")
    one = Draft(job.name, (job.given[0], 1), job.values)
    first = trial.run(trial.world.but(jobs=(one,)))
    pairs = one.make(ln).pairs_of(list(range(one.get("ranks"))))
    flows = Draft(
        "Flows",
        (job.given[0],),
        {
            "pairs": tuple(pairs),
            "count": len(pairs),
            "ranks": one.get("ranks"),
            "transport": one.get("transport"),
        },
    )
    return differences(facts(first), facts(trial.run(trial.world.but(jobs=(flows,)))))


@relation(Wants(kinds=("Flows",), more=0))
def trace_of_flows(trial: Trial) -> Found:
    """Flows with starts of their own and the same flows in a trace are the same."""
    [job] = trial.world.jobs
    ranks, count = job.get("ranks"), trial.draw.randint(1, 4)
    starts = sorted((a_time(trial.draw, 1, 1e8) for _ in range(count)), key=lambda at: at.count)
    pairs = tuple(tuple(trial.draw.sample(range(ranks), 2)) for _ in range(count))
    if len(set(pairs)) < count:
        raise Unfit("a pair has two flows, which count twice in the expected capacity of one")
    size = a_size(trial.draw, 1, 50_000)
    common = {"ranks": ranks, "transport": job.get("transport")}
    flows = Draft(
        "Flows", (size,), {"pairs": pairs, "count": count, "starts": tuple(starts), **common}
    )
    rows = [
        {"at": str(at), "source": a, "destination": b, "size": str(size)}
        for at, (a, b) in zip(starts, pairs, strict=True)
    ]
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    trace = Draft("Trace", (), {"path": Written({"t.jsonl": text.encode()}, "t.jsonl"), **common})
    one, two = (facts(trial.run(trial.world.but(jobs=(each,)))) for each in (flows, trace))
    return differences(one, two)


@relation(Wants(kinds=("Trace",), more=0), nearly=True)
def matrix_of_flows(trial: Trial) -> Found:
    """Flows of a trace and the same flows as htsim's connection matrix take the same time to their
    ideals (5 %): a matrix's writes carry an immediate value of 4 B, with which RoCE sends a packet
    by each port, by those too for which a short message has no bytes. Those 4 B may let a packet of
    each other flow go ahead, or come last by ways that do not fork as those of the bytes do."""
    [job] = trial.world.jobs
    ranks, count = job.get("ranks"), trial.draw.randint(1, 3)
    rows = sorted(
        (
            a_time(trial.draw, 1, 1e8).count,
            *trial.draw.sample(range(ranks), 2),
            a_size(trial.draw, 1, 50_000).count,
        )
        for _ in range(count)
    )
    if len({row[:1] for row in rows}) < count or len({row[1:3] for row in rows}) < count:
        raise Unfit("two flows begin together, or share a pair")
    trace = "".join(
        json.dumps({"at": f"{at} ps", "source": a, "destination": b, "size": f"{size} B"}) + "\n"
        for at, a, b, size in rows
    )
    matrix = "\n".join(
        [
            f"Nodes {ranks}",
            f"Connections {count}",
            *(
                f"{a}->{b} id {i} start {at} size {size}"
                for i, (at, a, b, size) in enumerate(rows, 1)
            ),
            "",
        ]
    )
    found: list[dict[tuple[int, int], FlowRecord]] = []
    for name, content, file in (("Trace", trace, "t.jsonl"), ("Flows.from_htsim", matrix, "t.cm")):
        made = Draft(
            name,
            (),
            {"path": Written({file: content.encode()}, file), "transport": job.get("transport")},
        )
        if name == "Trace":
            made = made.change(ranks=ranks)
        outcome = trial.run(trial.world.but(jobs=(made,), faults=()))
        if not outcome.finished:
            raise Unfit("it does not finish")
        found.append(
            {
                (flow.source, flow.destination): flow
                for flow in outcome.parts[0].flow_records
                if flow.completion_ps
            }
        )
        if outcome.drops():
            raise Unfit("packets are lost")
    fabric = fabrics.build(trial.world.fabric)
    ahead_ps = (count - 1) * fabrics.longest_anywhere_ps(fabric, fabric.payload.count + 200)
    one, other = (
        {pair: flow.completion_ps / flow.ideal_ps for pair, flow in flows.items()}
        for flows in found
    )
    lines = [
        line
        for pair, flow in found[0].items()
        if abs(one[pair] - other[pair]) * flow.ideal_ps > ahead_ps
        for line in within(f"{pair}", one[pair], other[pair], 0.05)
    ]
    # Parts are multiples of 128 B.
    ports = fabric.planes
    short = any(-(-size // (ports * 128)) * 128 * (ports - 1) >= size for *_, size in rows)
    if lines and job.get("transport") == "roce" and short:
        if count > 1:
            raise Excepted("packets without bytes share links with other flows")
        # Where they fork, the bytes may take a longer way than the ideal's. That packet may come
        # last, and lets nothing come earlier.
        [before], [after] = (flows.values() for flows in found)
        ways = LoneWays(outcome.result.plan)
        if (after.completion_ps or 0) >= (before.completion_ps or 0) and any(
            ways.of(*rows[0][1:3], plane).forks for plane in range(ports)
        ):
            raise Excepted("the last packet is one without bytes, and the ways of the bytes fork")
    return lines


MANY_PACKETS = 50
FILES = ("Chakra", "Matrix", "Trace")  # whose messages are of few packets


@relation(
    Wants(
        kinds=tuple(each for each in jobs.KINDS if each not in FILES),
        transports=("roce",),
        more=0,
        settings=False,
        faults=(),
        simple=True,
    ),
    nearly=True,
)
def fluid_is_a_bound(trial: Trial) -> Found:
    """Without packets no job over RoCE ends later than with them (2 %), where links are equal,
    messages are of many packets, propagation is short and a rank's steps go by one way.

    Messages of few packets take turns on a link, where flows share it and all end last: the first
    of them, of n packets each, ends up to one n-th sooner. Packets of a far sender come to a shared
    link later than those of a near one, where flows share it at once. By queue_pair="per-step" the
    steps of a rank go by several ways, and a step meets one that is further ahead: their packets
    leave in the order in which they came, where flows have equal shares and the one behind ends
    later. TCP goes by other paths."""
    made = fabrics.build(trial.world.fabric)
    [job] = trial.world.jobs
    if job.get("queue_pair") == "per-step":
        raise Unfit("steps of a rank go by several ways")
    if job.get("lifetimes"):
        raise Unfit("how much a flow sends in its lifetime depends on how fast it goes")
    buckets = job.get("buckets", 1)  # how many, or the size of each
    least = ln.Size.of(
        MANY_PACKETS
        * made.planes
        * made.payload.count
        * job.get("ranks", len(made.hosts))
        * job.get("channels", 1)
        * (buckets if isinstance(buckets, int) else len(buckets))
    )
    short = ln.Time("1 ns")
    trial.world = trial.world.with_jobs(
        lambda each: mapped(
            each, lambda leaf: max(leaf, least) if isinstance(leaf, ln.Size) else leaf
        )
    )
    trial.world = trial.world.but(
        fabric=mapped(
            trial.world.fabric, lambda leaf: min(leaf, short) if isinstance(leaf, ln.Time) else leaf
        )
    )
    packets = trial.finished()
    fluid = trial.run(trial.world.but(options={}), model="fluid")
    if not fluid.finished:
        return [f"fluid: {fluid.parts[0].data.reason}"]
    # Of the job: rank 0's rounds end before those of ranks that have more to wait for.
    one, other = (outcome.parts[0].data.completion_ps for outcome in (fluid, packets))
    return not_above("fluid against packets", one, other, 0.02)


@relation(
    Wants(
        kinds=jobs.COLLECTIVES,
        transports=("mrc",),
        fabrics=("rails", "two_tier"),
        more=0,
        settings=False,
        faults=HARMLESS,
        simple=True,
    ),
    nearly=True,
)
def planes_alike(trial: Trial) -> Found:
    """A fault of a link is the same in whichever plane it is: of five seeds the medians are no more
    than 60 % apart, or the times of the two planes overlap. Where a queue holds about as many
    packets as a sender has under way, one seed takes several times as long as another, in every
    plane."""
    made = fabrics.build(trial.world.fabric)
    if made.planes < 2:
        raise Unfit("one plane")
    trial.world = trial.world.with_jobs(
        lambda job: Draft(job.name, (ln.Size("500 kB"), 2), job.values)
    )
    found = []
    for plane in trial.draw.sample(range(made.planes), 2):
        fault = Draft("degrade", (f"h0--p{plane}.leaf0", 0.25), {"at": ln.Time("0 s")})
        outcomes = [trial.run(trial.world.but(faults=(fault,), seed=seed)) for seed in range(5)]
        if not all(outcome.finished for outcome in outcomes):
            raise Unfit("it does not finish")
        found.append([max(outcome.took()) for outcome in outcomes])
    one, other = found
    if max(one) >= min(other) and max(other) >= min(one):
        return []
    return within("two planes", statistics.median(one), statistics.median(other), 0.6)
