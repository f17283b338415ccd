"""The bars of Symphony (arXiv 2604.16880) that a run can show, as checks of their names: S3 to S15.
S1 is in when.py, S2 in two_flows.py. Values and settings of the bars are our completion, since the
publication's are not known. A bar that does not hold stays a failing check.

    loomnet run scenarios/symphony/bars.py                    # all, 24 seeds: some minutes
    loomnet run scenarios/symphony/bars.py --set only=S3,S11 --set seeds=6
"""

import hashlib
import random
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from pydantic import Field

import loomnet as ln

import lib as rings

WARM = 2  # epochs after which a new row marks, the program's default
ON = {"tau": "1 step", "shift": 17, "identity": "hdr"}
HOSTS = {"preset": "B", "identity": "hdr"}
BARS: dict[str, Callable[..., None]] = {}
FLUID = ("S4", "S5", "S6")  # these send no packets


def bar(run):
    BARS[run.__name__.upper()] = run
    return run


def seeds_of(lab, count):
    return range(lab.seed, lab.seed + count)


def leaders(lab, label, pairs):
    """S13: when the first rank had its steps, mean over steps and seeds, without and with marks."""
    off, on = (statistics.fmean(each) for each in zip(*pairs, strict=True))
    lab.metric("S13-leading", off, unit="s", label=f"{label}-off")
    lab.metric("S13-leading", on, unit="s", label=f"{label}-on")
    lab.metric("S13-leader-later", on / off - 1, unit="ratio", label=label)


def captures(lab, fabric, label):
    """Files of all ports between switches."""
    files = {}
    for link in fabric.all_links():
        if link.a not in fabric.hosts and link.b not in fabric.hosts:
            for a, b in ((link.a, link.b), (link.b, link.a)):
                files[f"{a}:{b}"] = str(lab.directory / f"{label}-{a}-{b}.pcapng")
    return files


def ring_of(ranks, step, **more):
    return ln.AllReduce(
        ln.Size.of(ln.Size(step).bytes * ranks),
        transport="roce",
        **{"queue_pair": "per-step", "whole_steps": True, "name": "ring", **more},
    )


@bar
def s3(lab, seeds):
    for hosts, step in ((16, "4 MB"), (32, "2 MB")):
        condition = rings.Condition(hosts=hosts, step=step)
        pairs = [
            rings.run_pair(
                lab.run, condition, seed, f"S3-{hosts}", ("off", "on", "no_marks", "alone")
            )
            for seed in seeds_of(lab, seeds)
        ]
        off, on = (
            statistics.fmean(getattr(pair, kind).gap for pair in pairs) for kind in ("off", "on")
        )
        gains = [pair.gain for pair in pairs]
        idle = sum(pair.off.idle is not None or pair.on.idle is not None for pair in pairs)
        lab.check(f"S3-control-at-work-{hosts}", idle, eq=0)
        lab.check(f"S3-gap-{hosts}", on / off - 1, le=-0.15)
        lab.check(f"S3-completion-{hosts}", statistics.fmean(gains), ge=-0.05)
        lab.metric("gain_least", min(gains), unit="ratio", label=f"S3-{hosts}")
        lab.metric("gain_most", max(gains), unit="ratio", label=f"S3-{hosts}")
        for kind in ("no_marks", "alone"):  # beside the bar: what marks cost, and extra ones alone
            lab.metric(
                f"saved_{kind}",
                statistics.fmean(pair.saved(kind) for pair in pairs),
                unit="ratio",
                label=f"S3-{hosts}",
            )
        leaders(lab, f"S3-{hosts}", [(pair.off.leading_s, pair.on.leading_s) for pair in pairs])


def fluid(case):
    return {n: 100 * rings.fluid_gain(n, **rings.CASES[case]).mean for n in (8, 16, 32)}


@bar
def s4(lab, seeds):
    for hosts, gain in fluid("fixed + jitter").items():
        lab.check(f"S4-{hosts}", gain, ge=-2, le=2)


@bar
def s5(lab, seeds):
    found = fluid("re-hash")
    for (hosts, gain), earlier in zip(found.items(), rings.EARLIER["re-hash"], strict=True):
        lab.check(f"S5-{hosts}", gain, approx=earlier, abs=2)
    lab.check("S5-grows", list(found.values()) == sorted(found.values()), eq=1)


@bar
def s6(lab, seeds):
    for (hosts, gain), earlier in zip(
        fluid("re-hash + bursts").items(), rings.EARLIER["re-hash + bursts"], strict=True
    ):
        lab.check(f"S6-{hosts}", gain, approx=earlier, abs=4)


