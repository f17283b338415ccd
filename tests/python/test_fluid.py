"""Runs without packets: the figures of flows that share links, and what such a run refuses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import loomnet as ln
from loomnet.base.errors import UsageError

RATE = 100e9
WIRE = 1 + 102 / 2048  # bytes on the wire for each of payload, framing included


def fabric(planes: int = 1, spines: int = 2) -> ln.Fabric:
    return ln.clos.two_tier(
        planes=planes, leaves=2, spines=spines, hosts_per_leaf=4, rate="100 Gb/s", delay="1 us"
    )


def lengths(result: Any) -> list[float]:
    return [each.length_ps / 1e12 for each in result.data.iterations]


@pytest.mark.parametrize("transport", ["roce", "tcp"])
def test_a_ring_takes_the_time_that_packets_take(transport: str) -> None:
    job = ln.AllReduce("32 MiB", 3, transport=transport)
    packets, fluid = (
        ln.run(ln.star(hosts=8, rate="100 Gb/s", delay="1 us"), job, model=model, seed=1)
        for model in ("packets", "fluid")
    )
    for a, b in zip(lengths(packets), lengths(fluid), strict=True):
        assert b == pytest.approx(a, rel=0.03)
    assert fluid["before.busbw"] == pytest.approx(packets["before.busbw"], rel=0.03)


def test_flows_that_share_a_link_share_its_rate() -> None:
    job = ln.Flows(
        pairs=[(0, 7), (1, 7)], sizes="50 MB", count=2, starts=["0 s"] * 2, transport="roce"
    )
    result = ln.run(fabric(), job, model="fluid", seed=1, jitter="0 s")
    times = [row["fct_s"] for row in result.flows]
    assert times[0] == pytest.approx(times[1], rel=1e-3)
    assert times[0] == pytest.approx(2 * 50e6 * 8 / RATE * WIRE, rel=2e-3)


def test_the_same_seed_gives_the_same_report_and_another_seed_other_routes() -> None:
    job = ln.Permutation("4 MB", repeat=2, transport="roce")
    runs = [ln.run(fabric(spines=4), job, model="fluid", seed=seed) for seed in (1, 1, 2)]
    assert lengths(runs[0]) == lengths(runs[1])
    assert lengths(runs[0]) != lengths(runs[2])


def test_a_link_that_is_down_stops_its_flows_until_it_is_up() -> None:
    job = ln.Flows(pairs=[(0, 1)], sizes="25 MB", count=1, starts=["0 s"], transport="roce")
    plain = ln.run(ln.star(hosts=2, rate="100 Gb/s", delay="1 us"), job, model="fluid", seed=1)
    faults = [ln.down("h0--p0.leaf0", at="1 ms", duration="3 ms", phase="cut")]
    cut = ln.run(
        ln.star(hosts=2, rate="100 Gb/s", delay="1 us"), job, faults, model="fluid", seed=1
    )
    assert cut.flows[0]["fct_s"] == pytest.approx(plain.flows[0]["fct_s"] + 3e-3, rel=1e-3)


def test_a_slower_link_and_one_that_routes_go_around() -> None:
    job = ln.AllReduce("16 MiB", 12, transport="roce")
    star = ln.star(hosts=4, rate="100 Gb/s", delay="1 us")
    slow = ln.run(
        star,
        job,
        [
            ln.degrade(
                "h0--p0.leaf0", to=0.25, at=ln.step(4), duration=ln.iterations(4), phase="slow"
            )
        ],
        model="fluid",
        seed=1,
    )
    assert slow["slow.goodput_ratio"] == pytest.approx(0.25, abs=0.04)
    # A dead spine: flows on it stand still until the tables go around it.
    gone = ln.run(
        fabric(),
        job,
        [ln.kill("p0.spine0", at=ln.step(4), duration="40 ms", phase="gone")],
        model="fluid",
        seed=1,
        reroute_delay="5 ms",
    )
    assert gone["errors"] == 0
    assert 4.5e-3 < gone["gone.blip_s"] < 7e-3


def test_training_moves_its_real_bytes() -> None:
    result = ln.run(
        fabric(), ln.AllToAll("1 MiB", 2, transport="roce"), model="fluid", seed=1, payload=True
    )
    assert result["errors"] == 0
    assert result.data.wrong == 0


def test_what_packets_alone_have_is_null_with_the_reason() -> None:
    result = ln.run(fabric(), ln.AllReduce("1 MiB", 2, transport="roce"), model="fluid", seed=1)
    for name in ("lost", "retransmitted"):
        row = next(row for row in result.rows if row.name == name and row.phase == "before")
        assert row.value is None
        assert "no packets" in (row.reason or "")
    assert "fluid" in str(result.data.fidelity.notes["model"])


def test_a_panel_carries_flows_by_its_circuits() -> None:
    star = ln.Fabric("lit")
    star.add_panel("ocs0", ports=4)
    for i in range(4):
        star.add_host(f"h{i}")
        star.add_link(f"h{i}", "ocs0", rate="100 Gb/s", delay="1 us")
    star.panel("ocs0").circuits([("h0", "h1"), ("h2", "h3")])
    job = ln.Flows(
        pairs=[(0, 1), (2, 3)], sizes="10 MB", count=2, starts=["0 s"] * 2, transport="roce"
    )
    result = ln.run(star, job, model="fluid", seed=1)
    alone = pytest.approx(10e6 * 8 / RATE * WIRE, rel=0.01)
    assert [row["fct_s"] for row in result.flows] == [alone] * 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"job": ln.AllReduce("1 MiB", 2, transport="mrc")},
            "mrc sends each packet by another path",
        ),
        ({"observe": ["cwnd"], "sample": "1 ms"}, "sample= looks at packets"),
        ({"faults": [ln.loss("h0->p0.leaf0", 0.1, at="0 s")]}, "no packets to lose"),
        ({"pcap": {"h0:0": "x.pcapng"}}, "no packets to record"),
        ({"roce": {"dcqcn": True}}, "dcqcn= steers packets"),
        ({"tcp": {"cc": "bbr"}}, "cc= steers packets"),
        ({"roce": {"payload_mtu": "big"}}, "payload_mtu"),
        ({"roce": {"payload_mtu": 0}}, "payload_mtu"),
        ({"model": "gas"}, '"packets" and "fluid"'),
    ],
)
def test_what_a_fluid_run_refuses(change: dict[str, Any], words: str) -> None:
    asked = {
        "job": ln.AllReduce("1 MiB", 2, transport="roce"),
        "model": "fluid",
        "faults": [],
        **change,
    }
    job, faults = asked.pop("job"), asked.pop("faults")
    with pytest.raises(UsageError, match=words):
        ln.run(fabric(), job, faults, seed=1, **asked)


def test_switch_programs_that_work_on_packets_are_refused() -> None:
    summing = fabric()
    summing.program("p0.*", "mirror")
    with pytest.raises(UsageError, match="runs the program mirror"):
        ln.run(summing, ln.AllReduce("1 MiB", 2, transport="roce"), model="fluid", seed=1)


def test_the_page_about_it_does_what_it_says(tmp_path: Path, capsys: Any) -> None:
    page = Path(__file__).parents[2] / "docs" / "fluid.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
    file = tmp_path / "fluid.py"
    file.write_text(code)
    report = ln.load(file).run(directory=tmp_path / "run")
    assert report.ok
    packets, fluid = (
        float(line.split()[1])
        for line in capsys.readouterr().out.splitlines()
        if line.startswith(("packets", "fluid"))
    )
    assert fluid == pytest.approx(packets, rel=0.03)


def test_larger_packets_have_fewer_headers() -> None:
    star = ln.star(hosts=2, rate="100 Gb/s", delay="1 us")
    job = ln.Flows(pairs=[(0, 1)], sizes="50 MB", count=1, starts=["0 s"], transport="roce")
    times = {
        payload: ln.run(star, job, model="fluid", seed=1, roce={"payload_mtu": payload}).flows[0][
            "fct_s"
        ]
        for payload in (1024, 4096)
    }
    assert times[1024] / times[4096] == pytest.approx((1 + 102 / 1024) / (1 + 102 / 4096), rel=2e-3)


def test_a_longer_delay_delays_what_begins_after_it() -> None:
    star = ln.star(hosts=2, rate="100 Gb/s", delay="1 us")
    job = ln.Flows(pairs=[(0, 1)], sizes="1 MB", count=2, starts=["0 s", "2 ms"], transport="roce")
    result = ln.run(
        star,
        job,
        [ln.delay("h0--p0.leaf0", "300 us", at="1 ms", duration="9 ms", phase="long")],
        model="fluid",
        seed=1,
    )
    before, after = (row["fct_s"] for row in result.flows)
    assert after - before == pytest.approx(600e-6, rel=0.01)  # there, and the answer back


def test_pytorch_trains_as_it_does_over_packets(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("""
import torch, torch.distributed as dist
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 8))
best = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    x = torch.full((4, 64), 1.0 + dist.get_rank())
    loss = model(x).square().mean()
    best.zero_grad(); loss.backward(); best.step()
    print(f"step {step} loss {loss.item():.17g}", flush=True)
dist.destroy_process_group()
""")
    job = ln.TorchJob(
        str(script),
        ranks=2,
        transport="roce",
        compute="1 ms",
        log=r"step (?P<step>\d+) loss (?P<loss>\S+)",
    )
    losses = [
        [
            loss["loss"]
            for _, loss in ln.run(
                ln.star(hosts=2, rate="100 Gb/s", delay="1 us"), job, model=model, seed=1
            ).data.log
        ]
        for model in ("packets", "fluid")
    ]
    assert len(losses[0]) == 4
    assert losses[0] == losses[1]
