"""What the fixture uses_machine tells: all that a test has left, and nothing of another suite's."""

import os
import signal
import subprocess
import sys
import time

import machine
import pytest
from glue import needs_kernel

from loomnet.base.rank_environment import RUN
from loomnet.processes.journal import RunLock, process_start

pytestmark = needs_kernel
# Holds shared memory as a rank does, in a network of its own if told so.
HOLDS = """
import ctypes, os, sys, time
if sys.argv[1] == "apart":
    ctypes.CDLL(None).unshare(0x40000000)
os.memfd_create("loomnet-rank")
print(os.getpid(), flush=True)
time.sleep(300)
"""
# Starts a program with another environment and ends, so that the program is nobody's child.
LEAVES = """
import subprocess, sys
subprocess.Popen(sys.argv[2:], env=dict(x.split("=", 1) for x in sys.argv[1].split()),
                 start_new_session=True)
"""
# Another suite: a process whose children are ranks.
SUITE = """
import subprocess, sys
subprocess.run(sys.argv[2:], env=dict([sys.argv[1].split("=", 1)]))
"""


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(machine, "SETTLE_S", 0.5)
    yield
    while _started:
        try:
            os.kill(pid := _started.pop(), signal.SIGKILL)
        except ProcessLookupError:
            continue
        deadline = time.monotonic() + 5
        while process_start(pid) is not None and time.monotonic() < deadline:
            time.sleep(0.01)


_started: list[int] = []


def held_by(*command: str) -> int:
    """Runs a LEAVES that ends in HOLDS; the pid that HOLDS prints."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        _started.append(pid := int(run.stdout.readline()))
    return pid


def hold(where: str) -> tuple[str, ...]:
    return (sys.executable, "-c", HOLDS, where)


def test_a_child_with_the_mark_of_a_run_is_told(quick):
    before = machine.look()
    with subprocess.Popen(
        hold("here"), stdout=subprocess.PIPE, text=True, env={**os.environ, RUN: "tst1"}
    ) as child:
        assert child.stdout is not None
        pid = int(child.stdout.readline())
        left = machine.left_since(before)
        child.kill()
    assert f"process {pid} python" in " ".join(left) and any("memfd:loomnet" in x for x in left)


@pytest.mark.parametrize(
    ("variables", "where"),
    [("A=b", "apart"), (f"{RUN}=tst2", "here")],
    ids=["in a network of its own", "marked"],
)
def test_an_orphan_with_another_environment_is_told(quick, variables, where):
    before = machine.look()
    pid = held_by(sys.executable, "-c", LEAVES, variables, *hold(where))
    assert any(line.endswith(f"of {pid}") for line in machine.left_since(before))


def test_ranks_of_another_suite_are_left_out(quick):
    before = machine.look()
    pid = held_by(
        sys.executable,
        "-c",
        LEAVES,
        "A=b",
        sys.executable,
        "-c",
        SUITE,
        f"{RUN}=tst3",
        *hold("apart"),
    )
    _started.append(int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1]))
    assert machine.left_since(before) == []


def test_a_journal_that_is_left_is_told_and_one_of_a_run_that_lives_is_not(quick):
    before = machine.look()
    with RunLock() as alive:
        dead = RunLock()
        os.close(dead._fd)
        left = machine.left_since(before)
        dead.path.unlink()
    assert f"journal {dead.run_id}" in left and f"journal {alive.run_id}" not in left
