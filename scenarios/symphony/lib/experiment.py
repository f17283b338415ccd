"""One condition of Symphony's experiments in packets: a ring all-reduce of RoCE hosts on the fabric
of `ring_fabric`, the same seed with the switches' extra marks off and on, and with the oracle
queue. The publication (Symphony, arXiv 2604.16880) leaves topology, sizes and hosts open; the
settings are ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from loomnet.base.units import Size, Time
from loomnet.fabrics.ecn import Ecn
from loomnet.faults.burst_rows import bursts
from loomnet.jobs.collectives import AllReduce
from loomnet.measures.congestion_control import ControlActivity, why_idle
from loomnet.systems.roce import host_parameters

from .bound import FluidGain, fluid_gain
from .fabric import UPLINKS, ring_fabric

if TYPE_CHECKING:
    from loomnet.fabrics.model import Fabric
    from loomnet.results.result import Result

Switches = Literal["off", "on", "oracle"]
RATE_BPS = 100 * 10**9
_BY_SHARE = "D"  # the hosts that react to the share of marked packets


@dataclass(frozen=True)
class Condition:
    """`rehash`: a step takes the uplink of its own hash, or all of a rank's steps take one.
    `queue_pair`: "per-step" also begins each step with fresh DCQCN state, and re-hashes. `host`: a
    preset of roce: DCQCN as simulators have it (A), as NICs do (B), B with a short timer (C), a
    DCTCP-like window (D), or "timely". `step`: bytes that a rank sends in a step. `jitter`: mean
    compute between steps, in steps. `bursts`: share of the time in which an uplink has 20 % of its
    rate, `burst_steps` long on average. `switches`: further options of the program."""

    hosts: int = 16
    rehash: Literal["step", "fixed"] = "step"
    queue_pair: Literal["persistent", "per-step"] = "per-step"
    host: Literal["A", "B", "C", "D", "timely"] = "B"
    step: str = "4 MB"
    jitter: float = 0.0
    bursts: float = 0.0
    burst_steps: float = 5.0
    oversubscription: int = 1
    pfc: bool = True
    switches: tuple[tuple[str, Any], ...] = ()

    @property
    def step_ps(self) -> int:
        """Of a step alone on its link, payload alone."""
        return Size(self.step).bytes * 8 * 10**12 // RATE_BPS

    def fabric(self, switches: Switches) -> Fabric:
        """A new ring_fabric(), extra marks off or on, or with the laggard-first queue: "oracle"."""
        queue = "laggard_first" if switches == "oracle" else "priority"
        by_share = self.host == _BY_SHARE
        made = ring_fabric(self.hosts, oversubscription=self.oversubscription, pfc=self.pfc,
                           queue=queue, ecn=Ecn("150 kB") if by_share else None)
        if switches == "on":
            mode = "prob" if by_share else "spaced"
            made.program("*", "symphony", **{"mode": mode, "tau": "1 step", **dict(self.switches)})
        return made

    def job(self) -> AllReduce:
        """One all-reduce over RoCE, whose ranks send a step once the step before has come whole."""
        return AllReduce(Size.of(Size(self.step).bytes * self.hosts), transport="roce",
                         queue_pair=self.queue_pair, whole_steps=True, step_jitter=self.jitter)

    def options(self) -> dict[str, Any]:
        """Of the transport."""
        host = {"cc": "timely"} if self.host == "timely" else {"preset": self.host}
        path = "fixed" if self.queue_pair == "per-step" else self.rehash
        return {**host, "identity": "hdr", "rehash": path}

    def faults(self, fabric: Fabric, seed: int) -> list[Any]:
        """Bursts of the uplinks for six times the least duration of the job; empty without them."""
        if not self.bursts:
            return []
        steps = 2 * (self.hosts - 1)
        return bursts(fabric, UPLINKS, until=Time.of(6 * steps * self.step_ps), share=self.bursts,
                      mean=Time.of(round(self.burst_steps * self.step_ps)), to=0.2, seed=seed)

    def bound(self, seeds: int, first_seed: int = 1) -> FluidGain:
        """The fluid model of this condition, which has neither hosts nor queues."""
        stays = self.rehash == "fixed" and self.queue_pair == "persistent"
        return fluid_gain(self.hosts, rehash="fixed" if stays else "step", leaves=2,
                          oversubscription=self.oversubscription, jitter=self.jitter,
                          bursts=self.bursts, burst_mean=self.burst_steps, seeds=seeds,
                          first_seed=first_seed)


@dataclass(frozen=True)
class Outcome:
    """Of one run. `seconds`: until every rank had its last step; `gap`: most minus fewest completed
    steps, mean over time; `leading_s`, `lagging_s`: when the first and the last rank had completed
    a step, mean over the steps; `extra`, `base`: marks by the program, and by the ports' own rule
    on its packets; `idle`: why the hosts' congestion control did not work, None where it did."""

    seconds: float
    gap: float
    leading_s: float
    lagging_s: float
    extra: int
    base: int
    tagged: int
    activity: ControlActivity
    idle: str | None
    errors: int

    @classmethod
    def of(cls, result: Result, condition: Condition) -> Outcome:
        """Of a run of the condition's job. Raises UsageError where it has no ring steps."""
        steps = result.ring_steps
        activity = ControlActivity.of(result.data.totals)
        facts = host_parameters({**condition.options(), "line_rate_bps": RATE_BPS})
        return cls(float(steps.laggard()[-1]), steps.gap(), float(steps.leader().mean()),
                   float(steps.laggard().mean()), counted(result, "extra_marks"),
                   counted(result, "base_marks"), counted(result, "tagged"), activity,
                   why_idle(activity, facts), int(result["errors"] or 0))


@dataclass(frozen=True)
class Pair:
    """The same seed without and with extra marks, and with the oracle queue where that was run."""

    seed: int
    off: Outcome
    on: Outcome
    oracle: Outcome | None = None

    @property
    def gain(self) -> float:
        """Share of the completion time without extra marks that the extra marks save."""
        return 1 - self.on.seconds / self.off.seconds

    @property
    def oracle_gain(self) -> float | None:
        return None if self.oracle is None else 1 - self.oracle.seconds / self.off.seconds

    @property
    def narrower(self) -> float:
        """Share of the step gap that the extra marks take away."""
        return 1 - self.on.gap / self.off.gap


def run_pair(run: Callable[..., Result], condition: Condition, seed: int, label: str,
             *, oracle: bool = True) -> Pair:
    """`run`: lab.run, or a function that takes what it takes."""
    found: dict[str, Outcome] = {}
    kinds: tuple[Switches, ...] = ("off", "on", "oracle") if oracle else ("off", "on")
    for switches in kinds:
        fabric = condition.fabric(switches)
        result = run(fabric, condition.job(), condition.faults(fabric, seed), seed=seed,
                     label=f"{label}.{switches}.{seed}", roce=condition.options())
        found[switches] = Outcome.of(result, condition)
    return Pair(seed, found["off"], found["on"], found.get("oracle"))


def counted(result: Result, counter: str) -> int:
    """The sum of a counter over all switches and NICs of a run."""
    return sum(row.get(counter, 0) for row in result.data.totals.values())


def marks_by_switch(result: Result) -> dict[str, tuple[int, int]]:
    """Of each switch that runs the program: marks on packets of rings by its ports' own rule or
    before it, and extra marks."""
    return {name.removeprefix("switch "): (row.get("base_marks", 0), row.get("extra_marks", 0))
            for name, row in result.data.totals.items()
            if name.startswith("switch ") and "tagged" in row}
