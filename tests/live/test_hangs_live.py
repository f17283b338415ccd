"""A job whose ranks hang ends on the live clock, wherever in their life they do, and says what each
of them waits for; a rendezvous at localhost meets."""

import sys
import textwrap
import time
from pathlib import Path

import pytest

import loomnet as ln
from loomnet.labs.lab import Lab

sys.path.append(str(Path(__file__).parents[1] / "python"))
from hanging import (  # pyright: ignore[reportMissingImports]  (tests/python is no package)
    CASES,
    SCRIPT,
    check,
)

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("uses_machine")
SHORT = {("first_collective", "receive")}
STAR = {"hosts": 2, "rate": "20 Mb/s", "delay": "1 ms"}


@pytest.mark.parametrize(
    ("stage", "way"),
    [pytest.param(*case, marks=() if case in SHORT else pytest.mark.soak) for case in CASES],
)
def test_every_hang_ends_and_is_named(tmp_path, stage, way):
    lab = Lab("hangs", clock="live", directory=tmp_path / "run", max_wall_s=100)
    r = lab.run(
        ln.star(**STAR), ln.TorchJob(SCRIPT, args=[stage, way], ranks=2, stall_timeout="3 s")
    )
    check(r, stage, way)


@pytest.mark.parametrize("transport", ["mrc", pytest.param("gloo", marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    "init",
    [
        "os.environ['MASTER_ADDR'] = 'localhost'; dist.init_process_group('gloo')",
        *(
            pytest.param(text, marks=pytest.mark.soak)
            for text in (
                "dist.init_process_group('gloo', init_method='tcp://127.0.0.1:29518', rank=rank, "
                "world_size=2)",
                "dist.init_process_group('gloo', "
                "store=dist.TCPStore('localhost', 29519, 2, rank == 0), rank=rank, world_size=2)",
            )
        ),
    ],
    ids=["environment", "method", "store"],
)
def test_a_rendezvous_at_localhost_meets_on_the_management_network(tmp_path, init, transport):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(f"""
        import os
        import torch, torch.distributed as dist
        rank = int(os.environ["RANK"])
        {init}
        tensor = torch.ones(1000)
        dist.all_reduce(tensor)
        assert tensor[0] == 2
        """)
    )
    lab = Lab("localhost", clock="live", directory=tmp_path / "run", max_wall_s=100)
    r = lab.run(
        ln.star(**STAR), ln.TorchJob(script, ranks=2, transport=transport, stall_timeout="10 s")
    )
    assert r["errors"] == 0 and r.data.ended == "finished", r.data.errors
    log = (tmp_path / "run" / "ranks" / "1.log").read_text()
    assert "is taken for rank 0's host" in log and log.count("each host has a loopback") == 1


@pytest.mark.soak
def test_the_time_before_the_first_operation_counts_too(tmp_path):
    """Where the job names no stall_timeout, an import from a cold disk is no stall: a rank that
    sleeps longer than 5 s before it makes a group goes on."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import time
        time.sleep(8)
        import torch, torch.distributed as dist
        dist.init_process_group("gloo")
        dist.all_reduce(torch.ones(10))
        """)
    )
    lab = Lab("late", clock="live", directory=tmp_path / "run", max_wall_s=100)
    began = time.monotonic()
    r = lab.run(ln.star(**STAR), ln.TorchJob(script, ranks=2))
    assert r["errors"] == 0 and time.monotonic() - began > 8, r.data.errors
