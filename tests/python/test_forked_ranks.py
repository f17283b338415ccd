"""A forked rank is the process that it would have been if it had been started by itself, and a job
whose ranks might differ by it is not forked."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from loomnet.processes import fork_server as forking
from loomnet.processes.fork_server import descends, forkable
from loomnet.processes.journal import RunLock, marked
from loomnet.processes.ranks import RankGroup, RankSpec
from loomnet.running.virtual_torch import LocalHosts

pytest.importorskip("torch")
LOOK = '''
"""Prints what a script can see of its own process: what ranks share, and what is theirs alone."""
import numpy
import torch
from torch.utils.data import DataLoader, TensorDataset
import atexit, ctypes, faulthandler, gc, json, multiprocessing, os, random, resource, signal, sys
import threading, warnings

note: str = "a constant of the script"
atexit.register(lambda: print("at exit:", note))

def descriptors():
    for name in os.listdir("/proc/self/fd"):
        if os.path.lexists(f"/proc/self/fd/{name}"):
            kind = os.readlink(f"/proc/self/fd/{name}").rpartition("/")[2].partition(":")[0]
            yield name, kind, os.get_inheritable(int(name))

def dies_with_parent():
    number = ctypes.c_int()
    ctypes.CDLL(None).prctl(2, ctypes.byref(number), 0, 0, 0)
    return number.value

def look():
    own = {"random": random.random(), "numpy": numpy.random.rand(), "torch": torch.initial_seed(),
           "drawn": torch.rand(1).item(), "key": multiprocessing.current_process().authkey.hex()}
    torch.manual_seed(3)
    batches = DataLoader(TensorDataset(torch.arange(8.0)), batch_size=2, num_workers=2)
    streams = [sys.stdin, sys.stdout, sys.stderr]
    main = threading.main_thread()
    same = {
        "globals": {name: type(value).__name__ for name, value in globals().items()},
        "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "file": __file__,
        "main": sys.modules["__main__"].__dict__ is globals(), "flags": str(sys.flags),
        "executable": sys.executable, "modules": sorted(sys.modules), "hash": hash("a word"),
        "cwd": os.getcwd(), "umask": os.umask(0o22), "nice": os.nice(0),
        "limits": [resource.getrlimit(number) for number in range(16)],
        "session": [os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid()],
        "environment": {k: v for k, v in os.environ.items()
                        if k not in ("LOOMNET_RUN", "LOOMNET_RANK_PID")},
        "descriptors": sorted(descriptors()), "dies_with_parent": dies_with_parent(),
        "signals": {each.name: str(signal.getsignal(each)).partition(" at ")[0]
                    for each in signal.Signals},
        "blocked": len(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "faulthandler": faulthandler.is_enabled(),
        "streams": [[s.isatty(), s.encoding, s.errors, s.write_through, s.line_buffering, s.name,
                     s.mode, type(s.buffer).__name__] for s in streams],
        "thread": [main.ident == threading.get_ident(), main.native_id == os.getpid(),
                   threading.active_count(), torch.get_num_threads()],
        "process": [multiprocessing.current_process().name, multiprocessing.get_start_method(),
                    multiprocessing.parent_process()],
        "gc": [gc.get_threshold(), gc.isenabled()],
        "warnings": [str(each) for each in warnings.filters],
        "hooks": [sys.excepthook is sys.__excepthook__, sys.stdout is sys.__stdout__],
        "seeded": torch.rand(3).tolist(), "worked": sum(b.sum().item() for (b,) in batches),
        "backends": sorted(torch.distributed.Backend.backend_list),
    }
    own["imports are spared by collections"] = gc.get_freeze_count() > 100_000
    print("seen", json.dumps([same, own]), flush=True)

if __name__ == "__main__":
    look()
    raise LookupError("the end of the script")
'''


class Job:
    """`world` ranks of a script, in processes of this machine and no network."""

    def __init__(
        self,
        directory: Path,
        source: str,
        world: int,
        *arguments: str,
        fork: bool = True,
        **environment: str,
    ) -> None:
        directory.mkdir(exist_ok=True)
        script = directory / "script.py"
        script.write_text(textwrap.dedent(source))
        self.logs = directory / f"logs-{fork}"
        environment = {"PYTHONHASHSEED": "0", **environment}
        reading, writing = os.pipe()  # in place of a NIC
        specs = [
            RankSpec(rank, f"h{rank}", [sys.executable, script, *arguments], environment, [reading])
            for rank in range(world)
        ]
        self.lock = RunLock()
        try:
            hosts = LocalHosts(self.lock, [f"h{rank}" for rank in range(world)])
            self.group = RankGroup(hosts, specs, self.logs, nice=0, fork=fork)
        except BaseException:
            self.lock.release()
            raise
        finally:
            os.close(reading)
            os.close(writing)

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, *exc: object) -> None:
        self.group.stop(0)
        left = marked(self.lock.run_id)
        self.lock.release()
        assert not left

    def wait(self, seconds: float = 120) -> list[int | None]:
        end = time.monotonic() + seconds
        while self.group.running and time.monotonic() < end:
            self.group.poll(0.2)
        return [rank.status for rank in self.group.ranks]

    def log(self, rank: int) -> str:
        return (self.logs / f"{rank}.log").read_text()

    def until(self, rank: int, words: str) -> None:
        end = time.monotonic() + 60
        while words not in self.log(rank):
            assert time.monotonic() < end and rank not in self.wait(0), self.log(rank)
            time.sleep(0.02)


def test_a_forked_rank_sees_what_a_plain_one_sees(tmp_path):
    seen, logs = {}, {}
    for fork in (False, True):
        with Job(tmp_path, LOOK, 2, "--steps=3", "a b", fork=fork) as job:
            assert job.group.forked == fork, job.group.not_forked
            assert job.wait() == [1, 1], job.log(0) + job.log(1)
            logs[fork] = [job.log(rank) for rank in (0, 1)]
        for rank, text in enumerate(logs[fork]):
            (line,) = (each for each in text.splitlines() if each.startswith("seen "))
            seen[fork, rank] = json.loads(line.removeprefix("seen "))
            logs[fork][rank] = text.replace(line, "")
    for rank in (0, 1):
        plain, forked = seen[False, rank][0], seen[True, rank][0]
        assert plain.keys() == forked.keys()
        for name in plain:
            assert forked[name] == plain[name], name
    # Tracebacks and what is said at exit included: no frame of ours.
    assert logs[True] == logs[False]
    assert "LookupError: the end of the script" in logs[True][0]
    assert "at exit: a constant of the script" in logs[True][0]
    for name in ("random", "numpy", "torch", "drawn", "key"):
        assert len({each[1][name] for each in seen.values()}) == 4, name
    # The one difference: the last collection of each rank would take a second.
    for (fork, _), (_, own) in seen.items():
        assert own["imports are spared by collections"] == fork


ENDS = """
    import torch
    import os, signal, sys, threading, time
    def later():
        time.sleep(0.3)
        print("the other thread ends too", flush=True)
    ends = [lambda: None, lambda: sys.exit(5), lambda: sys.exit("a word"), lambda: os._exit(7),
            lambda: os.kill(os.getpid(), signal.SIGSEGV),
            lambda: signal.raise_signal(signal.SIGINT), threading.Thread(target=later).start,
            lambda: time.sleep(600), lambda: time.sleep(600)]
    print("begins", flush=True)
    ends[int(os.environ["RANK"])]()
    """


def test_every_end_of_a_rank_is_told(tmp_path):
    with Job(tmp_path, ENDS, 9) as job:
        assert job.group.forked, job.group.not_forked
        for rank in (7, 8):
            job.until(rank, "begins")
        os.kill(job.group.ranks[7].process.pid, signal.SIGKILL)
        while len(job.group.running) > 1:
            job.group.poll(1)
        assert job.wait(0) == [
            0,
            5,
            1,
            7,
            -signal.SIGSEGV,
            -signal.SIGINT,
            0,
            -signal.SIGKILL,
            None,
        ]
        assert job.group.ranks[7].error().startswith("rank 7 was killed by SIGKILL")
        assert "a word" in job.log(2)
        assert "Fatal Python error: Segmentation fault" in job.log(4)
        assert "KeyboardInterrupt" in job.log(5)
        assert "the other thread ends too" in job.log(6)
        server = job.group._server.process
        assert server.poll() is None
        job.group.stop(1)
        assert server.returncode == 0
        assert job.wait(0)[8] == -signal.SIGTERM


def test_ranks_end_with_the_process_they_were_forked_from(tmp_path):
    with Job(tmp_path, ENDS.replace("int(os.environ", "8 or int(os.environ"), 2) as job:
        job.until(0, "begins")
        os.kill(job.group._server.process.pid, signal.SIGKILL)
        assert job.wait(20) == [-signal.SIGKILL] * 2


def test_nothing_outlives_a_run_that_is_killed(tmp_path):
    """The run is killed while its ranks wait: they and what they were forked from end with it."""
    (tmp_path / "script.py").write_text("import torch, time\nprint('begins')\ntime.sleep(600)\n")
    (tmp_path / "run.py").write_text(
        textwrap.dedent("""
        from pathlib import Path
        import loomnet as ln
        job = ln.TorchJob("script.py", ranks=3, compute="1 ms")
        fabric = ln.clos.star(hosts=3, rate="1 Gb/s", delay="1 us")
        ln.run(fabric, job, directory=Path("run"))
        """)
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    run = subprocess.Popen([sys.executable, "run.py"], cwd=tmp_path, env=environment)
    try:
        logs = [tmp_path / "run" / "ranks" / f"{rank}.log" for rank in range(3)]
        end = time.monotonic() + 120
        while not all(log.exists() and "begins" in log.read_text() for log in logs):
            assert run.poll() is None and time.monotonic() < end
            time.sleep(0.05)
        assert len(processes_of(tmp_path)) == 6  # the run, the server, its keeper, three ranks
    finally:
        run.kill()
        run.wait()
    end = time.monotonic() + 10
    while processes_of(tmp_path) and time.monotonic() < end:
        time.sleep(0.05)
    assert not processes_of(tmp_path)


def processes_of(scratch: Path) -> list[str]:
    mark, found = f"TMPDIR={scratch}".encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(entry.name)
        except OSError:
            continue
    return found


SHORT = """import torch
with open("/proc/self/cmdline") as file:
    print("fork_child" not in file.read(), flush=True)
