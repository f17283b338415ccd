"""A rank takes all that it started with it, and reaches no other process: as root, where each has a
PID namespace, and as a plain user, where a keeper process and Landlock must do."""

import fcntl
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from command_line import AS_FROM_A_TERMINAL
from glue import needs_kernel, python, script, wait_for
from unprivileged import NOBODY, open_directory, python_for_nobody

from loomnet.processes import rank_isolation
from loomnet.processes.ranks import RankGroup, RankSpec, RankUser

# Runs ranks of a script as RankGroup does for both clocks; prints each rank's status.
DRIVER = """
    import json, os, sys
    from pathlib import Path
    from loomnet.processes.journal import RunLock
    from loomnet.processes.ranks import RankGroup, RankSpec
    from loomnet.running.virtual_torch import LocalHosts
    here, world, fork = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "fork"
    with RunLock(here / "state") as lock:
        hosts = LocalHosts(lock, [f"h{rank}" for rank in range(world)])
        environment = {"PYTHONHASHSEED": "0", "ENGINE": str(os.getpid()), "MINE": "yes"}
        specs = [RankSpec(rank, f"h{rank}", [sys.executable, here / "script.py", *sys.argv[4:]],
                          environment) for rank in range(world)]
        group = RankGroup(hosts, specs, here / "ranks", cwd=here, nice=0, fork=fork)
        try:
            assert group.forked == fork, group.not_forked
            print("started", *[rank.process.pid for rank in group.ranks], flush=True)
            group.wait(60)
        finally:
            group.stop(0.5)
    print(json.dumps([rank.status for rank in group.ranks]), flush=True)
    """
# Leaves a process behind as a daemon does: two forks, a session and an environment of its own.
LEAVES = """
    {imports}
    import os, signal, sys, time
    how, mark = sys.argv[1:]
    if os.fork() == 0:
        os.setsid()
        [signal.signal(s, signal.SIG_IGN) for s in (signal.SIGTERM, signal.SIGHUP)]
        if os.fork() == 0:
            os.execve("/bin/sleep", ["sleep", mark], {{}})
        os._exit(0)
    os.wait()
    time.sleep(0.3)
    print("left", flush=True)
    if how == "raises":
        raise LookupError("the end")
    if how == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "waits":
        time.sleep(300)
    """


