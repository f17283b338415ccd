"""What is killed under a live run: a rank, Open vSwitch, a node, the run itself. Each time a clear
message, and nothing left behind."""

import os
import signal
import time
from pathlib import Path

import machine
import pytest
from command_line import TRAFFIC

from loomnet.live import openvswitch
from loomnet.processes import journal as ownership

SCRIPTS = Path(__file__).parent / "rank_scripts"


def pids_of(run, name: str) -> list[int]:
    """Processes of a live run by the last word of their command line, rank's script or node."""
    (run_id,) = (r for r, pid in machine.runs_alive().items() if pid == run.process.pid)
    found = []
    for pid, _ in ownership.marked(run_id):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if any(name in word.decode(errors="replace") for word in words):
            found.append(pid)
    return found


def test_kill_9_of_a_rank_names_it_and_ends_the_run(loomnet):
    run = loomnet.live("ranks", f"script={SCRIPTS / 'waits.py'}")
    run.until(TRAFFIC)
    deadline = time.monotonic() + 10
    while len(pids := pids_of(run, "waits.py")) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(max(pids), signal.SIGKILL)
    assert run.wait(30) in (1, 3), run.output
    assert "error ranks at" in run.output and "was killed by SIGKILL" in run.output
    assert "FAIL no-error" in run.output


@pytest.fixture
def own_open_vswitch():
    ovs = openvswitch.ensure()
    if not ovs.own:
        pytest.skip("the system's Open vSwitch runs here: it is not the tests' to kill")
    return ovs


@pytest.mark.parametrize("daemon", ["ovs-vswitchd", "ovsdb-server"])
def test_kill_9_of_open_vswitch_is_named_and_the_next_run_works(loomnet, own_open_vswitch, daemon):
    run = loomnet.live("flow", "size=200 MB")
    run.until(TRAFFIC)
    os.kill(int((own_open_vswitch.directory / f"{daemon}.pid").read_text()), signal.SIGKILL)
    assert run.wait(30) in (1, 3), run.output
    assert "Open vSwitch in" in run.output and "died" in run.output
    assert loomnet.report()["fidelity"][0]["ended"] == "failed"
    after = loomnet.live("flow")
    assert after.wait(40) in (0, 3), after.output  # 3: a busy machine, not this test's matter
    assert "ok   no-error" in after.output


def test_a_node_that_loses_its_shell_is_named(loomnet):
    run = loomnet.live("flow", "size=200 MB")
    run.until(TRAFFIC)
    (shell,) = pids_of(run, "mininet:p0.spine1")
    os.kill(shell, signal.SIGKILL)
    assert run.wait(30) in (1, 3), run.output
    assert "the namespace of p0.spine1 lost its shell" in run.output


@pytest.mark.parametrize("scenario", ["flow", "ranks"])
@pytest.mark.parametrize("way", ["clean", "next start"])
def test_kill_9_of_the_run_leaves_nothing_after_it(loomnet, scenario, way):
    before = machine.look()
    settings = ["size=200 MB"] if scenario == "flow" else [f"script={SCRIPTS / 'waits.py'}"]
    run = loomnet.live(scenario, *settings)
    run.until(TRAFFIC)
    run.process.kill()
    assert run.wait(10) == -signal.SIGKILL
    if way == "clean":
        assert "journal" in loomnet.clean()
    else:
        following = loomnet.live("flow")
        assert following.wait(40) in (0, 3), following.output
        assert "ok   no-error" in following.output
    assert machine.left_since(before) == []


def test_kill_9_in_the_middle_of_bring_up(loomnet):
    for delay in (0.05, 0.2, 0.4):
        run = loomnet.live("flow", "size=200 MB")
        run.until("XDP switches")
        time.sleep(delay)
        run.process.kill()
        run.wait(10)
    loomnet.clean()
