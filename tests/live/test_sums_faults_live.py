"""What dies under PyTorch whose sums XDP switches make: a rank, the parameter server, a switch for
a while and for good. The run ends with its name or trains on to the same losses, and every other
sum stays exact."""

import os
import signal
import time
from pathlib import Path

import machine
import pytest
from command_line import TRAFFIC

import loomnet as ln
from loomnet.labs.lab import Lab
from loomnet.processes import journal as ownership

pytest.importorskip("torch")

SCRIPT = Path(__file__).parent / "rank_scripts" / "sums.py"
LOG = r"step (?P<step>\d+) loss (?P<loss>\S+)"
RANKS, STEPS = 2, 30


def star(policy="esa", hosts=RANKS, servers=("ps",)):
    fabric = ln.star(hosts=hosts, rate="40 Mb/s", delay="0.5 ms")
    for name in servers:
        fabric.add_link(
            fabric.add_host(name, role="server"), "p0.leaf0", rate="40 Mb/s", delay="0.5 ms"
        )
    return fabric.program("*", "aggregate", policy=policy, pool="64 KiB")


def two_planes():
    fabric = ln.clos.two_tier(
        planes=2, leaves=2, spines=1, hosts_per_leaf=2, rate="40 Mb/s", delay="0.5 ms"
    )
    return fabric.program("*", "aggregate", policy="esa")


def torch_job(**options):
    return ln.TorchJob(
        SCRIPT,
        **{
            "args": [str(STEPS)],
            "ranks": RANKS,
            "allreduce": "ina",
            "log": LOG,
            "stall_timeout": "5 s",
        }
        | options,
    )


def go(directory, fabric, job, faults=(), clock="live", **options):
    options.setdefault("ina", {"window": 64, "rto_first": 20 * 10**9, "switchml_timeout": 10**10})
    return Lab("sums", clock=clock, seed=1, directory=directory).run(
        fabric, job, faults, reroute_delay="20 ms", **options
    )


def losses(result):
    return [row["loss"] for _, row in result.data.log]


def ranks_of(run):
    """Process of each rank of a live run."""
    (run_id,) = (r for r, pid in machine.runs_alive().items() if pid == run.process.pid)
    found = {}
    for pid, _ in ownership.marked(run_id):
        for word in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if word.startswith(b"RANK="):
                found[int(word[5:])] = pid
    return found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The losses of the virtual clock, on which nothing dies."""
    r = go(
        tmp_path_factory.mktemp("undisturbed"), star(), torch_job(compute="1 ms"), clock="virtual"
    )
    assert r["errors"] == 0 and len(set(losses(r))) == STEPS
    return losses(r)


def test_a_rank_that_is_killed_is_named_and_leaves_nothing(loomnet):
    run = loomnet.live("sums", f"script={SCRIPT}", "args=100000", f"ranks={RANKS}")
    run.until(TRAFFIC)
    (log,) = loomnet.directory.glob("runs/*/ranks/0.log")
    deadline = time.monotonic() + 20
    while "step 10 " not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)
    os.kill(ranks_of(run)[1], signal.SIGKILL)
    assert run.wait(30) in (1, 3), run.output  # 3: a busy machine, not this test's matter
    assert "rank 1 was killed by SIGKILL" in run.output and "FAIL no-error" in run.output
    assert loomnet.report()["fidelity"][0]["ended"] == "failed"


def test_a_server_that_is_gone_is_named_and_the_other_job_trains_on(
    uses_machine, tmp_path, undisturbed
):
    jobs = [torch_job(name=name) for name in "ab"]
    r = go(
        tmp_path,
        star(hosts=2 * RANKS, servers=("ps", "ps2")),
        jobs,
        [ln.down("ps--p0.leaf0", at=ln.step(5))],
    )
    a, b = r.job("a"), r.job("b")
    assert a.data.ended == "stalled"
    assert "no plane joins its hosts and ps any more" in a.data.reason
    assert b.data.ended == "finished" and r["b.errors"] == 0, b.data.errors
    assert losses(b) == undisturbed and r.data.fidelity.unexplained == 0


@pytest.mark.parametrize("policy", ["esa", "atp", "switchml"])
def test_a_reboot_of_the_switch_makes_no_wrong_sum(uses_machine, tmp_path, undisturbed, policy):
    fault = ln.kill("p0.leaf0", at=ln.step(5), duration="0.1 s", reboot="50 ms", phase="dead")
    r = go(tmp_path, star(policy), torch_job(), [fault])
    found = losses(r)
    if policy == "switchml" and r.data.ended == "stalled":  # it forgot whom it had answered
        assert "its sums are made at p0.leaf0" in r.data.reason
        assert found == undisturbed[: len(found)]
        return
    assert r.data.ended == "finished" and r["errors"] == 0, r.data.errors
    assert found == undisturbed and r.switch("p0.leaf0").counters["complete"] > 0


def test_a_switch_that_is_gone_is_named(uses_machine, tmp_path, undisturbed):
    r = go(tmp_path, star(), torch_job(), [ln.kill("p0.leaf0", at=ln.step(5))])
    assert r.data.ended == "stalled" and r["errors"] > 0
    assert "no plane joins its hosts and ps any more" in r.data.reason
    assert 5 <= len(losses(r)) < STEPS and losses(r) == undisturbed[: len(losses(r))]


def test_training_moves_to_the_plane_that_is_left(uses_machine, tmp_path, undisturbed):
    fault = ln.kill("p0.leaf1", at=ln.step(10), phase="dead")
    r = go(tmp_path, two_planes(), torch_job(), [fault])
    assert r.data.ended == "finished" and r["errors"] == 0, r.data.errors
    assert losses(r) == undisturbed
    assert r["dead.recovery_s"] is not None and r["dead.recovery_s"] < 1
    per_plane = [r.switch(f"p{plane}.leaf0").counters["complete"] for plane in (0, 1)]
    assert per_plane[1] > per_plane[0] > 0
