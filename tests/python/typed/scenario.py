"""What users write: type checkers find nothing here, and know the type after each `# is:`."""

from typing import Literal, reveal_type

import pytest

import loomnet as ln


@ln.scenario
def one_link(
    lab: ln.Lab,
    transport: Literal["mrc", "roce", "gloo"] = "mrc",
    planes: int = 4,
    rate: ln.Rate = "400 Gb/s",
    delay: ln.Time = "1 us",
    reroute_delay: ln.Time | Literal["off"] = "1 s",
    buffer: ln.Size = "100 kB",
) -> None:
    fabric = ln.clos.two_tier(
        planes=planes,
        leaves=2,
        spines=2,
        hosts_per_leaf=2,
        rate=rate,
        delay=delay,
        uplink_rate=2 * rate,
    )
    job = ln.TorchJob(
        "train.py",
        args=["--epochs=2"],
        ranks=4,
        transport=transport,
        compute="2 ms",
        until="3 s",
        env={"SEED": "1"},
        stall_timeout=None,
        log=r"step (?P<step>\d+) loss (?P<loss>\S+)",
    )
    faults = [
        ln.down("h0--p0.leaf0", at=ln.step(40), duration=ln.iterations(30), phase="nic_link_down"),
        ln.loss("p1.leaf0->p1.spine1", 0.20, at=delay * 110, phase="silent_loss"),
        ln.delay("p0.*", "1 ms", at="2 ms"),
        ln.degrade("p0.*", "10 Gb/s", at="2 ms"),
        ln.kill("p0.spine0", at="2 ms", duration="1 ms", reboot="1 ms"),
    ]
    r = lab.run(
        fabric, job, faults, label=transport, reroute_delay=reroute_delay, mrc={"evs_per_qp": 16}
    )
    lab.metric("blip_s", r["nic_link_down.recovery_s"], unit="s")
    lab.check("capacity", r["nic_link_down.goodput_ratio"], ge=0.70, le=0.80, published=0.75)
    lab.check("no-rank-error", r["errors"], eq=0)
    reveal_type(rate.bits_per_second)  # is: int | Any
    reveal_type(buffer.bytes)  # is: int | Any
    reveal_type(fabric)  # is: Fabric
    reveal_type(job.until)  # is: Time | None
    reveal_type(r)  # is: Result
    reveal_type(r["errors"])  # is: Measured | None
    reveal_type(r.number("before.iteration_s") + 1)  # is: float


def notebook() -> None:
    fabric = ln.clos.two_tier(
        planes=4, leaves=2, spines=2, hosts_per_leaf=2, rate="400 Gb/s", delay="1 us"
    )
    fault = ln.down("h0--p0.leaf0", at="2 ms", duration="4 ms")
    mrc, roce = (
        ln.run(fabric, ln.AllReduce(size="256 MiB", repeat=20, transport=t), [fault], seed=1)
        for t in ("mrc", "roce")
    )
    ln.compare(mrc, roce)
    mrc.series("goodput", every="100 us").plot()
    ln.sweep(ln.load("scenarios/one_link.py"), planes=[2, 4, 8], seeds=5)
    reveal_type(fabric.links)  # is: Table
    reveal_type(mrc.metrics)  # is: Table
    reveal_type(fault)  # is: Fault
    with ln.lab(fabric, clock="live") as lab:
        lab.down("h0--p0.leaf0")
        lab.restore("h0--p0.leaf0")
        reveal_type(lab.exec("h0", "ip addr").stdout)  # is: str


def jobs() -> list[object]:
    small = ln.Fabric(payload="1024 B")
    small.add_link(small.add_host(), small.add_switch("p0.leaf0"), rate="1 Gb/s", delay="1 us")
    return [
        ln.AllReduce("1 MB", 3),
        ln.AllToAll("1 MB"),
        ln.Incast("1 MB", receiver=2),
        ln.Permutation("1 MB", shift="random"),
        ln.Trace("trace.jsonl"),
        ln.Flows("websearch", load=0.5),
        ln.Flows(["1 kB", "2 kB"], starts=["0 s", "1 us"]),
        ln.TorchJob("train.py", compute={"layers.*": ("0.1 ms", "0.3 ms")}),
        ln.ModelJob("resnet50", workers=4, allreduce="ring", start="0 s", name="a"),
        ln.ModelJob("mixtral_8x7b", circuits=ln.CircuitControl(slot="1 ms")),
        ln.ModelJob(size="10 MB", compute="2 ms", buckets=["1 MB", "9 MB"], jitter=0.2),
        ln.Pfc("100 kB", headroom="200 kB"),
    ]


def test_survives_nic_link(lab: ln.Lab, fabric: ln.Fabric) -> None:
    job = ln.TorchJob("train.py", ranks=4, transport="mrc", compute="1 ms")
    r = lab.run(
        fabric, job, [ln.down("h0--p0.leaf0", at=ln.step(20), duration="5 ms", phase="down")]
    )
    assert r["errors"] == 0
    assert r["down.goodput_ratio"] == pytest.approx(0.75, rel=0.05)
    report = lab.run_file("scenarios/one_link.py", planes=4)
    assert report.ok, report.failed
