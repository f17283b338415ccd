"""What does not touch a job changes nothing of it: faults and jobs at other times, hosts, switches
and jobs beside it."""

from __future__ import annotations

from typing import Any

import loomnet as ln

from . import fabrics, jobs
from .drafts import Draft, a_rate, a_time, draft
from .facts import Path, differences, facts
from .link_draws import but_for_draws
from .relation import Found, Trial, Unfit, relation
from .worlds import HARMLESS, Outcome, Refused, Wants


def _own(outcome: Outcome, name: str) -> dict[tuple[str, ...], Any]:
    """A job's own facts, under the name "job". The links' counters are all jobs'."""
    return {("job", *path[1:]): value for path, value in facts(outcome).items() if path[0] == name}


def _of_all(path: tuple[str, ...]) -> bool:
    """Figures that are of all jobs of a run, or null where two jobs share a host."""
    return path[-1].split(".")[-1] in (
        "expected_capacity",
        "lost",
        "retransmitted",
        "timeouts",
        "readmitted",
        "recovery_s",
        "jct_s",
    )  # of several jobs alone


@relation(Wants(kinds=jobs.EVERY))
def fault_after_the_end(trial: Trial) -> Found:
    """A fault long after the end of all jobs changes nothing."""
    at = _long_after(trial.finished(), "900 s")
    link = trial.draw.choice(fabrics.build(trial.world.fabric).link_names())
    phase = trial.draw.choice((None, "never"))
    later = draft(
        trial.draw.choice(("down", "kill") if phase else ("down",)),
        at=at,
        phase=phase,
    )
    target = link
    if later.name == "kill":
        target = trial.draw.choice(list(fabrics.build(trial.world.fabric).switches))
    later = Draft(later.name, (target,), later.values)
    other = facts(trial.run(trial.world.but(faults=(*trial.world.faults, later))))
    named = any(fault.get("phase") for fault in trial.world.faults)

    def of_phases(path: tuple[str, ...]) -> bool:
        return path[1] == "figure" and (
            path[2].startswith("never.") or (not named and path[2].startswith("after."))
        )

    return differences(trial.facts, other, of_phases)


@relation(Wants(kinds=jobs.ALL, more=0))
def job_long_after(trial: Trial) -> Found:
    """A job on the same hosts, long after the end, changes nothing of the first."""
    start = _long_after(trial.finished(), "100 s")
    [job] = trial.world.jobs
    hosts = tuple(_hosts(trial))
    if len(hosts) < 2:
        raise Unfit("its ranks are on one host")
    later = draft(
        "SendRecv",
        ln.Size("20 kB"),
        transport=job.get("transport"),
        name="later",
        hosts=hosts,
        start=start,
    )
    return _beside_later(trial, job.change(hosts=hosts), later)


@relation(Wants(kinds=jobs.ALL, more=0))
def job_elsewhere_later(trial: Trial) -> Found:
    """A job on other hosts, long after the end, changes nothing of the first."""
    start = _long_after(trial.finished(), "50 s")
    [job] = trial.world.jobs
    taken = set(_hosts(trial))
    free = [host for host in fabrics.build(trial.world.fabric).hosts if host not in taken]
    if len(free) < 2:
        raise Unfit("no two hosts are free")
    later = draft(
        "Permutation",
        ln.Size("20 kB"),
        transport=job.get("transport"),
        name="later",
        hosts=tuple(free[:2]),
        start=start,
    )
    return _beside_later(trial, job.change(hosts=tuple(_hosts(trial))), later)


def _long_after(outcome: Outcome, usual: str) -> ln.Time:
    """That time, or twice as late as the run's end: where acknowledgements are lost again and again
    a transport's timeouts take minutes."""
    ends = [(part.data.time_zero_ps or 0) + part.data.end_ps for part in outcome.parts]
    return ln.Time.of(max(ln.Time(usual).count, 2 * max(ends)))


def _beside_later(trial: Trial, job: Draft, later: Draft) -> Found:
    job = job.change(name="job")
    alone, both = (trial.run(trial.world.but(jobs=each)) for each in ((job,), (job, later)))
    return differences(_own(alone, "job"), _own(both, "job"), _of_all)