@bar
def s7(lab, seeds):
    """Packets carry step headers in both runs."""
    condition = rings.Condition(hosts=8, step="1 MB", jitter=0.3)
    sums = {}
    for name in ("forward", "off", "on"):
        fabric = condition.fabric("off")
        if name != "forward":
            fabric.program("*", "symphony", enable=name == "on", **ON)
        files = captures(lab, fabric, f"S7-{name}")
        trace = lab.directory / f"S7-{name}.trace"
        lab.run(
            fabric,
            condition.job(),
            seed=lab.seed,
            roce=condition.options(),
            label=f"S7-{name}",
            pcap=files,
            trace=str(trace),
        )
        sums[name] = [digest(each) for each in (trace, *files.values())]
        remove({"trace": trace, **files})
    for name, sign in (("off", "eq"), ("on", "ge")):
        differing = sum(a != b for a, b in zip(sums["forward"], sums[name], strict=True))
        # With marks on, files do differ: the comparison can tell.
        lab.check(f"S7-files-that-differ-{name}", differing, **{sign: 0 if name == "off" else 1})
    lab.metric("S7-files", len(sums["off"]), unit="files")


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@bar
def s8(lab, seeds):
    """Eight flows of each leaf on one uplink. Senders are ECN-capable, and marks do not slow them:
    their least rate is the line rate."""
    options = HOSTS | {"minimum_rate_bps": rings.RATE_BPS}
    for mode in ("spaced", "prob"):
        for name in ("aligned", "late"):
            fabric = rings.ring_fabric(16, oversubscription=8, pfc=False, ecn=ln.Ecn("60 MB"))
            fabric.program("*", "symphony", mode=mode, **ON)
            # A host that is late on purpose gets its ring marked: marks are possible here.
            late = [ln.degrade("h3--p0.leaf1", 0.1, at="0 s", duration="1 s")]
            r = lab.run(
                fabric,
                ring_of(16, "4 MB"),
                late if name == "late" else [],
                seed=lab.seed,
                roce=options,
                label=f"S8-{mode}-{name}",
            )
            if name == "aligned":
                lab.check(f"S8-extra-marks-{mode}", rings.counted(r, "extra_marks"), eq=0)
                lab.check(f"S8-base-marks-{mode}", rings.counted(r, "base_marks"), eq=0)
                lab.metric(
                    "S8-largest-gap",
                    max_counter(r, "largest_gap") / rings.STEP,
                    unit="steps",
                    label=mode,
                )
            else:
                lab.check(f"S8-marks-of-a-late-ring-{mode}", rings.counted(r, "extra_marks"), ge=1)


def max_counter(r, counter):
    return max(row.get(counter, 0) for row in r.data.totals.values())


@bar
def s9(lab, seeds):
    condition = rings.Condition(hosts=16, step="1 MB", jitter=0.3)
    found = []
    for first in (0, 65_530):
        r = lab.run(
            condition.fabric("on"),
            ring_of(16, "1 MB", step_jitter=0.3, first_step=first),
            seed=lab.seed,
            roce=condition.options(),
            label=f"S9-{first}",
        )
        found.append((r.ring_steps.rows[:, [0, 1, 3]].tolist(), rings.marks_by_switch(r)))
    lab.check("S9-same-times", found[0][0] == found[1][0], eq=1)
    lab.check("S9-same-marks", found[0][1] == found[1][1], eq=1)
    lab.check("S9-marks", sum(extra for _, extra in found[0][1].values()), ge=1)


@bar
def s10(lab, seeds):
    """Random rings; every port between switches is captured. Golden vectors and 400 rings more are
    tests of the engine and of the kernel's build."""
    marks, counts, wrong = 0, 0, []
    for seed in seeds_of(lab, seeds):
        rng = random.Random(f"S10 {seed}")
        prob = rng.random() < 0.5
        condition = rings.Condition(
            hosts=rng.choice((4, 6, 8)),
            step=rng.choice(("300 kB", "1 MB", "2 MB")),
            queue_pair=rng.choice(("per-step", "persistent")),
            host="D" if prob else rng.choice("ABC"),
            jitter=rng.choice((0, 0.3, 1)),
            bursts=rng.choice((0, 0.3)),
        )
        fabric = condition.fabric("on").program(
            "*", "symphony", mode="prob" if prob else "spaced", **ON
        )
        files = captures(lab, fabric, f"S10-{seed}")
        job = condition.job().model_copy(
            update={"first_step": rng.choice((0, 60_000, 65_530)), "channels": rng.choice((1, 2))}
        )
        r = lab.run(
            fabric,
            job,
            condition.faults(fabric, seed),
            seed=seed,
            roce=condition.options(),
            label=f"S10-{seed}",
            pcap=files,
        )
        seen = [mark for file in files.values() for mark in rings.marks_seen(file)]
        marks += len(seen)
        counts += rings.counted(r, "extra_marks")
        wrong += [mark.wrong for mark in seen if mark.wrong] + [
            "in warm-up" for mark in seen if mark.epochs < WARM
        ]
        remove(files)
    lab.check("S10-marks-in-captures-of-those-counted", marks - counts, eq=0)
    lab.check("S10-marks", marks, ge=seeds)
    lab.check("S10-without-witness", len(wrong), eq=0, reason=wrong[0] if wrong else None)


