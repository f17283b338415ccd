"""Ctrl-C ends a live run within 2 s with a partial report, whenever and however often; --max-wall
ends it as soon, whatever it is about to start."""

import fcntl
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from command_line import SCENARIOS, TRAFFIC

LIMIT_S = 2.0
TRAINS = Path(__file__).parent / "rank_scripts" / "trains.py"


def ends_in_time(run) -> None:
    began = time.monotonic()
    assert run.wait(30) == 130, run.output
    took = time.monotonic() - began
    assert took < LIMIT_S, f"{took:.2f} s:\n{run.output}"


def test_during_traffic(loomnet):
    run = loomnet.live("flow", "size=200 MB")
    run.until(TRAFFIC)
    time.sleep(1)
    run.interrupt()
    ends_in_time(run)
    report = loomnet.report()
    assert report["interrupted"] is True
    assert report["fidelity"][0]["ended"] == "interrupted"
    assert report["fidelity"][0]["packets"] > 0
    metrics = {m["name"]: m for m in report["metrics"]}
    assert metrics["errors"]["value"] == 0
    assert metrics["unfinished"]["value"] == 1, metrics["unfinished"]


def test_while_ranks_train(loomnet):
    run = loomnet.live("ranks", f"script={TRAINS}", "hosts_per_leaf=2", "planes=4", "rate=10 Mb/s")
    run.until(TRAFFIC)
    (folder,) = (loomnet.directory / "runs").iterdir()
    log = folder / "ranks/0.log"
    deadline = time.monotonic() + 60  # torch is imported on whatever is free of the machine
    while "step 3" not in log.read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    run.interrupt()
    ends_in_time(run)
    assert "step 3" in log.read_text()
    assert loomnet.report()["fidelity"][0]["ended"] == "interrupted"


def test_while_a_capture_is_not_read(loomnet):
    run = loomnet.live("flow", "size=200 MB", "rate=60 Mb/s")
    run.until(TRAFFIC)
    with subprocess.Popen(
        [sys.executable, "-m", "loomnet", "capture", "h0:0"], stdout=subprocess.PIPE
    ) as capture:
        capture.stdout.read(24)
        time.sleep(1.5)  # what follows has filled the pipe and the socket
        run.interrupt()
        ends_in_time(run)
        capture.kill()


soak = pytest.mark.soak


@pytest.mark.parametrize(
    "delay", [pytest.param(0.0, marks=soak), 0.1, pytest.param(0.25, marks=soak), 0.4]
)
def test_during_bring_up(loomnet, delay):
    run = loomnet.live("flow", "size=200 MB")
    run.until("XDP switches")
    time.sleep(delay)
    run.interrupt()
    ends_in_time(run)
    assert loomnet.report()["interrupted"] is True
    assert "PATH" not in run.output and "annot find" not in run.output, run.output


@pytest.mark.parametrize("delay", [0.0, pytest.param(0.15, marks=soak), 0.3])
def test_before_the_run_begins_it_is_one_line(loomnet, delay):
    """The signal comes while the command imports modules, or during the bring-up."""
    run = loomnet.start(
        "run",
        f"{SCENARIOS}::flow",
        "--clock",
        "live",
        "--set",
        "size=200 MB",
        environment={"PYTHONUNBUFFERED": "1"},
    )
    while not ready(run.process.pid):
        time.sleep(0.005)
    time.sleep(delay)
    run.process.send_signal(signal.SIGTERM)
    ends_in_time(run)
    assert run.lines.count("loomnet: interrupted") == 1, run.output
    assert "Traceback" not in run.output


def ready(pid: int) -> bool:
    """Whether the command catches SIGTERM by now: before, nothing of it has begun."""
    text = Path(f"/proc/{pid}/status").read_text()
    caught = next(line for line in text.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


def test_max_wall_counts_the_bring_up_and_ends_it(loomnet):
    began = time.monotonic()
    run = loomnet.live(
        "ranks",
        f"script={TRAINS}",
        "hosts_per_leaf=4",
        "ranks=8",
        "rate=10 Mb/s",  # more would be near what a busy machine carries
        options=("--max-wall", "0.3 s"),
    )
    assert run.wait(30) == 1, run.output
    assert time.monotonic() - began < 10, run.output
    assert (
        "not finished: ranks stalled: --max-wall 0.3 s is over before the live network was "
        "there" in run.output
    )
    (only,) = loomnet.report()["fidelity"]
    assert only["packets"] == 0


@pytest.mark.parametrize("limit", ["1.5 s", "3 s"])
def test_max_wall_ends_ranks_while_they_start_or_train(loomnet, limit):
    run = loomnet.live("ranks", f"script={TRAINS}", options=("--max-wall", limit))
    run.until("XDP switches")
    began = time.monotonic()
    assert run.wait(30) in (1, 3), run.output  # 3: busy, the engine was late for its packets
    took = time.monotonic() - began
    assert took < float(limit.split()[0]) + 10, run.output  # the tear-down has 10 s
    assert run.output.count("not finished") == 1, run.output
    assert len(loomnet.report()["fidelity"]) == 1


def test_typed_again_and_again_it_still_leaves_nothing(loomnet):
    run = loomnet.live("flow", "size=200 MB")
    run.until(TRAFFIC)
    began = time.monotonic()
    for _ in range(20):
        if run.process.poll() is not None:
            break
        run.interrupt()
        time.sleep(0.05)
    assert run.wait(30) == 130, run.output
    assert time.monotonic() - began < LIMIT_S
    assert "Traceback" not in run.output and "is left" not in run.output, run.output


# All of them end a run by one handler; test_live_lab.py sends others in turn to an open lab.
@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        signal.SIGHUP,
        *(
            pytest.param(each, marks=soak)
            for each in (signal.SIGQUIT, signal.SIGUSR1, signal.SIGALRM)
        ),
    ],
)
def test_a_polite_kill_is_as_good(loomnet, number):
    run = loomnet.live("flow", "size=200 MB")
    run.until(TRAFFIC)
    run.process.send_signal(number)
    ends_in_time(run)
    fidelity = loomnet.report()["fidelity"][0]
    assert fidelity["ended"] == "interrupted" and number.name in fidelity["reason"]


def test_a_terminal_that_is_closed(loomnet):
    """All is taken down, the report is written, and the status says interrupted."""
    master, terminal = pty.openpty()
    run = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "loomnet",
            "run",
            f"{SCENARIOS}::flow",
            "--clock",
            "live",
            "--set",
            "size=200 MB",
        ],
        cwd=loomnet.directory,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(terminal)
    try:
        seen = b""
        while not re.search(rb"\(\d+ %\)", seen):  # the progress line: traffic runs
            seen += os.read(master, 4096)
        os.close(master)
        assert run.wait(30) == 130
    finally:
        run.kill()
        run.wait()
    assert loomnet.report()["interrupted"] is True


def test_the_same_scenario_runs_after_it(loomnet):
    first = loomnet.live("flow", "size=200 MB")
    first.until(TRAFFIC)
    first.interrupt()
    ends_in_time(first)
    second = loomnet.start("run", f"{SCENARIOS}::flow", "--clock", "live", "--json", "second.json")
    assert second.wait(40) in (0, 3), second.output  # 3: a busy machine, not this test's matter
    assert "ok   no-error" in second.output
