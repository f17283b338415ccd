"""What each part of ESA (Wang et al., arXiv 2201.06398) and of ATP (Lao et al., NSDI 2021) is worth
where the switch's memory is scarce: the same eight jobs with one part taken out."""

import csv
import random
import statistics
import tempfile
from typing import Annotated

from pydantic import Field

import loomnet as ln

JOBS = 8
MEMORY = {"1/16": 1 / 16, "1/4": 1 / 4}
VALUES, SLOT_BYTES = 256, 1056  # int32 of a packet; its slot
WIRE_BYTES = 4 * VALUES + 118  # of a packet: Ethernet and its framing, IPv6, UDP and INA's header
# Options of the switches' program, options of the hosts, and the jobs' priority.
ESA = {
    "full": ({}, {}, "esa"),
    "prio_none": ({}, {}, "none"),
    "only_time_left": ({}, {}, "trem"),
    "only_ratio": ({}, {}, "ratio"),
    "only_layer": ({}, {}, "layer"),
    "downgrade_off": ({"downgrade": 0}, {}, "esa"),
    "prio_none_downgrade_off": ({"downgrade": 0}, {}, "none"),
    "index_static": ({}, {"index_policy": "static"}, "esa"),
    "results_by_switch": ({}, {"index_policy": "static", "result_path": "switch"}, "esa"),
}
ATP = {
    "full": ({}, {}, "esa"),
    "congestion_control_off": ({}, {"congestion_control": False}, "esa"),
    "rehash_off": ({}, {"index_policy": "static"}, "esa"),
}
# A shorter path for results and another way to free slots are no parts of the mechanism.
OTHER_DESIGN = ("results_by_switch",)


@ln.scenario
def ablations(lab: ln.Lab, draws: Annotated[int, Field(ge=1, le=50)] = 5,
              jitter: Annotated[float, Field(ge=0, lt=1)] = 0.2, delay: ln.Time = "1 us",
              workers: Annotated[int, Field(ge=2, le=64)] = 4,
              iterations: Annotated[int, Field(ge=1, le=1000)] = 10,
              fragments: Annotated[int, Field(ge=8, le=100_000)] = 1024,
              window: Annotated[int, Field(ge=1, le=4096)] = 64, rate: ln.Rate = "10 Gb/s"):
    """What each part of ESA and of ATP is worth where a switch's memory is scarce. Bar ESA-5: mean
    JCT of the jobs of scarce_memory.py at 1/16 and 1/4 of the slots that their windows would fill,
    with and without each part.

    `jct_s.<policy>_<dealloc>.<part>.<slots>` is a mean over jobs and draws, and `slower.…` its
    ratio to the whole mechanism's. Parts of ESA: one factor of the priority alone, no priority
    (all are 128), no downgrade of slots that resist, the first index of a window position for ever
    (index_static), and the switch instead of the server multicasting results (results_by_switch,
    which needs static indices and slots freed on completion). Of ATP: no congestion control, and no
    new index after a collision. Compute times vary by `jitter`: where workers are in lock-step and
    slots are free again on completion, hardly two fragments meet in a slot, and no part matters.
    """
    mix = Mix(workers, delay, jitter, iterations, fragments, window, rate)
    table = {}
    for policy, dealloc, parts in (("esa", "completion", ESA), ("esa", "ack", ESA),
                                   ("atp", "ack", ATP)):
        for part, (program, options, priority) in parts.items():
            if part in OTHER_DESIGN and dealloc != "completion":
                continue
            program = {"policy": policy, "dealloc": dealloc, **program}
            for memory, share in MEMORY.items():
                table[f"{policy}_{dealloc}", part, memory] = [
                    mix.run(lab, draw, mix.slots(share), program, options, priority)
                    for draw in range(draws)]
            lab.say(f"{policy}, freed on {dealloc}, {part}: {draws} draws")
    write_draws(lab.directory / "jct.csv", table)
    slower = {key: statistics.fmean(t / full for t, full in zip(
        times, table[key[0], "full", key[2]], strict=True)) for key, times in table.items()}
    for (mode, part, memory), times in table.items():
        slots = mix.slots(MEMORY[memory])
        lab.metric(f"jct_s.{mode}.{part}.{slots}", statistics.fmean(times), unit="s")
        lab.metric(f"slower.{mode}.{part}.{slots}", slower[mode, part, memory], unit="ratio")
    check_esa_5(lab, slower)
    # The report's rows of jobs are those of the whole mechanism at the smaller memory.
    r = lab.run(mix.fabric(mix.slots(MEMORY["1/16"]), {"policy": "esa"}), mix.jobs(lab.seed, 0),
                label="full", payload=True, reroute_delay="off", ina=mix.options({}))
    lab.check("no-sum-error", sum(r.job(f"job{job}").data.wrong for job in range(JOBS)), eq=0)


