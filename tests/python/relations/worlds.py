"""A world: a fabric, jobs, faults and options of one run, drawn from a token, that can be changed
and run."""

from __future__ import annotations

import contextlib
import itertools
import random
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import loomnet as ln
from loomnet.base.errors import LoomnetError
from loomnet.results.result import Result

from . import fabrics, jobs
from .drafts import Draft, Draw, a_rate, a_time, draft, log_uniform, mapped, sometimes

# Of one run, which takes some hundredths of a second on an idle machine; of real ranks seconds.
WALL_S, TORCH_WALL_S = 20.0, 240.0
TORCH = "torch-"  # begins tokens of worlds of real PyTorch ranks
ALL_FAULTS = (
    *("down", "loss", "delay", "degrade", "kill"),
    *("duplicate", "reorder", "jitter", "bunch"),
)
# These keep every packet, so that no transport waits for a timer.
HARMLESS = ("delay", "degrade")


class Refused(Exception):
    """The world is one that Loomnet does not run; the text is its line."""


class TooLong(Exception):
    """A run took longer than WALL_S."""


@dataclass(frozen=True)
class Wants:
    """What worlds a relation is tried on.

    `kinds`: of the first job; `more`: most jobs beside it, which share no host with it. `faults`:
    kinds, and `most_faults` of them; `least_…` of both. `settings`: links with settings of their
    own, options of transports, switch programs. `steps`: faults may begin by iterations. `globs`:
    targets of faults may be patterns."""

    kinds: Sequence[str] = jobs.KINDS
    transports: Sequence[str] = jobs.TRANSPORTS
    fabrics: Sequence[str] = fabrics.KINDS
    least_more: int = 0
    more: int = 1
    faults: Sequence[str] = ALL_FAULTS
    least_faults: int = 0
    most_faults: int = 2
    settings: bool = True
    steps: bool = True
    globs: bool = True
    simple: bool = False  # of fabrics: equal links, one rank on a host


