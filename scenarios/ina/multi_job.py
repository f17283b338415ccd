"""Training jobs of published models arrive over time and share the memory of switches: ring,
SwitchML, ATP and ESA on the same arrivals (Wang et al., arXiv 2201.06398)."""

import csv
import random
import statistics
import tempfile
from typing import Annotated, Literal

from pydantic import Field

import loomnet as ln
from loomnet.results.plots import STYLES, save

MODELS = ("resnet50", "vgg16", "vgg11", "alexnet", "bert_large")
MEMORY = {
    "1/64": 1 / 64,
    "1/32": 1 / 32,
    "1/16": 1 / 16,
    "1/8": 1 / 8,
    "1/4": 1 / 4,
    "1/2": 1 / 2,
    "1": 1,
    "2": 2,
}
VALUES, SLOT_BYTES = 256, 1056  # int32 of a packet; its slot
# Times at full size, which `scale` divides: a worker's first timeout (ATP's code), SwitchML's only
# one (its code), and the step of the series of slots.
RTO_FIRST, SWITCHML_TIMEOUT, LOOK = ln.Time("50 ms"), ln.Time("10 ms"), ln.Time("12.8 ms")
POLICIES = {
    "switchml": {"policy": "switchml"},
    "atp": {"policy": "atp", "dealloc": "ack"},
    "esa_ack": {"policy": "esa", "dealloc": "ack"},
    "esa": {"policy": "esa", "dealloc": "completion"},
}
TITLES = {"esa": "ESA", "esa_ack": "ESA, freed on ack", "atp": "ATP"}  # whose slots are drawn
TIMED = ("esa", "atp")  # whose jobs' times are drawn


@ln.scenario
def multi_job(
    lab: ln.Lab,
    jobs: Annotated[int, Field(ge=2, le=64)] = 10,
    memory: Literal["1/64", "1/32", "1/16", "1/8", "1/4", "1/2", "1", "2"] = "1/4",
    jitter: Annotated[float, Field(ge=0, lt=1)] = 0.2,
    levels: Annotated[int, Field(ge=1, le=2)] = 1,
    gap: ln.Time = "320 ms",
    iterations: Annotated[int, Field(ge=1, le=1000)] = 3,
    draws: Annotated[int, Field(ge=1, le=50)] = 5,
    scale: Annotated[float, Field(ge=1, le=1000)] = 64.0,
    workers: Annotated[int, Field(ge=2, le=32)] = 4,
    servers: Annotated[int, Field(ge=1, le=32)] = 1,
    window: Annotated[int, Field(ge=1, le=4096)] = 64,
    early_gap: Annotated[int, Field(ge=0, le=4096)] = 0,
    rate: ln.Rate = "10 Gb/s",
    delay: ln.Time = "1 us",
    systems: Literal["all", "esa_atp"] = "all",
):
    """Job completion times (JCT) of `jobs` training jobs that share switches of little memory.

    The jobs train ResNet-50, VGG-16, VGG-11, AlexNet and BERT-large, each as often as the others,
    `workers` ranks each. They arrive one after another with exponential gaps of mean `gap`, and run
    `iterations` to four times as many. Each has `servers` parameter servers with links of their
    own. A switch has `memory` times as many slots as the sum of all jobs' windows. `levels=2`: half
    of each job's workers are in either of two racks, below a spine with room for all. `jitter`: a
    rank computes so much shorter or longer in each iteration. `early_gap`: ESA's server asks
    switches for what it lacks once it has the sum of a fragment so far behind; 0 is half a window.
    Bytes, compute times, gaps and the first timeouts are those of the models divided by `scale`;
    windows, rates and delays are not.

    In each of `draws` runs the seed draws models, gaps, iterations, jitter and retransmission
    timers, alike for all systems. `esa` and `atp` free a slot as their designs do, when the sum has
    left and when the result comes back; `esa_ack` is ESA which frees as ATP does.

    `jct_s.<system>.<slots>.<jobs>` is a mean over jobs and draws, `jct_s.<system>.<model>` over the
    jobs of a model. `esa_over_atp.mean` is ATP's mean JCT over ESA's, above 1 where ESA is faster,
    with the least and the greatest of the draws. `switch_share` is the share of all sums that were
    whole when they left the switches, `server_bytes` what came to parameter servers, `occupancy`
    the share of the slots that jobs held in the first draw. Every sum is checked (`sum_errors`).
    All jobs of all draws are in jct.csv, who held the slots in pool_by_owner.png, each job's time
    in timeline.png.
    """
    mix = Mix(
        jobs,
        workers,
        servers,
        levels,
        jitter,
        gap,
        iterations,
        scale,
        window,
        rate,
        delay,
        {"early_gap": early_gap} if early_gap else {},
    )
    slots = mix.slots(MEMORY[memory])
    chosen = [name for name in POLICIES if systems == "all" or name in ("esa", "atp")]
    if "switchml" in chosen and slots < 2 * jobs:
        lab.say(f"switchml: left out: {slots} slots are less than two of each job")
        chosen.remove("switchml")
    found, shown = {}, {}
    for system in (["ring"] if systems == "all" else []) + chosen:
        lab.say(f"{system}: {draws} draws")
        shown[system], first = mix.run(lab, 0, system, slots)
        found[system] = [first, *(mix.run(lab, draw, system, slots)[1] for draw in range(1, draws))]
    write_draws(lab.directory / "jct.csv", mix, lab.seed, found)
    report(lab, found, slots, jobs)
    compare(lab, found)
    pools = {system: shown[system] for system in TITLES if system in shown}
    save(pool_figure(pools), lab.directory / "pool_by_owner")
    timed = {system: shown[system] for system in TIMED}
    save(timeline_figure(timed, mix, mix.draw(lab.seed, 0)), lab.directory / "timeline")


