"""Hostile packets beside a ring (Symphony, arXiv 2604.16880; the rules against them are our
completion): forged progress, implausible steps, a full table, an unknown job, ranks that cannot be.
Hosts of their own send them, two jobs share the uplinks. No mark may lack a witness, and the job
that is not lied about may end at most 5 % later than beside the same senders without claims."""

import statistics
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

import loomnet as ln

import lib as rings

RING, OTHER = "ring", "other"
RANKS = 8
Claim = rings.RingClaim
# By name: what is claimed; options of the program; counters that must rise, and counters that must
# stay 0. The ring is job 0 and begins with step 1, the other is job 1.
ATTACKS = {
    "forged-lag": ([Claim(rank=8, ranks=9)], {}, ["extra_marks"], ["implausible"]),
    "forged-lead": ([Claim(rank=3, ranks=8, step=14)], {}, ["tagged"], ["no_row"]),
    "implausible": ([Claim(rank=3, ranks=8, step=20_000)], {}, ["implausible", "init"], ["no_row"]),
    "table-full": (
        [Claim(ring=1 + i, rank=1, ranks=8) for i in range(64)],
        {"rows": 4},
        ["no_row"],
        ["implausible"],
    ),
    "unknown-job": (
        [Claim(job=77, rank=1, ranks=8)],
        {"jobs": [RING, OTHER]},
        ["bypass"],
        ["implausible", "no_row"],
    ),
    "impossible-rank": (
        [Claim(rank=8, ranks=8), Claim(rank=0, ranks=1), Claim(rank=9_000, ranks=10_000)],
        {},
        ["bypass"],
        ["implausible", "no_row"],
    ),
}


def jobs(claims):
    both = [
        ln.AllReduce(
            ln.Size.of(RANKS * 4_000_000),
            transport="roce",
            queue_pair="per-step",
            whole_steps=True,
            first_step=1,
            name=name,
            hosts=[f"h{first + i}" for i in range(RANKS)],
        )
        for name, first in ((RING, 0), (OTHER, RANKS))
    ]
    return [*both, rings.liars(2 * RANKS, "30 ms", claims)]


def run(lab, claims, options, seed, label, pcap=None):
    fabric = rings.shared_fabric(2 * RANKS).program(
        "*", "symphony", tau="1 step", shift=17, identity="hdr", **options
    )
    return lab.run(
        fabric,
        jobs(claims),
        seed=seed,
        label=f"{label}-{seed}",
        pcap=pcap,
        roce={"preset": "B", "identity": "hdr"},
    )


def end(r, job):
    return float(r.job(job).ring_steps.laggard()[-1])


def without_witness(files):
    """Marks in captures that lack a witness; how many marks there are."""
    seen = [mark for file in files.values() for mark in rings.marks_seen(file)]
    for file in files.values():
        Path(file).unlink()
    return [mark.wrong for mark in seen if mark.wrong], len(seen)


@ln.scenario
def hostile(
    lab: ln.Lab,
    seeds: Annotated[int, Field(ge=1, le=1000)] = 24,
    only: str = "",
    base_marks: Literal["all", "not_owner", "leaders"] = "all",
):
    """Senders that lie about their step, beside two rings.

    `seeds`: pairs of each attack: the same senders with their claims and without. `only`:
    attacks, with commas between them. `base_marks`: rule for the marks of the ports' own."""
    wanted = rings.chosen(only, ATTACKS, "attack")
    print(f"{'attack':<18}{'ring %':>8}{'other %':>9}{'marks':>8}{'without claims':>16}")
    for name in wanted:
        claims, options, rise, stay = ATTACKS[name]
        options = {**options, "base_marks": base_marks}
        changes, marks, honest_marks, counters, wrong = [], 0, 0, {}, []
        for number, seed in enumerate(range(lab.seed, lab.seed + seeds)):
            # Captures of one seed: of the ports that carry both rings up.
            files = (
                {}
                if number
                else {
                    f"p0.leaf{leaf}:p0.spine{spine}": str(
                        lab.directory / f"{name}-{leaf}-{spine}.pcapng"
                    )
                    for leaf in range(2)
                    for spine in range(RANKS)
                }
            )
            honest = run(lab, (), options, seed, f"{name}-honest")
            forged = run(lab, claims, options, seed, name, files)
            wrong += without_witness(files)[0]
            changes.append([end(forged, job) / end(honest, job) - 1 for job in (RING, OTHER)])
            marks += rings.counted(forged, "extra_marks")
            honest_marks += rings.counted(honest, "extra_marks")
            for counter in (*rise, *stay):
                counters[counter] = counters.get(counter, 0) + rings.counted(forged, counter)
            foreign = sum(
                row["extra_marks"]
                for switch in ("p0.leaf0", "p0.leaf1")
                for job, row in forged.switch(switch).by_job().items()
                if job > 1
            )
            counters["foreign"] = counters.get("foreign", 0) + foreign
        ring, other = (statistics.fmean(each) for each in zip(*changes, strict=True))
        print(
            f"{name:<18}{100 * ring:8.1f}{100 * other:9.1f}{marks:8}{honest_marks:16}", flush=True
        )
        for counter in rise:
            lab.check(f"{name}-counts-{counter}", counters[counter], ge=1)
        for counter in stay:
            lab.check(f"{name}-{counter}", counters[counter], eq=0)
        lab.check(f"{name}-marks-of-unknown-jobs", counters["foreign"], eq=0)
        lab.check(f"{name}-without-witness", len(wrong), eq=0, reason=wrong[0] if wrong else None)
        lab.check(f"{name}-other-job-later", other, le=0.05)
        lab.metric("ring_later", ring, unit="ratio", label=name)
