"""Where the time of a PyTorch job begins, from which faults by time count: at the end of the first
step, or, where no step comes, at the begin of the first operation."""

import textwrap

import pytest

import loomnet as ln
from loomnet.jobs.training_script import steps_by_text
from loomnet.labs.lab import Lab

HEAD = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
"""
PLAIN = (
    HEAD
    + """
for _ in range(30):
    dist.all_reduce(torch.ones(100_000))
"""
)
# Set-up of 400 us, then steps of 40 us and 1 ms of compute time each.
TRAINS = """
import trainer
trainer.train()
"""
TRAINER = (
    HEAD
    + """
def train():
    weight = torch.ones(100_000, requires_grad=True)
    for _ in range(10):
        dist.broadcast(weight.detach(), 0)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(8):
        weight.grad = torch.ones(100_000)
        dist.all_reduce(weight.grad)
        optimizer.step()
"""
)
DESCENDS = """
import trainer
for _ in range(30):
    trainer.reduce()
"""


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        (PLAIN, False),
        ("import numpy as np, os, torch", False),
        ("import torch\nfrom torch import optim", True),
        ("import torch\no = torch.optim.SGD", True),
        ("import loomnet.torch\nloomnet.torch.step()", True),
        ("from loomnet.torch import step\nstep()", True),
        ("class Net:\n    def configure_optimizers(self): ...", True),
        ("import lightning", None),
        ("from . import net", None),
        ("import runpy", None),
        ("def (", None),
    ],
)
def test_a_text_tells_whether_its_script_steps(tmp_path, text, steps):
    path = tmp_path / "script.py"
    path.write_text(text)
    assert steps_by_text(path) is steps


def run(tmp_path, script, *faults, **options):
    pytest.importorskip("torch")
    tmp_path.mkdir(exist_ok=True)
    path = tmp_path / "script.py"
    path.write_text(script)
    (tmp_path / "trainer.py").write_text(
        TRAINER
        + textwrap.dedent("""
        def reduce():
            dist.all_reduce(torch.ones(100_000))
        """)
    )
    lab = Lab("zero", directory=tmp_path / "run")
    return lab.run(
        ln.star(hosts=2, rate="100 Gb/s", delay="1 us"),
        ln.TorchJob(path, ranks=2, compute="1 ms"),
        faults,
        **options,
    )


def halved(at):
    return ln.degrade("h0--*", 0.5, at=at, duration="300 us", phase="slow")


@pytest.mark.parametrize(
    "script", [PLAIN, pytest.param(DESCENDS, marks=pytest.mark.soak)], ids=["plain", "imports"]
)
def test_a_script_that_never_steps_has_time_bytes_and_faults_by_time(tmp_path, script):
    """30 all-reduces of 400 kB, 40 us each, four to eight of them at half the rate."""
    r = run(tmp_path, script, halved("400 us"))
    assert r["errors"] == 0 and r.data.ended == "finished", r.data.errors
    (window,) = r.data.windows
    assert (window.start_ps, window.end_ps) == (400 * 10**6, 700 * 10**6)
    assert 30 * 32e6 < r.data.fidelity.emulated_ps < 30 * 32e6 + 500e6
    assert r["slow.goodput_ratio"] == pytest.approx(0.55, abs=0.1)
    assert sum(sum(host.payload) for host in r.data.hosts.values()) > 2 * 30 * 400_000
    reasons = {row.dotted: row.reason or "" for row in r.rows}
    why = "no torch.optim.Optimizer has stepped in rank 0"
    assert r["before.iteration_s"] is None and why in reasons["before.iteration_s"]
    assert why in reasons["slow.recovery_s"]
    note = str(r.data.fidelity.notes["iterations"])
    assert note.endswith("begin of the job's first operation")


@pytest.mark.soak
def test_the_set_up_of_a_script_that_steps_lies_before_time_zero(tmp_path):
    """The script's text does not tell that it steps: its optimizer does, before a fault that
    would be due while the first steps are made."""
    r = run(tmp_path, TRAINS, halved("600 us"))
    assert r["errors"] == 0 and len(r.data.iterations) == 7, r.data.errors
    assert r.data.windows[0].start_ps == 600 * 10**6
    assert r.data.iterations[0].start_ps == 0


@pytest.mark.soak
def test_who_looks_does_not_move_time_zero(tmp_path):
    seen = [
        run(tmp_path / str(len(options)), PLAIN, halved("400 us"), **options)
        for options in ({}, {"sample": "10 us", "links": ["h0->*"]})
    ]
    assert seen[0].data.fidelity.emulated_ps == seen[1].data.fidelity.emulated_ps
    assert seen[0].data.windows == seen[1].data.windows
    samples = seen[1].data.samples
    assert samples is not None
    looks = samples.sent["h0->p0.leaf0"]
    assert looks[0][0] == 0 and looks[-1][1] > 30 * 400_000
