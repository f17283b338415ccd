"""What marks a ring needs: the time of each seed with base marks, Symphony's extra marks, none, and
base marks that depend on progress, each beside a control with as many senders spared (Symphony,
arXiv 2604.16880; algorithm, fabric, sizes and hosts are our completion, and so are the rules for
base marks). Then what each costs: queues, PFC's pauses, and the time of another job.

Alignment of steps is shown only where sparing the rearmost sender saves more than sparing a random
one: anything that takes marks away makes this ring faster.

    loomnet run scenarios/symphony/marks.py --set seeds=10
    loomnet run scenarios/symphony/marks.py --set only="hosts B" --set cost=false
"""

import statistics
from dataclasses import replace
from typing import Annotated

from pydantic import Field

import loomnet as ln

import lib as rings

CONDITIONS = {
    "hosts B": {},
    "hosts B, one queue pair": {"queue_pair": "persistent"},
    "hosts C, one queue pair": {"host": "C", "queue_pair": "persistent"},
    "hosts A, low thresholds": {"host": "A", "thresholds": ("5 kB", "200 kB", 0.01)},
    "DCTCP-like, one queue pair": {"host": "D", "queue_pair": "persistent"},
    "window, no control": {"host": "astra-sim"},
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
KINDS = tuple(kind for kind in rings.KINDS if kind != "oracle")
RULED = tuple(kind for kind in KINDS if "base_marks" in (rings.KINDS[kind].program or {}))
BESIDE = "all-to-all"
LOOK = "5 us"  # between two looks at queues


def report(lab, number, name, condition, pairs):
    print(
        f"\n{name}: {condition.hosts} hosts, steps of {condition.step}\n"
        f"{'':<52}{'x ideal':>8}{'gap':>6}{'saved %':>22}{'taken back':>12}"
    )
    label = f"m{number}"
    for kind in KINDS:
        runs = [pair.by[kind] for pair in pairs]
        times = statistics.fmean(each.seconds for each in runs) / condition.least_s
        gap = statistics.fmean(each.gap for each in runs)
        saved = rings.Spread.of(pair.saved(kind) for pair in pairs)
        base = sum(each.base + each.unmarked for each in runs)
        back = sum(each.unmarked for each in runs) / base if base else None
        said = "" if kind == "off" else saved.percent()
        taken = f"{100 * back:10.0f} %" if kind in RULED and back is not None else ""
        print(f"  {rings.KINDS[kind].what:<50}{times:8.2f}{gap:6.2f}{said:>22}{taken:>12}")
        lab.metric("times_ideal", times, unit="ratio", label=f"{label}-{kind}")
        lab.metric("step_gap", gap, unit="steps", label=f"{label}-{kind}")
        if kind != "off":
            lab.metric("saved", saved.mean, unit="ratio", label=f"{label}-{kind}")
            lab.metric("saved_error", saved.error, unit="ratio", label=f"{label}-{kind}")
        if kind in RULED:
            lab.metric(
                "taken_back",
                back,
                unit="ratio",
                label=f"{label}-{kind}",
                reason=None if base else "no packet had a base mark",
            )
    for what, kind, control in (
        ("the rearmost spared, to a random one", "not_owner", "not_random"),
        ("the rearmost spared, to the foremost", "not_owner", "not_leader"),
        ("extra marks alone, to no marks", "alone", "no_marks"),
    ):
        over = rings.Spread.of(
            1 - pair.by[kind].seconds / pair.by[control].seconds for pair in pairs
        )
        verdict = "saves more" if over.clear else "does not save more"
        print(f"  {what}: {over.percent()} %: {verdict}")
        lab.metric(
            f"{kind}_over_{control}",
            over.mean,
            unit="ratio",
            label=label,
            reason=f"{verdict}: {over.percent()} %",
        )


def beside(hosts, step, kind, pfc):
    """A ring of `hosts` and an all-to-all of as many others, which share the uplinks."""
    condition = rings.Condition(hosts=2 * hosts, step=step, oversubscription=2)
    ring = replace(condition, hosts=hosts)
    made = condition.fabric(kind)
    if pfc != "4 MB":
        made.override("*--*", pfc=ln.Pfc(pfc))
    names = [f"h{i}" for i in range(2 * hosts)]
    job = ring.job().model_copy(update={"hosts": tuple(names[:hosts]), "name": "ring"})
    return made, [job, ln.AllToAll(job.size, 2, "roce", name=BESIDE, hosts=names[hosts:])]


def costs(lab, seeds, hosts, step, pfc):
    """Queues and pauses of a ring beside another job, and the other job's time."""
    print(
        f"\na ring of {hosts} beside an all-to-all of {hosts} hosts, PFC from {pfc}\n"
        f"{'':<52}{'ring saved %':>20}{'all-to-all later %':>20}{'p99, kB':>9}{'most':>8}"
        f"{'pauses':>8}"
    )
    found = {}
    for kind in KINDS:
        rows = []
        for seed in range(lab.seed, lab.seed + seeds):
            fabric, jobs = beside(hosts, step, kind, pfc)
            r = lab.run(
                fabric,
                jobs,
                seed=seed,
                label=f"cost-{pfc}-{kind}-{seed}".replace(" ", ""),
                roce={"preset": "B", "identity": "hdr"},
                sample=LOOK,
                links=[rings.UPLINKS],
            )
            waiting = sorted(
                size for looks in r.data.samples.queues.values() for size in looks[:, 1].tolist()
            )
            rows.append(
                (
                    float(r.job("ring").ring_steps.laggard()[-1]),
                    r.job(BESIDE).data.iterations[-1].end_ps / 1e12,
                    waiting[int(0.99 * (len(waiting) - 1))] / 1e3,
                    waiting[-1] / 1e3,
                    rings.counted(r, "pfc_pauses"),
                )
            )
        found[kind] = rows
        saved = rings.Spread.of(
            1 - row[0] / off[0] for row, off in zip(rows, found["off"], strict=True)
        )
        later = rings.Spread.of(
            row[1] / off[1] - 1 for row, off in zip(rows, found["off"], strict=True)
        )
        p99, most, pauses = (statistics.fmean(row[i] for row in rows) for i in (2, 3, 4))
        said = ("", "") if kind == "off" else (saved.percent(), later.percent())
        print(
            f"  {rings.KINDS[kind].what:<50}{said[0]:>20}{said[1]:>20}{p99:9.0f}{most:8.0f}"
            f"{pauses:8.0f}",
            flush=True,
        )
        label = f"{kind}-{pfc.replace(' ', '')}"
        if kind != "off":
            lab.metric("ring_saved", saved.mean, unit="ratio", label=label)
            lab.metric("other_job_later", later.mean, unit="ratio", label=label)
        lab.metric("queue_p99", p99 * 1e3, unit="B", label=label)
        lab.metric("pfc_pauses", pauses, unit="pauses", label=label)


@ln.scenario
def marks(
    lab: ln.Lab,
    seeds: Annotated[int, Field(ge=2, le=1000)] = 10,
    hosts: Annotated[int, Field(ge=4, le=64, multiple_of=4)] = 16,
    step: ln.Size = "4 MB",
    only: str = "",
    cost: bool = True,
    pfc: str = "4 MB,200 kB",
):
    """Which marks make a ring faster or slower, and what they cost others; minutes.

    `seeds`: of each condition, from the run's seed on. `only`: conditions, with semicolons between
    them. `cost`: run a ring beside another job too, with each threshold of PFC that `pfc` lists."""
    wanted = rings.chosen(only, CONDITIONS, "condition", between=";")
    for name in wanted:
        number = list(CONDITIONS).index(name) + 1
        condition = rings.Condition(hosts=hosts, step=str(step), **CONDITIONS[name])
        pairs = [
            rings.run_pair(lab.run, condition, seed, f"m{number}", KINDS)
            for seed in range(lab.seed, lab.seed + seeds)
        ]
        report(lab, number, name, condition, pairs)
        errors = sum(each.errors for pair in pairs for each in pair.by.values())
        lab.check(f"no-error-m{number}", errors, eq=0)
    if cost:
        for each in pfc.split(","):
            costs(lab, seeds, hosts // 2, str(step), each.strip())
