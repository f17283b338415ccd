"""All-reduces of PyTorch that the network sums: in real ranks over a NIC that adds, and on the
virtual clock through switches that run the aggregation program."""

import functools
import itertools
import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from recorded import recorded
from test_trace import Trace

import loomnet as ln

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent / "torch_ranks"))
from launch import Ranks

from loomnet.systems.registry import check
from loomnet.torch.hooks import layer_priority

WORLD = 3
CASES = Path(__file__).parent / "torch_ranks" / "summed.py"


def case_names() -> list[str]:
    return [
        line.split("(")[0].removeprefix("def ")
        for before, line in itertools.pairwise(CASES.read_text().splitlines())
        if before == "@case"
    ]


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    with Ranks(CASES.name, WORLD, directory=tmp_path_factory.mktemp("summed"), sums=True) as ranks:
        ranks.wait(240)
    return ranks


@pytest.mark.parametrize("name", case_names())
def test_in_ranks(cases: Ranks, name: str) -> None:
    for rank in range(WORLD):
        assert f"case {name} ok" in cases.log(rank), cases.log(rank)
    assert all(cases.nic.fault(r) == "none" for r in range(WORLD))


def test_the_network_hears_of_layers_and_priorities(cases: Ranks) -> None:
    stated = cases.nic.take_sum_attributes(0)
    assert (5, 77) in {(layer, priority) for _, layer, priority in stated}
    buckets = int(cases.log(0).split("buckets ")[1].split()[0])
    operations = {number: (layer, priority) for number, layer, priority in stated}
    last = [operations[number] for number in sorted(operations)][-buckets:]
    assert last == [(layer, layer_priority(layer, buckets)) for layer in reversed(range(buckets))]


STALLED = """
    import os, time
    import torch, torch.distributed as dist
    from datetime import timedelta
    dist.init_process_group("loomnet", timeout=timedelta(seconds=60))
    dist.barrier()
    print("ready", flush=True)
    while not os.path.exists("{go}"):
        time.sleep(0.01)
    tensors = [torch.full((5000,), float(dist.get_rank() + 1)) for _ in range(3)]
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    futures = [work.get_future().then(lambda f: f.value()[0].sum().item()) for work in works]
    assert not any(work.is_completed() for work in works)
    print("under way", len(works), flush=True)
    assert [future.wait() for future in futures] == [5000.0 * 6] * 3
    for work in works:
        work.wait()
    print("ended", flush=True)
    dist.destroy_process_group()
"""


def test_a_work_comes_back_at_once_and_its_future_blocks_nothing(tmp_path: Path) -> None:
    script = tmp_path / "stalled.py"
    go = tmp_path / "go"
    script.write_text(textwrap.dedent(STALLED.format(go=go)))
    with Ranks(str(script), WORLD, directory=tmp_path, sums=True) as ranks:
        for rank in range(WORLD):
            ranks.wait_for(rank, "ready", 120)
        ranks.nic.set_stalled(True)
        go.touch()
        for rank in range(WORLD):
            ranks.wait_for(rank, "under way 3", 60)
        ranks.nic.set_stalled(False)
        assert ranks.wait(60) == dict.fromkeys(range(WORLD), 0), ranks.logs()
        assert ranks.nic.sums > 0
    assert all("ended" in ranks.log(rank) for rank in range(WORLD))


# --- through switches, on the virtual clock -------------------------------------------------------
TRAIN = """
    import sys, torch, torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel as DDP
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(150, 150) for _ in range(8)))
    ddp = DDP(model, bucket_cap_mb=0.15)
    if "by_layer" in sys.argv:
        import loomnet.torch
        ddp.register_comm_hook(None, loomnet.torch.hooks.by_layer)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for step in range(5):
        optimizer.zero_grad()
        loss = ddp(torch.randn(8, 150, generator=generator)).square().mean()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.9g}", flush=True)
    bits = torch.cat([p.detach().flatten() for p in model.parameters()]).view(torch.int32)
    print("rebuilt", ddp._get_ddp_logging_data()["has_rebuilt_buckets"], bits.long().sum().item(),
          flush=True)
    dist.destroy_process_group()
"""
LOG = r"step (?P<step>\d+) loss (?P<loss>\S+)"


