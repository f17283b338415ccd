"""Threads of a rank on the virtual clock: what they do beside training repeats to the picosecond,
and a thread whose calls come at instants of this machine's choosing is named."""

from pathlib import Path

import pytest

pytest.importorskip("torch")
import loomnet as ln

SCRIPT = Path(__file__).parent / "torch_cases" / "threads_of_ranks.py"


def run(*arguments: str):
    fabric = ln.star(hosts=2, rate="100 Gb/s", delay="1 us")
    job = ln.TorchJob(SCRIPT, args=list(arguments), ranks=2, compute="1 ms")
    r = ln.run(fabric, job, write=False)
    assert r.data.ended == "finished" and r["errors"] == 0, r.data.errors
    return r


@pytest.mark.timeout(600)
def test_checkpoints_and_threads_with_groups_of_their_own_repeat(tmp_path):
    runs = [run("save", str(tmp_path / name)) for name in ("first", "second")]
    times = [
        [(each.number, each.start_ps, each.end_ps) for each in r.data.iterations] for r in runs
    ]
    assert [r.data.deterministic for r in runs] == [True, True], [
        r.data.fidelity.notes for r in runs
    ]
    assert times[0] == times[1] and len(times[0]) == 7


@pytest.mark.timeout(300)
def test_a_thread_that_calls_late_is_named():
    r = run("late")
    told = r.data.fidelity.notes["threads that began to communicate while time passed"]
    assert not r.data.deterministic
    assert told == "1 (rank 0: 'late ?[31mcaller')", told
