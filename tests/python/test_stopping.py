"""--max-wall and signals stop a PyTorch run within 2 s wherever it is: while a scenario is loaded,
while PyTorch is imported, while ranks start, while ranks cannot answer."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from loomnet.processes import kept_process
from loomnet.processes.kept_process import KeptProcess
from loomnet.processes.rank_watch import StackFile, ask_all

IMPORT_S = 25.0  # what the import of a rank or of all ranks takes here
SCENARIO = """
import loomnet as ln

@ln.scenario
def demo(lab: ln.Lab, fork: str = "1"):
    fabric = ln.clos.star(hosts=2, rate="10 Gb/s", delay="1 us")
    job = ln.TorchJob("train.py", ranks=2, compute="1 ms", env={"LOOMNET_FORK": fork})
    result = lab.run(fabric, job)
    lab.metric("checked", result["errors"])
"""
SCRIPT = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
t = torch.ones(4)
while True:
    dist.all_reduce(t)
"""
SLOW = f"""
import sys, time
if any(word.endswith(("fork_child.py", "/train.py")) for word in sys.orig_argv):
    time.sleep({IMPORT_S})
"""


@pytest.fixture
def slow_imports(tmp_path, monkeypatch):
    """A job whose processes, and no others, take long before they run their script."""
    pytest.importorskip("torch")
    (tmp_path / "demo.py").write_text(SCENARIO)
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow/sitecustomize.py").write_text(SLOW)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "slow"))


STARTED: list[subprocess.Popen] = []


@pytest.fixture(autouse=True)
def nothing_stays():
    """A test that fails leaves no command behind that loops or waits for a minute."""
    yield
    for run in STARTED:
        if run.poll() is None:
            run.kill()
    STARTED.clear()


