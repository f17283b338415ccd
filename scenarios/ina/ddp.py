"""Real PyTorch DDP whose gradients the switches sum, beside a ring all-reduce of the ranks; live,
the switches are XDP programs in the kernel."""

from typing import Annotated, Literal

from pydantic import Field

import loomnet as ln

LOG = r"step (?P<step>\d+) loss (?P<loss>\S+)"
# Of float32 sums whose parts come in another order, carried on through a few steps of training. The
# block exponents' own error is smaller: at most n^2 / 2^32 of the largest gradient of a block.
LOSS_APART = 1e-4


@ln.scenario
def ddp(
    lab: ln.Lab,
    policy: Literal["esa", "atp", "switchml"] = "esa",
    ranks: Annotated[int, Field(ge=2, le=16)] = 4,
    levels: Annotated[int, Field(ge=1, le=2)] = 1,
    rate: ln.Rate = "100 Mb/s",
    delay: ln.Time = "0.5 ms",
    steps: Annotated[int, Field(ge=2, le=10_000)] = 6,
    pool: ln.Size = "5 MB",
    loss: Annotated[float, Field(ge=0, lt=1)] = 0.0,
    compute: ln.Time = "20 ms",
):
    """Switches sum the gradients of PyTorch's DDP, beside a ring of its ranks. `ranks` train a
    network of 1.1 M parameters: its sums are made by switches of one or two levels, then by a ring
    over MRC at the fabric's own packet size and at the 1,024 B of a fragment of sums. `loss`: share
    of packets that every link loses.

    Live, an emulated 100 Mb/s are about 55,000 packets a second through the kernel, for four ranks;
    eight on two levels want --set ranks=8 --set levels=2 --set 'rate=40 Mb/s'.
    """
    faults = [ln.loss("*--*", loss, at="0 s")] if loss else []
    curves, seconds = {}, {}
    for how, payload in (("ina", "2048 B"), ("ring", "2048 B"), ("ring_1024", "1024 B")):
        fabric = network(ranks, levels, rate, delay, payload)
        if how == "ina":
            fabric.program("*", "aggregate", policy=policy, pool=pool)
        job = ln.TorchJob(
            "../train_digits.py",
            ranks=ranks,
            transport="mrc",
            compute=compute,
            allreduce="ina" if how == "ina" else "ring",
            log=LOG,
            args=[f"--steps={steps}", "--batch=8", f"--seed={lab.seed}"],
        )
        # A first timeout of a few round trips: nothing but a loss is waited for here.
        options = {"ina": {"rto_first": ln.Time("50 ms").count}} if how == "ina" else {}
        r = lab.run(fabric, job, faults, label=how, **options)
        lab.check(f"no-rank-error-{how}", r["errors"], eq=0)
        lengths = sorted(each.length_ps / 1e12 for each in r.data.iterations[1:])
        seconds[how] = lengths[len(lengths) // 2] if lengths else None
        curves[how] = [value for _, value in r.loss_curve]
        lab.metric(f"{how}_iteration_s", seconds[how], unit="s", reason="no iteration")
        if how == "ina":
            show_sums(lab, r, ranks)
    for ring in ("ring", "ring_1024"):
        gain = seconds[ring] / seconds["ina"] if seconds[ring] and seconds["ina"] else None
        lab.metric(f"speed_up_over_{ring}", gain, unit="ratio", reason="no iteration")
    apart = [
        abs(one - other) / abs(other)
        for one, other in zip(curves["ina"], curves["ring"], strict=True)
    ]
    lab.check("loss-as-with-a-ring", max(apart, default=None), le=LOSS_APART)
    lab.check("first-loss-equal", apart[0] if apart else None, eq=0)


def network(ranks, levels, rate, delay, payload):
    """Hosts of ranks and one for the parameter server, which is next to the tree's root. Uplinks
    carry all that a leaf's hosts send: a ring that had to share them would be slow for that."""
    if levels == 1:
        fabric = ln.star(hosts=ranks, rate=rate, delay=delay, payload=payload)
    else:
        each = -(-ranks // 2)
        fabric = ln.clos.two_tier(
            planes=1,
            leaves=2,
            spines=1,
            hosts_per_leaf=each,
            rate=rate,
            uplink_rate=ln.Rate.of(each * rate.count),
            delay=delay,
            payload=payload,
        )
    fabric.add_host("ps", role="server")
    fabric.add_link("ps", "p0.leaf0", rate=rate, delay=delay)
    return fabric


def show_sums(lab, result, ranks):
    """How many of the sums the switches made, and what of the rest the parameter server did."""
    totals = result.data.totals
    server = totals.get("nic ps", {})
    full, parts = server.get("ina.full", 0), server.get("ina.from_parts", 0)
    results = sum(row.get("ina.result", 0) for row in totals.values()) / ranks
    lab.metric("sums", results, unit="fragments")
    if full + parts:  # SwitchML has no parameter server
        lab.metric("summed_in_switches", full / (full + parts), unit="ratio")
    lab.metric("resent", sum(row.get("ina.resend", 0) for row in totals.values()), unit="packets")
    lab.check("sums-in-switches", sum(row.get("complete", 0) for row in totals.values()), ge=1)