class Mix:
    """The fabric, and the jobs of a draw."""

    def __init__(
        self,
        jobs,
        workers,
        servers,
        levels,
        jitter,
        gap,
        iterations,
        scale,
        window,
        rate,
        delay,
        constants,
    ):
        self.count, self.workers, self.levels, self.jitter = jobs, workers, levels, jitter
        self.servers = servers
        self.gap, self.iterations, self.scale, self.window = gap, iterations, scale, window
        self.rate, self.delay, self.constants = rate, delay, constants

    def slots(self, memory):
        return max(1, round(memory * self.count * self.window))

    def fabric(self, slots, program):
        """One switch, or two racks below a spine whose links take all of a rack's hosts."""
        fabric = ln.Fabric("shared-switches")
        racks = [fabric.add_switch(f"p0.leaf{n}") for n in range(self.levels)]
        if len(racks) > 1:
            hosts = self.count * (self.workers + self.servers)
            spine, uplink = fabric.add_switch("p0.spine0"), ln.Rate.of(self.rate.count * hosts)
            for rack in racks:
                fabric.add_link(rack, spine, rate=uplink, delay=self.delay)
        for job in range(self.count):
            for worker in range(self.workers):
                fabric.add_link(
                    fabric.add_host(f"h{job}w{worker}"),
                    racks[worker % len(racks)],
                    rate=self.rate,
                    delay=self.delay,
                )
            for n, name in enumerate(self.server_names(job)):
                fabric.add_link(
                    fabric.add_host(name, role="server"),
                    racks[(job + n) % len(racks)],
                    rate=self.rate,
                    delay=self.delay,
                )
        return fabric.program("*", "aggregate", pool=slots * SLOT_BYTES, **program)

    def server_names(self, job):
        return [f"ps{job}"] + [f"ps{job}.{n}" for n in range(1, self.servers)]

    def draw(self, seed, number):
        """(model, iterations, arrival in seconds at full size) of each job; the first is at 0."""
        rng = random.Random(f"{seed} {number}")
        models = [MODELS[n % len(MODELS)] for n in range(self.count)]
        rng.shuffle(models)
        arrivals = [0.0]
        while len(arrivals) < self.count:
            pause = rng.expovariate(1 / self.gap.seconds) if self.gap.count else 0.0
            arrivals.append(arrivals[-1] + pause)
        return [
            (model, round(self.iterations * 4 ** rng.random()), at)
            for model, at in zip(models, arrivals, strict=True)
        ]

    def jobs(self, seed, number, how, several=True):
        def placed(job):
            if how["allreduce"] != "ina":
                return {}
            names = self.server_names(job)
            return {"servers": names} if several else {"server": names[0]}

        return [
            ln.ModelJob(
                model,
                workers=self.workers,
                iterations=iterations,
                scale=self.scale,
                jitter=self.jitter,
                start=self.scaled(at),
                name=f"job{n}",
                hosts=[f"h{n}w{worker}" for worker in range(self.workers)],
                **how,
                **placed(n),
            )
            for n, (model, iterations, at) in enumerate(self.draw(seed, number))
        ]

    def run(self, lab, number, system, slots):
        """One run of all jobs: its result and its Point. The report has the rows of ESA's first."""
        summed = system in POLICIES
        how = {"allreduce": "ina"} if summed else {"allreduce": "ring", "transport": "roce"}
        fabric = self.fabric(slots if summed else 0, POLICIES.get(system, POLICIES["atp"]))
        options = {"reroute_delay": "off"}
        if summed:
            options |= {
                "payload": True,
                "ina": {
                    "window": self.window,
                    "quant": "fixed",
                    **self.constants,
                    "rto_first": self.scaled(RTO_FIRST.seconds).count,
                    "switchml_timeout": self.scaled(SWITCHML_TIMEOUT.seconds).count,
                },
            }
        if number == 0 and system in TITLES:
            options["pools"] = self.scaled(LOOK.seconds)
        # SwitchML has no servers: one place for the root of its tree.
        jobs = self.jobs(lab.seed, number, how, several=system != "switchml")
        seed = lab.seed + 1000 * number
        if number == 0 and system == "esa":
            r = lab.run(fabric, jobs, label=system, seed=seed, **options)
        else:
            with tempfile.TemporaryDirectory() as folder:
                inner = ln.Lab("draw", clock=lab.clock, seed=lab.seed, directory=folder)
                r = inner.run(fabric, jobs, seed=seed, **options)
        return r, Point(r, jobs, slots)

    def scaled(self, seconds):
        return ln.Time.of(round(seconds / self.scale * 1e12))


