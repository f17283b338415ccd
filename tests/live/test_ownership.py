"""What a run owns is removed when it died, and nothing of anyone else's ever is."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from glue import left_of, needs_kernel, python, run_in, wait_for
from unprivileged import NOBODY, python_for_nobody

from loomnet.live import attach, doctor, kernel_objects, openvswitch
from loomnet.live.nodes import HostSpec, LiveFabric
from loomnet.processes import journal as ownership

pytestmark = needs_kernel
PACKAGE = Path(doctor.__file__).parents[2]

RUN = """
import os, sys, time
from pathlib import Path
from loomnet.live.nodes import *
from loomnet.processes.journal import RunLock
from loomnet.processes.ranks import *
directory = Path(sys.argv[1])
lock = RunLock(directory)
fabric = LiveFabric(lock, [HostSpec("h0", 0), HostSpec("h1", 1)], ["s0"])
# One rank that is quiet, one that ignores what it can and leaves a daemon behind.
stubborn = ("import os, signal, time\\n"
            "[signal.signal(s, signal.SIG_IGN) for s in (signal.SIGTERM, signal.SIGHUP)]\\n"
            "if os.fork() == 0: os.setsid()\\n"
            "time.sleep(300)")
quiet = "import time; time.sleep(300)"
group = RankGroup(fabric, [RankSpec(0, "h0", [sys.argv[2], "-c", quiet]),
                           RankSpec(1, "h1", [sys.argv[2], "-c", stubborn])],
                  directory / "ranks", user=RankUser.of(65534))
