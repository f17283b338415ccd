"""What each part of ESA (Wang et al., arXiv 2201.06398) and of ATP (Lao et al., NSDI 2021) is worth
where the switch's memory is scarce: the same eight jobs with one part taken out."""

import csv
import statistics
from typing import Annotated

from pydantic import Field

import loomnet as ln

import lib as shared
from lib import JOBS

MEMORY = {"1/16": 1 / 16, "1/4": 1 / 4}
# Options of the switches' program, options of the hosts, and the jobs' priority.
ESA = {
    "full": ({}, {}, "esa"),
    "prio_none": ({}, {}, "none"),
    "prio_random": ({}, {}, "random"),
    "prio_inverted": ({}, {}, "ablations_inverted"),
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


@ln.plugin.priority("ablations_inverted")
class Inverted:
    """ESA's priority upside down: the most urgent last."""

    def priority(self, message):
        return 256 - ln.plugin.formula(message)


@ln.scenario
def ablations(
    lab: ln.Lab,
    draws: Annotated[int, Field(ge=1, le=50)] = 5,
    jitter: Annotated[float, Field(ge=0, lt=1)] = 0.2,
    delay: ln.Time = "1 us",
    workers: Annotated[int, Field(ge=2, le=64)] = 4,
    iterations: Annotated[int, Field(ge=1, le=1000)] = 10,
    fragments: Annotated[int, Field(ge=8, le=100_000)] = 1024,
    window: Annotated[int, Field(ge=1, le=4096)] = 64,
    rate: ln.Rate = "10 Gb/s",
):
    """What each part of ESA and of ATP is worth where a switch's memory is scarce. Bar ESA-5: mean
    JCT of the jobs of scarce_memory.py at 1/16 and 1/4 of the slots that their windows would fill,
    with and without each part.

    `jct_s.<policy>_<dealloc>.<part>.<slots>` is a mean over jobs and draws, and `slower.…` its
    ratio to the whole mechanism's. Parts of ESA: one factor of the priority alone, no priority (all
    are 128: downgrade alone decides), another order (random, drawn anew for each job, iteration and
    layer; and upside down), no downgrade of slots that resist, the first index of a window position
    for ever (index_static), and the switch instead of the server multicasting results
    (results_by_switch, which needs static indices and slots freed on completion). Of ATP: no
    congestion control, and no new index after a collision. Compute times vary by `jitter`: where
    workers are in lock-step and slots are free again on completion, hardly two fragments meet in a
    slot, and no part matters.
    """
    mix = shared.Mix(workers, delay, jitter, iterations, fragments, window, rate)
    table = {}
    for policy, dealloc, parts in (
        ("esa", "completion", ESA),
        ("esa", "ack", ESA),
        ("atp", "ack", ATP),
    ):
        for part, (program, options, priority) in parts.items():
            if part in OTHER_DESIGN and dealloc != "completion":
                continue
            program = {"policy": policy, "dealloc": dealloc, **program}
            for memory, share in MEMORY.items():
                table[f"{policy}_{dealloc}", part, memory] = [
                    mix.jct(
                        lab,
                        draw,
                        mix.slots(share),
                        program,
                        {"allreduce": "ina", "priority": priority},
                        ina=options,
                    )
                    for draw in range(draws)
                ]
            lab.say(f"{policy}, freed on {dealloc}, {part}: {draws} draws")
    write_draws(lab.directory / "jct.csv", table)
    slower = {
        key: statistics.fmean(
            t / full for t, full in zip(times, table[key[0], "full", key[2]], strict=True)
        )
        for key, times in table.items()
    }
    for (mode, part, memory), times in table.items():
        slots = mix.slots(MEMORY[memory])
        lab.metric(f"jct_s.{mode}.{part}.{slots}", statistics.fmean(times), unit="s")
        lab.metric(f"slower.{mode}.{part}.{slots}", slower[mode, part, memory], unit="ratio")
    check_esa_5(lab, slower)
    # The report's rows of jobs are those of the whole mechanism at the smaller memory.
    r = lab.run(
        mix.fabric(mix.slots(MEMORY["1/16"]), {"policy": "esa"}),
        mix.jobs(lab.seed, 0, allreduce="ina"),
        label="full",
        payload=True,
        reroute_delay="off",
        ina=mix.options(),
    )
    lab.check("no-sum-error", sum(r.job(f"job{job}").data.wrong for job in range(JOBS)), eq=0)


def check_esa_5(lab, slower):
    of_esa = {key: ratio for key, ratio in slower.items() if key[0].startswith("esa")}
    lab.check(
        "ESA-5-full-is-best",
        min(ratio for (_, part, _), ratio in of_esa.items() if part not in OTHER_DESIGN),
        ge=0.98,
    )
    lab.check(
        "ESA-5-priority",
        min(ratio for (_, part, _), ratio in of_esa.items() if part == "prio_none"),
        ge=1.03,
    )
    # The order itself, against two others; each mode by itself.
    for mode in ("esa_completion", "esa_ack"):
        for other in ("random", "inverted"):
            lab.check(
                f"ESA-5-order-{other}-{mode}",
                min(of_esa[mode, f"prio_{other}", memory] for memory in MEMORY),
                ge=1.0,
            )
    # Downgrade alone: with no priority, a slot that resists is still put out in the end.
    for mode in ("esa_completion", "esa_ack"):
        for memory in MEMORY:
            lab.metric(
                f"downgrade_alone.{mode}.{memory.replace('/', '_')}",
                of_esa[mode, "prio_none_downgrade_off", memory] / of_esa[mode, "prio_none", memory],
                unit="ratio",
            )
    lab.check("ESA-5-downgrade", slower["esa_ack", "downgrade_off", "1/16"], ge=1.10)


def write_draws(path, table):
    with path.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["mode", "part", "memory", "draw", "jct_mean_s"])
        for (mode, part, memory), times in table.items():
            for draw, time in enumerate(times):
                rows.writerow([mode, part, memory, draw, time])