def remove(files):
    for file in files.values():
        Path(file).unlink()


def lied_to(lab, seeds, label, **program):
    """Of each seed: the share by which a ring takes longer with a false laggard than without marks
    beside the same senders without claims; extra marks, and the leading ranks' times."""
    hosts = 8
    claim = (rings.RingClaim(rank=hosts, ranks=hosts + 1),)
    longer, marks, leading = [], 0, []
    for seed in seeds_of(lab, seeds):
        found = {}
        for name in ("off", "lie"):
            fabric = rings.shared_fabric(hosts)
            if name == "lie":
                fabric.program("*", "symphony", mode="spaced", **ON, **program)
            jobs = [
                ring_of(hosts, "4 MB", first_step=1, hosts=[f"h{i}" for i in range(hosts)]),
                rings.liars(hosts, "30 ms", claim if name == "lie" else ()),
            ]
            r = lab.run(fabric, jobs, seed=seed, label=f"{label}-{name}-{seed}", roce=HOSTS)
            found[name] = r.job("ring").ring_steps
            marks += rings.counted(r, "extra_marks")
        longer.append(found["lie"].laggard()[-1] / found["off"].laggard()[-1] - 1)
        leading.append([float(found[name].leader().mean()) for name in ("off", "lie")])
    return longer, marks, leading


@bar
def s11(lab, seeds):
    """Hosts of their own send a packet by every uplink about every 60 us, which says: rank 8 of
    this ring is in step 0. The ring is in steps 1 to 14."""
    longer, marks, leading = lied_to(lab, seeds, "S11")
    mean = statistics.fmean(longer)
    lab.check(
        "S11-longer",
        mean,
        le=0.10,
        reason=None
        if mean <= 0.10
        else (
            "the gate of one packet stays open: the false laggard's own packet leaves a queue of "
            "one behind a sender at line rate, and a queue of one neither grows nor drains"
        ),
    )
    lab.check("S11-marks", marks, ge=1)
    lab.metric("S11-most", max(longer), unit="ratio")
    leaders(lab, "S11", leading)
    for gate in (2, 4, 16):
        other, _, _ = lied_to(lab, min(seeds, 8), f"S11-gate{gate}", gate=gate)
        lab.metric("S11-longer", statistics.fmean(other), unit="ratio", label=f"gate-{gate}")


@bar
def s12(lab, seeds):
    """One kind of hosts that do not see marks, TIMELY. HPCC is not implemented, so that hosts which
    read telemetry were not tried."""
    condition = rings.Condition(hosts=16, step="2 MB", host="timely", jitter=0.3)
    pairs = [
        rings.run_pair(lab.run, condition, seed, "S12") for seed in seeds_of(lab, min(seeds, 6))
    ]
    lab.check("S12-marks", sum(pair.on.extra for pair in pairs), ge=1)
    off = [pair.off.seconds for pair in pairs]
    noise = statistics.stdev(off) / statistics.fmean(off) if len(off) > 1 else 0
    lab.check("S12-completion-differs", max(abs(pair.gain) for pair in pairs), le=noise)
    lab.metric("S12-seed-noise", noise, unit="ratio")
    leaders(lab, "S12", [(pair.off.leading_s, pair.on.leading_s) for pair in pairs])


