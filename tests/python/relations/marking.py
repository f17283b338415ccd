"""Switches that mark rings: what they do where they have nothing to mark, nothing to take back, or
are told by another word what they would do anyway."""

from __future__ import annotations

import random
from typing import Any

import loomnet as ln

from . import jobs
from .drafts import Draft, a_rate, a_time, draft
from .facts import Path, differences, facts
from .relation import Found, Trial, Unfit, relation
from .worlds import Outcome, Wants, World

WANTS = Wants(
    kinds=jobs.RINGS,
    transports=("roce", "mrc", "tcp"),
    more=0,
    settings=False,
    fabrics=("star",),
    faults=(),
)
LEAST = ln.Size("1 MB")
RULES = ("not_owner", "leaders", "not_random", "not_leader")
# Rows that mark from their first packets on, so that short runs have marks.
EAGER = {"shift": 12, "stale": 1000, "warm": 0, "gate": 0, "tau": "0.1 steps", "host_ports": True}


def _told(trial: Trial, ecn: Any, **program: Any) -> World:
    """The trial's job on hosts whose flows share an uplink or two, where one host is late: they
    react to marks and say their steps. With this program and these thresholds."""
    draw = random.Random(f"{trial.world.token} shares")
    hosts = draw.choice((2, 3))
    fabric = (
        draft(
            "clos.two_tier",
            planes=1,
            leaves=2,
            spines=draw.choice((1, 2)),
            hosts_per_leaf=hosts,
            rate=a_rate(draw, 5e9, 1e11),
            delay=a_time(draw, 1e4, 2e6),
        ),
        draft("override", "*--*", ecn=ecn),
        draft("program", "*", "symphony", **program),
    )
    late = draft("degrade", "h0--*", draw.choice((0.1, 0.3)), at=ln.Time("0 s"))
    return (
        trial.world.with_jobs(lambda job: _whole(job, 2 * hosts))
        .but(fabric=fabric, faults=(late,))
        .with_options(
            roce={"preset": "B", "identity": "hdr"},
            mrc={"identity": "hdr"},
            tcp={"cc": "dctcp", "ecn": True},
        )
    )


def _whole(job: Draft, ranks: int) -> Draft:
    """A ring with steps of many packets, which a rank sends once the step before has come."""
    size, *rest = job.given
    return Draft(job.name, (max(size, LEAST), *rest), job.values).change(
        whole_steps=True, ranks=ranks
    )


def _of_switches(path: Path) -> bool:
    """What a switch's program counts."""
    return path[0] == "total" and path[1].startswith("switch ")


@relation(WANTS)
def nothing_marked(trial: Trial) -> Found:
    """A program that marks nothing, since it is off, reads nothing or no lead is long enough, is
    the program that forwards, to the picosecond."""
    ecn = ln.Ecn(ln.Size("5 kB"), ln.Size("40 kB"), share=0.5)
    plain = _told(trial, ecn)
    plain = plain.but(fabric=(*plain.fabric, draft("program", "*", "forward")))
    still = trial.draw.choice(({"enable": False}, {"identity": "none"}, {"tau": "16000 steps"}))
    rule = trial.draw.choice(("all", *RULES)) if "tau" not in still else "all"
    other = _told(trial, ecn, **{**EAGER, "base_marks": rule, **still})
    one, two = facts(trial.run(plain)), facts(trial.run(other))
    return differences(one, two, _of_switches)


@relation(WANTS)
def nothing_to_take_back(trial: Trial) -> Found:
    """Where no port marks by a rule of its own, every rule for such marks is the same."""
    rule = trial.draw.choice(RULES)
    one, two = (trial.run(_told(trial, False, **EAGER, base_marks=each)) for each in ("all", rule))
    lines = differences(facts(one), facts(two))
    return [
        *lines,
        *(
            f"{each.counted('unmarked')} marks were taken back"
            for each in (one, two)
            if each.counted("unmarked")
        ),
    ]


@relation(WANTS)
def marks_add_up(trial: Trial) -> Found:
    """What ports count as marked is what leaves them marked: packets of rings with the port's own
    mark or an extra one and packets of no ring; a mark that is taken back is none."""
    ecn = ln.Ecn(ln.Size("3 kB"), ln.Size("6 kB"))
    rule = trial.draw.choice(RULES)
    by_rule, off = (
        trial.run(_told(trial, ecn, **EAGER, **each))
        for each in ({"base_marks": rule}, {"enable": False})
    )
    lines = []
    if off.counted("unmarked"):
        lines.append("a program that is off took marks back")
    for name, row in by_rule.result.data.totals.items():
        if name.startswith("switch "):
            own, extra = row.get("base_marks", 0), row.get("extra_marks", 0)
            if own + extra + row.get("unmarked", 0) > row.get("tagged", 0):
                lines.append(f"{name}: more marks than packets of rings: {row}")
    marked = sum(
        row.get("marked", 0)
        for name, row in by_rule.result.data.totals.items()
        if name.startswith("link ")
    )
    if marked < by_rule.counted("extra_marks"):
        lines.append(f"{marked} marks of ports, of which {by_rule.counted('extra_marks')} extra")
    return lines


@relation(WANTS, transports=("roce", "tcp"))
def said_or_found_out(trial: Trial) -> Found:
    """A switch that finds out where packets say their steps does as one that is told."""
    if any(
        job.get("queue_pair") == "per-step" or job.get("channels", 1) > 1
        for job in trial.world.jobs
    ):
        raise Unfit("its steps are not read by sequence numbers")

    def run(**program: Any) -> Outcome:
        return trial.run(_told(trial, True, **EAGER, **program).with_options(roce={"preset": "B"}))

    [job] = _told(trial, True).jobs
    step = ln.Size.of(max(round(job.given[0].bytes / job.get("ranks")), 1))
    return differences(facts(run()), facts(run(identity="seq", step=step)))
