"""When extra marks pay: the paired gain of each seed by condition, beside what no marks at all and
extra marks alone save, the fluid gain, the room that is left to it, the oracle queue and the
published ceiling (Symphony, arXiv 2604.16880; algorithm, fabric, sizes and hosts are our
completion), and the completed steps of the ranks over time with the marks off and on."""

import statistics
from typing import Annotated

from pydantic import Field

import loomnet as ln

import lib as rings

# What differs from a ring whose steps are hashed anew, each on a new queue pair of NIC-like DCQCN.
CONDITIONS = {
    "re-hash, new queue pairs": {},
    "re-hash, one queue pair": {"queue_pair": "persistent"},
    "re-hash, 2:1": {"oversubscription": 2},
    "re-hash + bursts": {"bursts": 0.3},
    "re-hash, steps of a quarter": {"step": 0.25},
    "fixed + jitter": {"rehash": "fixed", "queue_pair": "persistent", "jitter": 0.3},
    "fixed + bursts": {"rehash": "fixed", "queue_pair": "persistent", "bursts": 0.3},
    "re-hash, no PFC": {"pfc": False},
    "re-hash, hosts A": {"host": "A"},
    "re-hash, hosts A, low thresholds": {"host": "A", "thresholds": ("5 kB", "200 kB", 0.01)},
    "re-hash, hosts C, one queue pair": {"host": "C", "queue_pair": "persistent"},
    "re-hash, DCTCP-like, one queue pair": {"host": "D", "queue_pair": "persistent"},
    "re-hash, window, no control": {"host": "astra-sim"},
    "fixed + jitter, NSCC's window": {
        "host": "N",
        "rehash": "fixed",
        "queue_pair": "persistent",
        "jitter": 0.3,
    },
    "sprayed + bursts, NSCC's window": {
        "host": "N",
        "queue_pair": "persistent",
        "jitter": 0.3,
        "bursts": 0.3,
    },
}
WEAK = {
    "re-hash, hosts A": "each mark cuts, and the rate comes back only every 900 us: a weak "
    "baseline",
    "re-hash, hosts A, low thresholds": "base marks waste half of the links: a weak baseline",
}
FRESH = 1_000_000  # first seed, counted from the run's, by which the best condition is graded
HEAD = (
    f"{'condition':<37}{'extra marks: saved %':>23}{'no marks':>10}{'alone':>8}"
    f"{'fluid':>8}{'room':>7}{'oracle':>8}   step gap  leading"
)


def percent(value, width):
    return f"{'-':>{width}}" if value is None else f"{100 * value:{width}.1f}"


def line(name, pairs, row):
    off, on = (statistics.fmean(pair.by[kind].gap for pair in pairs) for kind in ("off", "on"))
    leading = statistics.fmean(pair.on.leading_s / pair.off.leading_s for pair in pairs)
    alone = statistics.fmean(pair.saved("alone") for pair in pairs)
    return (
        f"{name:<37}{rings.Spread.of(row.gains).percent():>23}{percent(row.no_marks, 10)}"
        f"{percent(alone, 8)}{percent(row.fluid, 8)}{percent(row.room, 7)}"
        f"{percent(row.oracle, 8)}   {off:.1f} -> {on:.1f}{100 * (leading - 1):+8.1f}"
    )


def row_of(name, pairs, condition, seeds, first_seed):
    """The condition's means, beside the gain of each seed."""
    fluid = room = None
    if condition.over == "roce":  # MRC's hosts choose their paths, and the model hashes
        model = condition.fluid(seeds, first_seed)
        fluid = model.mean
        room = model.room(statistics.fmean(pair.off.seconds for pair in pairs), condition.least_s)

    def mean(kind):
        if kind not in pairs[0].by:
            return None
        return statistics.fmean(pair.saved(kind) for pair in pairs)

    return rings.GainRow(
        name, [pair.gain for pair in pairs], fluid, room, mean("no_marks"), mean("oracle")
    )


