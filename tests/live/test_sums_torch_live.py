"""DDP through XDP switches that sum: the ranks learn to the bit what they learn on the virtual
clock, since a sum of integers does not depend on which rank's part comes first."""

import textwrap

import pytest

import loomnet as ln
from loomnet.labs.lab import Lab

pytest.importorskip("torch")

SCRIPT = """
    import torch, torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel as DDP
    import loomnet.torch
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(100, 100) for _ in range(4)))
    ddp = DDP(model, bucket_cap_mb=0.08)
    ddp.register_comm_hook(None, loomnet.torch.hooks.by_layer)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for step in range(4):
        optimizer.zero_grad()
        loss = ddp(torch.randn(8, 100, generator=generator)).square().mean()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item().hex()}", flush=True)
    dist.destroy_process_group()
"""


@pytest.mark.timeout(300)
def test_ddp_learns_the_same_through_xdp_and_on_the_virtual_clock(uses_machine, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(SCRIPT))
    fabric = ln.star(hosts=4, rate="40 Mb/s", delay="0.5 ms")
    fabric.add_link(
        fabric.add_host("ps", role="server"), "p0.leaf0", rate="40 Mb/s", delay="0.5 ms"
    )
    fabric.program("*", "aggregate", policy="esa", pool="64 KiB")
    curves = {}
    for clock in ("live", "virtual"):
        job = ln.TorchJob(
            script,
            ranks=4,
            allreduce="ina",
            transport="mrc",
            compute="1 ms",
            log=r"step (?P<step>\d+) loss (?P<loss>\S+)",
        )
        r = Lab("sums", clock=clock, seed=3, directory=tmp_path / clock).run(fabric, job)
        assert r["errors"] == 0 and r.data.ended == "finished", r.data.errors
        curves[clock] = [row["loss"] for _, row in r.data.log]
        # 4 passes of 40,400 floats in fragments of 256, whoever finished them.
        results = sum(row.get("ina.result", 0) for row in r.data.totals.values())
        assert results >= 4 * 4 * 40_400 / 256
        if clock == "live":
            assert r.data.fidelity.unexplained == 0
            counters = r.switch("p0.leaf0").counters
            assert counters["complete"] > 0 and counters["claim"] >= counters["complete"]
    assert curves["live"] == curves["virtual"] and len(set(curves["live"])) == 4
