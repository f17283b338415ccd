"""One ring all-reduce whose steps meet on uplinks, with extra marks off, on, or with the oracle
queue (Symphony, arXiv 2604.16880; algorithm, fabric and hosts are our completion). For sweeps:

    loomnet sweep scenarios/symphony/ring.py --set symphony=off,on --set hosts=8,16,32 \\
        --set rehash=step,fixed --seeds 24
"""

from typing import Annotated, Literal

from pydantic import Field

import loomnet as ln

import lib as rings


@ln.scenario
def ring(
    lab: ln.Lab,
    symphony: Literal[
        "off",
        "on",
        "oracle",
        "no_marks",
        "alone",
        "not_owner",
        "leaders",
        "not_random",
        "not_leader",
    ] = "on",
    hosts: Annotated[int, Field(ge=4, le=64, multiple_of=2)] = 16,
    rehash: Literal["step", "fixed"] = "step",
    queue_pair: Literal["persistent", "per-step"] = "persistent",
    host: Literal["A", "B", "C", "D", "timely", "astra-sim", "N"] = "B",
    step: ln.Size = "2 MB",
    jitter: Annotated[float, Field(ge=0, le=100)] = 0.0,
    bursts: Annotated[float, Field(ge=0, lt=1)] = 0.0,
    oversubscription: Annotated[int, Field(ge=1, le=8)] = 1,
    pfc: bool = True,
):
    """One ring all-reduce, for sweeps.

    `symphony`: base marks alone, base or extra marks, the oracle queue, no marks at all, extra
    marks alone, or extra marks with other rules for base marks, of which the last two are controls.
    `rehash`: each step takes the uplink of its own hash, or all steps of a rank take one.
    `queue_pair`: "per-step" also begins each step with a fresh rate, and re-hashes by itself.
    `host`: DCQCN as simulators have it (A), as NICs do (B), B with a short timer (C), a DCTCP-like
    window (D), TIMELY, a window alone (astra-sim), NSCC of MRC (N). `jitter`: mean compute between
    two steps, in steps. `bursts`: share of the time in which an uplink has 20 % of its rate."""
    condition = rings.Condition(
        hosts=hosts,
        rehash=rehash,
        queue_pair=queue_pair,
        host=host,
        step=str(step),
        jitter=jitter,
        bursts=bursts,
        oversubscription=oversubscription,
        pfc=pfc,
    )
    fabric = condition.fabric(symphony)
    r = lab.run(
        fabric,
        condition.job(),
        condition.faults(fabric, lab.seed),
        **{condition.over: condition.options()},
    )
    found = rings.Outcome.of(r, condition)
    lab.check("no-error", found.errors, eq=0)
    # A run whose hosts did not react to marks says nothing of marks.
    reacted = None if found.idle else found.seconds
    lab.metric("completion", reacted, unit="s", reason=found.idle)
    lab.metric("step_gap", found.gap, unit="steps")
    lab.metric("leading", found.leading_s, unit="s")
    lab.metric("lagging", found.lagging_s, unit="s")
    lab.metric("extra_marks", found.extra, unit="packets")
    lab.metric("base_marks", found.base, unit="packets")
    lab.metric("unmarked", found.unmarked, unit="packets")
    for name, value in found.activity.figures().items():
        lab.metric(name, value)
    rings.steps_figure({symphony: r.ring_steps}).savefig(lab.directory / "steps.png", dpi=150)