class Point:
    """What is kept of a run."""

    def __init__(self, r, jobs, slots):
        names = [job.name for job in jobs]
        self.models = [job.model for job in jobs]
        self.each = [r[f"{name}.jct_s"] for name in names]
        self.iteration = [
            mean(i.length_ps / 1e12 for i in r.job(name).data.iterations) for name in names
        ]
        self.errors = sum(r[f"{name}.errors"] for name in names)
        self.sum_errors = sum(r.job(name).data.wrong or 0 for name in names)
        self.switch_share = self.server_bytes = self.useful = self.held = None
        if jobs[0].allreduce != "ina":
            return
        totals = r.job(names[0]).data.totals
        # Of values, and one in front of each bucket, by which ranks agree on it.
        self.fragments = sum(
            job.iterations * (1 + -(-size // (4 * VALUES)))
            for job in jobs
            for size in job.bucket_bytes
        )
        whole = [row.get("ina.full", 0) for row in totals.values()]
        parts = [row.get("ina.from_parts", 0) for row in totals.values()]
        self.summed = sum(whole) + sum(parts)  # at servers, which SwitchML has none of
        self.switch_share = sum(whole) / self.summed if self.summed else 1.0
        self.server_bytes = sum(
            row.get("bytes", 0) for name, row in totals.items() if "->ps" in name
        )
        leaves = [row for name, row in totals.items() if name.startswith("switch p0.leaf")]
        held = sum(row.get("held_ps", 0) for row in leaves)
        self.useful = sum(row.get("useful_ps", 0) for row in leaves) / held if held else None
        if r.data.pools is not None:  # share of the slots, over the whole run
            table = r.pool("p0.leaf0")
            looks = len(table) / len(jobs)
            self.held = sum(table.column("held")) / looks / slots

    @property
    def jct(self):
        return mean(self.each)


def report(lab, found, slots, jobs):
    """What each system took and used."""
    for system, points in found.items():
        lab.metric(
            f"jct_s.{system}.{slots if system in POLICIES else 0}.{jobs}",
            mean(p.jct for p in points),
            unit="s",
        )
        for model in MODELS:
            lab.metric(
                f"jct_s.{system}.{model}",
                mean(
                    jct
                    for p in points
                    for jct, its in zip(p.each, p.models, strict=True)
                    if its == model
                ),
                unit="s",
                reason="no job trains it",
            )
        lab.metric(f"iteration_s.{system}", mean(mean(p.iteration) for p in points), unit="s")
        if system not in POLICIES:
            continue
        lab.metric(f"switch_share.{system}", mean(p.switch_share for p in points), unit="ratio")
        lab.metric(f"server_bytes.{system}", mean(p.server_bytes for p in points), unit="B")
        lab.metric(
            f"useful_occupancy.{system}",
            mean(p.useful for p in points),
            unit="ratio",
            reason="the switch frees no slot of its own accord",
        )
        if points[0].held is not None:
            lab.metric(f"occupancy.{system}", points[0].held, unit="ratio")
        if system != "switchml":
            lab.check(
                f"each-sum-once.{system}", max(abs(p.summed - p.fragments) for p in points), eq=0
            )
    errors = sum(p.sum_errors for points in found.values() for p in points)
    lab.metric("sum_errors", errors, unit="elements")
    lab.check("no-sum-error", errors, eq=0)
    lab.check("no-error", sum(p.errors for points in found.values() for p in points), eq=0)


def compare(lab, found):
    """Mean JCT of one system over another's, draw by draw."""
    for name, over, system, published in (
        ("esa_over_atp", "atp", "esa", 1.35),
        ("esa_ack_over_atp", "atp", "esa_ack", 1.35),
        ("atp_over_switchml", "switchml", "atp", 1.38),
        ("esa_over_switchml", "switchml", "esa", None),
        ("esa_over_ring", "ring", "esa", None),
    ):
        if over not in found or system not in found:
            continue
        ratios = [a.jct / b.jct for a, b in zip(found[over], found[system], strict=True)]
        lab.metric(f"{name}.mean", mean(ratios), unit="ratio", published=published)
        lab.metric(f"{name}.least", min(ratios), unit="ratio")
        lab.metric(f"{name}.most", max(ratios), unit="ratio")
        if over == "atp":
            lab.check(f"{name}-above-1", mean(ratios), ge=1 - 1e-3, published=published)


def write_draws(path, mix, seed, found):
    with path.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(
            ["system", "draw", "job", "model", "iterations", "arrival_s", "jct_s", "iteration_s"]
        )
        for system, points in found.items():
            for number, point in enumerate(points):
                for n, (model, iterations, at) in enumerate(mix.draw(seed, number)):
                    rows.writerow(
                        [
                            system,
                            number,
                            f"job{n}",
                            model,
                            iterations,
                            mix.scaled(at).seconds,
                            point.each[n],
                            point.iteration[n],
                        ]
                    )


def pool_figure(shown):
    """Slots of a switch by the job that held them."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1.2 + 2.6 * len(shown)), layout="constrained")
    panels = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (system, r) in zip(panels, shown.items(), strict=True):
        r.pool("p0.leaf0").plot(axes)
        axes.set_ylabel(f"{TITLES[system]}\nslots held")
        if axes is not panels[-1]:
            axes.set_xlabel("")
    return figure


def timeline_figure(shown, mix, draw):
    """A line for each job: light from its arrival to its end, dark where bytes are under way, a
    tick at the end of each iteration."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1.2 + 0.28 * len(draw) * len(shown)), layout="constrained")
    panels = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (system, r) in zip(panels, shown.items(), strict=True):
        for line, (name, result) in enumerate(r.jobs.items()):
            data, start = result.data, mix.scaled(draw[line][2]).seconds
            colour = STYLES[MODELS.index(draw[line][0])][0]
            busy = [
                ((start + a / 1e12), (b - a) / 1e12)
                for a, b in next(iter(data.hosts.values())).busy
            ]
            axes.broken_barh(
                [(start, r[f"{name}.jct_s"])],
                (line - 0.35, 0.7),
                color=colour,
                alpha=0.25,
                linewidth=0,
            )
            axes.broken_barh(busy, (line - 0.35, 0.7), color=colour, linewidth=0)
            axes.vlines(
                [start + i.end_ps / 1e12 for i in data.iterations],
                line - 0.45,
                line + 0.45,
                color="#333333",
                linewidth=0.6,
            )
        axes.set_yticks(
            range(len(draw)), [f"job{n} {row[0]}" for n, row in enumerate(draw)], fontsize=7
        )
        axes.invert_yaxis()
        axes.set_ylabel(TITLES[system])
        axes.grid(True, axis="x", linewidth=0.3)
    panels[-1].set_xlabel("emulated time, s")
    return figure


def mean(values):
    """None where there is nothing, or where one of the values is missing."""
    values = list(values)
    return None if not values or None in values else statistics.fmean(values)
