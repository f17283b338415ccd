"""Scripts that look at their launcher, name nccl and cuda, or read clocks run as they are.
Frameworks are tried where they are installed."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

import loomnet as ln
from loomnet.labs.lab import Lab

SCRIPTS = Path(__file__).parent / "launched"
LINK = {"rate": "100 Gb/s", "delay": "1 us"}


def logs_of(script, folder, fabric, ranks, **options):
    job = ln.TorchJob(SCRIPTS / script, ranks=ranks, compute="1 ms", **options)
    r = Lab("launch", directory=folder, max_wall_s=280).run(fabric, job)
    logs = [(folder / "ranks" / f"{rank}.log").read_text() for rank in range(ranks)]
    assert r.data.ended == "finished" and r["errors"] == 0, "\n".join([str(r.data.errors), *logs])
    assert all("RIGHT" in log for log in logs), logs
    return logs


def test_a_script_finds_itself_launched_as_by_torchrun(tmp_path):
    fabric = ln.Fabric("two_and_one")
    fabric.add_switch("s0")
    fabric.add_link(fabric.add_host("h0", ranks=2, local_link="900 GB/s"), "s0", **LINK)
    fabric.add_link(fabric.add_host("h1"), "s0", **LINK)
    logs = logs_of("as_launched.py", tmp_path, fabric, 3)
    assert logs[0].count("loomnet: backend nccl mapped to loomnet (mrc)\n") == 1
    for log in logs:
        assert len(re.findall(r"reads time.*wall time of this machine", log)) == 1, log
        wall, emulated = map(float, re.search(r"WALL (\S+) EMULATED (\S+)", log).groups())
        assert emulated < 0.005 and wall != emulated


def test_a_script_for_gpus_runs_on_the_cpu_with_emulated_clocks(tmp_path):
    logs = logs_of(
        "cuda_training.py",
        tmp_path,
        ln.star(hosts=2, **LINK),
        2,
        cuda="cpu",
        script_time="emulated",
    )
    assert logs[0].count("loomnet: cuda is the CPU here") == 1
    for log in logs:  # 32 tokens in 1 ms and what the network adds
        assert 30_000 < int(re.search(r"(\d+) tokens/s", log).group(1)) < 32_000, log


@pytest.mark.parametrize(
    ("package", "script", "options"),
    [
        ("lightning", "lightning_ddp.py", {}),
        ("accelerate", "accelerate_ddp.py", {}),
        ("accelerate", "accelerate_ddp.py", {"cuda": "cpu"}),
        ("megatron", "megatron_layers.py", {"cuda": "cpu"}),
    ],
)
def test_frameworks(package, script, options, tmp_path):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    logs = logs_of(
        script, tmp_path, ln.star(hosts=4, **LINK), 4 if package == "megatron" else 2, **options
    )
    told = [re.search(r"RIGHT (\d+) (\d+)", log).groups() for log in logs]
    assert told == [(str(rank), str(len(logs))) for rank in range(len(logs))]


def test_ranks_that_no_job_has_are_named_with_the_call():
    from loomnet.torch.rendezvous import check_place

    check_place(3, 4, 4, default=True)
    check_place(0, 1, 4, default=True)
    with pytest.raises(
        RuntimeError,
        match=r"init_process_group\(world_size=8\), but the job has 4 "
        r"ranks: .*TorchJob\(ranks=8\)",
    ):
        check_place(0, 8, 4, default=True)
    with pytest.raises(RuntimeError, match=r"there is no rank 3 of 2: .*not LOCAL_RANK"):
        check_place(3, 2, 4, default=True)


# Names that a script has taken before it imports PyTorch; `logging` is of the standard library.
TAKEN_BEFORE = """
from time import perf_counter as clock
import logging, time
def read(of=time.time): return of()
import os, torch
from loomnet.torch import script_time
script_time._Emulated.perf_counter_ns = lambda self: 7
os.environ["LOOMNET_SCRIPT_TIME"] = "emulated 5"
before = time.monotonic()
script_time.install()
assert (clock(), time.perf_counter_ns(), time.time_ns(), time.time()) == (7e-9, 7, 12, 12e-9)
assert logging.makeLogRecord({}).created > 1e9 and time.monotonic() > before > 1e-6
assert read() > 1e9
"""


def test_clocks_that_were_taken_before_are_emulated_or_named():
    done = subprocess.run([sys.executable, "-c", TAKEN_BEFORE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "script_time: __main__.read had taken a clock before PyTorch was imported" in done.stderr
