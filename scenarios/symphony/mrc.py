"""A ring all-reduce over transports on which an extra mark of Symphony (arXiv 2604.16880) does not
slow a queue pair's rate as DCQCN does: on MRC a marked path passes its turn first, and TCP is known
by its sequence numbers alone. Each seed runs with the marks off and on; the result is whether they
help, do nothing or hurt. Fabric, sizes and the program are our completion.

    loomnet run scenarios/symphony/mrc.py --set bursts=0.3
    loomnet run scenarios/symphony/mrc.py --set transport=dctcp
"""

import statistics
from typing import Annotated, Literal

from pydantic import Field

import loomnet as ln
from loomnet.measures.congestion_control import ControlActivity

import lib as rings

# Thresholds: MRC's own, by the fabric's round trip; a step for DCTCP; DCQCN's for CUBIC, which
# lowers its window once a round trip, however many packets are marked.
TRANSPORTS = {
    "mrc": {"ecn": True, "mode": "spaced", "options": {"mrc": {"identity": "hdr"}}},
    "dctcp": {
        "ecn": ln.Ecn("150 kB"),
        "mode": "prob",
        "options": {"tcp": {"cc": "dctcp", "ecn": True}},
    },
    "cubic": {"ecn": None, "mode": "spaced", "options": {"tcp": {"cc": "cubic", "ecn": True}}},
}


def fabric(transport, hosts, step, over, symphony):
    made_for = TRANSPORTS[transport]
    if transport == "mrc":  # over lossy queues of its own length, which trim
        made = ln.clos.two_tier(
            planes=1,
            leaves=2,
            spines=hosts // (2 * over),
            hosts_per_leaf=hosts // 2,
            rate="100 Gb/s",
            delay="1 us",
        )
    else:
        made = rings.ring_fabric(hosts, oversubscription=over, pfc=False, ecn=made_for["ecn"])
    if symphony:
        by = {"identity": "hdr"} if transport == "mrc" else {"identity": "seq", "step": step}
        made.program("*", "symphony", mode=made_for["mode"], tau="1 step", **by)
    return made


def figures(r, sent):
    """`sent`: bytes that a rank sends."""
    steps, activity = r.ring_steps, ControlActivity.of(r.data.totals)
    ends = float(steps.laggard()[-1])
    return {
        "completion": ends,
        "goodput": sent * 8 / ends,
        "step_gap": steps.gap(),
        "extra_marks": rings.counted(r, "extra_marks"),
        "base_marks": rings.counted(r, "base_marks"),
        "tagged": rings.counted(r, "tagged"),
        "marks": activity.marks,
        "cuts": activity.cuts,
        "turns_passed": activity.path_skips,
        "paths_swapped": activity.path_swaps,
        "retransmitted": rings.counted(r, "retransmitted"),
    }


def verdict(gains):
    """By the mean and twice its standard error over the seeds."""
    mean = statistics.fmean(gains)
    error = statistics.stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else float("inf")
    least, most = min(gains), max(gains)
    said = f"{100 * mean:.1f} % ± {200 * error:.1f} ({100 * least:.0f}..{100 * most:.0f})"
    if len(gains) < 2:
        return f"one seed says nothing: {said}"
    if mean > 2 * error:
        return f"helps: {said}"
    if mean < -2 * error:
        return f"hurts: {said}"
    return f"does nothing that its spread does not: {said}"


UNITS = {"completion": "s", "goodput": "b/s", "step_gap": "steps"}


@ln.scenario
def mrc(
    lab: ln.Lab,
    transport: Literal["mrc", "dctcp", "cubic"] = "mrc",
    hosts: Annotated[int, Field(ge=4, le=64, multiple_of=4)] = 16,
    seeds: Annotated[int, Field(ge=1, le=1000)] = 6,
    step: ln.Size = "1 MB",
    repeat: Annotated[int, Field(ge=1, le=100)] = 1,
    jitter: Annotated[float, Field(ge=0, le=100)] = 0.3,
    bursts: Annotated[float, Field(ge=0, lt=1)] = 0.3,
    oversubscription: Annotated[int, Field(ge=1, le=2)] = 1,
):
    """What Symphony's extra marks do over MRC and TCP.

    `seeds`: pairs, from the run's seed on. `jitter`: mean compute between two steps, in steps.
    `bursts`: share of the time in which an uplink has 20 % of its rate. `repeat`: all-reduces."""
    bits = step.bytes * 8
    job = ln.AllReduce(
        ln.Size.of(step.bytes * hosts),
        repeat,
        transport="mrc" if transport == "mrc" else "tcp",
        whole_steps=True,
        step_jitter=jitter,
    )
    rounds = 2 * (hosts - 1) * repeat
    until = ln.Time.of(8 * rounds * bits * 10**12 // rings.RATE_BPS)
    found = {"off": [], "on": []}
    errors = 0
    for seed in range(lab.seed, lab.seed + seeds):
        for how, rows in found.items():
            made = fabric(transport, hosts, step, oversubscription, how == "on")
            faults = (
                []
                if not bursts
                else ln.bursts(
                    made,
                    rings.UPLINKS,
                    until=until,
                    share=bursts,
                    to=0.2,
                    seed=seed,
                    mean=ln.Time.of(5 * bits * 10**12 // rings.RATE_BPS),
                )
            )
            r = lab.run(
                made,
                job,
                faults,
                seed=seed,
                label=f"{how}.{seed}",
                **TRANSPORTS[transport]["options"],
            )
            errors += int(r["errors"] or 0)
            rows.append(figures(r, rounds * step.bytes))
    lab.check("no-error", errors, eq=0)
    print(f"{transport}, {hosts} hosts, {seeds} seeds: means without and with extra marks")
    for name in found["off"][0]:
        off, on = (statistics.fmean(row[name] for row in found[how]) for how in ("off", "on"))
        print(f"  {name:<16}{off:14.6g}{on:14.6g}")
        for how, value in (("off", off), ("on", on)):
            lab.metric(name, value, unit=UNITS.get(name, "packets"), label=how)
    gains = [
        1 - on["completion"] / off["completion"]
        for off, on in zip(found["off"], found["on"], strict=True)
    ]
    said = verdict(gains)
    print(f"  extra marks: {said}")
    # A result, with no bound to meet.
    lab.metric("gain", statistics.fmean(gains), unit="ratio", reason=said)
    lab.check("tagged", min(row["tagged"] for row in found["on"]), ge=1)
