"""One condition of Symphony's experiments in packets: a ring all-reduce on the fabric of
`ring_fabric`, the same seed with each kind of switches that `KINDS` names. The publication
(Symphony, arXiv 2604.16880) leaves topology, sizes and hosts open; the settings are ours."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from loomnet.base.units import Size, Time
from loomnet.fabrics.clos import two_tier
from loomnet.fabrics.ecn import Ecn
from loomnet.faults.burst_rows import bursts
from loomnet.jobs.collectives import AllReduce
from loomnet.measures.congestion_control import ControlActivity, why_idle
from loomnet.systems.roce import host_parameters

from .fabric import UPLINKS, ring_fabric
from .fluid import FluidGain, fluid_gain

if TYPE_CHECKING:
    from loomnet.fabrics.model import Fabric
    from loomnet.results.result import Result

RATE_BPS = 100 * 10**9
_BY_SHARE = "D"  # the hosts that react to the share of marked packets
_NSCC = "N"  # hosts of MRC, whose window alone takes a mark


@dataclass(frozen=True)
class Switches:
    """`base`: ports mark by thresholds of their own. `program`: options of Symphony beside those
    that every condition has; None: the switches only forward. `queue`: of their ports."""

    what: str
    base: bool = True
    program: Mapping[str, Any] | None = None
    queue: str = "priority"


# The last two are controls of `not_owner`: as many senders are spared, whatever their progress.
KINDS: dict[str, Switches] = {
    "off": Switches("base marks"),
    "on": Switches("base or extra marks", program={}),
    "oracle": Switches("laggard-first queue, base marks", queue="laggard_first"),
    "no_marks": Switches("no marks at all", base=False),
    "alone": Switches("extra marks alone", base=False, program={}),
    "not_owner": Switches(
        "base or extra, the rearmost not base-marked", program={"base_marks": "not_owner"}
    ),
    "leaders": Switches(
        "base or extra, base marks on leaders alone", program={"base_marks": "leaders"}
    ),
    "not_random": Switches(
        "control: a random sender not base-marked", program={"base_marks": "not_random"}
    ),
    "not_leader": Switches(
        "control: the foremost not base-marked", program={"base_marks": "not_leader"}
    ),
}


@dataclass(frozen=True)
class Condition:
    """`rehash`: a step takes the uplink of its own hash, or all of a rank's steps take one; NSCC's
    hosts spray each step over all, or keep to one path too.
    `queue_pair`: "per-step" also begins each step with fresh DCQCN state, and re-hashes. `host`: a
    preset of roce: DCQCN as simulators have it (A), as NICs do (B), B with a short timer (C), a
    DCTCP-like window (D), or "timely"; "astra-sim": no control but a window, as ASTRA-sim's ns-3
    backend is shipped; "N": NSCC of MRC, whose window takes the mark and not the choice of a path.
    `step`: bytes that a rank sends in a step. `jitter`: mean compute between steps, in steps.
    `bursts`: share of the time in which an uplink has 20 % of its rate, `burst_steps` long on
    average. `thresholds`: of base ECN, (low, high, share); None: those of the hosts' kind.
    `switches`: further options of the program."""

    hosts: int = 16
    rehash: Literal["step", "fixed"] = "step"
    queue_pair: Literal["persistent", "per-step"] = "per-step"
    host: Literal["A", "B", "C", "D", "timely", "astra-sim", "N"] = "B"
    step: str = "4 MB"
    jitter: float = 0.0
    bursts: float = 0.0
    burst_steps: float = 5.0
    oversubscription: int = 1
    pfc: bool = True
    thresholds: tuple[str, str, float] | None = None
    switches: tuple[tuple[str, Any], ...] = ()

    @property
    def step_ps(self) -> int:
        """Of a step alone on its link, payload alone."""
        return Size(self.step).bytes * 8 * 10**12 // RATE_BPS

    @property
    def least_s(self) -> float:
        """Of all steps of the ring, each alone on its link, payload alone."""
        return 2 * (self.hosts - 1) * self.step_ps / 1e12

    @property
    def over(self) -> str:
        """The transport of the hosts."""
        return "mrc" if self.host == _NSCC else "roce"

    def fabric(self, switches: str) -> Fabric:
        """A new fabric with this kind of switches, one of KINDS: a ring_fabric(), or of MRC's hosts
        the same leaves and spines with lossy queues of MRC's length, which trim."""
        kind = KINDS[switches]
        by_share = self.host == _BY_SHARE
        if self.thresholds is None:
            ecn: Ecn | bool | None = Ecn("150 kB") if by_share else None
        else:
            low, high, share = self.thresholds
            ecn = Ecn(low, high, share=share)
        if not kind.base:
            ecn = False
        if self.host == _NSCC:
            made = two_tier(
                planes=1,
                leaves=2,
                spines=self.hosts // (2 * self.oversubscription),
                hosts_per_leaf=self.hosts // 2,
                rate="100 Gb/s",
                delay="1 us",
            )
            if ecn is not None:
                made.override("*--*", ecn=ecn)
        else:
            made = ring_fabric(
                self.hosts,
                oversubscription=self.oversubscription,
                pfc=self.pfc,
                queue=kind.queue,
                ecn=ecn,
            )
        if kind.program is not None:
            made.program(
                "*",
                "symphony",
                **{
                    "mode": "prob" if by_share else "spaced",
                    "tau": "1 step",
                    "identity": "hdr",
                    **dict(self.switches),
                    **kind.program,
                },
            )
        return made

    def job(self) -> AllReduce:
        """One all-reduce, whose ranks send a step once the step before has come whole."""
        return AllReduce(
            Size.of(Size(self.step).bytes * self.hosts),
            transport=self.over,
            queue_pair=self.queue_pair,
            whole_steps=True,
            step_jitter=self.jitter,
        )

    def options(self) -> dict[str, Any]:
        """Of the transport."""
        if self.host == _NSCC:
            one = {"evs_per_qp": 1} if self.rehash == "fixed" else {}
            return {"identity": "hdr", "ecn_reaction": "window", **one}
        host = {"cc": "timely"} if self.host == "timely" else {"preset": self.host}
        path = "fixed" if self.queue_pair == "per-step" else self.rehash
        return {**host, "identity": "hdr", "rehash": path}

    def facts(self) -> Mapping[str, Any]:
        """Parameters of the hosts, for why_idle()."""
        if self.host == _NSCC:
            return {"cc": "nscc", "line_rate_bps": RATE_BPS}
        return host_parameters({**self.options(), "line_rate_bps": RATE_BPS})

    def faults(self, fabric: Fabric, seed: int) -> list[Any]:
        """Bursts of the uplinks for six times the least duration of the job; empty without them."""
        if not self.bursts:
            return []
        steps = 2 * (self.hosts - 1)
        return bursts(
            fabric,
            UPLINKS,
            until=Time.of(6 * steps * self.step_ps),
            share=self.bursts,
            mean=Time.of(round(self.burst_steps * self.step_ps)),
            to=0.2,
            seed=seed,
        )

    def fluid(self, seeds: int, first_seed: int = 1) -> FluidGain:
        """The fluid model of this condition, which has neither hosts nor queues."""
        stays = self.rehash == "fixed" and self.queue_pair == "persistent"
        return fluid_gain(
            self.hosts,
            rehash="fixed" if stays else "step",
            leaves=2,
            oversubscription=self.oversubscription,
            jitter=self.jitter,
            bursts=self.bursts,
            burst_mean=self.burst_steps,
            seeds=seeds,
            first_seed=first_seed,
        )


