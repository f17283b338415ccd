"""How the ranks of a job end decides how its run ends: a failed rank is a failed run."""

import textwrap

import pytest

import loomnet as ln
from loomnet.laboratory import Lab

FABRIC = dict(planes=1, leaves=1, spines=1, hosts_per_leaf=4, rate="400 Gb/s", delay="1 us")


def run_of(tmp_path, script: str, ranks: int = 4):
    """One virtual run of a plain Python script, which sees its number as `rank`."""
    path = tmp_path / "script.py"
    path.write_text("import os, signal, sys, time\nrank = int(os.environ['RANK'])\n"
                    + textwrap.dedent(script))
    fabric = ln.clos.two_tier(**FABRIC)
    job = ln.TorchJob(path, ranks=ranks, compute="1 ms")
    return Lab("endings", directory=tmp_path / "run").run(fabric, job)


@pytest.mark.parametrize(("script", "who", "words"), [
    # The failing rank is the last that runs.
    ("if rank:\n    os._exit(0)\ntime.sleep(1)\nraise RuntimeError('no room for a checkpoint')",
     "rank 0", "RuntimeError: no room for a checkpoint"),
    ("if rank:\n    os._exit(0)\ntime.sleep(1)\nos._exit(7)", "rank 0", "exit status 7"),
    # All ranks fail together.
    ("import no_such_module", "rank", "No module named 'no_such_module'"),
    ("os._exit(3)", "rank", "exit status 3"),
], ids=["raises last", "exits last", "all at import", "all exit"])  # fmt: skip
def test_the_last_rank_that_fails_fails_the_run(tmp_path, script, who, words):
    r = run_of(tmp_path, script)
    assert r.data.ended == "failed" and r["errors"] == 1
    assert r.data.errors[0].who.startswith(who) and words in r.data.errors[0].message
