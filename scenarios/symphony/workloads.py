"""Workloads of rings with the extra marks off and on, paired by seed, a line for each: collectives,
numbers of ranks, sizes of a step, several jobs on the same uplinks, and a ring beside an all-to-all
that is in no ring (Symphony, arXiv 2604.16880; algorithm, fabric, sizes and hosts are our
completion)."""

import statistics
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

import loomnet as ln

import lib as rings

BESIDE = "all-to-all"


@dataclass(frozen=True)
class Workload:
    """`jobs` rings of `ranks` hosts each. They, and where `beside` says so an all-to-all of as many
    hosts, share the uplinks; with more than one job there are half as many uplinks as hosts."""

    ranks: int = 16
    step: str = "4 MB"
    collective: Any = ln.AllReduce
    jobs: int = 1
    beside: bool = False
    channels: int = 1

    def fabric(self, on):
        groups = self.jobs + self.beside
        fabric = rings.ring_fabric(self.ranks * groups, oversubscription=1 if groups == 1 else 2)
        return fabric.program("*", "symphony", tau="1 step", identity="hdr") if on else fabric

    def hosts(self, group):
        return [f"h{group * self.ranks + i}" for i in range(self.ranks)]

    def made(self, queue_pair):
        size = ln.Size.of(ln.Size(self.step).bytes * self.ranks * self.channels)
        found = [
            self.collective(
                size,
                transport="roce",
                queue_pair=queue_pair,
                whole_steps=True,
                channels=self.channels,
                name=f"ring{number}",
                hosts=self.hosts(number),
            )
            for number in range(self.jobs)
        ]
        if self.beside:
            found.append(ln.AllToAll(size, 4, "roce", name=BESIDE, hosts=self.hosts(self.jobs)))
        return found


WORKLOADS = {
    "all-reduce, 8 ranks": Workload(8),
    "all-reduce, 16 ranks": Workload(),
    "all-reduce, 32 ranks": Workload(32, "2 MB"),
    "all-reduce, 64 ranks": Workload(64, "1 MB"),
    "reduce-scatter, 16 ranks": Workload(collective=ln.ReduceScatter),
    "all-gather, 16 ranks": Workload(collective=ln.AllGather),
    "reduce-scatter, 32 ranks": Workload(32, "2 MB", ln.ReduceScatter),
    "all-gather, 32 ranks": Workload(32, "2 MB", ln.AllGather),
    "steps of 1 MB": Workload(step="1 MB"),
    "steps of 16 MB": Workload(8, "16 MB"),
    "4 channels": Workload(8, "2 MB", channels=4),
    "2 jobs": Workload(8, jobs=2),
    "3 jobs": Workload(8, "2 MB", jobs=3),
    "4 jobs": Workload(8, "2 MB", jobs=4),
    "beside an all-to-all": Workload(8, beside=True),
}


@dataclass(frozen=True)
class Found:
    """Of one run; times are means over the rings."""

    seconds: float
    gap: float
    leading: float
    marks: int
    errors: int
    beside: float | None  # seconds of the all-to-all
    foreign: int  # packets of the all-to-all that were tracked

    @classmethod
    def of(cls, r, workload):
        parts = (
            [r]
            if workload.jobs + workload.beside == 1
            else [r.job(f"ring{number}") for number in range(workload.jobs)]
        )
        steps = [part.ring_steps for part in parts]
        times = [max(each.laggard(channel)[-1] for channel in each.channels) for each in steps]
        switches = {
            name.removeprefix("switch "): row
            for name, row in r.data.totals.items()
            if "extra_marks" in row
        }
        beside, foreign = None, 0
        if workload.beside:
            beside = r.job(BESIDE).data.iterations[-1].end_ps / 1e12
            foreign = sum(
                r.switch(name).by_job().get(workload.jobs, {}).get("tagged", 0) for name in switches
            )
        return cls(
            statistics.fmean(times),
            statistics.fmean(each.gap() for each in steps),
            statistics.fmean(float(each.leader().mean()) for each in steps),
            sum(row["extra_marks"] for row in switches.values()),
            sum(int(part["errors"] or 0) for part in parts),
            beside,
            foreign,
        )


@ln.scenario
def workloads(
    lab: ln.Lab,
    seeds: Annotated[int, Field(ge=1, le=1000)] = 24,
    only: str = "",
    host: Literal["A", "B", "C"] = "B",
    queue_pair: Literal["per-step", "persistent"] = "per-step",
):
    """Time that Symphony's extra marks save, by workload; minutes.

    `seeds`: pairs of each workload. `only`: workloads, with semicolons between them. Prints the
    mean gain in % of the completion time (least..most), the mean step gap without and with extra
    marks, how much later the first rank has its steps in %, and extra marks per run."""
    wanted = rings.chosen(only, WORKLOADS, "workload", between=";")
    options = {"preset": host, "identity": "hdr"}
    if queue_pair == "persistent":
        options["rehash"] = "step"
    print(f"{'workload':<26}{'gain %':>7}{'':>12}{'step gap':>14}{'leading':>9}{'marks':>8}")
    for name in wanted:
        workload, label = WORKLOADS[name], f"w{list(WORKLOADS).index(name) + 1}"
        pairs = []
        for seed in range(lab.seed, lab.seed + seeds):
            pairs.append(
                [
                    Found.of(
                        lab.run(
                            workload.fabric(on),
                            workload.made(queue_pair),
                            seed=seed,
                            roce=options,
                            label=f"{label}-{'on' if on else 'off'}-{seed}",
                        ),
                        workload,
                    )
                    for on in (False, True)
                ]
            )
        gains = [1 - on.seconds / off.seconds for off, on in pairs]
        gap = [statistics.fmean(pair[i].gap for pair in pairs) for i in (0, 1)]
        leading = statistics.fmean(on.leading / off.leading - 1 for off, on in pairs)
        marks = statistics.fmean(on.marks for _, on in pairs)
        spread = f"({100 * min(gains):.0f}..{100 * max(gains):.0f})"
        print(
            f"{name:<26}{100 * statistics.fmean(gains):7.1f}{spread:>12}"
            f"{gap[0]:8.1f} ->{gap[1]:4.1f}{100 * leading:+9.1f}{marks:8.0f}",
            flush=True,
        )
        lab.check(f"no-error-{label}", sum(off.errors + on.errors for off, on in pairs), eq=0)
        lab.metric("gain", statistics.fmean(gains), unit="ratio", label=label, reason=name)
        lab.metric("step_gap_off", gap[0], unit="steps", label=label)
        lab.metric("step_gap_on", gap[1], unit="steps", label=label)
        lab.metric("leader_later", leading, unit="ratio", label=label)
        lab.metric("extra_marks", marks, unit="packets", label=label)
        if workload.beside:
            each = [on.beside / off.beside - 1 for off, on in pairs]
            later = statistics.fmean(each)
            error = statistics.stdev(each) / len(each) ** 0.5 if len(each) > 1 else None
            print(f"{'':<26}the all-to-all ends {100 * later:+.1f} % later")
            lab.metric("all_to_all_standard_error", error, unit="ratio")
            lab.check("all-to-all-later", later, le=0.05)
            lab.check("all-to-all-tracked", sum(on.foreign for _, on in pairs), eq=0)