@dataclass(frozen=True)
class Outcome:
    """Of one run. `seconds`: until every rank had its last step; `gap`: most minus fewest completed
    steps, mean over time; `leading_s`, `lagging_s`: when the first and the last rank had completed
    a step, mean over the steps; `extra`, `base`, `unmarked`: marks by the program, by the ports'
    own rule on its packets, and those of the latter that the program took back; `pauses`: by PFC;
    `most_queued`: bytes that waited in a port at most; `idle`: why the hosts' congestion control
    did not work, None where it did."""

    seconds: float
    gap: float
    leading_s: float
    lagging_s: float
    extra: int
    base: int
    unmarked: int
    tagged: int
    pauses: int
    most_queued: int
    activity: ControlActivity
    idle: str | None
    errors: int

    @classmethod
    def of(cls, result: Result, condition: Condition) -> Outcome:
        """Of a run of the condition's job. Raises UsageError where it has no ring steps."""
        steps = result.ring_steps
        activity = ControlActivity.of(result.data.totals)
        return cls(
            float(steps.laggard()[-1]),
            steps.gap(),
            float(steps.leader().mean()),
            float(steps.laggard().mean()),
            counted(result, "extra_marks"),
            counted(result, "base_marks"),
            counted(result, "unmarked"),
            counted(result, "tagged"),
            counted(result, "pfc_pauses"),
            max(row.get("max_queue", 0) for row in result.data.totals.values()),
            activity,
            why_idle(activity, condition.facts()),
            int(result["errors"] or 0),
        )


