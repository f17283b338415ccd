"""Who watches a run changes nothing in it: controllers that only look, samples, recordings,
snapshots, real bytes in place of lengths."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import loomnet as ln

from . import fabrics, jobs
from .drafts import a_time, draft
from .facts import Path as FactPath
from .facts import differences, facts
from .relation import Found, Trial, Unfit, relation
from .worlds import Wants, run


@ln.plugin.controller("relations_watcher")
class Watcher(ln.plugin.Controller):
    """Reads what it can see, and hears of every event, and changes nothing."""

    subscribes = ln.plugin.EVENTS

    def advance(self, now: int, view: ln.plugin.View) -> None:
        for name in view.links[:4]:
            link = view.link(name)
            assert link.rate_bps > 0 and link.queued_bytes >= 0 and link.counters is not None
        assert all(job.iterations >= 0 for job in view.jobs.values())
        rows = view.senders()
        assert all((rows[name] >= 0).all() for name in ("job", "source", "destination", "part"))

    def on_event(self, now: int, event: ln.plugin.Event) -> None:
        assert event.kind in ln.plugin.EVENTS


@ln.plugin.controller("relations_limiter")
class Limiter(ln.plugin.Controller):
    """Sets windows and rates of senders to what they are, again and again."""

    def advance(self, now: int, view: ln.plugin.View) -> ln.plugin.Changes:
        rows = view.senders()
        if not {"cwnd", "pacing_bps"} <= set(rows.dtype.names or ()):
            return None
        # A window that is set has a packet at least.
        stated = np.flatnonzero(rows["cwnd"] >= 10_000)
        return [
            ln.change.senders(stated, cwnd=rows["cwnd"][stated], pacing=rows["pacing_bps"][stated])
        ]


@ln.plugin.controller("relations_stater")
class Stater(ln.plugin.Controller):
    """Says of each link, again and again, that it is as the fabric has it."""

    def advance(self, now: int, view: ln.plugin.View) -> ln.plugin.Changes:
        return [ln.change.link("*--*")]


_STALL = re.compile(
    r"nothing left to happen at .*? and the job is not done|"
    r"no operation finished for .*? the network delivers nothing"
)


def looks(trial: Trial) -> ln.Time:
    """A time between two looks, of which a run has some dozens."""
    most = max(part.data.end_ps for part in trial.base.parts)
    return a_time(trial.draw, max(most / 100, 1e3), max(most / 5, 1e5))


def _same(trial: Trial, **options: Any) -> Found:
    return differences(trial.facts, facts(trial.run(trial.world, **options)))


@relation(Wants(kinds=jobs.EVERY))
def repeats(trial: Trial) -> Found:
    """The same world gives the same report, byte for byte, whatever ran in between."""
    first = run(trial.world, write=True) if trial.base else None
    other = trial.world.but(seed=trial.world.seed + 1, options={"reroute_delay": "off"}, faults=())
    try:
        run(other)
    except Exception as error:
        if type(error).__name__ != "Refused":
            raise
    second = trial.run(trial.world, write=True)
    assert first is not None and first.files
    return [f"{name} differs" for name in first.files if first.files[name] != second.files[name]]


@relation(Wants(kinds=jobs.EVERY))
def watched(trial: Trial) -> Found:
    """A controller that only looks changes nothing but the words for a stall: as long as it looks,
    something is left to happen."""
    watcher = draft("controller", "relations_watcher", every=looks(trial))
    other = facts(trial.run(trial.world, controllers=[watcher]))
    return differences(_stalls_alike(trial.facts), _stalls_alike(other))


def _stalls_alike(found: Mapping[FactPath, Any]) -> dict[FactPath, Any]:
    return {
        path: _STALL.sub("stalled", repr(value)) if path[1] in ("ended", "errors") else value
        for path, value in found.items()
    }


@relation(Wants(kinds=jobs.EVERY))
def sampled(trial: Trial) -> Found:
    """Samples of queues, of the use of links and of senders change nothing."""
    port = trial.draw.choice(fabrics.build(trial.world.fabric).half_names())
    return _same(trial, sample=looks(trial), queues=[port], links=[port], observe=["*"])


@relation(Wants(kinds=jobs.EVERY))
def snapshotted(trial: Trial) -> Found:
    """Snapshots of switch programs change nothing."""
    every = looks(trial).count
    return _same(trial, snapshots=[ln.Time.of(every * number) for number in range(1, 9)])


@relation(Wants(kinds=jobs.SUMS, transports=("mrc", "roce")))
def slots_counted(trial: Trial) -> Found:
    """Counting which job holds which slots of switches changes nothing but its own figures."""
    other = facts(trial.run(trial.world, pools=looks(trial)))
    return differences(
        trial.facts, other, lambda path: path[1] == "figure" and path[2].startswith("slots_")
    )


@relation(Wants(kinds=jobs.EVERY))
def recorded(trial: Trial) -> Found:
    """A Perfetto trace and a capture of a port change nothing."""
    made = fabrics.build(trial.world.fabric)
    if any(host.ranks > 1 for host in made.hosts.values()):
        raise Unfit("traces tell ranks apart by their hosts")
    with tempfile.TemporaryDirectory(prefix="loomnet-relation-") as folder:
        return _same(
            trial, trace=Path(folder) / "run.pftrace", pcap={"h0:0": Path(folder) / "h0.pcapng"}
        )


@relation(Wants(kinds=tuple(each for each in jobs.KINDS if each != "ModelJob")))
def bytes_moved(trial: Trial) -> Found:
    """Real bytes in place of lengths take the same time, and arrive unaltered."""
    other = trial.run(trial.world, payload=True)
    wrong = [
        f"{part.job_name}: {part.data.wrong} arrived altered"
        for part in other.parts
        if part.data.wrong
    ]
    return wrong + differences(trial.facts, facts(other), lambda path: path[-1] == "wrong")


@relation(Wants(kinds=jobs.EVERY, most_faults=1))
def stated_as_it_is(trial: Trial) -> Found:
    """A controller that says of every link that it is as the fabric has it changes nothing."""
    if trial.world.faults:
        trial.world = trial.world.but(faults=())
    stater = draft("controller", "relations_stater", every=looks(trial))
    return _same(trial, controllers=[stater])


@relation(Wants(kinds=jobs.EVERY))
def limits_stated_as_they_are(trial: Trial) -> Found:
    """A controller that sets windows and rates of senders to what they are changes nothing."""
    limiter = draft("controller", "relations_limiter", every=looks(trial))
    other = facts(trial.run(trial.world, controllers=[limiter]))
    return differences(_stalls_alike(trial.facts), _stalls_alike(other))