"""


def test_where_a_fork_could_differ_no_imports_are_shared(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SHORT)
    command = [sys.executable, str(script), "--steps=3"]
    ranks = [{"RANK": str(n), "LOOMNET_RANK_FD": str(n), "PYTHONHASHSEED": "0"} for n in (0, 1)]
    assert forkable([command] * 2, ranks) == ("import torch",)
    for name, value in [
        ("LOOMNET_FORK", "0"),
        ("PYTHONHASHSEED", "random"),
        ("COVERAGE_PROCESS_START", "any"),
        ("PYTHONINSPECT", "1"),
        ("TORCH_DEVICE_BACKEND_AUTOLOAD", "0"),
    ]:
        assert not forkable([command] * 2, [{**rank, name: value} for rank in ranks]), name
    # Ranks of one job, but not of one environment, or command.
    assert not forkable([command] * 2, [ranks[0], {**ranks[1], "OMP_NUM_THREADS": "2"}])
    assert not forkable([command, [*command, "--more"]], ranks)
    assert not forkable([["/bin/sh", *command[1:]]] * 2, ranks)
    assert not forkable([[sys.executable, "-c", "import torch"]] * 2, ranks)


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        ({"LOOMNET_FORK": "0"}, None),
        ({"OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}, "the imports started threads"),
        ({"PYTHONPATH": "broken"}, "import torch: ImportError: broken on purpose"),
    ],
)
def test_what_cannot_be_forked_is_started_by_itself(tmp_path, environment, why):
    broken = "PYTHONPATH" in environment
    if broken:
        folder = tmp_path / "elsewhere" / "torch"
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("raise ImportError('broken on purpose')")
        environment = {"PYTHONPATH": str(folder.parent)}
    if "OPENBLAS_NUM_THREADS" in environment and (os.cpu_count() or 1) < 2:
        pytest.skip("one processor: OpenBLAS has no thread beside the main one")
    with Job(tmp_path, SHORT, 1, **environment) as job:
        assert not job.group.forked
        assert job.group.not_forked == why
        # A rank that cannot import says so itself.
        assert job.wait() == [1 if broken else 0], job.log(0)
        assert ("broken on purpose" if broken else "True") in job.log(0)


def test_a_server_that_stands_does_not_hang_the_run(tmp_path, monkeypatch):
    """A rank has the server's user: where no Landlock keeps it from that, it can stop the server.
    The run ends the server, and with it the ranks, of which the server can say no more."""
    monkeypatch.setattr(forking, "_ANSWER_S", 1.0)
    began = time.monotonic()
    with Job(tmp_path, "import torch\nimport time\nprint('begins')\ntime.sleep(3)\n", 1) as job:
        assert job.group.forked
        job.until(0, "begins")
        (rank,) = job.group.ranks
        status = Path(f"/proc/{rank.process.pid}/stat").read_text()
        os.kill(int(status.rpartition(")")[2].split()[1]), signal.SIGSTOP)
        assert job.wait() == [-signal.SIGKILL]
    assert time.monotonic() - began < 90


def test_only_what_the_server_started_is_taken_for_a_rank():
    ours = subprocess.Popen(["sleep", "60"])
    try:
        fd = os.pidfd_open(ours.pid)
        assert descends(fd, os.getpid()) and descends(fd, os.getppid())
        assert not descends(fd, ours.pid)
        assert not descends(fd, 2**22 - 1)
        ours.kill()
        ours.wait()
        assert descends(fd, 2**22 - 1)  # a signal to it reaches nothing
        os.close(fd)
        with open(os.devnull) as file:
            assert not descends(file.fileno(), os.getppid())
    finally:
        ours.kill()
        ours.wait()
