"""Eight training jobs share a switch whose memory is scarce: ring, parameter server, SwitchML, ATP
and ESA over the size of the memory, and the published gain of ESA over ATP (Wang et al., arXiv
2201.06398)."""

import csv
import math
import statistics
from typing import Annotated, Literal

from pydantic import Field

import loomnet as ln
from loomnet.results.plots import STYLES, save

import lib as shared
from lib import JOBS

MEMORY = {"1/16": 1 / 16, "1/8": 1 / 8, "1/4": 1 / 4, "1/2": 1 / 2, "1": 1, "2": 2, "8": 8}
SCARCE = ("1/16", "1/8", "1/4", "1/2")
SKEW = 0.2  # compute jitter of the runs in which slots wait for workers
# Each policy by its own deallocation, and by the other's.
SWITCHES = {
    "esa": {"policy": "esa", "dealloc": "completion"},
    "esa_ack": {"policy": "esa", "dealloc": "ack"},
    "atp": {"policy": "atp", "dealloc": "ack"},
    "atp_completion": {"policy": "atp", "dealloc": "completion"},
    "atp4": {"policy": "atp", "dealloc": "ack"},
    "esa4": {"policy": "esa", "dealloc": "completion"},
    "switchml": {"policy": "switchml"},
}
FOUR = ("atp4", "esa4")  # with as many parameter servers as workers
# Of the figure: title, colour and marker, line.
LINES = {
    "ring": ("ring", 4, "-"),
    "ps": ("parameter server", 3, "-"),
    "ps4": ("as many servers as workers", 3, "--"),
    "atp4": ("ATP, as many servers as workers", 1, ":"),
    "switchml": ("SwitchML", 2, "-"),
    "atp": ("ATP", 1, "-"),
    "atp_completion": ("ATP, freed on completion", 1, "--"),
    "esa_ack": ("ESA, freed on ack", 0, "--"),
    "esa": ("ESA", 0, "-"),
}


@ln.scenario
def scarce_memory(
    lab: ln.Lab,
    setting: Literal["M1", "M2", "M3"] = "M1",
    draws: Annotated[int, Field(ge=1, le=50)] = 5,
    jitter: Annotated[float, Field(ge=0, lt=1)] | None = None,
    iterations: Annotated[int, Field(ge=1, le=1000)] = 10,
    fragments: Annotated[int, Field(ge=8, le=100_000)] = 1024,
    window: Annotated[int, Field(ge=1, le=4096)] = 64,
    rate: ln.Rate = "10 Gb/s",
    ring: Literal["roce", "mrc"] = "roce",
):
    """Mean job completion time (JCT) of eight jobs, over the slots of their switch: from 1/16 to 8
    times the sum of their windows.

    Half of the jobs communicate twice as long as they compute, half compute twice as long; within
    each half one has `iterations`, the others up to four times as many. An iteration sums
    `fragments` packets of 256 values in eight buckets. Each job has a parameter server with a link
    of its own; `ps4`, `atp4` and `esa4` are with as many servers as workers. M1: 4 workers of a
    job, links of 1 us. M2: 8 workers. M3: 4 workers, links of 4 us, compute time 20 % shorter to 20
    % longer; `jitter` says another share. Congestion control and new indices after collisions are
    on. In each of `draws` runs the seed draws when a job starts (within an iteration), which jobs
    are the long ones, jitter and retransmission timers.

    `esa` and `atp` free a slot as their designs do, when the sum has left (ESA) and when the result
    comes back (ATP); `esa_ack` and `atp_completion` the other way round. `jct_s.<policy>.<slots>.8`
    is a mean over jobs and draws; `esa_over_atp` is ATP's JCT over ESA's, above 1 where ESA is
    faster, at 1/2 and less memory. In the first draw real values are summed, and each sum is
    checked (`sum_errors`). `useful_occupancy` is the share of the time slots were taken in which
    sums that the switch completed gathered; its runs have a compute jitter of at least 20 %,
    because workers in lock-step leave nothing to gather.
    All draws are in jct.csv, the figure in jct_over_memory.png.
    """
    mix, four = (
        shared.Mix.of(setting, iterations, fragments, window, rate, jitter=jitter, servers=servers)
        for servers in (1, shared.SETTINGS[setting][0])
    )
    found = measure(lab, mix, four, draws, ring)
    write_draws(lab.directory / "jct.csv", found)
    for (system, memory), points in found.items():
        slots = 0 if memory is None else mix.slots(MEMORY[memory])
        lab.metric(f"jct_s.{system}.{slots}.{JOBS}", mean(p.jct for p in points), unit="s")
    times = {key: [p.jct for p in points] for key, points in found.items()}
    lab.metric("bandwidth_delay_packets", mix.bdp, unit="packets")
    lab.metric("jct_spread", max(max(t) / min(t) - 1 for t in times.values()), unit="ratio")
    check_esa(lab, times, mix)
    check_atp(lab, times, mix)
    check_occupancy(lab, mix, draws, found)
    errors = sum(p.sum_errors for points in found.values() for p in points)
    lab.metric("sum_errors", errors, unit="elements")
    lab.check("no-sum-error", errors, eq=0)
    lab.check("no-error", sum(p.errors for points in found.values() for p in points), eq=0)
    save(memory_figure(times, mix, setting), lab.directory / "jct_over_memory")