def check_esa_5(lab, slower):
    of_esa = {key: ratio for key, ratio in slower.items() if key[0].startswith("esa")}
    lab.check("ESA-5-full-is-best", min(ratio for (_, part, _), ratio in of_esa.items()
                                        if part not in OTHER_DESIGN), ge=0.98)
    lab.check("ESA-5-priority", min(ratio for (_, part, _), ratio in of_esa.items()
                                    if part == "prio_none"), ge=1.03)
    lab.check("ESA-5-downgrade", slower["esa_ack", "downgrade_off", "1/16"], ge=1.10)


class Mix:
    """The fabric and the jobs, as in scarce_memory.py."""

    def __init__(self, workers, delay, jitter, iterations, fragments, window, rate):
        self.workers, self.delay, self.jitter, self.window = workers, delay, jitter, window
        self.iterations, self.fragments, self.rate = iterations, fragments, rate
        self.communicate = fragments * WIRE_BYTES * 8 / rate.count  # seconds

    def slots(self, memory):
        return max(1, round(memory * JOBS * self.window))

    def options(self, more):
        return {"window": self.window, "quant": "fixed", **more}

    def fabric(self, slots, program):
        fabric = ln.Fabric("shared-switch")
        switch = fabric.add_switch("p0.leaf0")
        for _ in range(JOBS * self.workers):
            fabric.add_link(fabric.add_host(), switch, rate=self.rate, delay=self.delay)
        for job in range(JOBS):
            server = fabric.add_host(f"ps{job}", role="server")
            fabric.add_link(server, switch, rate=self.rate, delay=self.delay)
        return fabric.program("*", "aggregate", pool=slots * SLOT_BYTES, **program)

    def jobs(self, seed, draw, priority="esa"):
        """Jobs 0, 2, 4 and 6 communicate more, the others compute more."""
        rng = random.Random(f"{seed} {draw}")
        spread = [round(self.iterations * 4 ** (place / 3)) for place in range(JOBS // 2)]
        counts = [rng.sample(spread, len(spread)) for _ in range(2)]
        jobs = []
        for job in range(JOBS):
            compute = self.communicate * (2 if job % 2 else 0.5)
            start = rng.random() * (self.communicate + compute)
            jobs.append(ln.ModelJob(
                size=ln.Size.of(4 * VALUES * self.fragments), compute=picoseconds(compute),
                start=picoseconds(start), iterations=counts[job % 2][job // 2],
                workers=self.workers, jitter=self.jitter, priority=priority, allreduce="ina",
                name=f"job{job}", server=f"ps{job}",
                hosts=[f"h{self.workers * job + n}" for n in range(self.workers)]))
        return jobs

    def run(self, lab, draw, slots, program, options, priority):
        """Mean JCT of one run."""
        with tempfile.TemporaryDirectory() as folder:
            inner = ln.Lab("draw", clock=lab.clock, seed=lab.seed + 1000 * draw, directory=folder)
            r = inner.run(self.fabric(slots, program), self.jobs(lab.seed, draw, priority),
                          reroute_delay="off", ina=self.options(options))
        for job in range(JOBS):
            if r[f"job{job}.errors"]:
                raise RuntimeError(f"job{job} of draw {draw} under {program}: it has an error")
        return statistics.fmean(r[f"job{job}.jct_s"] for job in range(JOBS))


def picoseconds(seconds):
    return ln.Time.of(round(seconds * 1e12))


def write_draws(path, table):
    with path.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["mode", "part", "memory", "draw", "jct_mean_s"])
        for (mode, part, memory), times in table.items():
            for draw, time in enumerate(times):
                rows.writerow([mode, part, memory, draw, time])