class Machine:
    """Runs DRIVER as root or as user 65534, in a folder of its own."""

    def __init__(self, user: int) -> None:
        self.directory = open_directory()
        self.python, self.environment, self.prefix = sys.executable, {}, []
        if user:
            self.python, self.environment = python_for_nobody()
            os.chown(self.directory, user, user)
            self.prefix = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        self.mark = f"300.{secrets.randbelow(10**9):09}"

    def start(self, script: str, world: int, *words: str, fork: bool = False, **environment: str):
        (self.directory / "script.py").write_text(textwrap.dedent(script))
        (self.directory / "state").mkdir(exist_ok=True)
        if self.prefix:
            os.chown(self.directory / "state", NOBODY, NOBODY)
        return subprocess.Popen(
            [
                *AS_FROM_A_TERMINAL,
                *self.prefix,
                self.python,
                "-c",
                textwrap.dedent(DRIVER),
                str(self.directory),
                str(world),
                "fork" if fork else "plain",
                *words,
            ],
            env={**os.environ, **self.environment, **environment},
            text=True,
            stdout=subprocess.PIPE,
            cwd=self.directory,
        )

    def log(self, rank: int = 0) -> str:
        path = self.directory / "ranks" / f"{rank}.log"
        return path.read_text() if path.exists() else ""

    def left(self) -> list[str]:
        """Processes that bear the mark as an argument."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark.encode() in (entry / "cmdline").read_bytes().split(b"\0")[1:2]:
                    found.append(entry.name)
            except OSError:
                continue
        return found

    def until(self, condition, what: str, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"{what}: {self.log()}"
            time.sleep(0.05)


@pytest.fixture(params=[0, NOBODY], ids=["root", "user"])
def machine(request):
    made = Machine(request.param)
    yield made
    for pid in made.left():
        os.kill(int(pid), signal.SIGKILL)
    shutil.rmtree(made.directory)


@pytest.mark.parametrize(
    ("how", "status"),
    [("ends", 0), ("raises", 1), ("dies", -signal.SIGKILL), ("waits", -signal.SIGTERM)],
)
def test_what_a_rank_leaves_behind_goes_with_it(machine, how, status):
    run = machine.start(LEAVES.format(imports=""), 1, how, machine.mark)
    try:
        if how == "waits":
            machine.until(lambda: "left" in machine.log(), "no daemon")
            assert len(machine.left()) == 1
            run.send_signal(signal.SIGINT)  # the driver stops its ranks on its way out
            run.communicate(timeout=30)
        else:
            printed, _ = run.communicate(timeout=60)
            assert json.loads(printed.splitlines()[-1]) == [status], machine.log()
        assert "left" in machine.log() and machine.left() == []
    finally:
        run.kill()
        run.communicate()


# As many processes as their user may have, each of which forks without a pause: whichever are
# ended, the others replace them. In C, which forks faster than Python lists processes. All hold one
# lock.
FORKS = """
    #include <fcntl.h>
    #include <sys/file.h>
    #include <sys/resource.h>
    #include <time.h>
    #include <unistd.h>
    int main(int count, char** words) {
      const struct rlimit most = {300, 300};  // does not bind root
      if (count != 2 || flock(open(words[1], O_CREAT | O_RDWR, 0666), LOCK_EX) != 0) return 1;
      if (setrlimit(RLIMIT_NPROC, &most) != 0 || (getuid() == 0 && setuid(61234) != 0)) return 1;
      const time_t end = time(0) + 20;
      if (fork() != 0) return 0;
      while (time(0) < end) fork();
      _exit(0);
    }
    """
STARTS_FORKS = """
    import os, subprocess, sys, time
    subprocess.run(sys.argv[1:], check=True)
    time.sleep(0.5)
    os._exit(0)
    """


def test_processes_that_fork_faster_than_they_can_be_listed_go_with_their_rank(machine):
    if machine.prefix and rank_isolation._LIBC.syscall(444, None, 0, 1) < 6:
        pytest.skip("Landlock of this kernel does not scope signals (Linux 6.12)")
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    program, held = machine.directory / "forks", machine.directory / "state" / "held"
    subprocess.run(["cc", "-x", "c", "-", "-o", program], input=FORKS, text=True, check=True)
    with machine.start(STARTS_FORKS, 1, program, held) as run:
        printed, _ = run.communicate(timeout=60)
    assert json.loads(printed.splitlines()[-1]) == [0], machine.log()
    with open(held) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # none of them is left


def test_kill_9_of_a_run_takes_what_its_ranks_left_behind(machine):
    run = machine.start(LEAVES.format(imports=""), 2, "waits", machine.mark)
    try:
        machine.until(lambda: "left" in machine.log(0) and "left" in machine.log(1), "no daemon")
        assert len(machine.left()) == 2
    finally:
        run.kill()
        run.communicate()
    machine.until(lambda: not machine.left(), "a daemon lives", 10)


def test_what_forked_ranks_leave_behind_goes_with_their_run():
    pytest.importorskip("torch")
    machine = Machine(0)
    run = machine.start(LEAVES.format(imports="import torch"), 2, "ends", machine.mark, fork=True)
    try:
        printed, _ = run.communicate(timeout=120)
        assert json.loads(printed.splitlines()[-1]) == [0, 0], machine.log()
        assert "left" in machine.log(0) and machine.left() == []
    finally:
        run.kill()
        run.communicate()
        shutil.rmtree(machine.directory)


REACHES = """
    {imports}
    import os, signal, sys, time
    rank = int(os.environ["RANK"])
    with open(f"pid.{{rank}}.new", "w") as file:
        file.write(str(os.getpid()))
    os.mkdir(f"folder{{rank}}")
    os.rename(f"pid.{{rank}}.new", f"folder{{rank}}/pid")  # from one folder to another
    os.rename(f"folder{{rank}}/pid", f"pid.{{rank}}")
    held = os.memfd_create("a NIC of mine")
    if rank == 1:
        while not os.path.exists("done"):
            time.sleep(0.02)
        sys.exit(0)
    while not os.path.exists("pid.1"):
        time.sleep(0.02)
    time.sleep(0.3)
    # Root with CAP_PERFMON may read any process's map of its memory; not the memory.
    ways = ["mem", *(f"fd/{{n}}" for n in range(10)), *(["environ", "maps"] if os.getuid() else [])]
    targets = dict(engine=int(os.environ["ENGINE"]), parent=os.getppid(),
                   other=int(open("pid.1").read()))
    for name, pid in targets.items():
        try:
            for way in ways:
                try:
                    os.close(os.open(f"/proc/{{pid}}/{{way}}", os.O_RDONLY))
                    print("OPENED", name, pid, way, flush=True)
                except OSError:
                    pass
            os.kill(pid, 0)
            print("SIGNALLED", name, pid, flush=True)
        except OSError:
            pass
    # What it has started itself it may reach, and itself.
    child = os.fork()
    if child == 0:
        time.sleep(60)
    os.kill(child, signal.SIGTERM)
    os.waitpid(child, 0)
    for way in ("mem", "environ", "task/{{}}/syscall".format(os.getpid()), "fd/1"):
        os.close(os.open(f"/proc/self/{{way}}", os.O_RDONLY))
    assert os.readlink("/proc/self") == str(os.getpid())
    print("numbers", os.getpid(), open("pid.1").read(), flush=True)
    open("done", "w").close()
    """


@pytest.mark.parametrize("fork", [False, True], ids=["plain", "forked"])
def test_a_rank_reaches_no_process_but_its_own(machine, fork):
    if fork:
        pytest.importorskip("torch")
        if machine.prefix:
            pytest.skip("the user's interpreter may have no PyTorch")
    run = machine.start(REACHES.format(imports="import torch" if fork else ""), 2, fork=fork)
    try:
        printed, _ = run.communicate(timeout=120)
        said = machine.log()
        assert json.loads(printed.splitlines()[-1]) == [0, 0], said
        assert "OPENED" not in said and "SIGNALLED" not in said, said
        mine, other = said.splitlines()[-1].split()[1:]
        assert mine != other
    finally:
        run.kill()
        run.communicate()


def test_a_rank_sees_what_it_needs_of_the_environment_and_no_more(machine):
    run = machine.start(
        "import json, os\nprint(json.dumps(dict(os.environ)))\n",
        1,
        SECRET_TOKEN="s3cret",
        AWS_SECRET_ACCESS_KEY="s3cret",
        SSH_AUTH_SOCK="x",
        SUDO_COMMAND="x",
        XDG_RUNTIME_DIR="x",
        http_proxy="http://me:s3cret@x",
        TORCH_LOGS="",
        NCCL_DEBUG="INFO",
        LC_TIME="C",
        CUDA_VISIBLE_DEVICES="0",
    )
    run.communicate(timeout=60)
    seen = json.loads(machine.log())
    assert "s3cret" not in machine.log()
    assert not {"SSH_AUTH_SOCK", "SUDO_COMMAND", "XDG_RUNTIME_DIR", "http_proxy"} & seen.keys()
    assert {"PATH", "TORCH_LOGS", "NCCL_DEBUG", "LC_TIME", "CUDA_VISIBLE_DEVICES"} <= seen.keys()
    assert seen["MINE"] == "yes" and seen["RANK"] == "0" and seen["OMP_NUM_THREADS"] == "1"


@needs_kernel
def test_a_live_rank_takes_its_daemon_with_it(pair):
    machine = Machine(0)
    try:
        path = machine.directory / "script.py"
        path.write_text(textwrap.dedent(LEAVES.format(imports="")))
        group = RankGroup(
            pair,
            [RankSpec(0, "h0", [python_for_nobody()[0], path, "ends", machine.mark])],
            machine.directory / "ranks",
            cwd=Path("/"),
            user=RankUser.of(NOBODY),
        )
        try:
            assert group.wait(30), group.first_failure and group.first_failure.error()
            assert "left" in machine.log() and machine.left() == []
        finally:
            group.stop()
    finally:
        shutil.rmtree(machine.directory)


@needs_kernel
def test_a_ranks_pid_is_its_own_and_signals_reach_it(pair, directory):
    path = script(
        directory,
        """
        import os, signal, time
        signal.signal(signal.SIGRTMAX, lambda *_: print("told", flush=True))
        print("ready", flush=True)
        time.sleep(300)
        """,
    )
    group = RankGroup(pair, [RankSpec(0, "h0", [python(), path, "a mark"])], directory / "ranks")
    try:
        rank = group.ranks[0]
        log = directory / "ranks" / "0.log"
        assert wait_for(lambda: "ready" in log.read_text(), 20)
        assert b"a mark" in Path(f"/proc/{rank.process.pid}/cmdline").read_bytes()
        assert rank.process.pid != rank.process.keeper
        signal.pidfd_send_signal(rank.pidfd, signal.SIGRTMAX)
        assert wait_for(lambda: "told" in log.read_text(), 10)
        os.kill(rank.process.pid, signal.SIGKILL)
        assert not group.wait(10) and rank.status == -signal.SIGKILL
    finally:
        group.stop()