@dataclass(frozen=True)
class Pair:
    """The same seed with each kind of switches that was run; "off" is one of them."""

    seed: int
    by: Mapping[str, Outcome]

    @property
    def off(self) -> Outcome:
        return self.by["off"]

    @property
    def on(self) -> Outcome:
        return self.by["on"]

    def saved(self, kind: str) -> float:
        """Share of the completion time with base marks alone that this kind of switches saves."""
        return 1 - self.by[kind].seconds / self.off.seconds

    @property
    def gain(self) -> float:
        """Share of the completion time without extra marks that the extra marks save."""
        return self.saved("on")

    @property
    def narrower(self) -> float:
        """Share of the step gap that the extra marks take away."""
        return 1 - self.on.gap / self.off.gap


def run_pair(
    run: Callable[..., Result],
    condition: Condition,
    seed: int,
    label: str,
    kinds: Iterable[str] = ("off", "on"),
) -> Pair:
    """`run`: lab.run, or a function that takes what it takes. `kinds`: of KINDS; the oracle queue
    is no discipline for hosts of MRC and is left out there."""
    found: dict[str, Outcome] = {}
    for switches in kinds:
        if switches == "oracle" and condition.over != "roce":
            continue
        fabric = condition.fabric(switches)
        result = run(
            fabric,
            condition.job(),
            condition.faults(fabric, seed),
            seed=seed,
            label=f"{label}.{switches}.{seed}",
            **{condition.over: condition.options()},
        )
        found[switches] = Outcome.of(result, condition)
    return Pair(seed, found)


@dataclass(frozen=True)
class Spread:
    """Of one value per seed."""

    mean: float
    least: float
    most: float
    error: float  # standard error of the mean; infinite of one seed

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        each = list(values)
        error = statistics.stdev(each) / len(each) ** 0.5 if len(each) > 1 else float("inf")
        return cls(statistics.fmean(each), min(each), max(each), error)

    @property
    def clear(self) -> bool:
        """The mean is more than two standard errors above 0."""
        return self.mean > 2 * self.error

    def percent(self) -> str:
        spread = f"({100 * self.least:.0f}..{100 * self.most:.0f})"
        return f"{100 * self.mean:.1f} {spread} ±{100 * self.error:.1f}"


def counted(result: Result, counter: str) -> int:
    """The sum of a counter over all switches and NICs of a run."""
    return sum(row.get(counter, 0) for row in result.data.totals.values())


def marks_by_switch(result: Result) -> dict[str, tuple[int, int]]:
    """Of each switch that runs the program: marks on packets of rings by its ports' own rule or
    before it, and extra marks."""
    return {
        name.removeprefix("switch "): (row.get("base_marks", 0), row.get("extra_marks", 0))
        for name, row in result.data.totals.items()
        if name.startswith("switch ") and "tagged" in row
    }