def fabric(policy="esa", pool="512 KiB", **options):
    fab = ln.clos.two_tier(
        planes=1, leaves=2, spines=1, hosts_per_leaf=2, rate="10 Gb/s", delay="1 us"
    )
    return fab.program("*", "aggregate", policy=policy, pool=pool, **options)


def job(folder: Path, *args: str, text: str = TRAIN, **options) -> ln.TorchJob:
    script = folder / "train.py"
    script.write_text(textwrap.dedent(text))
    options = {
        "ranks": 4,
        "allreduce": "ina",
        "transport": "mrc",
        "compute": "1 ms",
        "log": LOG,
    } | options
    return ln.TorchJob(script, args=list(args), **options)


def losses(result) -> list[float]:
    return [float(row["loss"]) for _, row in result.data.log]


def counted(result, name) -> int:
    return sum(row.get(name, 0) for row in result.data.totals.values())


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], ln.Result]:
    """The training by itself, summed as `how` says: each run is made once."""

    @functools.cache
    def run(policy: str, how: str) -> ln.Result:
        folder = tmp_path_factory.mktemp(f"{policy}-{how}")
        return ln.run(fabric(policy), job(folder, allreduce=how), seed=3, directory=folder)

    return run


@pytest.mark.parametrize(
    "policy",
    ["esa", *(pytest.param(policy, marks=pytest.mark.soak) for policy in ("atp", "switchml"))],
)
def test_ddp_learns_through_switches_as_over_a_ring(learned, policy: str) -> None:
    """The gradients differ by the quantisation of their blocks, at most n / (2 f): 2^-27 of a
    block's largest value. The loss of five steps of SGD stays within 10^-5 of itself."""
    runs = {"ring": learned("esa", "ring"), "ina": learned(policy, "ina")}
    for run in runs.values():
        assert run["errors"] == 0, run.data.errors
        assert "rebuilt 1" in next(run.data.directory.rglob("0.log")).read_text()
    ring, ina = losses(runs["ring"]), losses(runs["ina"])
    assert len(ina) == 5 and ina == pytest.approx(ring, rel=1e-5)
    # Every float that DDP reduced came back as a sum: 5 passes of 181,200 of them, in fragments.
    fragments = counted(runs["ina"], "ina.result") / 4
    assert fragments >= 5 * 181_200 / 256
    assert counted(runs["ring"], "ina.result") == counted(runs["ring"], "complete") == 0
    ends = {
        next(line for line in path.read_text().splitlines() if line.startswith("rebuilt"))
        for path in runs["ina"].data.directory.rglob("[0-3].log")
    }
    assert len(ends) == 1, "parameters differ between ranks"


def test_several_buckets_are_under_way_and_packets_have_their_layer(tmp_path: Path) -> None:
    compute = {"*": ("0.05 ms", "0.1 ms"), "optimizer": "0.1 ms"}
    result = recorded(tmp_path / "run", job(tmp_path, "by_layer", compute=compute), fab=fabric())
    if any("register" in e.message for e in result.data.errors):
        pytest.skip("the package is not installed: PyTorch finds no backend entry point")
    assert result["errors"] == 0, result.data.errors
    trace = Trace(tmp_path / "run" / "run.pftrace")
    at_h0 = sorted(
        (s.begin, s.end)
        for s in trace.slices
        if s.name.startswith("all_reduce") and trace.names[trace.parents[s.track]] == "h0"
    )
    most = max(sum(begin <= at < end for begin, end in at_h0) for at, _ in at_h0)
    assert most >= 2, "no two buckets under way at once"
    packets = [s.values for s in trace.under("links")]
    layers = {p["layer"] for p in packets if "layer" in p}
    buckets = max(layers) + 1
    assert layers == set(range(buckets)) and buckets >= 4
    # In the second pass the number of buckets is still that of the first.
    stated = {(p["layer"], p["priority"]) for p in packets if "layer" in p}
    assert {(layer, layer_priority(layer, buckets)) for layer in range(buckets)} <= stated
    assert not any("ring_step" in p or "loss_tolerance_ppm" in p for p in packets if "layer" in p)