@relation(
    Wants(
        kinds=jobs.KINDS, more=0, fabrics=("two_tier", "three_tier", "irregular"), faults=HARMLESS
    )
)
def job_beside(trial: Trial) -> Found:
    """A job at the same time on hosts and links that the first does not use changes nothing of
    it."""
    return _beside(trial, trial.world.jobs[0].get("transport"))


@relation(
    Wants(
        kinds=jobs.KINDS,
        transports=("tcp",),
        more=0,
        fabrics=("two_tier", "three_tier", "irregular"),
        faults=HARMLESS,
    )
)
def job_of_another_control_beside(trial: Trial) -> Found:
    """As job_beside, where the neighbour has a congestion control of its own."""
    return _beside(trial, "tcp", cc=trial.draw.choice(("vegas", "copa", "reno", "bbr")))


def _beside(trial: Trial, transport: str, **values: Any) -> Found:
    [job] = trial.world.jobs
    made = fabrics.build(trial.world.fabric)
    homes: dict[frozenset[str], list[str]] = {}
    for host in made.hosts:
        near = frozenset(link.b if link.a == host else link.a for link in made.links_of(host))
        homes.setdefault(near, []).append(host)
    apart = [hosts for hosts in homes.values() if len(hosts) >= 2]
    if len(apart) < 2:
        raise Unfit("no two switches have two hosts each")
    one, other = trial.draw.sample(apart, 2)
    ranks = job.get("ranks")
    if ranks is None or made.local_ranks:
        raise Unfit("its file says how many ranks there are")
    own = jobs.a_job(trial.draw, _kind(job), job.get("transport"), min(len(one), 4)).change(
        name="job", hosts=tuple(one), ranks=min(len(one), 4)
    )
    beside = jobs.a_job(
        trial.draw, trial.draw.choice(jobs.COLLECTIVES), transport, len(other)
    ).change(name="beside", hosts=tuple(other), ranks=len(other), **values)
    world = trial.world.but(jobs=(own.change(name=None),))
    try:
        alone = trial.run(world)
    except Refused as refused:  # on these hosts, before a neighbour is there
        raise Unfit(f"refused: {refused}") from None
    if not alone.finished:
        raise Unfit("it does not finish")
    both = trial.run(world.but(jobs=(own, beside)))
    return differences(_own(alone, "job"), _own(both, "job"), _of_all)


@relation(
    Wants(
        kinds=("Incast", "AllToAll"),
        transports=("mrc",),
        more=0,
        fabrics=("two_tier", "three_tier"),
        faults=HARMLESS,
    )
)
def job_of_another_transport_beside(trial: Trial) -> Found:
    """As job_beside, where the neighbour is RoCE, whose ports mark by DCQCN's thresholds, also the
    last, and no port is under PFC, which all transports of a run share: MRC is marked and trimmed
    as in a run of its own."""
    trial.world = trial.world.but(
        fabric=(*trial.world.fabric, draft("override", "*--*", pfc=False)),
        options={**trial.world.options, "roce": {"dcqcn": True}},
    )
    return _beside(trial, "roce")


def _kind(job: Draft) -> str:
    return {"Flows.from_htsim": "Matrix"}.get(job.name, job.name)


def _hosts(trial: Trial) -> list[str]:
    made = fabrics.build(trial.world.fabric)
    return [made.host_name(number) for number in sorted(trial.base.parts[0].data.hosts)]


# --- idle nodes -----------------------------------------------------------------------------------
@relation(Wants(fabrics=fabrics.ONE_PATH, faults=HARMLESS, globs=False))
def idle_host(trial: Trial) -> Found:
    """A host that no job has changes nothing where two hosts have one way, but for what links draw
    at random: that is drawn by the link's number, which a host more moves."""
    made = fabrics.build(trial.world.fabric)
    near = made.links_of("h0")[0]
    hub = near.b if near.a == "h0" else near.a
    idle = (
        draft("add_host", "idle", role="server"),
        draft("add_link", "idle", hub, rate=near.forward.rate, delay=near.forward.delay),
    )
    if made.planes > 1:
        raise Unfit("a host has a port in each plane")
    return but_for_draws(
        trial, lambda fabric: _before_overrides(fabric, idle), lambda path: "idle" in path[1]
    )