def grade(lab, name, condition, seeds, chosen):
    """S1, by seeds that the choice of the condition has not seen."""
    fresh = [
        rings.run_pair(lab.run, condition, seed, "S1")
        for seed in range(lab.seed + FRESH, lab.seed + FRESH + seeds)
    ]
    gains = rings.Spread.of(pair.gain for pair in fresh)
    print(
        f"S1, {name}, {seeds} fresh seeds: {gains.percent()} % saved; the seeds that chose it "
        f"have {100 * chosen:.1f}"
    )
    # S1 has no bound: the setting behind the published number is not public.
    lab.metric(
        "S1",
        gains.mean,
        unit="ratio",
        published=rings.PUBLISHED,
        reason=f"{seeds} seeds from {lab.seed + FRESH} on, of the condition with the best "
        f"mean of {seeds} others, {100 * chosen:.1f} %: {name}, {condition}",
    )
    lab.metric("S1-least", gains.least, unit="ratio")
    lab.metric("S1-most", gains.most, unit="ratio")


@ln.scenario
def when(
    lab: ln.Lab,
    hosts: Annotated[int, Field(ge=4, le=64, multiple_of=4)] = 16,
    seeds: Annotated[int, Field(ge=1, le=1000)] = 8,
    step: ln.Size = "4 MB",
    only: str = "",
    oracle: bool = True,
):
    """Time that Symphony's extra marks save, by condition, beside what explains it; minutes.

    `seeds`: pairs of each condition, from the run's seed on; fewer than 20 show a direction and
    no more. As many others grade the best condition. `only`: conditions, with semicolons between
    them. Prints a line for each, in % of the completion time with base marks: saved by extra marks
    (least..most) and its standard error, by no marks at all, by extra marks alone; the fluid gain
    and the room that is left to it; the oracle queue; the mean step gap without and with extra
    marks, and how much later the first rank has its steps."""
    wanted = rings.chosen(only, CONDITIONS, "condition", between=";")
    kinds = ("off", "on", *(("oracle",) if oracle else ()), "no_marks", "alone")
    rows, best = [], None
    print(HEAD)
    for number, name in enumerate(wanted, 1):
        settings = dict(CONDITIONS[name])
        own = ln.Size.of(round(step.bytes * settings.pop("step", 1)))
        condition = rings.Condition(hosts=hosts, step=str(own), **settings)
        pairs = [
            rings.run_pair(lab.run, condition, seed, f"c{number}", kinds)
            for seed in range(lab.seed, lab.seed + seeds)
        ]
        row = row_of(name, pairs, condition, seeds, lab.seed)
        idle = next(
            (each.idle for pair in pairs for each in (pair.off, pair.on) if each.idle), None
        )
        errors = sum(each.errors for pair in pairs for each in pair.by.values())
        gain = statistics.fmean(row.gains)
        print(line(name, pairs, row), flush=True)
        lab.check(f"no-error-c{number}", errors, eq=0)
        lab.metric(
            "gain",
            None if idle else gain,
            unit="ratio",
            label=f"c{number}",
            reason=idle or WEAK.get(name),
            published=rings.PUBLISHED,
        )
        for kind in ("no_marks", "alone"):
            lab.metric(
                f"saved_{kind}",
                statistics.fmean(pair.saved(kind) for pair in pairs),
                unit="ratio",
                label=f"c{number}",
            )
        lab.metric("fluid_gain", row.fluid, unit="ratio", label=f"c{number}")
        lab.metric("room", row.room, unit="ratio", label=f"c{number}")
        rows.append(row)
        if idle is None and name not in WEAK and (best is None or gain > best[0]):
            best = gain, name, condition
    if best:
        chosen, name, condition = best
        grade(lab, name, condition, seeds, chosen)
        both = {}
        for title, switches in (("marks off", "off"), ("extra marks", "on")):
            fabric = condition.fabric(switches)
            r = lab.run(
                fabric,
                condition.job(),
                condition.faults(fabric, lab.seed),
                label=f"picture.{switches}",
                **{condition.over: condition.options()},
            )
            both[title] = r.ring_steps
        rings.steps_figure(both).savefig(lab.directory / "steps.png", dpi=150)
        rings.marks_figure(rings.marks_by_switch(r)).savefig(lab.directory / "marks.png", dpi=150)
    if rows:
        rings.gain_figure(rows, title=f"{hosts} hosts, steps of {step}, {seeds} seeds").savefig(
            lab.directory / "gain.png", dpi=150
        )