class Point:
    """What is kept of a run."""

    def __init__(self, r):
        names = [f"job{job}" for job in range(JOBS)]
        self.each = [r[f"{name}.jct_s"] for name in names]
        self.jct = mean(self.each)
        self.errors = sum(r[f"{name}.errors"] for name in names)
        self.sum_errors = sum(r.job(name).data.wrong or 0 for name in names)
        counted = r.job(names[0]).switch("p0.leaf0").counters
        held, useful = counted.get("held_ps", 0), counted.get("useful_ps", 0)
        self.occupancy = useful / held if held else None


def measure(lab, mix, four, draws, ring):
    """(system, memory or None) -> a Point of each draw. `four`: the same jobs with as many
    parameter servers as workers."""
    ina = {"allreduce": "ina"}
    found = {}
    plain = {
        "ring": (mix, {"allreduce": "ring", "transport": ring}),
        "ps": (mix, ina),
        "ps4": (four, ina),
    }
    for system, (jobs, how) in plain.items():
        lab.say(f"{system}: {draws} draws")
        found[system, None] = [
            point(lab, jobs, draw, 0, {"policy": "atp"}, how) for draw in range(draws)
        ]
    for memory, share in MEMORY.items():
        for system, program in SWITCHES.items():
            slots = mix.slots(share)
            if system == "switchml" and slots < 2 * JOBS:
                continue
            lab.say(f"{system}, memory {memory} ({slots} slots): {draws} draws")
            jobs = four if system in FOUR else mix
            found[system, memory] = [
                point(lab, jobs, draw, slots, program, ina) for draw in range(draws)
            ]
    # The report's rows of jobs are those of one run, in the middle of where memory is scarce.
    slots = mix.slots(MEMORY["1/4"])
    lab.run(
        mix.fabric(slots, SWITCHES["esa_ack"]),
        mix.jobs(lab.seed, 0, **ina),
        label="esa_ack",
        ina=mix.options(),
        reroute_delay="off",
    )
    return found


def point(lab, mix, draw, slots, program, how, jitter=None):
    return Point(
        mix.run(
            lab,
            draw,
            slots,
            program,
            how,
            jitter=jitter,
            payload=draw == 0 and how["allreduce"] == "ina",
        )
    )


def ratios(times, over, system, memory):
    """Of each draw: JCT of system `over` over that of `system`."""
    base = times.get((over, memory), times.get((over, None)))
    return [a / b for a, b in zip(base, times[system, memory], strict=True)]


def check_esa(lab, times, mix):
    """ESA-1 to ESA-3: ESA against ATP and SwitchML."""
    gains = {}
    for name, system in (("esa_over_atp", "esa"), ("esa_ack_over_atp", "esa_ack")):
        gains[name] = {memory: mean(ratios(times, "atp", system, memory)) for memory in MEMORY}
        scarce = {memory: gains[name][memory] for memory in SCARCE}
        best = max(scarce, key=scarce.get)
        lab.metric(f"{name}.best", scarce[best], unit="ratio", published=1.35)
        lab.metric(f"{name}.mean", mean(scarce.values()), unit="ratio")
        draws = ratios(times, "atp", system, best)
        lab.metric(f"{name}.best_least", min(draws), unit="ratio")
        lab.metric(f"{name}.best_most", max(draws), unit="ratio")
    lab.check(
        "ESA-1-above-1", min(each[memory] for each in gains.values() for memory in SCARCE), ge=1.0
    )
    lab.check(
        "ESA-1-peak",
        max(each[memory] for each in gains.values() for memory in SCARCE),
        ge=1.20,
        published=1.35,
    )
    if mix.workers == 4:
        lab.check("ESA-1-plausible", max(gains["esa_ack_over_atp"].values()), le=1.6)
    lab.check(
        "ESA-2",
        max(
            abs(each[memory] - 1)
            for each in gains.values()
            for memory, share in MEMORY.items()
            if share >= 2
        ),
        le=0.02,
    )
    lab.check("ESA-3-atp", min(min(each.values()) for each in gains.values()), ge=1 - 1e-3)
    below = [
        memory
        for memory, share in MEMORY.items()
        if ("switchml", memory) in times and mix.share(share) < math.floor(mix.bdp)
    ]
    if below:
        lab.check(
            "ESA-3-switchml",
            min(mean(ratios(times, "switchml", "esa", memory)) for memory in below),
            ge=1.0,
        )


