"""What a script states of its traffic, from PyTorch to packets and back: in real ranks over a NIC
that loses bytes, and on the virtual clock, where a trace shows the packets."""

from __future__ import annotations

import itertools
import sys
import textwrap
from pathlib import Path

import pytest
from recorded import recorded
from test_trace import Trace

import loomnet as ln

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent / "torch_ranks"))
from launch import Ranks

WORLD = 3
STEPS = 4  # of training


def case_names() -> list[str]:
    source = (Path(__file__).parent / "torch_ranks" / "stated.py").read_text().splitlines()
    return [
        line.split("(")[0].removeprefix("def ")
        for before, line in itertools.pairwise(source)
        if before == "@case"
    ]


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    with Ranks("stated.py", WORLD, directory=tmp_path_factory.mktemp("stated")) as ranks:
        ranks.nic.lose(1024, 3)
        ranks.wait(240)
    return ranks


@pytest.mark.parametrize("name", case_names())
def test_in_ranks(cases: Ranks, name: str) -> None:
    for rank in range(WORLD):
        assert f"case {name} ok" in cases.log(rank), cases.log(rank)
    assert all(cases.nic.fault(r) == "none" for r in range(WORLD))


SCRIPT = textwrap.dedent("""
    import sys, torch, torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel as DDP
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(200, 200) for _ in range(8)))
    ddp = DDP(model, bucket_cap_mb=0.2)
    state = None
    if sys.argv[1] == "hook":
        from loomnet.torch.hooks import BucketState, bucket_hook
        state = BucketState(loss_tolerance=0.25)
        ddp.register_comm_hook(state, bucket_hook)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for step in range(int(sys.argv[2])):
        optimizer.zero_grad()
        loss = ddp(torch.randn(8, 200, generator=generator)).square().mean()
        loss.backward()
        optimizer.step()
    parameters = torch.cat([p.detach().flatten() for p in model.parameters()])
    print("end", parameters.double().sum().item().hex(), flush=True)
    if state is not None:
        whole = [s.delivered == s.expected > 0 and s.mask()[0].all() for s in
                 state.deliveries.values()]
        print("whole", len(whole), all(whole), flush=True)
    dist.destroy_process_group()
""")


def test_packets_of_ddp_state_layer_priority_and_ring_step(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    fab = ln.clos.two_tier(
        planes=1, leaves=2, spines=1, hosts_per_leaf=2, rate="100 Gb/s", delay="1 us"
    )
    logs = {}
    for kind in ("plain", "hook"):
        job = ln.TorchJob(
            script, args=[kind, str(STEPS)], ranks=WORLD, compute="1 ms", transport="mrc"
        )
        result = recorded(tmp_path / kind, job, fab=fab)
        if any("register" in e.message for e in result.data.errors):
            pytest.skip("the package is not installed: PyTorch finds no backend entry point")
        assert result["errors"] == 0, result.data.errors
        logs[kind] = (tmp_path / kind / "lab" / "ranks" / "0.log").read_text()
    ends = {
        next(line for line in log.splitlines() if line.startswith("end ")) for log in logs.values()
    }
    assert len(ends) == 1, "the hook changed the result"
    buckets = int(logs["hook"].split("whole ")[1].split()[0])
    assert buckets >= 3 and f"whole {buckets} True" in logs["hook"]

    def packets(kind: str) -> list[dict]:
        trace = Trace(tmp_path / kind / "run.pftrace")
        return [s.values for s in trace.under("links")]

    assert not any("layer" in p or "loss_tolerance_ppm" in p for p in packets("plain"))
    stated = [p for p in packets("hook") if "layer" in p]
    assert {p["layer"] for p in stated} == set(range(buckets))
    # A value of 0 is not shown.
    assert all(p.get("priority", 0) == p["layer"] for p in stated)
    assert {p["loss_tolerance_ppm"] for p in stated if "loss_tolerance_ppm" in p} == {250_000}
    assert any("loss_tolerance_ppm" not in p for p in stated), "no packet with framing"
    # The ring's steps go on from one all-reduce to the next, 2 (N - 1) each, one for each bucket.
    # The trace begins with the job's time 0, rank 0's first mark of a step, and leaves out what was
    # sent before; all iterations but the first lie behind it.
    layers: dict[int, set[int]] = {}
    for p in stated:
        layers.setdefault(p["ring_step"], set()).add(p["layer"])
    steps = sorted(layers)
    assert steps == list(range(steps[0], steps[0] + len(steps)))
    iterations = [{layer} for layer in range(buckets) for _ in range(2 * (WORLD - 1))] * (STEPS - 1)
    assert [layers[step] for step in steps[-len(iterations) :]] == iterations
