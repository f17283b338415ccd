"""How fast a switch that sums is: SwitchML's rate per worker, against a ring, in training and under
loss (Sapio et al., "Scaling Distributed Machine Learning with In-Network Aggregation", NSDI
2021)."""

import itertools
import statistics
import tempfile
from typing import Annotated, Literal

from pydantic import Field

import loomnet as ln

WORKERS = (4, 8, 16)
VALUES = 256  # int32 of a packet
HEADERS = 118  # its other bytes on the link: Ethernet and its framing, IPv6, UDP, INA's header
# 10^9 elements per second and worker, read off a chart to 0.03, and over a ring of NCCL on RDMA.
PUBLISHED_RATE = {4: 2.83, 8: 2.82, 16: 2.81}
PUBLISHED_OVER_RING = {4: 2.05, 8: 2.24, 16: 2.90}
MODELS = ("resnet50", "alexnet", "vgg16", "vgg11", "bert_large")
LOSSES = (0, 0.0001, 0.001, 0.01)
TIMEOUT = "10 ms"  # SwitchML's


@ln.scenario
def rates(
    lab: ln.Lab,
    rate: ln.Rate = "100 Gb/s",
    delay: ln.Time = "1 us",
    size: ln.Size = "16 MiB",
    ring: Literal["mrc", "roce"] = "roce",
    scale: Annotated[float, Field(ge=1)] = 16.0,
    iterations: Annotated[int, Field(ge=3, le=1000)] = 3,
    timeout: ln.Time = TIMEOUT,
):
    """How fast a switch that sums is, against a ring: bars SML-1 to SML-4 of SwitchML.

    SML-1: elements that each of 4, 8 and 16 workers has summed per second, against what the link
    lets through: rate / 32 x 1024 / (1024 + 118). The published packets are IPv4 and 20 bytes
    shorter, so their ceiling is 1.8 % higher. SML-2: the same against a ring over `ring`, at the
    fabric's own payload and at 1024 B; a ring sends 2 (n - 1) / n times the bytes. SML-3: iteration
    time over a ring to that with the switch, for five published models at 10 Gb/s and at `rate`,
    with bytes and compute time divided by `scale` (a larger one than 16 makes the ring's 14 steps,
    whose delay is not divided, weigh visibly more in small models). SML-4: rate and exactness while
    each link loses 0, 0.01, 0.1 and 1 % of its packets, for a quarter of `size`, with SwitchML's
    timeout `timeout`. SwitchML doubles it as timeouts add up.
    """
    ceiling = rate.count / 32 * 4 * VALUES / (4 * VALUES + HEADERS)
    network = {"rate": rate, "delay": delay}
    found = {workers: per_worker(lab, workers, size, network) for workers in WORKERS}
    check_rate(lab, found, ceiling)
    check_ring(lab, found, size, network, ring)
    for each in dict.fromkeys((ln.Rate("10 Gb/s"), rate)):
        check_training(lab, each, delay, ring, scale, iterations)
    check_loss(lab, ln.Size.of(size.bytes // 16 * 4), network, timeout)
    # The report's rows of a job are those of 16 workers.
    r = lab.run(fabric(max(WORKERS), network), ln.AllReduce(size, allreduce="ina"), payload=True)
    lab.check("no-error", r["errors"], eq=0, what="errors of ranks")


def fabric(workers, network, **more):
    made = ln.star(hosts=workers, **network, **more)
    return made.program("*", "aggregate", policy="switchml")


def run(lab, made, job, faults=(), **options):
    with tempfile.TemporaryDirectory() as folder:
        inner = ln.Lab("rates", clock=lab.clock, seed=lab.seed, directory=folder)
        r = inner.run(made, job, faults, reroute_delay="off", **options)
    if r["errors"]:
        raise RuntimeError(f"{job.describe()}: {r.data.errors}")
    return r


def per_worker(lab, workers, size, network, *, faults=(), ring=None, payload=None, **options):
    """Elements per second that each worker has summed, from its first packet to its last result."""
    how = {"allreduce": "ina"} if ring is None else {"transport": ring}
    more = {} if payload is None else {"payload": payload}
    r = run(lab, fabric(workers, network, **more), ln.AllReduce(size, **how), faults, **options)
    (only,) = r.data.iterations
    return size.bytes / 4 / (only.length_ps / 1e12)


def check_rate(lab, found, ceiling):
    lab.metric("ceiling", ceiling / 1e9, unit="G elements/s")
    for workers, value in found.items():
        lab.metric(
            f"ina_rate.{workers}",
            value / 1e9,
            unit="G elements/s",
            published=PUBLISHED_RATE[workers],
        )
    lab.check(
        "SML-1-flat",
        max(found.values()) / min(found.values()),
        le=1.02,
        what="the rate of a worker is the same with 4, 8 and 16: highest over lowest",
    )
    lab.check(
        "SML-1-of-ceiling",
        min(found.values()) / ceiling,
        ge=0.95,
        le=1.0,
        what="lowest rate of a worker, of what the link lets through",
    )


def check_ring(lab, found, size, network, ring):
    for name, payload in (("own", None), ("1024", "1024 B")):
        packets = "packets of 2,048 B" if payload is None else "packets of 1,024 B"
        over = {n: per_worker(lab, n, size, network, ring=ring, payload=payload) for n in WORKERS}
        gains = {n: found[n] / over[n] for n in WORKERS}
        for n in WORKERS:
            lab.metric(f"ring_rate.{name}.{n}", over[n] / 1e9, unit="G elements/s")
            lab.metric(
                f"ina_over_ring.{name}.{n}",
                gains[n],
                unit="ratio",
                published=PUBLISHED_OVER_RING[n],
            )
        lab.check(
            f"SML-2-gain-{name}",
            min(gains[n] / (2 * (n - 1) / n) for n in WORKERS),
            ge=0.9,
            what=f"least gain over a ring, of its 2(n-1)/n times the bytes; {packets}",
        )
        few, some, many = (gains[n] for n in WORKERS)
        lab.check(
            f"SML-2-rises-{name}",
            min(some / few, many / some),
            ge=1.0,
            what=f"the gain rises with the workers: least step; {packets}",
        )
        lab.check(
            f"SML-2-ring-falls-{name}",
            1 - over[16] / over[4],
            ge=0.15,
            le=0.35,
            published=0.30,
            what=f"what a ring loses from 4 workers to 16; {packets}",
        )


def check_training(lab, rate, delay, ring, scale, iterations):
    """SML-3. Models in the order of communication over compute."""
    gains = []
    for model in MODELS:
        time = {}
        for allreduce in ("ina", "ring"):
            job = ln.ModelJob(
                model,
                workers=8,
                iterations=iterations,
                scale=scale,
                allreduce=allreduce,
                transport=ring,
            )
            r = run(lab, fabric(8, {"rate": rate, "delay": delay}), job)
            time[allreduce] = statistics.median(each.length_ps for each in r.data.iterations)
        gains.append(time["ring"] / time["ina"])
        gigabits = rate.count // 10**9
        lab.metric(
            f"communication_over_compute.{model}.{gigabits}G",
            8 * job.gradients.bytes / rate.count / job.compute_time.seconds,
            unit="ratio",
        )
        lab.metric(f"training_speed_up.{model}.{gigabits}G", gains[-1], unit="ratio")
    steps = [after / before for before, after in itertools.pairwise(gains)]
    lab.check(
        f"SML-3-{gigabits}G",
        min(steps),
        ge=1.0,
        what="models that communicate more gain more, at "
        f"{gigabits} Gb/s: least step from one to the next",
    )
    lab.check(
        f"SML-3-faster-{gigabits}G",
        min(gains),
        ge=1.0,
        what=f"training is no slower than over a ring at {gigabits} Gb/s: least gain",
    )


def check_loss(lab, size, network, timeout):
    lab.metric("sml4_timeout_s", timeout.seconds, unit="s")
    found, wrong = [], 0
    for loss in LOSSES:
        rows = [ln.loss("*--*", loss, at="0 s")] if loss else []
        r = run(
            lab,
            fabric(4, network),
            ln.AllReduce(size, allreduce="ina"),
            rows,
            payload=True,
            ina={"switchml_timeout": timeout.count},
        )
        (only,) = r.data.iterations
        found.append(size.bytes / 4 / (only.length_ps / 1e12))
        wrong += r.data.wrong
        lab.metric(f"ina_rate_under_loss.{100 * loss:g}", found[-1] / 1e9, unit="G elements/s")
    falls = [after / before for before, after in itertools.pairwise(found)]
    lab.check(
        "SML-4-falls",
        max(falls),
        le=1.0,
        what="the rate falls as links lose more: rate after one step of loss over before",
    )
    lab.check("SML-4-exact", wrong, eq=0, what="wrong sums while links lose packets")
