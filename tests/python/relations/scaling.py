"""Twice as much, half as fast: what must follow for the time that jobs take."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import loomnet as ln

from . import fabrics, jobs
from .drafts import Draft, a_size, a_time, scaled
from .facts import differences, facts, not_above, within
from .relation import Excepted, Found, Trial, Unfit, relation
from .worlds import HARMLESS, Outcome, Refused, Wants, World

# Times of transports, controls and queues that are constants: they do not grow with a fabric's.
STEADY = {"mrc": {"cc": "fixed_window"}, "roce": {"cc": "fixed_window"}, "tcp": {"cc": "reno"}}
# So much slower worlds of MRC are compared at most, since its time stamps count units of 128 ns: a
# round trip is to be many of these (16 at least by the fastest plane), and with full queues fewer
# than the 2**16 that they can hold.
MRC_UNIT_PS = 128_000
MRC_SCALE, MRC_MOST_PS, MRC_LEAST_PS = 64, 2**14 * MRC_UNIT_PS, 16 * MRC_UNIT_PS
# Times of transports in ps that are constants.
CONSTANTS = {
    "mrc": {
        "rto_ps": 10**8,
        "rto_max_ps": 10**9,
        "probe_cap_ps": 10**9,
        "probe_timeout_ps": 5 * 10**7,
        "peer_timeout_ps": 10**12,
    },
    "roce": {"cnp_gap_ps": 5 * 10**7},
}
CALM = Wants(more=0, faults=(), settings=False)


def _longest(outcome: Outcome) -> int:
    return max(outcome.took())


def _after(trial: Trial, world: World) -> Outcome:
    other = trial.run(world)
    if not other.finished:
        raise Unfit("the changed world does not finish")
    return other


def _beside_data(outcome: Outcome) -> int:
    """Packets of MRC's that carry no bytes of a job, and those sent again."""
    return sum(
        map(outcome.counted, ("probe_sent", "ev_probe_sent", "sack_sent", "data_retransmitted"))
    )


def _of_size(job: Draft, size: ln.Size) -> Draft:
    return Draft(job.name, (size, *job.given[1:]), job.values)


@relation(CALM, nearly=True, kinds=jobs.ROUNDS)
def twice_the_size(trial: Trial) -> Found:
    """A job of twice the bytes is not faster (3 %), where both go by one schedule: up to 4 KiB
    some collectives go down a tree, and where parts of ranks are empty, an acknowledgement goes
    ahead of what its receiver sends next, and is behind it where they are not. Where links are
    unlike, windows are held: with MRC's NSCC the shorter job was seen to take twice as long, since
    it left a slow path later, or had more packets trimmed and refused on a slow link."""
    [job] = trial.world.jobs
    world, part = trial.world, 8  # bytes of a rank's part at least: an element of any type
    least = part * job.get("ranks", 1)
    short = least, max(500, 2 * least)
    size = a_size(trial.draw, *trial.draw.choice((short, (20_000, 200_000))))
    if world.fabric[0].name == "Fabric":
        world = world.with_options(**{name: STEADY[name] for name in world.transports()})
    once = _after(trial, world.with_jobs(lambda job: _of_size(job, size)))
    twice = _after(trial, world.with_jobs(lambda job: _of_size(job, size * 2)))
    lines = not_above(f"{size} against twice as much", _longest(once), _longest(twice), 0.03)
    # One of MRC's probes may hold up a packet of the shorter job alone, in each round; and where
    # short packets wait on a slow link, one size has more probes and acknowledgements than another.
    held_ps = fabrics.longest_ps(fabrics.build(trial.world.fabric), 200) * (
        job.given[1] + max(_beside_data(once) - _beside_data(twice), 0)
    )
    if lines and job.get("transport") == "mrc" and _longest(once) - _longest(twice) < held_ps:
        raise Excepted("MRC's probes and answers held up packets of the shorter job")
    if lines and job.get("transport") == "tcp" and once.drops():
        raise Excepted("TCP lost packets of the shorter job, and waited for a timer")
    # MRC sends as many packets by a slow path as by a fast one. Those of a long message are
    # overtaken there by so many others that MRC takes the path for a lossy one, and leaves it for a
    # while; the packets of a short message end before that, and the job waits for the slow path.
    left = twice.counted("ev_condemned") and not once.counted("ev_condemned")
    if lines and job.get("transport") == "mrc" and left:
        raise Excepted("MRC left a slow path in the longer job alone")
    return lines


@relation(CALM, nearly=True, kinds=jobs.KINDS, simple=True)
def twice_the_rate(trial: Trial) -> Found:
    """A fabric of twice the rate is not slower (3 %)."""
    slow = _longest(trial.finished())
    world = trial.world.but(fabric=scaled(trial.world.fabric, rate=2))
    fast = _after(trial, world)
    lines = not_above("twice the rate", _longest(fast), slow, 0.03)
    if lines and (fast.drops() or trial.base.drops()):
        raise Excepted("queues cut or dropped packets, others at each rate")
    return lines


