"""Short live scenarios for the tests beside this file; each has a check."""

from typing import Literal

import loomnet as ln

Transport = Literal["mrc", "roce"]


def _fabric(rate, hosts_per_leaf=1, planes=2):
    return ln.clos.two_tier(
        planes=planes, leaves=2, spines=2, hosts_per_leaf=hosts_per_leaf, rate=rate, delay="0.5 ms"
    )


@ln.scenario
def flow(
    lab: ln.Lab,
    size: ln.Size = "1 MB",
    rate: ln.Rate = "20 Mb/s",
    transport: Transport = "mrc",
    link: str = "",
    pairs: int = 1,
):
    """One flow between two hosts; `link` goes down on the way, where it is named."""
    faults = [ln.down(link, at="0.1 s", duration="0.2 s")] if link else []
    r = lab.run(
        _fabric(rate),
        ln.Flows(sizes=[size] * pairs, pairs=((0, 1),) * pairs, transport=transport),
        faults,
    )
    lab.check("no-error", r["errors"], eq=0)


@ln.scenario
def exchange(
    lab: ln.Lab,
    repeat: int = 40,
    size: ln.Size = "200 kB",
    rate: ln.Rate = "20 Mb/s",
    transport: Transport = "mrc",
):
    """All-reduces whose every byte is compared."""
    r = lab.run(
        _fabric(rate), ln.AllReduce(size=size, repeat=repeat, transport=transport), payload=True
    )
    lab.check("bytes-right", r["errors"], eq=0)


@ln.scenario
def ranks(
    lab: ln.Lab,
    script: str,
    args: str = "",
    ranks: int = 2,
    rate: ln.Rate = "40 Mb/s",
    hosts_per_leaf: int = 1,
    planes: int = 2,
    transport: Literal["mrc", "gloo"] = "mrc",
):
    """A script of the tests' as a PyTorch job."""
    job = ln.TorchJob(script, args=args.split(), ranks=ranks, transport=transport)
    r = lab.run(_fabric(rate, hosts_per_leaf, planes), job)
    lab.check("no-error", r["errors"], eq=0)


@ln.scenario
def ends(lab: ln.Lab, script: str, args: str, ranks: int = 2):
    """A script of the tests' without a check: what it reports is its ranks' doing alone."""
    lab.run(
        _fabric("20 Mb/s", hosts_per_leaf=2),
        ln.TorchJob(script, args=args.split(), ranks=ranks, transport="mrc", allow_no_network=True),
    )  # ranks that end early do not use it


@ln.scenario
def sums(lab: ln.Lab, script: str, args: str = "", ranks: int = 2):
    """A script of the tests' as a PyTorch job whose sums a switch makes."""
    fabric = ln.star(hosts=ranks, rate="40 Mb/s", delay="0.5 ms").program("*", "aggregate")
    r = lab.run(fabric, ln.TorchJob(script, args=args.split(), ranks=ranks, allreduce="ina"))
    lab.check("no-error", r["errors"], eq=0)
