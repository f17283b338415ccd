"""Sums in switches stay exact, whatever the network loses, repeats or reorders: ESA (Wang et al.,
arXiv 2201.06398), ATP (Lao et al., NSDI 2021) and SwitchML (Sapio et al., NSDI 2021)."""

import tempfile
from typing import Annotated

from pydantic import Field

import loomnet as ln

JOBS, WORKERS, SLOT_BYTES = 3, 4, 1056
LOSSES = (0, 0.0001, 0.001, 0.01)
CONTROL_DRAWS = 10  # at most
SHARE = 0.01  # of packets sent twice, and of packets that others overtake
# Options of the switches' program, and of the hosts.
MODES = {
    "esa_completion": ({"policy": "esa", "dealloc": "completion"}, {}),
    "esa_ack": ({"policy": "esa", "dealloc": "ack"}, {}),
    "esa_lazy": ({"policy": "esa", "dealloc": "lazy"}, {}),
    "esa_static_index": ({"policy": "esa"}, {"index_policy": "static"}),
    "esa_index_by_sequence": ({"policy": "esa"}, {"index_policy": "seq"}),
    "esa_results_by_switch": (
        {"policy": "esa"},
        {"index_policy": "static", "result_path": "switch"},
    ),
    "atp_ack": ({"policy": "atp", "dealloc": "ack"}, {}),
    "atp_completion": ({"policy": "atp", "dealloc": "completion"}, {}),
    "switchml": ({"policy": "switchml"}, {}),
}


@ln.scenario
def exact(
    lab: ln.Lab,
    draws: Annotated[int, Field(ge=1, le=1000)] = 1,
    size: ln.Size = "400 kB",
    repeat: Annotated[int, Field(ge=1, le=10_000)] = 4,
    memory: Annotated[float, Field(gt=0, le=8)] = 0.5,
    window: Annotated[int, Field(ge=1, le=4096)] = 32,
    timeout: ln.Time = "1 ms",
):
    """Sums in switches stay exact, whatever the network loses, repeats or reorders. Bar EXACT-1:
    three jobs of four workers sum real int32 on two levels of switches, in every policy and mode,
    and each element of each sum on each worker is compared with the sum that the host computes.

    Every link loses 0, 0.01, 0.1 or 1 % of its packets; each of these is run plainly, and with 1 %
    of all packets sent twice and 1 % overtaken by up to eight others. Switches have `memory` times
    the slots of the jobs' windows, so that jobs collide, swap one another out, and fall through to
    the parameter servers. SwitchML's switches check generations: its published program does not,
    and is exact only where packets stay in order. `timeout` is the first one of all policies.
    """
    how = {"rto_first": timeout.count, "switchml_timeout": timeout.count, "window": window}
    slots = max(2 * JOBS, round(memory * JOBS * window))
    for mode, (program, options) in MODES.items():
        wrong = unfinished = 0
        counts = dict.fromkeys(("lost", "duplicated", "resent"), 0)
        for loss in LOSSES:
            for disordered in (False, True):
                for draw in range(draws):
                    r = run(
                        lab,
                        program,
                        how | options,
                        slots,
                        faults(loss, disordered),
                        jobs(size, repeat),
                        draw,
                    )
                    for name in names():
                        data = r.job(name).data
                        wrong += data.wrong
                        unfinished += data.ended != "finished" or len(data.iterations) < repeat
                    for name, value in counted(r).items():
                        counts[name] += value
        lab.say(f"{mode}: {wrong} wrong elements")
        for name, value in counts.items():
            lab.metric(f"{name}.{mode}", value, unit="packets")
        lab.check(f"EXACT-1-{mode}", wrong, eq=0)
        lab.check(f"finished-{mode}", unfinished, eq=0)
        lab.check(f"faults-met-{mode}", min(counts.values()), ge=1)
    # A control that this finds wrong sums: SwitchML without the check, where packets overtake. In
    # one run of forty no packet is late enough for its slot's next turn.
    found = 0
    for draw in range(CONTROL_DRAWS):
        r = run(
            lab,
            {"policy": "switchml", "generation_check": False},
            how,
            slots,
            faults(LOSSES[1], True),
            jobs(size, repeat, stall_timeout="1 s"),
            draw,
        )
        found += sum(r.job(name).data.wrong for name in names())
        if found:
            break
    lab.metric("wrong.switchml_unchecked", found, unit="elements")
    lab.check("control", found, ge=1)
    # The report's rows of jobs are those of ESA under the worst of it.
    lab.run(
        fabric({"policy": "esa"}, slots),
        jobs(size, repeat),
        faults(LOSSES[-1], True),
        label="worst",
        payload=True,
        reroute_delay="off",
        ina=how,
    )


def fabric(program, slots):
    """Two racks, with half of each job's workers in each."""
    made = ln.clos.two_tier(
        planes=1,
        leaves=2,
        spines=1,
        hosts_per_leaf=JOBS * WORKERS // 2,
        rate="10 Gb/s",
        delay="1 us",
    )
    return made.program("*", "aggregate", pool=slots * SLOT_BYTES, **program)


def names():
    return [f"job{job}" for job in range(JOBS)]


def jobs(size, repeat, **more):
    half, rack = WORKERS // 2, JOBS * WORKERS // 2
    return [
        ln.AllReduce(
            size,
            repeat=repeat,
            allreduce="ina",
            name=name,
            hosts=[f"h{r * rack + half * job + n}" for r in range(2) for n in range(half)],
            **more,
        )
        for job, name in enumerate(names())
    ]


def faults(loss, disordered):
    rows = [ln.loss("*--*", loss, at="0 s")] if loss else []
    if disordered:
        rows += [ln.duplicate("*--*", SHARE, at="0 s"), ln.reorder("*--*", SHARE, at="0 s")]
    return rows


def run(lab, program, ina, slots, rows, work, draw):
    with tempfile.TemporaryDirectory() as folder:
        inner = ln.Lab("exact", clock=lab.clock, seed=lab.seed + draw, directory=folder)
        return inner.run(
            fabric(program, slots), work, rows, payload=True, reroute_delay="off", ina=ina
        )


def counted(r):
    totals = r.job(names()[0]).data.totals
    links = [row for name, row in totals.items() if name.startswith("link ")]
    nics = [row for name, row in totals.items() if name.startswith("nic ")]
    return {
        "lost": sum(row.get("drop_loss", 0) for row in links),
        "duplicated": sum(row.get("duplicated", 0) for row in links),
        "resent": sum(row.get("ina.resend", 0) + row.get("ina.timeout", 0) for row in nics),
    }