@relation(CALM, nearly=True, kinds=jobs.KINDS, transports=("mrc", "roce"), faults=HARMLESS)
def everything_twice_as_slow(trial: Trial) -> Found:
    """Half the rates with twice the delays and times take twice the time (5 %)."""
    world = trial.world
    if any(job.name in ("Trace", "Flows.from_htsim") for job in world.jobs):
        raise Unfit("times in files are not scaled")
    once = 1
    while "mrc" in world.transports() and once < MRC_SCALE:
        if 4 * once * trial.base.result.plan.base_rtt_ps > MRC_MOST_PS:
            break
        once *= 2
    if "mrc" in world.transports():
        there = fabrics.shortest_ps(fabrics.build(world.fabric), trial.base.result.plan)
        if 2 * once * there < MRC_LEAST_PS:
            raise Unfit("time stamps are coarse beside the shortest round trip")
    try:
        fast = _after(trial, _slower(world, once))
    except (
        Refused
    ) as refused:  # with STEADY controls no iteration ends before a fault of iterations
        raise Unfit(f"refused: {refused}") from None
    slow = _after(trial, _slower(world, 2 * once))
    lines = within("half the rate", _longest(slow), 2 * _longest(fast), 0.05)
    if lines and (fast.drops() or slow.drops()):
        raise Excepted("packets were lost: timers are constants")
    return lines


def _slower(world: World, times: int) -> World:
    """The world with STEADY controls and all times so many times as long, those of its transports
    too. Flows that start together do so at once: what is drawn below twice as long a time is not
    twice as much."""
    steady = {
        name: STEADY[name] | {option: times * ps for option, ps in CONSTANTS[name].items()}
        for name in world.transports()
    }
    slow = world.mapped(lambda leaf: scaled(leaf, time=times, rate=Fraction(1, times)))
    return slow.with_options(jitter="0 s", **steady)


@relation(CALM, kinds=[kind for kind in jobs.ROUNDS if kind not in ("Broadcast", "Reduce")])
def first_rounds(trial: Trial) -> Found:
    """n rounds are the first n of 2n, but for the last of them, which the next one overlaps. (Of
    Broadcast and Reduce some ranks only send or only receive, and run rounds ahead of others. Of
    SendRecv a rank waits for the one before it alone, and so is one round ahead of it at most: of
    itself, around the ring, as many as there are other ranks.)"""
    [job] = trial.world.jobs
    trial.finished()
    overlapped = job.get("ranks") - 1 if job.name == "SendRecv" else 1
    rounds = job.given[1] + overlapped - 1

    def iterations(rounds: int) -> Any:
        of_rounds = Draft(job.name, (job.given[0], rounds), job.values)
        return trial.run(trial.world.but(jobs=(of_rounds,))).parts[0].data.iterations

    few, many = iterations(rounds), iterations(2 * rounds)
    return [
        f"round {i + 1} of {rounds}: {(a.start_ps, a.end_ps)} <> {(b.start_ps, b.end_ps)}"
        for i, (a, b) in enumerate(zip(few[:-overlapped], many, strict=False))
        if (a.start_ps, a.end_ps) != (b.start_ps, b.end_ps)
    ]


@relation(Wants(kinds=jobs.KINDS, more=0))
def started_later(trial: Trial) -> Found:
    """A later start= moves all times and changes nothing else. MRC's time stamps count units of
    128 ns, or of 1 us where round trips are long, and TCP's of 1 us: their jobs start at multiples
    of these."""
    [job] = trial.world.jobs
    _ = trial.base  # a world that is refused is no trial
    unit = {"mrc": 16_000_000, "tcp": 1_000_000}.get(job.get("transport"), 1)
    later = unit * max(a_time(trial.draw, 1e3, 1e10).count // unit, 1)
    one, two = (
        facts(trial.run(trial.world.but(jobs=(job.change(start=ln.Time.of(start)),))))
        for start in (0, later)
    )
    # Bins of payload begin with the run.
    return differences(one, two, lambda path: path[-1] == "payload")


@relation(CALM, nearly=True, kinds=jobs.FLOWS, simple=True)
def slower_by_a_fault(trial: Trial) -> Found:
    """A slower link does not make a lone flow faster (1 %), where links are equal: behind a fast
    link a sender overshoots, and a fault that slows it paces it."""
    [job] = trial.world.jobs
    lone = Draft(
        "Flows",
        (a_size(trial.draw, 1_000, 400_000),),
        {"pairs": ((0, 1),), "ranks": 2, "transport": job.get("transport")},
    )
    world = trial.world.but(jobs=(lone,))
    free = _after(trial, world)
    end = _longest(free)
    fault = Draft(
        "degrade",
        ("h0--*", round(trial.draw.uniform(0.1, 0.9), 2)),
        {
            "at": a_time(trial.draw, 1, max(end, 2)),
            "duration": a_time(trial.draw, max(end / 10, 1e3), max(end * 3, 1e6)),
        },
    )
    slowed = _after(trial, world.but(faults=(fault,)))
    lines = not_above("with a slower link", end, _longest(slowed), 0.01)
    if lines and (free.drops() or slowed.drops()):
        raise Excepted("queues cut or dropped packets, which a slower link keeps out of them")
    # See lone_flow_has_its_ideal. Over planes alike no size and no time of the fault was found for
    # which it was faster.
    made = fabrics.build(trial.world.fabric)
    if (
        lines
        and job.get("transport") == "mrc"
        and fabrics.planes_unlike(made, trial.base.result.plan)
    ):
        raise Excepted("MRC holds a longer plane for a queue, and sends less until it is slowed")
    return lines