@pytest.mark.soak  # test_real_ranks.py does it over a ring
def test_the_same_seed_gives_the_same_report(tmp_path: Path) -> None:
    faults = [ln.loss("*--*", 0.002, at="0 s")]
    runs = []
    for name in "ab":
        (tmp_path / name).mkdir()
        runs.append(
            ln.run(
                fabric(pool="64 KiB"),
                job(tmp_path / name),
                faults,
                seed=3,
                directory=tmp_path / name,
                ina={"rto_first": 10**9},
            )
        )
    one, other = runs
    assert one["errors"] == 0 and counted(one, "ina.resend") > 0
    assert str(one.metrics) == str(other.metrics) and one.data.totals == other.data.totals
    assert losses(one) == losses(other)


def test_a_job_of_lengths_shares_slots_with_a_scripts_bytes(tmp_path: Path, learned) -> None:
    """A few slots for two jobs: a packet of either takes slots with partial sums of the other. The
    script learns as it does alone, on a switch with room for all."""
    fab = ln.clos.two_tier(
        planes=1, leaves=2, spines=1, hosts_per_leaf=4, rate="10 Gb/s", delay="1 us"
    ).program("*", "aggregate", policy="esa", pool="16 KiB")
    jobs = [
        ln.ModelJob(
            size="1 MB",
            compute="1 ms",
            buckets=8,
            iterations=8,
            workers=4,
            allreduce="ina",
            name="model",
        ),
        job(tmp_path, name="script"),
    ]
    shared = ln.run(fab, jobs, seed=3, directory=tmp_path / "shared")
    assert shared["model.errors"] == shared["script.errors"] == 0
    assert shared.job("model").data.wrong == 0
    assert losses(shared.job("script")) == losses(learned("esa", "ina"))
    assert counted(shared, "preempt") > 100 and counted(shared, "evict_workers") > 100


@pytest.mark.parametrize("fallback", [False, None])
def test_a_fixed_scale_says_what_it_could_not_hold(tmp_path: Path, fallback: bool | None) -> None:
    """By default the server adds it as float32 (ATP)."""
    text = """
        import torch, torch.distributed as dist
        dist.init_process_group("gloo")
        t = torch.full((1000,), 0.5)
        dist.all_reduce(t)
        assert t.eq(2.0).all()
        t = torch.full((1000,), 5000.0)   # times 10^6 it is beyond an int32
        dist.all_reduce(t)
        print("sum", t[0].item(), flush=True)
        dist.destroy_process_group()
    """
    result = ln.run(
        fabric(saturate=True),
        job(tmp_path, text=text, log=None),
        seed=3,
        directory=tmp_path,
        ina={"quant": "fixed"} | ({} if fallback is None else {"overflow_fallback": fallback}),
    )
    assert result["errors"] == 0, result.data.errors
    right, wrong = "sum 20000.0", "sum 2147.48"
    assert (wrong if fallback is False else right) in next(tmp_path.rglob("0.log")).read_text()
    assert result["blocks_saturated"] == 4
    assert result["blocks_as_floats"] == (0 if fallback is False else 4)
    report = (next(tmp_path.rglob("report.json"))).read_text()
    assert re.search(r'blocks of sums that overflowed": 4\b', report)


@pytest.mark.parametrize("policy", ["esa", pytest.param("atp", marks=pytest.mark.soak)])
def test_what_a_fixed_scale_cannot_hold_is_summed_as_floats(tmp_path: Path, policy: str) -> None:
    """In place, in several blocks and kinds of floats, while packets are lost; the other blocks are
    summed by the switch."""
    text = """
        import torch, torch.distributed as dist
        dist.init_process_group("gloo")
        me, n = dist.get_rank(), dist.get_world_size()
        works = []
        for step, kind in enumerate([torch.float32, torch.float16, torch.bfloat16] * 2):
            t = torch.full((40_000,), 0.5).to(kind)
            t[::5000] = 4096.0 * (me + 1)      # times 10^6 it is beyond an int32, or the sum is
            works.append((t, dist.all_reduce(t, async_op=True)))
        for t, work in works:
            work.wait()
            assert t[::5000].eq(4096.0 * n * (n + 1) / 2).all(), t[::5000]
            t[::5000] = 0.5 * n
            assert t.eq(0.5 * n).all()
        one = torch.full((1,), 2.0 ** 100)
        dist.all_reduce(one, op=dist.ReduceOp.AVG)
        assert one.item() == 2.0 ** 100
        whole = torch.full((3,), 2 ** 30, dtype=torch.int32)
        dist.all_reduce(whole)
        print("whole", whole[0].item(), flush=True)
        dist.destroy_process_group()
    """
    result = ln.run(
        fabric(policy=policy, saturate=True),
        job(tmp_path, text=text, log=None),
        seed=3,
        directory=tmp_path,
        ina={"quant": "fixed", "overflow_fallback": True},
        faults=[ln.loss("*--*", 0.01, at="0 s")],
    )
    assert result["errors"] == 0, result.data.errors
    assert "whole 2147483647" in next(tmp_path.rglob("0.log")).read_text()
    report = (next(tmp_path.rglob("report.json"))).read_text()
    # 8 blocks of each of 6 tensors and one alone; one block of integers has no floats.
    assert re.search(r'blocks of sums that overflowed": 50\b', report)
    assert re.search(r'of these, summed as float32": 49\b', report)
    assert counted(result, "complete") > 500