def check_atp(lab, times, mix):
    """ATP-1. What collides goes to the parameter server once for each worker: with one server of n
    workers ATP's floor is 1/n of the line rate. SwitchML's rate is its share over the
    bandwidth-delay product. ATP is held to be faster where that is below ATP's floor. With as many
    servers as workers it is held against as many plain ones, which is the published comparison
    (BytePS), and its JCT over the ring's is shown."""
    over = {
        memory: mean(ratios(times, "switchml", "atp", memory))
        for memory in MEMORY
        if ("switchml", memory) in times
    }
    lab.metric(
        "atp_over_switchml.mean",
        mean(over[m] for m in SCARCE if m in over),
        unit="ratio",
        reason="SwitchML has no slots for eight jobs",
    )
    lab.metric(
        "atp_over_switchml.best",
        max(over.values(), default=None),
        unit="ratio",
        reason="SwitchML has no slots for eight jobs",
    )
    lab.check(
        "ATP-1-ps",
        min(mean(ratios(times, "ps", "atp", memory)) for memory in MEMORY),
        ge=1.0,
        published=1.38,
    )
    lab.check(
        "ATP-1-ps4",
        min(mean(ratios(times, "ps4", "atp4", memory)) for memory in MEMORY),
        ge=1.0,
        published=1.38,
    )
    for system in ("atp", "atp4", "esa"):
        for memory in SCARCE:
            lab.metric(
                f"{system}_over_ring.{mix.slots(MEMORY[memory])}",
                mean(ratios(times, "ring", system, memory)),
                unit="ratio",
            )
    below = [m for m in over if mix.share(MEMORY[m]) < mix.bdp / mix.workers]
    if below:
        lab.check("ATP-1-switchml", min(over[m] for m in below), ge=1.0, published=1.38)


def check_occupancy(lab, mix, draws, found):
    """ESA-4, each policy by its own deallocation. With the same one ESA has no more: its sums
    gather for a shorter time, which counts as less use, while the switch completes more."""
    occupied = {}
    for system in ("esa", "atp", "esa_ack", "atp_completion"):
        if mix.jitter < SKEW:
            lab.say(f"{system}, workers apart: {draws} draws at each memory up to 1/2")
        for memory in SCARCE:
            points = found[system, memory]
            if mix.jitter < SKEW:
                points = [
                    point(
                        lab,
                        mix,
                        draw,
                        mix.slots(MEMORY[memory]),
                        SWITCHES[system],
                        {"allreduce": "ina"},
                        SKEW,
                    )
                    for draw in range(draws)
                ]
            occupied[system, memory] = mean(p.occupancy for p in points)
        lab.metric(
            f"useful_occupancy.{system}",
            mean(occupied[system, m] for m in SCARCE),
            unit="ratio",
            reason="no slot was held",
        )
    lab.check("ESA-4", min(occupied["esa", m] / occupied["atp", m] for m in SCARCE), ge=1.0)
    lab.metric(
        "useful_occupancy.switchml",
        None,
        unit="ratio",
        reason="SwitchML's slots are a job's for the whole run: none is claimed or freed",
    )


def memory_figure(times, mix, setting):
    """JCT over memory: means, and bands from the least to the greatest of the draws."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5.2), layout="constrained")
    axes = figure.subplots()
    shares = list(MEMORY.values())
    for system, (title, style, line) in LINES.items():
        colour, marker = STYLES[style]
        points = [
            (share, times.get((system, memory), times.get((system, None))))
            for memory, share in MEMORY.items()
            if (system, memory) in times or (system, None) in times
        ]
        at = [share for share, _ in points]
        axes.plot(
            at,
            [1e3 * mean(t) for _, t in points],
            color=colour,
            marker=marker,
            linestyle=line,
            markersize=4,
            linewidth=1.1,
            label=title,
        )
        axes.fill_between(
            at,
            [1e3 * min(t) for _, t in points],
            [1e3 * max(t) for _, t in points],
            color=colour,
            alpha=0.15,
            linewidth=0,
        )
    # SwitchML has two slots for each packet of a window.
    axes.axvline(2 * mix.bdp / mix.window, color="#333333", linewidth=0.8, linestyle=":")
    axes.annotate(
        "SwitchML's share is one\nbandwidth-delay product",
        (2 * mix.bdp / mix.window, 0),
        xycoords=("data", "axes fraction"),
        xytext=(3, 4),
        textcoords="offset points",
        fontsize=8,
        va="bottom",
    )
    axes.set_xscale("log", base=2)
    axes.set_xticks(shares, list(MEMORY))
    axes.set_xlabel("slots of the switch over the sum of the jobs' windows")
    axes.set_ylabel("mean JCT, ms")
    axes.set_ylim(bottom=0)
    axes.set_title(f"{setting}: {JOBS} jobs of {mix.workers} workers", fontsize=10)
    axes.grid(True, linewidth=0.3)
    axes.legend(fontsize=8)
    return figure


def write_draws(path, found):
    with path.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(
            ["system", "memory", "draw", "useful_occupancy", "jct_mean_s"]
            + [f"jct_s_job{job}" for job in range(JOBS)]
        )
        for (system, memory), points in found.items():
            for draw, point in enumerate(points):
                rows.writerow([system, memory, draw, point.occupancy, point.jct, *point.each])


def mean(values):
    """None where there is nothing, or where one of the values is missing."""
    values = list(values)
    return None if not values or None in values else statistics.fmean(values)