@dataclass(frozen=True)
class World:
    token: str
    fabric: fabrics.Calls
    jobs: tuple[Draft, ...]
    faults: tuple[Draft, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0

    def but(self, **changes: Any) -> World:
        return replace(self, **changes)

    def with_options(self, **options: Any) -> World:
        return replace(self, options={**self.options, **options})

    def with_jobs(self, change: Any) -> World:
        """With each job changed by the function."""
        return replace(self, jobs=tuple(map(change, self.jobs)))

    def mapped(self, change: Any) -> World:
        """With each leaf of all its parts changed by the function."""
        return replace(
            self,
            fabric=mapped(self.fabric, change),
            jobs=mapped(self.jobs, change),
            faults=mapped(self.faults, change),
            options=mapped(self.options, change),
        )

    @property
    def wall_s(self) -> float:
        return TORCH_WALL_S if self.token.startswith(TORCH) else WALL_S

    def transports(self) -> set[str]:
        return {job.get("transport") for job in self.jobs}

    def __str__(self) -> str:
        fabric = "\n    .".join(map(str, self.fabric))
        rows = [
            f"  fabric ln.{fabric}",
            *(f"  job    ln.{job}" for job in self.jobs),
            *(f"  fault  ln.{fault}" for fault in self.faults),
            f"  seed={self.seed} "
            + " ".join(f"{name}={value!r}" for name, value in self.options.items()),
        ]
        return "\n".join(rows)


@dataclass
class Outcome:
    """What a run gave. `files`: the report's, where they were written."""

    result: Result
    files: dict[str, bytes]

    @property
    def parts(self) -> list[Result]:
        return self.result.parts

    @property
    def finished(self) -> bool:
        return all(part.data.ended == "finished" for part in self.parts)

    def drops(self) -> bool:
        """Whether packets were cut or lost."""
        return any(
            count and (name == "trimmed" or name.startswith("drop_"))
            for row in self.result.data.totals.values()
            for name, count in row.items()
        )

    def counted(self, name: str) -> int:
        """The sum of all counters of that name."""
        return sum(row.get(name, 0) for row in self.result.data.totals.values())

    def took(self) -> list[int]:
        """Of each job: picoseconds from its first iteration to its last event, 0 without any."""
        return [
            max(
                (
                    *(flow.end_ps or 0 for flow in part.data.flows),
                    *(each.end_ps for each in part.data.iterations),
                ),
                default=0,
            )
            for part in self.parts
        ]


def run(world: World, *, write: bool = False, **options: Any) -> Outcome:
    """Runs a world. Raises Refused, TooLong."""
    folder = Path(tempfile.mkdtemp(prefix="loomnet-relation-"))
    try:
        fabric = fabrics.build(world.fabric)
        made = [job.make(ln, folder / f"job{i}") for i, job in enumerate(world.jobs)]
        faults = [fault.make(ln) for fault in world.faults]
        lab = ln.Lab("world", seed=world.seed, directory=folder / "run", max_wall_s=world.wall_s)
        chosen = {**world.options, **options}
        chosen["controllers"] = [
            each.make(ln)
            for given in (world.options, options)
            for each in given.get("controllers", ())
        ]
        result = lab.run(fabric, made, faults, **chosen)
        files = {}
        if write:
            lab.write()
            for name in ("report.json", "counters.json"):
                with contextlib.suppress(FileNotFoundError):
                    files[name] = (folder / "run" / name).read_bytes()
    except LoomnetError as error:
        raise Refused(str(error)) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if any("--max-wall" in (part.data.reason or "") for part in result.parts):
        raise TooLong(f"{world.wall_s:g} s of wall time")
    return Outcome(result, files)


# --- drawing --------------------------------------------------------------------------------------
def a_world(relation: str, token: str, wants: Wants) -> World:
    """The world of that token, "<seed>:<index>". As the index counts up, kinds of jobs and
    transports are gone through in turn, so that few worlds have all of them."""
    seed, _, index = token.partition(":")
    draw = random.Random(f"{relation} {token}")
    pairs = list(itertools.product(wants.kinds, wants.transports))
    random.Random(f"{relation} {seed}").shuffle(pairs)
    kind, transport = pairs[int(index) % len(pairs)]
    ranks = draw.randint(2, 6)
    more = wants.least_more
    if sometimes(draw, 0.35):
        more = draw.randint(more, wants.more)
    if kind in jobs.EXPERTS:
        return _of_experts(draw, wants, token, transport)
    sums = kind.endswith("/ina")
    fabric = fabrics.a_fabric(
        draw,
        [each for each in wants.fabrics if not sums or each in fabrics.OF_SUMS],
        settings=wants.settings and not sums,
        ranks=2 * (1 + more),
        simple=wants.simple or sums,
    )
    hosts = list(fabrics.build(fabric).hosts)
    share = len(hosts) // (1 + more)
    if sums:
        fabric += (
            draft(
                "program",
                "*",
                "aggregate",
                pool=draw.choice((None, ln.Size("64 KiB"))),
                policy=draw.choice(("esa", "atp", "switchml")),
            ),
        )
    elif wants.settings and sometimes(draw, 0.1):
        fabric += (draft("program", "*", draw.choice(("forward", "symphony"))),)
    made = [jobs.a_job(draw, kind, transport, min(ranks, share))]
    for number in range(more):
        other = jobs.a_job(
            draw,
            draw.choice(jobs.KINDS),
            draw.choice(tuple(wants.transports)),
            min(draw.randint(2, 4), share),
        )
        own = hosts[share * (number + 1) : share * (number + 2)]
        made.append(
            other.change(
                hosts=tuple(own[: _ranks_of(other, own)]),
                start=a_time(draw, 1e3, 1e8) if sometimes(draw, 0.5) else None,
            )
        )
    if more:
        made[0] = made[0].change(hosts=tuple(hosts[: _ranks_of(made[0], hosts)]))
        made = [job.change(name=f"j{i}") for i, job in enumerate(made)]
    faults = _faults(draw, wants, fabric, made[0]) if wants.faults else ()
    options = _options(draw, wants, fabric, made)
    return World(token, fabric, tuple(made), faults, options, draw.randrange(1000))


def _of_experts(draw: Draw, wants: Wants, token: str, transport: str) -> World:
    """A mixture of experts on a fabric of its publication, most with a panel of circuits."""
    servers = draw.choice((2, 3))
    fabric = (
        draft(
            "mixnet",
            servers=servers,
            gpus=8,
            alpha=draw.choice((2, 4)),
            rate=a_rate(draw, 1e10, 4e11),
            delay=a_time(draw, 1e5, 2e6),
            network=draw.choice(("mixnet", "mixnet", "rail", "fattree", "eps_only")),
            profile=draw.choice(("ideal", "infocus128")),
        ),
    )
    # MRC sprays, and circuits need queue pairs that go one way.
    job = jobs.experts(draw, "roce" if transport == "mrc" else transport, servers)
    faults = _faults(draw, wants, fabric, job) if wants.faults else ()
    return World(
        token, fabric, (job,), faults, {"reroute_delay": ln.Time("1 ms")}, draw.randrange(1000)
    )


def _ranks_of(job: Draft, hosts: Sequence[str]) -> int:
    """Hosts that a job needs. A file's ranks are those that it was drawn with."""
    if (ranks := job.get("ranks")) is not None:
        return ranks
    files = job.values["path"].content
    if job.name == "Trace":
        return len(files)
    return int(next(iter(files.values())).split()[1])


def _faults(draw: Draw, wants: Wants, fabric: fabrics.Calls, lead: Draft) -> tuple[Draft, ...]:
    made = fabrics.build(fabric)
    links, switches = made.link_names(), list(made.switches)
    found = []
    least = wants.least_faults or draw.choice((0, 1))
    for number in range(draw.randint(least, wants.most_faults) if least else 0):
        kind = draw.choice(wants.faults)
        target = draw.choice(links)
        if sometimes(draw, 0.4):
            target = draw.choice(made.half_names())
        elif wants.globs and sometimes(draw, 0.15):
            target = "*--*"
        when: dict[str, Any] = {"at": a_time(draw, 1e3, 3e8)}
        if wants.steps and jobs.rounds_of(lead) > 1 and sometimes(draw, 0.3):
            when["at"] = ln.step(draw.randint(1, jobs.rounds_of(lead)))
        if sometimes(draw, 0.8):
            when["duration"] = a_time(draw, 1e5, 1e9)
            if not isinstance(when["at"], ln.Time) and sometimes(draw, 0.5):
                when["duration"] = ln.iterations(draw.randint(1, 3))
        if sometimes(draw, 0.7):
            when["phase"] = f"fault{number}"
        share = round(log_uniform(draw, 1e-3, 0.5), 4)
        values = {
            "down": ("down", (target,), {}),
            "loss": ("loss", (target, share), {"burst": draw.choice((None, 4.0))}),
            "delay": ("delay", (target, a_time(draw, 1e3, 2e7)), {}),
            "degrade": (
                "degrade",
                (target, draw.randint(10, 90) / 100),
                {"keep_thresholds": draw.choice((None, True))},
            ),
            "kill": ("kill", (draw.choice(switches),), {}),
            "duplicate": ("duplicate", (target, share), {}),
            "reorder": ("reorder", (target, share), {}),
            "jitter": ("jitter", (target, a_time(draw, 1e3, 2e7)), {}),
            "bunch": ("bunch", (target, a_time(draw, 1e3, 2e7)), {}),
        }[kind]
        found.append(draft(values[0], *values[1], **when, **values[2]))
    return tuple(found)


def _options(
    draw: Draw, wants: Wants, fabric: fabrics.Calls, made: Sequence[Draft]
) -> dict[str, Any]:
    options: dict[str, Any] = {
        "reroute_delay": draw.choice(("off", ln.Time("10 us"), ln.Time("1 ms"), ln.Time("1 s")))
    }
    if wants.settings:
        for transport in sorted({job.get("transport") for job in made}):
            if sometimes(draw, 0.6):
                options[transport] = draw.choice(_OF_TRANSPORT[transport])
        if sometimes(draw, 0.12):
            options["controllers"] = [
                draft(
                    "controller",
                    "relations_flapper",
                    period_ps=a_time(draw, 1e5, 1e8).count,
                    link=draw.choice(fabrics.build(fabric).half_names()),
                )
            ]
        if sometimes(draw, 0.15):
            options["jitter"] = draw.choice((ln.Time("0 s"), a_time(draw, 1e3, 1e7)))
    return options


_OF_TRANSPORT: dict[str, tuple[dict[str, Any], ...]] = {
    "mrc": (
        {"cc": "fixed_window"},
        {"cc": "dctcp_like"},
        {"cc": "timely"},
        {"evs_per_qp": 16},
        {"mpr": 1},
        {"sack_bytes": 4096},
        {"trim_nack": False},
        {"plane_turns": "equal"},
        {"min_window": 1.0},
        {"identity": "hdr"},
        {"cc": "relations_steady"},
    ),
    "roce": (
        {"dcqcn": True},
        {"preset": "A"},
        {"preset": "B"},
        {"preset": "C"},
        {"preset": "D"},
        {"cc": "timely"},
        {"cc": "dctcp_like"},
        {"cc": "fixed_window"},
        {"in_flight_limit": 65536},
        {"window_bdps": 1.0},
        {"ack_interval": 4},
        {"preset": "B", "identity": "hdr"},
        {"cc": "relations_steady"},
    ),
    "tcp": (
        {"cc": "reno"},
        {"cc": "cubic"},
        {"cc": "bbr"},
        {"cc": "dctcp", "ecn": True},
        {"cc": "bbr3"},
        {"cc": "vegas"},
        {"cc": "copa"},
        {"cc": "vivace"},
        {"cc": "astraea"},
        {"cc": "held"},
        {"mtu": 1500},
        {"mtu": 9000},
        {"initial_window": 2},
        {"send_buffer": 65536},
        {"handshake": False},
        {"cc": "relations_steady"},
    ),
}


@ln.plugin.congestion("relations_steady")
class Steady(ln.plugin.Congestion):
    """A window of twenty packets, whatever happens."""

    def __init__(self, flow: Any) -> None:
        super().__init__(flow)
        self.window = 20 * flow.mss
        self.heard = 0

    def on_ack(self, ack: Any) -> None:
        self.heard += 1

    def observe(self) -> dict[str, float]:
        return {"heard": self.heard}


@ln.plugin.controller("relations_flapper")
class Flapper(ln.plugin.Controller):
    """Slows a direction of a link and gives it its rate back, some times."""

    def __init__(self, link: str, period_ps: int) -> None:
        self.link, self.period, self.calls = link, period_ps, 0

    def next_time(self) -> int | None:
        return self.period * (self.calls + 1) if self.calls < 6 else None

    def advance(self, now: int, view: ln.plugin.View) -> ln.plugin.Changes:
        self.calls += 1
        return [ln.change.link(self.link, rate=0.5 if self.calls % 2 else None)]
