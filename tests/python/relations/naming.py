"""The same said in other words: names, orders, defaults spelled out."""

from __future__ import annotations

from typing import Any

import loomnet as ln
from loomnet.labs.placement import placements

from . import fabrics, jobs
from .drafts import Draft, draft
from .facts import differences, facts
from .relation import Excepted, Found, Trial, Unfit, relation
from .worlds import Wants, World


def _same(trial: Trial, world: World) -> Found:
    return differences(trial.facts, facts(trial.run(world)))


@relation(Wants(kinds=jobs.ALL, globs=False))
def other_names(trial: Trial) -> Found:
    """Other names of hosts and switches change nothing."""
    world = (
        trial.world.but(fabric=fabrics.by_hand(trial.world.fabric))
        if trial.world.fabric[0].name != "Fabric"
        else trial.world
    )
    made = fabrics.build(
        world.fabric[: 1 + sum(call.name.startswith("add_") for call in world.fabric)]
    )
    names = {
        name: f"node.{''.join(reversed(name))}x{i}".replace(".", "_")
        for i, name in enumerate((*made.hosts, *made.switches))
    }
    given = {call.given[0]: call for call in world.fabric if call.name == "add_switch"}
    fabric = tuple(
        call if call.name != "add_switch" else call.change(plane=made.switches[call.given[0]].plane)
        for call in world.fabric
    )
    assert given
    other = World(
        world.token,
        fabrics.renamed(fabric, names),
        fabrics.renamed(world.jobs, names),
        fabrics.renamed(world.faults, names),
        fabrics.renamed(world.options, names),
        world.seed,
    )
    one = facts(trial.run(world))
    two = facts(trial.run(other))
    return differences(
        {_renamed(path, names): _renamed(value, names) for path, value in one.items()}, two
    )


def _renamed(value: Any, names: dict[str, str]) -> Any:
    """Names inside facts: "nic h0", "h0->p0.leaf0", a reason that lists some."""
    if isinstance(value, tuple):
        return tuple(_renamed(each, names) for each in value)
    if not isinstance(value, str) or not value:
        return value
    parts = [value]
    for mark in (" ", "->", "--", ",", ".", ";", ":"):
        if mark != ".":
            parts = [piece for part in parts for piece in _split(part, mark)]
    return "".join(names.get(part, part) for part in parts)


def _split(text: str, mark: str) -> list[str]:
    found: list[str] = []
    for i, piece in enumerate(text.split(mark)):
        found += ([mark] if i else []) + [piece]
    return found


@relation(Wants(kinds=jobs.EVERY, more=1))
def jobs_renamed(trial: Trial) -> Found:
    """Another name of a job changes nothing."""
    several = len(trial.world.jobs) > 1
    other = trial.world.with_jobs(lambda job: job.change(name=f"other_{job.get('name', 'x')}"))
    names = {f"other_{job.get('name')}": job.get("name") for job in trial.world.jobs}
    return differences(
        trial.facts,
        facts(trial.run(other), names if several else None),
        lambda path: path[-1] == "ended",
    )


@relation(Wants(kinds=jobs.EVERY, more=0))
def hosts_spelled_out(trial: Trial) -> Found:
    """hosts= that names the hosts which a job would have anyway changes nothing."""
    made = fabrics.build(trial.world.fabric)
    _ = trial.base
    placed = [host for host in trial.base.parts[0].data.hosts]
    names = [made.host_name(host) for host in dict.fromkeys(placed)]
    return _same(trial, trial.world.with_jobs(lambda job: job.change(hosts=tuple(names))))


@relation(Wants(kinds=jobs.EVERY, least_faults=2, most_faults=4))
def faults_reordered(trial: Trial) -> Found:
    """The order of the list of faults changes nothing."""
    faults = list(trial.world.faults)
    trial.draw.shuffle(faults)
    if tuple(faults) == trial.world.faults:
        faults.reverse()
    return _same(trial, trial.world.but(faults=tuple(faults)))


@relation(Wants(least_more=1, more=2, faults=()))
def jobs_reordered(trial: Trial) -> Found:
    """The order of the list of jobs changes nothing, but for what is drawn by a job's place in it:
    the compute times of a ModelJob with jitter, and of steps with step_jitter. (Switches that sum
    choose trees and slots by it, too.)"""
    if any(job.get("jitter") or job.get("step_jitter") for job in trial.world.jobs):
        raise Excepted("compute times are drawn by the job's place in the list")
    if trial.world.options.get("controllers"):
        raise Unfit("a controller's time is the first job's")
    return _same(trial, trial.world.but(jobs=trial.world.jobs[::-1]))


@relation(Wants(kinds=jobs.EVERY))
def overridden_to_the_same(trial: Trial) -> Found:
    """An override to the values that links have changes nothing."""
    made = fabrics.build(trial.world.fabric)
    own = []
    for link in made.all_links():
        for name, half in link.halves:
            own.append(
                draft(
                    "override",
                    name,
                    rate=half.rate,
                    delay=half.delay,
                    trim=half.trim,
                    ecn=half.ecn,
                    trim_victim=half.trim_victim,
                )
            )
    return _same(trial, trial.world.but(fabric=(*trial.world.fabric, *own)))


@relation(Wants(kinds=jobs.EVERY))
def defaults_spelled_out(trial: Trial) -> Found:
    """Options at their defaults change nothing."""

    def spelled(job: Draft) -> Draft:
        return job.change(start=job.get("start", ln.Time("0 s")), alone=False)

    world = trial.world.with_jobs(spelled).with_options(
        **{"reroute_delay": "1 s", **trial.world.options}
    )
    if not any(call.name == "program" for call in world.fabric):
        world = world.but(fabric=(*world.fabric, draft("program", "*", "forward")))
    return differences(
        trial.facts,
        facts(trial.run(world, model="packets", settle="0 s", payload=False, trace=None)),
    )


@relation(Wants(kinds=jobs.ALL))
def controls_said_by_jobs(trial: Trial) -> Found:
    """A congestion control that each job says for itself is that of the run, but where links mark
    by it."""
    options, said = dict(trial.world.options), {}
    for name in trial.world.transports():
        table = dict(options.get(name, {}))
        if (cc := table.pop("cc", None)) in (None, "dctcp_like"):
            continue
        options[name], said[name] = table, cc
    if not said:
        raise Unfit("no control is given")

    def told(job: Draft) -> Draft:
        cc = said.get(job.get("transport"))
        return job if cc is None else job.change(cc=cc)

    return _same(trial, trial.world.but(options=options).with_jobs(told))


@relation(Wants(kinds=jobs.EVERY))
def never_stalls(trial: Trial) -> Found:
    """A job that finishes does so without a stall_timeout, and with a stop= far behind its end."""
    trial.finished()
    return _same(
        trial,
        trial.world.with_jobs(
            lambda job: job.change(stall_timeout="100000 s", stop=ln.Time("90000 s"))
        ),
    )


def placed(world: World) -> list[list[str]]:
    """Of each job the hosts of its ranks."""
    made = fabrics.build(world.fabric)
    built = [job.make(ln) for job in world.jobs]
    return [[made.host_name(host) for host in hosts] for hosts in placements(built, made)]
