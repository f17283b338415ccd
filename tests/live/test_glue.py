"""Hosts, management network, ranks and ownership, on the real kernel: what a live run stands on."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path

import pytest

from loomnet.live import doctor, openvswitch, ownership
from loomnet.live.fabric import GATEWAY, HostPort, HostSpec, LiveFabric
from loomnet.live.namespaces import inside, ip_batch
from loomnet.live.ranks import RankGroup, RankSpec, RankUser, traceback_in

# The compiled engine is not needed here.
_REASON = doctor.why_not_live(c for c in doctor.checks() if "_core" not in c.name)
pytestmark = pytest.mark.skipif(_REASON is not None, reason=str(_REASON))

PACKAGE = Path(doctor.__file__).parents[2]
NOBODY = RankUser.of(65534)


@pytest.fixture
def directory():
    """A directory that every user may enter: pytest's own is its user's alone."""
    path = Path(tempfile.mkdtemp(prefix="loomnet-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def lock(directory):
    with ownership.RunLock(directory) as lock:
        yield lock


@pytest.fixture
def pair(lock):
    with LiveFabric(lock, [HostSpec("h0", 0), HostSpec("h1", 1)]) as fabric:
        yield fabric


def left_of(run_id: str) -> list[str]:
    """All that a run still has on this machine; empty is what every test here ends with."""
    found = [f"process {pid}" for pid, _ in ownership.marked(run_id)]
    found += ownership.own_interfaces(f"ln{run_id}")
    ovs = openvswitch.running()
    assert ovs is not None
    return found + [b for b in ovs.vsctl("list-br").split() if b.startswith(f"ln{run_id}")]


def wait_for(condition, seconds: float = 3.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def run_in(fabric: LiveFabric, node: str, command: str) -> str:
    with fabric.popen(node, command.split(), stdout=subprocess.PIPE, text=True) as process:
        output = process.communicate(timeout=20)[0]
    assert process.returncode == 0, f"{node}: {command}: {output}"
    return output


def python() -> str:
    """An interpreter that any user may run."""
    return "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable


def script(directory: Path, text: str) -> Path:
    path = directory / "rank.py"
    path.write_text(textwrap.dedent(text))
    path.chmod(0o644)
    return path


# --- hosts ------------------------------------------------------------------------------------


def test_every_node_has_a_namespace_of_its_own_and_stop_leaves_nothing(lock):
    own = os.stat("/proc/self/ns/net").st_ino
    with LiveFabric(lock, [HostSpec(f"h{i}", i) for i in range(4)], ["p0.leaf0", "p0.spine0"]) as f:
        inodes = {os.fstat(node.netns).st_ino for node in f.nodes.values()}
        assert len(inodes) == 6 and own not in inodes
        assert f.trouble() is None
        names = ownership.own_interfaces(lock.prefix)
        assert len(names) >= 5 and all(len(name) <= 15 for name in names)
        assert f.hosts["h3"].address == "fd00::3"
    assert left_of(lock.run_id) == []
    f.stop()  # Again is harmless.


def test_management_network_carries_ping_and_tcp(pair):
    run_in(pair, "h0", f"ping -c 1 -W 3 {pair.hosts['h1'].management}")
    address = (pair.hosts["h1"].management, 29500)
    listener = inside(pair.hosts["h1"].netns, lambda: socket.create_server(address))
    client = inside(pair.hosts["h0"].netns, lambda: socket.create_connection(address, 5))
    with listener, client, listener.accept()[0] as server:
        # More than one segment: a checksum left to a card that is not there would show.
        def send() -> None:
            client.sendall(bytes(range(256)) * 4096)
            client.shutdown(socket.SHUT_WR)

        server.settimeout(10)
        sender = threading.Thread(target=send)
        sender.start()
        received = b"".join(iter(lambda: server.recv(65536), b""))
        sender.join()
    assert received == bytes(range(256)) * 4096


def test_half_a_start_leaves_nothing(lock, monkeypatch):
    def refuse(self, *arguments, **keywords):
        raise openvswitch.OpenVSwitchError("refused for this test")

    monkeypatch.setattr(openvswitch.OpenVSwitch, "vsctl", refuse)
    with pytest.raises(openvswitch.OpenVSwitchError, match="refused for this test"):
        LiveFabric(lock, [HostSpec("h0", 0)], ["s0"])
    monkeypatch.undo()
    assert left_of(lock.run_id) == []


@pytest.mark.parametrize(
    ("hosts", "switches", "message"),
    [
        ([HostSpec("h0", 0), HostSpec("h0", 1)], [], "names must be unique"),
        ([HostSpec("h0", 0)], ["h0"], "names must be unique"),
        ([HostSpec("h0", 7), HostSpec("h1", 7)], [], "numbers must be unique"),
    ],
)
def test_nodes_that_collide_are_refused_before_anything_starts(lock, hosts, switches, message):
    with pytest.raises(ValueError, match=message):
        LiveFabric(lock, hosts, switches)
    assert left_of(lock.run_id) == []


# --- data ports ---------------------------------------------------------------------------------

MACS = {"h0": "02:00:00:00:00:10", "h1": "02:00:00:00:00:11"}


@pytest.fixture
def wired(pair):
    """h0 and h1 joined by two plain veths, as two planes without a switch."""
    h0, h1 = pair.hosts["h0"], pair.hosts["h1"]
    ip_batch(
        f"link add p{i} netns {h0.pid} type veth peer name p{i} netns {h1.pid}" for i in (0, 1)
    )
    pair.configure(
        {
            "h0": [HostPort(f"p{i}", MACS["h1"], MACS["h0"]) for i in (0, 1)],
            "h1": [HostPort(f"p{i}", MACS["h0"], MACS["h1"]) for i in (0, 1)],
        }
    )
    return pair


def sent(fabric: LiveFabric, host: str, interface: str) -> int:
    """Bytes that left through an interface of a host."""
    output = run_in(fabric, host, f"ip -s -j link show dev {interface}")
    return json.loads(output)[0]["stats64"]["tx"]["bytes"]


def test_flows_spread_over_ports_and_leave_a_port_that_lost_carrier(wired):
    h0, h1 = wired.hosts["h0"], wired.hosts["h1"]

    def exchange(flows: int) -> tuple[int, int]:
        before = [sent(wired, "h0", p) for p in ("p0", "p1")]
        listener = inside(
            h1.netns,
            lambda: socket.create_server((h1.address, 5001), family=socket.AF_INET6, backlog=flows),
        )
        with listener:
            for _ in range(flows):
                client = inside(
                    h0.netns, lambda: socket.create_connection((h1.address, 5001), timeout=5)
                )
                with client, listener.accept()[0] as server:
                    server.settimeout(5)
                    client.sendall(b"x" * 1000)
                    assert server.recv(1000, socket.MSG_WAITALL) == b"x" * 1000
                    assert server.getpeername()[0] in ("fd00::", "fd00::0")
        after = [sent(wired, "h0", p) for p in ("p0", "p1")]
        return after[0] - before[0], after[1] - before[1]

    p0, p1 = exchange(32)
    assert p0 > 4000 and p1 > 4000, (p0, p1)  # 32 flows on one port by chance: 2^-31
    run_in(wired, "h1", "ip link set p0 down")  # h0's p0 loses its carrier, not its routes.
    p0, p1 = exchange(8)
    assert p0 == 0 and p1 > 8000
    run_in(wired, "h1", "ip link set p0 up")


def test_idle_ports_are_silent_and_neighbours_permanent(wired):
    before = [sent(wired, h, p) for h in ("h0", "h1") for p in ("p0", "p1")]
    time.sleep(0.5)
    assert [sent(wired, h, p) for h in ("h0", "h1") for p in ("p0", "p1")] == before
    neighbours = json.loads(run_in(wired, "h0", "ip -j -6 neigh show dev p0"))
    assert [(n["dst"], n["lladdr"], n["state"]) for n in neighbours] == [
        (GATEWAY, MACS["h1"], ["PERMANENT"])
    ]


def test_stock_gloo_rendezvous_on_management_and_moves_its_bytes_on_the_planes(wired, directory):
    pytest.importorskip("torch")
    path = script(
        directory,
        """
        import torch, torch.distributed as dist
        dist.init_process_group("gloo")
        values = torch.arange(1 << 20, dtype=torch.int32) + dist.get_rank()
        dist.all_reduce(values)
        expected = 2 * torch.arange(1 << 20, dtype=torch.int32) + 1
        assert torch.equal(values, expected)
        dist.destroy_process_group()
        """,
    )
    specs = [
        RankSpec(r, f"h{r}", [sys.executable, path], {"GLOO_SOCKET_IFNAME": "host0"})
        for r in range(2)
    ]
    group = RankGroup(wired, specs, directory / "ranks")
    try:
        assert group.wait(60), group.first_failure and group.first_failure.error()
    finally:
        group.stop()
    assert sent(wired, "h0", "p0") + sent(wired, "h0", "p1") > 4 << 20
    assert sent(wired, "h0", "mgmt") < 1 << 20


# --- ranks ----------------------------------------------------------------------------------------


def test_rank_of_another_user_gets_its_network_environment_and_descriptors(pair, directory):
    path = script(
        directory,
        """
        import json, os, signal, socket, sys
        rank, address = int(os.environ["RANK"]), (os.environ["MASTER_ADDR"], 29501)
        if rank == 0:
            with socket.create_server(address) as server:
                os.write(int(os.environ["READY"]), b"r")
                peer = server.accept()[0].recv(16).decode()
        else:
            os.read(int(os.environ["READY"]), 1)
            with socket.create_connection(address, 5) as client:
                client.sendall(b"hello")
            peer = None
        print(json.dumps({
            "uid": os.getresuid(), "gid": os.getresgid(), "groups": os.getgroups(),
            "nice": os.nice(0), "environment": dict(os.environ), "peer": peer,
            "net": sorted(os.listdir("/sys/class/net")), "session": os.getsid(0) == os.getpid(),
            "fds": sorted(int(fd) for fd in os.listdir("/proc/self/fd")),
            "netns": os.stat("/proc/self/ns/net").st_ino, "cwd": os.getcwd(),
        }))
        """,
    )
    reader, writer = os.pipe()
    specs = [
        RankSpec(0, "h0", [python(), path], {"READY": str(writer)}, [writer]),
        RankSpec(1, "h1", [python(), path], {"READY": str(reader)}, [reader]),
    ]
    group = RankGroup(pair, specs, directory / "ranks", cwd=directory, user=NOBODY)
    try:
        assert group.wait(20), group.first_failure and group.first_failure.error()
    finally:
        group.stop()
        os.close(reader)
        os.close(writer)
    for rank, host in enumerate(("h0", "h1")):
        seen = json.loads((directory / "ranks" / f"{rank}.log").read_text())
        assert (directory / "ranks" / f"{rank}.log").stat().st_uid == NOBODY.uid
        assert seen["uid"] == [65534] * 3 and seen["gid"] == [NOBODY.gid] * 3
        assert 0 not in seen["groups"]
        assert seen["nice"] >= 10 and seen["session"] and seen["cwd"] == str(directory)
        assert seen["netns"] == os.fstat(pair.hosts[host].netns).st_ino
        assert "mgmt" in seen["net"]  # Its own /sys, not the machine's.
        # 0, 1, 2, what was passed, and the listing's own: nothing of the run leaks in.
        assert len(seen["fds"]) == 5 and (writer, reader)[rank] in seen["fds"]
        environment = seen["environment"]
        assert environment["WORLD_SIZE"] == "2" and environment["RANK"] == str(rank)
        assert environment["MASTER_ADDR"] == pair.hosts["h0"].management
        assert environment["OMP_NUM_THREADS"] == "1"
        assert environment["LOOMNET_HOST_ADDRESS"] == f"fd00::{rank}"
        assert "SUDO_COMMAND" not in environment and environment["HOME"] != "/root"
    assert seen["peer"] is None


def test_first_failing_rank_is_named_with_its_traceback_and_stop_ends_the_rest(pair, directory):
    path = script(
        directory,
        """
        import os, subprocess, sys, time
        if os.environ["RANK"] == "1":
            print("step 3", flush=True)
            try:
                {}["weights"]
            except KeyError as error:
                raise ValueError("no such tensor") from error
        subprocess.Popen(["sleep", "300"])  # A helper, as a data loader is.
        time.sleep(300)
        """,
    )
    specs = [RankSpec(rank, f"h{rank}", [python(), path]) for rank in range(2)]
    group = RankGroup(pair, specs, directory / "ranks", user=NOBODY)
    assert not group.wait(20)
    failed = group.first_failure
    assert failed is not None and failed.spec.rank == 1 and failed.status == 1
    assert failed.error().endswith("ValueError: no such tensor")
    assert "exit status 1" in failed.error() and "Traceback" in failed.error()
    assert [rank.spec.rank for rank in group.running] == [0]
    group.stop(grace=0.2)
    assert group.running == [] and group.first_failure is failed
    keep = {node.pid for node in pair.nodes.values()}
    assert {pid for pid, _ in ownership.marked(pair.lock.run_id)} == keep


def test_killed_rank_is_reported_by_its_signal(pair, directory):
    path = script(directory, "import time; time.sleep(300)")
    group = RankGroup(pair, [RankSpec(0, "h0", [python(), path])], directory / "ranks")
    assert not group.wait(0.2) and group.first_failure is None  # Time ran out; nothing failed.
    group.ranks[0].process.kill()
    assert not group.wait(5)
    assert "rank 0 was killed by SIGKILL" in group.first_failure.error()
    group.stop()


def test_a_command_that_does_not_exist_is_one_clear_line(pair, directory):
    group = RankGroup(pair, [RankSpec(0, "h0", ["/no/such/python"])], directory / "ranks")
    assert not group.wait(5)
    assert "cannot run /no/such/python: No such file" in group.first_failure.error()
    group.stop()


def test_ranks_that_cannot_be_are_refused(pair, directory):
    with pytest.raises(ValueError, match="ranks must be 0…1, not"):
        RankGroup(pair, [RankSpec(0, "h0", ["x"]), RankSpec(2, "h1", ["x"])], directory)
    with pytest.raises(ValueError, match="no host 'h9'"):
        RankGroup(pair, [RankSpec(0, "h9", ["x"])], directory)


def test_last_traceback_of_a_log_is_found_among_noise(tmp_path):
    log = tmp_path / "0.log"
    log.write_text(
        "Traceback (most recent call last):\n  File a\nOSError: first\nstep 4\n"
        "Traceback (most recent call last):\n  File b, line 2\n    f()\nRuntimeError: last\nbye\n"
    )
    assert traceback_in(log).splitlines()[-1] == "RuntimeError: last"
    assert "first" not in traceback_in(log)
    log.write_text("no traceback here\nSegmentation fault\n\n")
    assert traceback_in(log) == "Segmentation fault"


# --- ownership ------------------------------------------------------------------------------------

RUN = """
import os, sys, time
from pathlib import Path
from loomnet.live.fabric import *
from loomnet.live.ownership import RunLock
from loomnet.live.ranks import *
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
time.sleep(0.5)
print(lock.run_id, *(rank.process.pid for rank in group.ranks), flush=True)
time.sleep(300)
"""


def test_kill_9_of_a_run_leaves_nothing_after_clean_and_other_runs_untouched(pair, directory):
    victim = subprocess.Popen(
        [sys.executable, "-c", RUN, str(directory), python()],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(PACKAGE)},
    )  # fmt: skip
    try:
        run_id, *pids = victim.stdout.readline().split()
        assert ownership.clean(directory) == []  # It lives: not touched.
        assert (
            len(left_of(run_id)) >= 7
        )  # three shells, two ranks, a daemon, a bridge and its ports
        victim.send_signal(signal.SIGKILL)
        victim.wait(5)
        # The kernel's part: ranks and nodes die with the run, before anybody cleans.
        for pid in pids:
            assert wait_for(lambda p=pid: ownership.process_start(int(p)) is None), "rank lives"
        removed = ownership.clean(directory)
        assert any("bridge" in line for line in removed) and any("process" in x for x in removed)
        assert all(line.startswith(f"run {run_id}: ") for line in removed)
        assert left_of(run_id) == []
        assert ownership.clean(directory) == []
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
    assert ownership.clean(directory) == [f"run {lock.run_id}: journal"]
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
            ownership.clean(directory)
            assert bridge in ovs.vsctl("list-br").split()
        finally:
            ovs.vsctl("del-br", bridge)


def test_journal_is_kept_while_a_system_open_vswitch_with_its_bridge_is_down(directory):
    dead = ownership.RunLock(directory)
    gone = f"unix:{directory}/db.sock"
    dead.record("bridge", name=dead.name("m"), database=gone, own=False)
    os.close(dead._fd)
    assert ownership.clean(directory) == [] and dead.path.exists()
    # Loomnet's own starts with an empty database: nothing to wait for.
    with dead.path.open("w") as journal:
        row = {"kind": "bridge", "name": dead.name("m"), "database": gone, "own": True}
        journal.write(json.dumps(row) + "\n")
    assert ownership.clean(directory) == [f"run {dead.run_id}: journal"]


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
        assert ownership.own_interfaces(lock.prefix) == []
        assert ownership.marked(lock.run_id) == []
        with pytest.raises(openvswitch.OpenVSwitchError, match="is not running"):
            ovs.vsctl("add-br", lock.name("y"), timeout=1)
    finally:
        openvswitch.stop(directory / "ovs")
    assert not ovs.alive()
    with contextlib.suppress(FileNotFoundError):
        assert not (directory / "ovs/db.sock").is_socket()
