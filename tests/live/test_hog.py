"""A live run beside a hog: it says that it fell behind, by how much, and is no result."""

import os
import re
import subprocess
import sys

import pytest

# Above the loop's SCHED_FIFO 1 on every processor, 30 ms of each 60: no test may take the machine.
HOG = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(20))
parent = os.getppid()
print("busy", flush=True)
until = time.monotonic() + 100
while os.getppid() == parent and time.monotonic() < until:
    end = time.monotonic() + 0.03
    while time.monotonic() < end:
        pass
    time.sleep(0.03)
"""


@pytest.fixture
def hogs():
    started = []
    try:
        for processor in sorted(os.sched_getaffinity(0)):
            hog = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", HOG, str(processor)],
                stdout=subprocess.PIPE,
                text=True,
            )
            started.append(hog)
        for hog in started:
            assert hog.stdout.readline() == "busy\n", "SCHED_FIFO is refused here"
        yield
        assert [hog.poll() for hog in started] == [None] * len(started), "a hog did not last"
    finally:
        for hog in started:
            hog.kill()
            hog.wait(10)
            hog.stdout.close()


def test_a_run_beside_a_hog_says_so_and_exits_3(loomnet, hogs):
    run = loomnet.live("flow", "size=2 MB")
    assert run.wait(60) == 3, run.output
    told = re.search(r"not a result: flow: (.*)", run.output)
    assert told, run.output
    assert re.search(
        r"p99 lateness [\d.]+ us is above the bound of [\d.]+ us", told[1]
    ) or re.search(r"\d+ packets lost in sockets and veths", told[1]), told[1]
    assert "these numbers are no result" in run.output
    fidelity = loomnet.report()["fidelity"][0]
    assert fidelity["kept_up"] is False
    assert fidelity["lateness_p99_ps"] > 10**9  # the bound, 1 ms
