"""The prototype's setting (Symphony, arXiv 2604.16880): two flows of 1 GB share one link of
10 Gb/s, and the second begins two steps late. The leader waits for the laggard and loses a little;
the link carries the same bytes, so the later end stays where it is. Host constants are those of
100 Gb/s, with rates and ECN thresholds divided by ten; steps are 1/16 of a flow, which is our
choice."""

from typing import Literal

import loomnet as ln
from loomnet.systems import symphony as rings

RATE = "10 Gb/s"
TENTH = {"additive_rate_bps": 5_000_000, "hyper_rate_bps": 10_000_000,
         "minimum_rate_bps": 10_000_000}
LATE = 2  # steps that the laggard begins late
FAR = 32  # steps that two flows may be apart: no ring binds these


def fabric(symphony, identity):
    made = ln.clos.two_tier(planes=1, leaves=2, spines=1, hosts_per_leaf=2, rate=RATE, delay="1 us",
                            payload="4096 B", pfc=ln.Pfc("4 MB"))
    made.override("*--*", ecn=ln.Ecn("40 kB", "160 kB", share=0.2))
    if symphony:
        made.program("*", "symphony", mode="spaced", tau="1 step", g=FAR, identity=identity)
    return made


def ends(steps):
    """(mean step gap, when the laggard had four steps, when leader and laggard had all), in s."""
    leader, laggard = steps.completions()[0], steps.completions()[1]
    return steps.gap(), laggard[3], leader[-1], laggard[-1]


@ln.scenario
def two_flows(lab: ln.Lab, size: ln.Size = "1 GB", steps: int = 16,
              host: Literal["A", "B", "C"] = "B", identity: Literal["hdr", "sport"] = "hdr"):
    """`identity`: the step in a header of its own, or in the UDP source port, as the prototype has
    it."""
    step_ps = size.bytes * 8 * 10**12 // (steps * ln.Rate(RATE).count)
    job = ln.Flows(size, count=2, pairs=[(0, 1), (2, 3)], transport="roce", steps=steps,
                   starts=["0 s", ln.Time.of(LATE * step_ps)])
    roce = {"preset": host, "identity": identity} | TENTH
    runs = {name: lab.run(fabric(on, identity), job, label=name, roce=roce)
            for name, on in (("off", False), ("on", True))}
    found = {name: ends(r.ring_steps) for name, r in runs.items()}
    for name, r in runs.items():
        lab.check(f"no-error-{name}", r["errors"], eq=0)
        for what, value, unit in zip(("step_gap", "laggard_step_4", "leader_ends", "laggard_ends"),
                                     found[name], ("steps", "s", "s", "s"), strict=True):
            lab.metric(what, value, unit=unit, label=name)
    gap, fourth, leader, laggard = (on / off for off, on in zip(found["off"], found["on"],
                                                              strict=True))
    last = max(found["on"][2:]) / max(found["off"][2:])
    lab.check("S2-gap", gap, le=0.5)
    lab.check("S2-laggard-step-4", fourth, le=0.90)
    lab.check("S2-leader-ends", leader, le=1.08)
    lab.check("S2-last-end", last, ge=0.97, le=1.01)
    lab.metric("laggard_ends_ratio", laggard, unit="ratio")
    marks = rings.marks_by_switch(runs["on"])
    lab.check("extra-marks", sum(extra for _, extra in marks.values()), ge=1)
    names = {0: "leader", 1: "laggard"}
    rings.steps_figure({"marks off": runs["off"].ring_steps, "extra marks": runs["on"].ring_steps},
                       names=names).savefig(lab.directory / "steps.png", dpi=150)
    rings.marks_figure(marks).savefig(lab.directory / "marks.png", dpi=150)