fabric.popen("h0", ["setsid", "sleep", "300"])  # that no rank takes along
time.sleep(0.5)
print(lock.run_id, *(rank.process.pid for rank in group.ranks), flush=True)
time.sleep(300)
"""


def test_kill_9_of_a_run_leaves_nothing_after_clean_and_other_runs_untouched(pair, directory):
    victim = subprocess.Popen(
        [sys.executable, "-c", RUN, str(directory), python()],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PACKAGE)},
    )
    try:
        run_id, *pids = victim.stdout.readline().split()
        assert kernel_objects.clean(directory) == []  # It lives: not touched.
        assert (
            len(left_of(run_id)) >= 10
        )  # three shells, two ranks and their keepers, two daemons, a bridge and its ports
        victim.send_signal(signal.SIGKILL)
        victim.wait(5)
        # The kernel's part: ranks and nodes die with the run, before anybody cleans.
        for pid in pids:
            assert wait_for(lambda p=pid: ownership.process_start(int(p)) is None), "rank lives"
        removed = kernel_objects.clean(directory)
        assert any("bridge" in line for line in removed) and any("process" in x for x in removed)
        assert all(line.startswith(f"run {run_id}: ") for line in removed)
        assert left_of(run_id) == []
        assert kernel_objects.clean(directory) == []
    finally:
        victim.kill()
        victim.wait()
        victim.stdout.close()
    # The run beside it never noticed.
    assert pair.trouble() is None
    run_in(pair, "h0", f"ping -c 1 -W 3 {pair.hosts['h1'].management}")


def test_clean_survives_a_torn_journal_and_kills_no_pid_used_again(directory):
    lock = ownership.RunLock(directory)
    me = os.getpid()
    lock.record("process", pid=me, start=ownership.process_start(me) - 1)  # Another's, long gone.
    os.write(lock._fd, b'{"kind": "bridge", "na')  # Died while it wrote.
    os.close(lock._fd)
    assert kernel_objects.clean(directory) == [f"run {lock.run_id}: journal"]
    assert not lock.path.exists()


def test_bridge_that_is_not_the_runs_is_never_deleted(directory):
    ovs = openvswitch.ensure()
    with ownership.RunLock(directory) as other:
        bridge = other.name("x")
        ovs.vsctl("add-br", bridge, "--", "set", "bridge", bridge, "datapath_type=netdev")
        try:
            dead = ownership.RunLock(directory)
            dead.record("bridge", name=bridge, database=ovs.database)
            os.close(dead._fd)
            kernel_objects.clean(directory)
            assert bridge in ovs.vsctl("list-br").split()
        finally:
            ovs.vsctl("del-br", bridge)


def test_journal_is_kept_while_a_system_open_vswitch_with_its_bridge_is_down(directory):
    dead = ownership.RunLock(directory)
    gone = f"unix:{directory}/db.sock"
    dead.record("bridge", name=dead.name("m"), database=gone, own=False)
    os.close(dead._fd)
    assert kernel_objects.clean(directory) == [] and dead.path.exists()
    # Loomnet's own starts with an empty database: nothing to wait for.
    begun = dead.path.read_text().splitlines()[0]
    with dead.path.open("w") as journal:
        journal.write(begun + "\n")
        row = {"kind": "bridge", "name": dead.name("m"), "database": gone, "own": True}
        journal.write(json.dumps(row) + "\n")
    assert kernel_objects.clean(directory) == [f"run {dead.run_id}: journal"]


def test_names_fit_linux_and_lock_is_given_back(directory):
    with ownership.RunLock(directory) as lock:
        assert lock.name("m12345678") == f"{lock.prefix}m12345678"
        with pytest.raises(ValueError, match="15"):
            lock.name("m1234567890")
        assert list(ownership.dead_runs(directory)) == []
    assert not lock.path.exists()
    lock.release()


def test_kill_9_of_open_vswitch_is_a_clear_message_and_stop_still_leaves_nothing(lock, directory):
    if Path("/sys/module/openvswitch").exists():
        pytest.skip("a second Open vSwitch would disturb the kernel datapath of the first")
    ovs = openvswitch.start(directory / "ovs")
    try:
        assert ovs.own and ovs.alive()
        with LiveFabric(lock, [HostSpec("h0", 0)], ovs=ovs) as fabric:
            os.kill(int((directory / "ovs/ovs-vswitchd.pid").read_text()), signal.SIGKILL)
            assert wait_for(lambda: fabric.trouble() is not None)
            assert "Open vSwitch" in fabric.trouble() and "died" in fabric.trouble()
        assert kernel_objects.own_interfaces(lock.prefix) == []
        assert ownership.marked(lock.run_id) == []
        with pytest.raises(openvswitch.OpenVSwitchError, match="is not running"):
            ovs.vsctl("add-br", lock.name("y"), timeout=1)
    finally:
        openvswitch.stop(directory / "ovs")
    assert not ovs.alive()
    with contextlib.suppress(FileNotFoundError):
        assert not (directory / "ovs/db.sock").is_socket()


@pytest.mark.parametrize("daemon", ["ovs-vswitchd", "ovsdb-server"])
def test_an_open_vswitch_that_does_not_answer_is_named_and_holds_no_tear_down_up(
    lock, directory, daemon
):
    if Path("/sys/module/openvswitch").exists():
        pytest.skip("a second Open vSwitch would disturb the kernel datapath of the first")
    ovs = openvswitch.start(directory / "ovs")
    pid = int((directory / f"ovs/{daemon}.pid").read_text())
    try:
        assert ovs.silent() is None
        with LiveFabric(lock, [HostSpec("h0", 0)], ovs=ovs):
            os.kill(pid, signal.SIGSTOP)
            wait_for(lambda: ") T " in Path(f"/proc/{pid}/stat").read_text())
            began = time.monotonic()
            assert ovs.alive() and ovs.silent() == daemon
            assert time.monotonic() - began < 0.5
            stopping = time.monotonic()
        assert time.monotonic() - stopping < 1.5
        assert kernel_objects.own_interfaces(lock.prefix) == []
        began = time.monotonic()
        with pytest.raises(openvswitch.OpenVSwitchError, match="runs but does not answer"):
            LiveFabric(lock, [HostSpec("h0", 0)], ovs=ovs)
        assert time.monotonic() - began < 1
        assert ownership.marked(lock.run_id) == []
        lock.release()
        if daemon == "ovsdb-server":  # the bridge could not be deleted: the journal knows of it
            assert lock.path.exists()
            kernel_objects.clean(directory)
            assert lock.path.exists()
        os.kill(pid, signal.SIGCONT)
        kernel_objects.clean(directory)
        assert ovs.vsctl("list-br") == "" and not lock.path.exists()
    finally:
        os.kill(pid, signal.SIGCONT)
        openvswitch.stop(directory / "ovs")


def test_what_is_no_journal_holds_nothing_up(directory, monkeypatch):
    monkeypatch.setattr(ownership, "state_directory", lambda: directory)
    with ownership.RunLock(directory) as lock:
        runs = directory / "runs"
        (runs / "aaaa.jsonl").mkdir()
        os.mkfifo(runs / "bbbb.jsonl")
        (runs / "cccc.jsonl").symlink_to("/etc/passwd")
        others = {
            "dddd.jsonl": '{"kind": "process", "pid": 1}\n',
            "notes.jsonl": '{"kind": "run"}\n',
            "eeee.jsonl": "[" * 100_000 + "\n",
            "ffff.txt": "",
        }
        for name, text in others.items():  # of somebody else
            (runs / name).write_text(text)
        (runs / "gggg.jsonl").write_text(
            '{"kind": "run"}\n{"kind": "process", "pid": "x"}\n'
            '{"kind": "process", "node": "h9", "pid": []}\n5\n'
        )
        (runs / "hhhh.jsonl").touch()  # of a run that died at once
        lock.record(
            "process", pid=os.getpid(), start=ownership.process_start(os.getpid()), node="h0"
        )
        assert attach.live_nodes() == {"h0": (os.getpid(), lock.run_id)}
        assert kernel_objects.clean(directory) == ["run gggg: journal", "run hhhh: journal"]
        assert {each.name for each in runs.iterdir()} == {
            "aaaa.jsonl",
            "bbbb.jsonl",
            "cccc.jsonl",
            *others,
            lock.path.name,
        }
    assert Path("/etc/passwd").exists()


USER = 54399  # in no password database; the folder in /tmp with this number is the test's own
WHERE = "from loomnet.processes.journal import RunLock; print(RunLock().directory)"
RUNTIMES = [None, "/run/user/0", "/nonexistent", "/proc", "a\nb", "/root"]


@pytest.mark.parametrize(
    ("runtime", "taken"),
    [
        *((runtime, None) for runtime in RUNTIMES),
        *((runtime, "folder") for runtime in RUNTIMES[:3]),
        (None, "link"),
        (None, "file"),
    ],
)
def test_a_user_finds_a_folder_for_journals(directory, runtime, taken):
    """Whatever XDG_RUNTIME_DIR says, and whatever another user has put in /tmp."""
    interpreter, environment = python_for_nobody()
    home, fallback = directory / "home", Path(f"/tmp/loomnet-{USER}")
    home.mkdir()
    os.chown(home, USER, USER)
    if taken == "folder":
        fallback.mkdir(mode=0o777)
    elif taken == "link":
        fallback.symlink_to(home)
    elif taken == "file":
        fallback.write_text("")
    environment = {**os.environ, **environment, "HOME": str(home)}
    environment.pop("XDG_STATE_HOME", None)
    environment.pop("XDG_RUNTIME_DIR", None)
    if runtime is not None:
        environment["XDG_RUNTIME_DIR"] = runtime
    command = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", interpreter]
    try:
        done = subprocess.run(
            [*command, "-c", WHERE],
            cwd="/",
            text=True,
            env=environment,
            capture_output=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        expected = f"{home}/.local/state/loomnet" if taken else str(fallback)
        assert done.stdout.strip() == expected
        # Without any: one line, and what mends it.
        shutil.rmtree(home)
        if taken:
            done = subprocess.run(
                [*command, "-c", WHERE],
                cwd="/",
                text=True,
                env=environment,
                capture_output=True,
                timeout=60,
            )
            assert "set XDG_RUNTIME_DIR" in done.stderr.splitlines()[-1]
    finally:
        if fallback.is_dir() and not fallback.is_symlink():
            shutil.rmtree(fallback)
        else:
            fallback.unlink(missing_ok=True)


def test_no_other_user_can_hold_a_journal_locked(lock):
    """`clean` takes a locked journal for that of a living run, and flock needs read permission."""
    lock.path.parent.chmod(0o755)
    tried = subprocess.run(
        [
            "setpriv",
            f"--reuid={NOBODY}",
            f"--regid={NOBODY}",
            "--clear-groups",
            "flock",
            "--nonblock",
            "--shared",
            lock.path,
            "true",
        ],
        capture_output=True,
        text=True,
    )
    assert tried.returncode != 0 and "Permission denied" in tried.stderr, tried.stderr


def test_its_own_open_vswitch_leaves_other_peoples_files_alone(directory):
    if Path("/sys/module/openvswitch").exists():
        pytest.skip("a second Open vSwitch would disturb the kernel datapath of the first")
    home = directory / "ovs"
    (home / "folder").mkdir(parents=True)
    (home / "notes.txt").write_text("theirs")
    (home / "conf.db").write_text("of a dead run")
    ovs = openvswitch.start(home)
    try:
        assert ovs.vsctl("list-br") == ""
    finally:
        openvswitch.stop(home)
    assert (home / "notes.txt").read_text() == "theirs" and (home / "folder").is_dir()
