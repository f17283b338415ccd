"""Real PyTorch DDP of eight ranks whose gradients go round a ring over RoCE, with one uplink slow
and Symphony's extra marks off and on (arXiv 2604.16880; algorithm, fabric, hosts and sizes are our
completion). On the virtual clock links have 100 Gb/s. Live they have 10 Gb/s in emulated time,
stretched 250-fold, which is 40 Mb/s for each rank on the wall; no constant of the hosts is scaled.

    loomnet run scenarios/symphony/ddp.py
    sudo loomnet run scenarios/symphony/ddp.py --clock live
"""

import statistics
from typing import Annotated, Literal

from pydantic import Field

import loomnet as ln
from loomnet.measures.congestion_control import ControlActivity, if_controlled
from loomnet.systems import roce

import lib as rings

LOG = r"step (?P<step>\d+) loss (?P<loss>\S+)"
SLOW = "p0.leaf0->p0.spine0"  # the uplink that is degraded
LIVE_DILATION = 250.0  # the least at which 10 Gb/s of eight ranks fit a small machine


def network(ranks, rate, *, symphony, live):
    # Live switches send no pause frames; their queues are long enough to lose nothing.
    fabric = rings.ring_fabric(
        ranks, rate=rate, delay="1 us", pfc=not live, payload="2048 B" if live else "4096 B"
    )
    if symphony:
        fabric.program("*", "symphony", mode="spaced", tau="1 step", identity="hdr")
    # Frames that switches in the kernel would carry too; placed in the engine, they cost a fifth.
    return fabric.place("p*", "engine")


@ln.scenario
def ddp(
    lab: ln.Lab,
    steps: Annotated[int, Field(ge=3, le=10_000)] = 12,
    hidden: Annotated[int, Field(ge=64, le=4096)] = 1024,
    ranks: Annotated[int, Field(ge=4, le=32, multiple_of=2)] = 8,
    slow: Annotated[float, Field(gt=0, le=1)] = 0.4,
    rehash: Literal["step", "fixed"] = "step",
    host: Literal["A", "B", "C"] = "B",
    rate: ln.Rate | None = None,
    compute: ln.Time = "0.2 ms",
    dilation: Annotated[float, Field(ge=1)] = LIVE_DILATION,
):
    """PyTorch DDP on eight ranks with a slow uplink, extra marks off and on.

    `hidden`: neurons of the outer layers; 1024 give a gradient of 17 MB in one all-reduce, so
    ring steps of 2.1 MB. `slow`: the degraded uplink's share of its rate. `rehash`: each ring step
    takes the uplink of its own hash, or all steps of a rank take one. `host`: preset of DCQCN.
    `compute`: of an iteration, on the virtual clock. `dilation`: live."""
    live = lab.clock == "live"
    line = rate or ln.Rate("10 Gb/s" if live else "100 Gb/s")
    options = {"preset": host, "identity": "hdr", "rehash": rehash}
    stated = roce.host_parameters({**options, "line_rate_bps": line.count})
    faults = [ln.degrade(SLOW, slow, at="0 s")] if slow < 1 else []
    job = ln.TorchJob(
        "../train.py",
        ranks=ranks,
        transport="roce",
        compute=compute,
        log=LOG,
        args=[
            f"--steps={steps}",
            f"--hidden={hidden}",
            f"--seed={lab.seed}",
            "--bucket-mb=256",
            "--timeout=600",
        ],
    )
    curves, seconds, runs = {}, {}, {}
    for how in ("off", "on"):
        fabric = network(ranks, line, symphony=how == "on", live=live)
        r = runs[how] = lab.run(
            fabric, job, faults, label=how, roce=options, **({"dilation": dilation} if live else {})
        )
        lab.check(f"no-rank-error-{how}", r["errors"], eq=0)
        lab.check(f"kept-up-{how}", int(r.data.fidelity.fell_behind is None), eq=1)
        curves[how] = [loss for _, loss in r.loss_curve]
        activity = ControlActivity.of(r.data.totals)
        lengths = [each.length_ps / 1e12 for each in r.data.iterations[1:]]
        # A run whose hosts did not react to marks says nothing of marks.
        seconds[how], why = if_controlled(
            statistics.median(lengths) if lengths else None, activity, stated
        )
        lab.metric("iteration", seconds[how], unit="s", label=how, reason=why)
        for name, value in activity.figures().items():
            lab.metric(name, value, label=how)
        lab.metric("step_gap", r.ring_steps.gap(), unit="steps", label=how)
        for counter in ("tagged", "extra_marks", "base_marks"):
            lab.metric(counter, rings.counted(r, counter), unit="packets", label=how)
    both = seconds["off"] and seconds["on"]
    lab.metric(
        "gain",
        1 - seconds["on"] / seconds["off"] if both else None,
        unit="ratio",
        published=rings.PUBLISHED,
        reason=None if both else "see iteration",
    )
    lab.check(
        "losses-that-differ",
        sum(a != b for a, b in zip(curves["off"], curves["on"], strict=True)),
        eq=0,
    )
    lab.check("learned-in-all-steps", len(curves["on"]), eq=steps)
    lab.check("tagged", rings.counted(runs["on"], "tagged"), ge=1)
    rings.steps_figure(
        {"marks off": runs["off"].ring_steps, "extra marks": runs["on"].ring_steps}
    ).savefig(lab.directory / "steps.png", dpi=150)
    rings.marks_figure(rings.marks_by_switch(runs["on"])).savefig(
        lab.directory / "marks.png", dpi=150
    )
