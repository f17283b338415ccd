"""What a script may ask of a run and tell it: loomnet.torch.now() and loomnet.torch.step()."""

import subprocess
import sys
import textwrap

import pytest

import loomnet as ln
from loomnet.labs.lab import Lab

pytest.importorskip("torch")
HEAD = """
import torch, torch.distributed as dist
import loomnet.torch as lt
dist.init_process_group("gloo")
def reduce():
    tensor = torch.ones(100_000)
    before = lt.now()
    dist.all_reduce(tensor)
    return lt.now() - before
"""


def run(tmp_path, script, compute="1 ms", faults=(), **options):
    tmp_path.mkdir(exist_ok=True)
    path = tmp_path / "script.py"
    path.write_text(HEAD + textwrap.dedent(script))
    lab = Lab("calls", directory=tmp_path / "run")
    r = lab.run(
        ln.star(hosts=2, rate="100 Gb/s", delay="1 us"),
        ln.TorchJob(path, ranks=2, compute=compute, **options),
        faults,
    )
    return r, (tmp_path / "run" / "ranks" / "0.log").read_text()


def test_a_script_without_optimizer_marks_its_steps(tmp_path):
    """A step is an iteration as long as its collective and its declared compute time, as the
    script's own clock says."""
    r, log = run(
        tmp_path,
        """
        for _ in range(8):
            took = reduce()
            lt.step()
        print("took", took, lt.now())
        """,
    )
    assert r["errors"] == 0, r.data.errors
    took, now = map(float, log.split("took ")[1].split())
    # 400,000 B once each way at 100 Gb/s are 32 us, with headers and the way.
    assert 32e-6 < took < 45e-6
    assert len(r.data.iterations) == 7
    assert r["before.iteration_s"] == pytest.approx(took + 1e-3, rel=1e-6)
    # The run's time begins with the first step's end; the script's with the job's start.
    first = now - r.data.fidelity.emulated_ps / 1e12
    assert took < first < 2 * took


def test_marks_of_the_script_replace_the_steps_of_its_optimizers(tmp_path):
    """Two optimizers that step in turn, and a mark at the end of each iteration."""
    r, _ = run(
        tmp_path,
        """
        weights = [torch.ones(4, requires_grad=True) for _ in range(2)]
        optimizers = [torch.optim.SGD([weight], lr=0.1) for weight in weights]
        for _ in range(9):
            for weight, optimizer in zip(weights, optimizers):
                weight.grad = torch.ones(4)
                reduce()
                optimizer.step()
            lt.step()
        """,
    )
    assert r["errors"] == 0, r.data.errors
    # The first optimizer's first step was counted before the first mark, which counts nothing.
    assert [each.number for each in r.data.iterations] == list(range(2, 10))
    assert (r["before.iteration_s"] or 0) > 2 * 32e-6 + 1e-3


def test_a_script_without_steps_is_told_that_its_stop_was_not_heard(tmp_path):
    calls = "for _ in range(40): reduce()"
    r, _ = run(tmp_path / "a", calls, until="0.1 ms")
    assert r["errors"] == 0 and "no rank heard of it" in r.data.fidelity.notes["stop"]
    r, _ = run(tmp_path / "b", calls, until="1 s")
    assert "stop" not in r.data.fidelity.notes


@pytest.mark.soak
def test_faults_at_steps_and_the_end_of_a_job_follow_marks(tmp_path):
    slow = ln.degrade("h0--*", 0.5, at=ln.step(3), duration="6 ms", phase="slow")
    r, _ = run(
        tmp_path,
        """
        while True:
            reduce()
            lt.step()
        """,
        faults=[slow],
        until="30 ms",
    )
    assert r["errors"] == 0 and r.data.ended == "finished", r.data.errors
    assert (r["slow.iteration_s"] or 0) > (r["after.iteration_s"] or 1) + 30e-6


def test_outside_a_run_a_mark_does_nothing_and_there_is_no_time():
    script = "import loomnet.torch as lt; lt.step(); lt.now()"
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == (
        "RuntimeError: loomnet.torch.now(): this process is no rank of a run; start the script "
        "with `loomnet run` (ln.TorchJob)"
    )
