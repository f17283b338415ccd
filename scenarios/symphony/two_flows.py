"""The prototype's setting (Symphony, arXiv 2604.16880): two flows of 1 GB share one link of
10 Gb/s, and the second begins two steps late. The laggard has its steps sooner and the leader ends
a little later; the link carries the same bytes, so the last end stays about where it is. Steps are
1/16 of a flow and hosts are DCQCN's presets A, B and C, whose rates are divided by ten like the
ECN thresholds: our choices, since the publication's are not known."""

from typing import Annotated, Literal

from pydantic import Field

import loomnet as ln

import lib as rings

RATE = "10 Gb/s"
PRESETS = ("A", "B", "C", "D")
# Of the presets, which are for 100 Gb/s.
TENTH = {
    "additive_rate_bps": 5_000_000,
    "hyper_rate_bps": 10_000_000,
    "minimum_rate_bps": 10_000_000,
}
LATE = 2  # steps that the laggard begins late
FOURTH = 4  # step of the laggard at which bar S2 looks
FAR = 32  # steps that two flows may be apart: no ring binds these


def fabric(symphony, identity):
    made = ln.clos.two_tier(
        planes=1,
        leaves=2,
        spines=1,
        hosts_per_leaf=2,
        rate=RATE,
        delay="1 us",
        payload="4096 B",
        pfc=ln.Pfc("4 MB"),
    )
    made.override("*--*", ecn=ln.Ecn("40 kB", "160 kB", share=0.2))
    if symphony:
        made.program("*", "symphony", mode="spaced", tau="1 step", g=FAR, identity=identity)
    return made


def ends(steps):
    """(mean step gap, when the laggard had four steps, when leader and laggard had all), in s."""
    leader, laggard = steps.completions()[0], steps.completions()[1]
    return steps.gap(), laggard[FOURTH - 1], leader[-1], laggard[-1]


def compared(lab, host, size, steps, identity, scaled):
    """Both runs of one kind of hosts, and the checks of bar S2."""
    step_ps = size.bytes * 8 * 10**12 // (steps * ln.Rate(RATE).count)
    # Hosts in turn on two leaves: both flows cross the one uplink.
    job = ln.Flows(
        size,
        count=2,
        pairs=[(0, 1), (2, 3)],
        transport="roce",
        steps=steps,
        starts=["0 s", ln.Time.of(LATE * step_ps)],
    )
    roce = {"preset": host, "identity": identity} | (TENTH if scaled else {})
    runs = {
        name: lab.run(fabric(on, identity), job, label=f"{host}.{name}", roce=roce)
        for name, on in (("off", False), ("on", True))
    }
    found = {name: ends(r.ring_steps) for name, r in runs.items()}
    for name, r in runs.items():
        lab.check(f"no-error-{host}-{name}", r["errors"], eq=0)
        for what, value, unit in zip(
            ("step_gap", "laggard_step_4", "leader_ends", "laggard_ends"),
            found[name],
            ("steps", "s", "s", "s"),
            strict=True,
        ):
            lab.metric(what, value, unit=unit, label=f"{host}.{name}")
    gap, fourth, leader, _ = (on / off for off, on in zip(found["off"], found["on"], strict=True))
    last = max(found["on"][2:]) / max(found["off"][2:])
    lab.check(f"S2-gap-{host}", gap, le=0.5)
    lab.check(f"S2-laggard-step-4-{host}", fourth, le=0.90)
    lab.check(f"S2-leader-ends-{host}", leader, le=1.08)
    alone = (
        "without extra marks the later flow was alone for longer, at the rate that its timers "
        "had left it"
    )
    lab.check(f"S2-last-end-{host}", last, ge=0.97, le=1.01, reason=alone if last < 0.97 else None)
    marks = rings.marks_by_switch(runs["on"])
    lab.check(f"extra-marks-{host}", sum(extra for _, extra in marks.values()), ge=1)
    return runs, marks


@ln.scenario
def two_flows(
    lab: ln.Lab,
    hosts: str = "A,B,C",
    size: ln.Size = "1 GB",
    steps: Annotated[int, Field(ge=FOURTH, le=4096)] = 16,
    identity: Literal["hdr", "sport"] = "hdr",
    scaled: bool = True,
):
    """A leader and a laggard on one link, without and with extra marks: bar S2.

    `hosts`: presets of roce, with commas between. `identity`: the step in a header of its own,
    or in the UDP source port, as the prototype has it. `scaled`: rates of the hosts are a tenth of
    the presets', as the link's is."""
    wanted = [each.strip() for each in hosts.split(",") if each.strip()]
    for host in wanted:
        if host not in PRESETS:
            raise ln.UsageError(f"hosts: no preset {host!r}; there are {', '.join(PRESETS)}")
    if not wanted:
        raise ln.UsageError(f"hosts: names no preset; there are {', '.join(PRESETS)}")
    for host in wanted:
        runs, marks = compared(lab, host, size, steps, identity, scaled)
        named = {"marks off": runs["off"].ring_steps, "extra marks": runs["on"].ring_steps}
        rings.steps_figure(named, names={0: "leader", 1: "laggard"}).savefig(
            lab.directory / f"steps_{host}.png", dpi=150
        )
        rings.marks_figure(marks).savefig(lab.directory / f"marks_{host}.png", dpi=150)