@bar
def s14(lab, seeds):
    fabric = rings.ring_fabric(16, oversubscription=2).program("*", "symphony", **ON)
    files = captures(lab, fabric, "S14")
    jobs = [
        ring_of(8, "4 MB", channels=4, hosts=[f"h{i}" for i in range(8)]),
        ring_of(8, "4 MB", channels=4, name="other", hosts=[f"h{i}" for i in range(8, 16)]),
    ]
    r = lab.run(fabric, jobs, seed=lab.seed, roce=HOSTS, label="S14-channels", pcap=files)
    rows = [
        (name, row["egress"], row["job"], row["ring"])
        for name in fabric.switches
        for row in r.switch(name).snapshot()["rings"]
        if row["state"]
    ]
    mixed = [mark.wrong for file in files.values() for mark in rings.marks_seen(file) if mark.wrong]
    remove(files)
    lab.check("S14-rings", len({row[2:] for row in rows}), eq=8)
    lab.check("S14-rows-that-stand-twice", len(rows) - len(set(rows)), eq=0)
    # A row that mixed two rings would begin again, or mark without a witness of its own ring.
    lab.check("S14-rows-begun-again", rings.counted(r, "init") - len(rows), eq=0)
    lab.check("S14-marks-by-another-ring", len(mixed), eq=0)
    lab.check("S14-marks", rings.counted(r, "extra_marks"), ge=1)

    times, leading = [], []
    for seed in seeds_of(lab, seeds):
        found = {}
        for name in ("off", "on"):
            fabric = rings.ring_fabric(16, oversubscription=2)
            if name == "on":
                fabric.program("*", "symphony", jobs=["ring"], **ON)
            jobs = [
                ring_of(8, "4 MB", name=each, hosts=[f"h{first + i}" for i in range(8)])
                for each, first in (("ring", 0), ("background", 8))
            ]
            found[name] = lab.run(fabric, jobs, seed=seed, label=f"S14-{name}-{seed}", roce=HOSTS)
        background = [found[name].job("background").ring_steps.laggard()[-1] for name in found]
        times.append(background[1] / background[0] - 1)
        leading.append(
            [float(each.job("ring").ring_steps.leader().mean()) for each in found.values()]
        )
    lab.check("S14-background", statistics.fmean(times), ge=-0.05, le=0.05)
    leaders(lab, "S14", leading)


@bar
def s15(lab, seeds):
    """A communicator per round; the number of its incarnation is all that differs."""
    early, wrong, before, after, missed = 0, 0, 0, 0, 0
    for seed in seeds_of(lab, min(seeds, 6)):
        fabric = rings.ring_fabric(8).program("*", "symphony", **ON)
        files = captures(lab, fabric, f"S15-{seed}")
        job = ring_of(8, "1 MB", repeat=3, new_communicator_every=1, step_jitter=0.5)
        r = lab.run(fabric, job, seed=seed, roce=HOSTS, label=f"S15-{seed}", pcap=files)
        seen = [mark for file in files.values() for mark in rings.marks_seen(file)]
        missed += rings.counted(r, "extra_marks") - len(seen)
        early += sum(mark.epochs < WARM for mark in seen)
        wrong += sum(mark.wrong is not None for mark in seen)
        before += sum(mark.departure.gen == 0 for mark in seen)
        after += sum(mark.departure.gen > 0 for mark in seen)
        remove(files)
    lab.check("S15-marks-in-warm-up", early, eq=0)
    lab.check("S15-marks-that-no-capture-has", missed, eq=0)
    lab.check("S15-without-witness", wrong, eq=0)
    lab.check("S15-marks-before", before, ge=1)
    # Two of three rounds come after a restart: normal marking is as much in each as in the first.
    lab.check("S15-marks-afterwards", after / max(2 * before, 1), ge=0.5)


@ln.scenario
def bars(lab: ln.Lab, seeds: Annotated[int, Field(ge=1, le=1000)] = 24, only: str = ""):
    """What must hold of Symphony, as checks: bars S3 to S15.

    `seeds`: paired runs of each bar that compares completion times. `only`: bars, with commas
    between them."""
    wanted = rings.chosen(only, BARS, "bar")
    if all(name in FLUID for name in wanted):
        raise ln.UsageError(
            f"only: {', '.join(wanted)} send no packets, and a scenario must; add "
            f"a bar that does, as only={wanted[0]},S8"
        )
    for name in wanted:
        BARS[name](lab, seeds)
    results = {name for name in wanted if name in ("S3", "S11", "S12", "S14")}
    stated = {row.label.split("-")[0] for row in lab.report.rows if row.name == "S13-leader-later"}
    lab.check("S13-results-without-leaders", len(results - stated), eq=0)
    failed = [each.name for each in lab.report.failed]
    print(f"{len(lab.report.checks)} checks, failing: {', '.join(failed) or 'none'}")
