"""Real PyTorch on virtual time at a fabric's real speed, eight planes of 400 Gb/s: the same time to
the picosecond in every run, and a rank that dies is named and leaves nothing behind."""

import gc
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import loomnet as ln
from loomnet.labs.lab import Lab
from loomnet.processes import journal as ownership

pytest.importorskip("torch")
SCENARIO = Path(__file__).parents[2] / "scenarios" / "ddp_eight_planes.py"
STEPS = 5  # a fault at step 2 for two iterations


@pytest.mark.timeout(600)  # three imports of torch, 24 trainings: half an idle minute
def test_runs_are_the_same_to_the_picosecond(tmp_path, request):
    """Eight ranks, in this process (with --soak twice) and in another: every iteration's time and
    loss is a figure of the report, and the report is the same to the byte."""
    here = ("first", "second") if request.config.getoption("--soak") else ("first",)
    for name in here:
        report = ln.load(SCENARIO).run(seed=1, directory=tmp_path / name, steps=STEPS)
        assert report.ok, report.failed
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "loomnet",
            "run",
            SCENARIO,
            "--seed",
            "1",
            "--set",
            f"steps={STEPS}",
            "--json",
            "third.json",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    values = {metric.name: metric.value for metric in report.rows}
    times = [values[f"step_{number}_s"] for number in range(2, STEPS + 1)]
    assert all(0.002 < each < 0.004 for each in times), times  # 2 ms of it is declared compute
    assert len({values[f"step_{number}_loss"] for number in range(1, STEPS + 1)}) == STEPS
    first = (tmp_path / "first" / "report.json").read_bytes()
    assert b'"deterministic": true' in first
    assert first == (tmp_path / here[-1] / "report.json").read_bytes()
    assert first == (tmp_path / "third.json").read_bytes()


def traces(scratch: Path) -> set[str]:
    """What a run of this process, with its TMPDIR there, could leave behind: its processes, its
    journal, shared memory held open."""
    gc.collect()
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"TMPDIR={scratch}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.add(f"process {entry.name}")
        except OSError:
            continue  # gone meanwhile, or another user's
    for journal in ownership.state_directory().glob("runs/*"):
        try:
            if f'"kind": "run", "pid": {os.getpid()},' in journal.read_text():
                found.add(f"journal {journal.name}")
        except OSError:
            continue
    for fd in Path("/proc/self/fd").iterdir():
        try:
            if os.readlink(fd).startswith("/memfd:loomnet"):
                found.add(f"shared memory of descriptor {fd.name}")
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    ("act", "words"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "rank 1 was killed by SIGKILL"),
        ("raise ValueError('a bug in step 4')", "ValueError: a bug in step 4"),
    ],
)
def test_a_rank_that_dies_is_named_and_leaves_nothing(tmp_path, monkeypatch, act, words):
    script = tmp_path / "dies.py"
    script.write_text(
        textwrap.dedent(f"""
        import os, signal, torch, torch.distributed as dist
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        weights = torch.nn.Parameter(torch.zeros(1 << 18))
        optimizer = torch.optim.SGD([weights], lr=0.1)
        for step in range(1, 100_000):
            weights.grad = torch.ones_like(weights)
            dist.all_reduce(weights.grad)
            if step == 4 and dist.get_rank() == 1:
                {act}
            optimizer.step()
        """)
    )
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    before, began = traces(scratch), time.monotonic()
    fabric = ln.clos.two_tier(
        planes=8, leaves=2, spines=2, hosts_per_leaf=2, rate="400 Gb/s", delay="1 us"
    )
    lab = Lab("dies", directory=tmp_path / "run")
    r = lab.run(fabric, ln.TorchJob(script, ranks=3, transport="mrc", compute="1 ms"))
    assert time.monotonic() - began < 120  # imports of torch on a busy machine
    assert r.data.ended == "failed" and r["errors"] >= 1
    assert r.data.errors[0].who == "rank 1" and words in r.data.errors[0].message
    # Rank 0 finished step 4, whose bytes rank 1 had sent before it died, and none after it.
    assert [each.number for each in r.data.iterations] == [2, 3, 4]
    for peer in (0, 2):  # they hear of it from their NICs
        assert "rank 1" in (tmp_path / "run" / "ranks" / f"{peer}.log").read_text()
    del r, lab
    assert not traces(scratch) - before
    # PyTorch keeps a compiler cache of its own there.
    assert not [each for each in scratch.iterdir() if not each.name.startswith("torchinductor")]