def start(*words):
    # A shell's background job ignores SIGINT, and all that the job starts does so too.
    STARTED.append(
        subprocess.Popen(
            ["env", "--default-signal=INT,HUP", sys.executable, "-m", "loomnet", "run", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    )
    return STARTED[-1]


@pytest.mark.parametrize("fork", ["1", "0"])
def test_max_wall_ends_a_run_while_its_ranks_import(slow_imports, fork):
    run = start("demo.py", "--set", f"fork={fork}", "--max-wall", "2 s")
    assert "virtual clock" in run.stdout.readline()
    began = time.monotonic()
    out, err = run.communicate(timeout=60)
    seconds = time.monotonic() - began
    assert run.returncode == 1 and not err, out + err
    assert ("before all ranks were started" in out) == (fork == "1"), out
    assert out.count("not finished: demo stalled: --max-wall 2 s is over") == 1
    assert out.count("not finished") == out.count("fidelity ") == 1
    assert "checked: 1" in out  # the scenario goes on behind the run
    assert seconds < 2 + 5, out  # the idle machine's is 2 + 0.5
    assert seconds < IMPORT_S / 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_while_ranks_import_is_one_line(slow_imports, number):
    run = start("demo.py")
    assert "virtual clock" in run.stdout.readline()
    time.sleep(0.3)
    interrupted(run, number)
    assert len(list(Path("runs").glob("*/report.json"))) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("twice", [False, True])
def test_an_interrupt_while_the_scenario_is_loaded_is_one_line(
    tmp_path, monkeypatch, number, twice
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo.py").write_text(
        "import time\nprint('loading', flush=True)\ntime.sleep(60)\n" + SCENARIO
    )
    run = start("demo.py")
    assert run.stdout.readline() == "loading\n"
    if twice:
        run.send_signal(number)
    interrupted(run, number)
    assert not Path("runs").exists()


def test_an_interrupt_inside_an_exec_of_a_string_has_the_same_status(tmp_path, monkeypatch):
    """An import that makes a namedtuple is inside such an exec, for example."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo.py").write_text(
        "import time\nexec('print(\"loading\", flush=True); time.sleep(60)')\n" + SCENARIO
    )
    run = start("demo.py")
    assert run.stdout.readline() == "loading\n"
    interrupted(run, signal.SIGTERM)


def test_an_interrupt_that_a_destructor_swallows_ends_the_run_all_the_same(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo.py").write_text("""
import time
import loomnet as ln

class Slow:
    def __del__(self):
        print("loading", flush=True)
        time.sleep(60)

Slow()

@ln.scenario
def demo(lab: ln.Lab):
    lab.run(ln.clos.star(hosts=2, rate="10 Gb/s", delay="1 us"), ln.SendRecv("1 GB", 10**6))
""")
    run = start("demo.py")
    assert run.stdout.readline() == "loading\n"
    time.sleep(0.2)
    run.send_signal(signal.SIGTERM)
    _, err = run.communicate(timeout=20)
    assert run.returncode == 130 and err.endswith("\nloomnet: interrupted\n"), err


def interrupted(run, number):
    """Ends within 2 s of an idle machine, with one line that says why."""
    began = time.monotonic()
    run.send_signal(number)
    out, err = run.communicate(timeout=60)
    assert time.monotonic() - began < 5, out + err
    assert run.returncode == 130 and err.strip() == "loomnet: interrupted", out + err


def test_what_a_run_asks_of_a_rank_that_is_being_started_is_answered_at_once(tmp_path, monkeypatch):
    """The keeper forks the rank when the machine lets it, which may take seconds."""
    keeper = tmp_path / "keeper.py"
    keeper.write_text("import time; time.sleep(60)")
    monkeypatch.setattr(kept_process, "_EXEC", keeper)
    process = KeptProcess({"namespaces": []}, dict(os.environ), [], 2)
    try:
        began = time.monotonic()
        assert process.known_pid == process.keeper
        assert time.monotonic() - began < 1
    finally:
        os.kill(process.keeper, signal.SIGKILL)
        process.wait(10)


def test_the_pid_of_a_rank_is_known_once_it_was_told():
    order = {
        "namespaces": [],
        "nice": 0,
        "uid": None,
        "gid": None,
        "groups": [],
        "cwd": "/",
        "argv": ["sleep", "60"],
    }
    process = KeptProcess(order, dict(os.environ), [], 2)
    try:
        end = time.monotonic() + 20
        while process.known_pid == process.keeper and time.monotonic() < end:
            time.sleep(0.01)
        assert process.known_pid == process.pid != process.keeper
    finally:
        process.kill()
        process.wait(10)


RANK = """
import faulthandler, os, signal, sys, time
faulthandler.register(signal.SIGRTMAX, file=int(sys.argv[1]))
os.write(int(sys.argv[2]), b"x")
if sys.argv[3] == "stops":
    os.kill(os.getpid(), signal.SIGSTOP)
time.sleep(60)
"""


def test_ranks_that_cannot_answer_are_waited_for_together():
    files = [StackFile() for _ in range(12)]
    ours, theirs = socket.socketpair()
    processes = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                RANK,
                str(file.fd),
                str(theirs.fileno()),
                "answers" if number == 5 else "stops",
            ],
            pass_fds=[file.fd, theirs.fileno()],
        )
        for number, file in enumerate(files)
    ]
    pidfds = [os.pidfd_open(each.pid) for each in processes]
    try:
        ours.settimeout(30)
        told = 0
        while told < len(files):
            told += len(ours.recv(64))
        for each in processes[:5] + processes[6:]:
            os.waitid(os.P_PID, each.pid, os.WSTOPPED)
        began = time.monotonic()
        ask_all(
            (file, each.pid, fd) for file, each, fd in zip(files, processes, pidfds, strict=True)
        )
        texts = [
            file.ask(each.pid, fd) for file, each, fd in zip(files, processes, pidfds, strict=True)
        ]
        assert time.monotonic() - began < 3  # one after the other: 5.5
        assert [bool(text) for text in texts] == [number == 5 for number in range(12)]
        assert "most recent call first" in texts[5]
        assert "most recent call first" in files[5].ask(processes[5].pid, pidfds[5])  # afresh
    finally:
        for each in processes:
            each.kill()
            each.wait(10)
        for fd in pidfds:
            os.close(fd)
        for file in files:
            file.close()
        ours.close()
        theirs.close()