def test_what_a_script_cannot_have_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ln.UsageError, match="needs switches whose sums saturate") as refused:
        ln.run(fabric(), job(tmp_path), directory=tmp_path / "runs", ina={"quant": "fixed"})
    for policy, options, says in [
        ("switchml", {"quant": "fixed"}, "needs a parameter server"),
        (
            "esa",
            {"quant": "fixed", "result_path": "switch", "index_policy": "static"},
            'needs result_path="ps"',
        ),
        ("esa", {}, 'of quant="fixed"'),
        ("esa", {"quant": "fixed", "overflow_fallback": 1}, "must be True or False"),
    ]:
        with pytest.raises(ln.UsageError, match=says):
            ln.run(
                fabric(policy=policy, saturate=True),
                job(tmp_path),
                directory=tmp_path / "runs",
                ina={"overflow_fallback": True, **options},
            )
    assert "\n" not in str(refused.value) and not (tmp_path / "runs").exists()
    with pytest.raises(ln.UsageError, match='"gloo" is stock Gloo, whose sums no switch makes'):
        check(job(tmp_path, transport="gloo"), "live")


def test_ranks_that_disagree_are_told_so(tmp_path: Path) -> None:
    text = """
        import torch, torch.distributed as dist
        dist.init_process_group("gloo")
        dist.all_reduce(torch.ones(1000))
        dist.all_reduce(torch.ones(1000 + (dist.get_rank() == 2)))
    """
    result = ln.run(
        fabric(), job(tmp_path, text=text, log=None, ranks=3), seed=3, directory=tmp_path
    )
    assert result["errors"] >= 1
    logs = "".join(path.read_text() for path in tmp_path.rglob("[0-2].log"))
    assert "another rank runs another operation, or of another size or type" in logs


def test_a_rank_that_leaves_early_is_named(tmp_path: Path) -> None:
    """The others' packets go round for ever, so the network is never quiet."""
    text = """
        import os, torch, torch.distributed as dist
        dist.init_process_group("gloo")
        t = torch.ones(1000)
        dist.all_reduce(t)
        if dist.get_rank() == 1:
            os._exit(0)
        dist.all_reduce(t)
    """
    result = ln.run(
        fabric(), job(tmp_path, text=text, log=None, ranks=3), seed=3, directory=tmp_path
    )
    assert result["errors"] == 1
    assert "job rank 1 has exited" in next(tmp_path.rglob("0.log")).read_text()
    assert "rank 1 had ended with status 0" in next(tmp_path.rglob("report.json")).read_text()


def test_a_rank_that_is_killed_ends_the_others_with_its_name(tmp_path: Path) -> None:
    text = """
        import os, signal, torch, torch.distributed as dist
        dist.init_process_group("gloo")
        t = torch.ones(100_000)
        for step in range(10):
            if dist.get_rank() == 2 and step == 5:
                os.kill(os.getpid(), signal.SIGKILL)
            dist.all_reduce(t)
    """
    result = ln.run(
        fabric(), job(tmp_path, text=text, log=None, ranks=3), seed=3, directory=tmp_path
    )
    assert result["errors"] >= 1
    for rank in (0, 1):
        assert "rank 2 was killed" in next(tmp_path.rglob(f"{rank}.log")).read_text()
