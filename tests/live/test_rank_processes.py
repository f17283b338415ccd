"""Ranks as processes in hosts' namespaces: what they are given, and how their end is told."""

import json
import os

import pytest
from glue import NOBODY, needs_kernel, python, script

from loomnet.processes import journal as ownership
from loomnet.processes.rank_logs import traceback_in
from loomnet.processes.ranks import NICE, RankGroup, RankSpec

pytestmark = needs_kernel


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
        assert seen["nice"] >= NICE and seen["session"] and seen["cwd"] == str(directory)
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


def test_last_traceback_of_a_log_is_found_among_noise():
    log = (
        "Traceback (most recent call last):\n  File a\nOSError: first\nstep 4\n"
        "Traceback (most recent call last):\n  File b, line 2\n    f()\nRuntimeError: last\nbye\n"
    )
    assert traceback_in(log).splitlines()[-1] == "RuntimeError: last"
    assert "first" not in traceback_in(log)
    of_rank = "".join(f"[rank11]: {line}\n" for line in log.splitlines()[:-1]) + "bye\n"
    assert traceback_in(of_rank).splitlines()[:2] == [
        "Traceback (most recent call last):",
        "  File b, line 2",
    ]  # PyTorch's own prefix
    assert traceback_in(of_rank).splitlines()[-1] == "RuntimeError: last"
    endless = "Traceback (most recent call last):\n" + "  File c\n" * 50_000 + "RuntimeError: x\n"
    assert len(traceback_in(endless).splitlines()) == 201
    assert traceback_in(endless).endswith("RuntimeError: x")
    assert traceback_in("no traceback here\nSegmentation fault\n\n") == "Segmentation fault"