@relation(Wants(kinds=jobs.ALL))
def idle_switch(trial: Trial) -> Found:
    """A switch at the end of a link, with no host, changes nothing, but for the buffer of the
    switch beside it, which is larger by a port, and for what links draw at random."""
    made = fabrics.build(trial.world.fabric)
    near = trial.draw.choice(list(made.switches.values()))
    delay = a_time(trial.draw, 1e3, 1e7)
    idle = (
        draft("add_switch", "idle", plane=near.plane),
        draft("add_link", near.name, "idle", rate=a_rate(trial.draw), delay=delay),
    )
    # Some jobs end the run the shortest delay behind their last event. Counters of the whole run
    # are read then, and what a host is still waiting for ends with it.
    sooner = delay.count < min(
        half.delay.count
        for node in made.switches
        for link in made.links_of(node)
        for half in (link.forward, link.backward)
    )

    def larger(one: Outcome, _: Outcome) -> str:
        paused = any(row.get("pfc_pauses") for row in one.result.data.totals.values())
        return "a switch with a port more has a larger buffer" if paused or one.drops() else ""

    def but_for_the_last(outcome: Outcome) -> dict[Path, Any]:
        return {
            path: value[:-1] if sooner and path[-1] in ("busy", "silences") else value
            for path, value in facts(outcome).items()
        }

    return but_for_draws(
        trial,
        lambda fabric: _before_overrides(fabric, idle),
        lambda path: "idle" in path[1] or (sooner and path[0] == "total"),
        larger,
        but_for_the_last,
    )


def _before_overrides(calls: fabrics.Calls, added: tuple[Draft, ...]) -> fabrics.Calls:
    """With more nodes and links, behind those that there are and before what changes them."""
    if calls[0].name == "clos.fat_tree":
        raise Unfit("its switches have as many ports as they need")
    first = 1 + sum(call.name.startswith("add_") for call in calls)
    return (*calls[:first], *added, *calls[first:])


@relation(
    Wants(
        kinds=jobs.COLLECTIVES,
        transports=("mrc",),
        fabrics=("two_tier", "three_tier"),
        faults=(),
        settings=False,
        more=0,
        simple=True,
    )
)
def sprays_as_before(trial: Trial) -> Found:
    """A host that no job has takes no link from those over which MRC sprays."""
    trial.world = trial.world.with_jobs(
        lambda job: Draft(job.name, (ln.Size("400 kB"), *job.given[1:]), job.values)
    )
    trial.finished()
    made = fabrics.build(trial.world.fabric)
    idle = [draft("add_host", "idle", role="server")]
    for plane in range(made.planes):
        near = made.links_of("h0")[plane]
        idle.append(
            draft("add_link", "idle", near.b, rate=near.forward.rate, delay=near.forward.delay)
        )
    other = trial.run(trial.world.but(fabric=(*trial.world.fabric, *idle)))
    lines = []
    for thing, row in trial.base.result.data.totals.items():
        if row.get("packets", 0) >= 100:
            now = other.result.data.totals.get(thing, {}).get("packets", 0)
            if now < row["packets"] / 4:
                lines.append(f"{thing}: {row['packets']} packets, with an idle host {now}")
    return lines


@relation(Wants(kinds=jobs.ALL, fabrics=("star",), globs=False, more=0, steps=False))
def fault_elsewhere(trial: Trial) -> Found:
    """A fault of a link that nobody uses changes nothing."""
    made = fabrics.build(trial.world.fabric)
    taken = set(_hosts(trial))
    free = [host for host in made.hosts if host not in taken]
    if not free:
        raise Unfit("every host has a rank")
    link = made.links_of(free[-1])[0].name
    fault = draft(
        trial.draw.choice(("down", "degrade", "delay")),
        at=a_time(trial.draw, 1e3, 1e8),
        duration=a_time(trial.draw, 1e5, 1e9),
    )
    given = {"down": (link,), "degrade": (link, 0.5), "delay": (link, ln.Time("1 us"))}
    world = trial.world.but(
        faults=(*trial.world.faults, Draft(fault.name, given[fault.name], fault.values))
    )
    return differences(
        trial.facts,
        facts(trial.run(world)),
        lambda path: path[0] == "total" and free[-1] in path[1],
    )
