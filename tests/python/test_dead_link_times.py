"""When a job of real ranks that a dead link stops is over: as a job of the engine's own, whatever
its ranks have to say goodbye for afterwards, and whenever the run looks."""

import pytest

import loomnet as ln

pytest.importorskip("torch")

SCRIPT = """
import torch, torch.distributed as dist
import loomnet.torch
dist.init_process_group("gloo")
for _ in range(8):
    dist.all_reduce(torch.ones(250_000))
    loomnet.torch.step()
"""
RETRIES_S = 8 * 4.096e-6 * 2**20  # retry_count 7, and NCCL's NCCL_IB_TIMEOUT of 20


def dead(tmp_path, real, stall):
    """Over RoCE, of three hosts; one link dies for good."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    options = {"ranks": 3, "transport": "roce", "stall_timeout": stall}
    job = (
        ln.TorchJob(script, compute="10 us", **options)
        if real
        else ln.AllReduce("1 MB", repeat=8, **options)
    )
    fault = ln.down("h0--p0.leaf0", at=ln.step(3), phase="down")
    return ln.run(
        ln.star(hosts=3, rate="100 Gb/s", delay="1 us"),
        job,
        [fault],
        directory=tmp_path / f"run-{real}",
    )


def test_it_fails_when_the_first_ranks_retries_are_used_up(tmp_path):
    for real in (False, True):
        r = dead(tmp_path, real, "200 s")
        assert r.data.ended == "failed"
        # Rank 0's goodbyes use up the retries of other queue pairs: as long again.
        assert r.data.end_ps / 1e12 == pytest.approx(RETRIES_S, abs=0.01)
        assert r.data.errors[0].at_ps <= r.data.end_ps


def test_a_stall_counts_from_the_last_byte(tmp_path):
    for real in (False, True):
        r = dead(tmp_path, real, "auto")
        assert r.data.ended == "stalled"
        assert 5 < r.data.end_ps / 1e12 < 5.01
