"""Control interfaces of panels while a run lasts: whose the sockets are, `loomnet ocs`, TL1 on the
management network, clients that mean no good, and what a killed run leaves."""

import json
import os
import re
import signal
import socket
import stat
import subprocess
import threading
import time
from pathlib import Path

import pytest
from command_line import TRAFFIC

import loomnet as ln
from loomnet.cli import main
from loomnet.live.namespaces import inside
from loomnet.ocs import client
from loomnet.ocs.tl1 import PORT

BARS = Path(__file__).parents[2] / "scenarios" / "mfabric" / "control.py"
USER = 1234  # of nobody's: a number is enough
LONG = """
import loomnet as ln
@ln.scenario
def long(lab: ln.Lab, placement: str = "engine"):
    fabric = ln.Fabric("star")
    fabric.add_panel("ocs0", ports=8, profile="sim25", placement=placement)
    for host in range(4):
        fabric.add_host()
        fabric.add_link(f"h{host}", "ocs0", rate="40 Mb/s", delay="50 us")
    fabric.panel("ocs0").circuits([("h0", "h1")])
    lab.run(fabric, ln.Flows(pairs=[(0, 1)], sizes="20 MB", transport="mrc"))
"""


def star(ports=8, profile="sim25", **panel):
    fabric = ln.Fabric("star")
    fabric.add_panel("ocs0", ports=ports, profile=profile, **panel)
    for host in range(4):
        fabric.add_host()
        fabric.add_link(f"h{host}", "ocs0", rate="40 Mb/s", delay="50 us")
    return fabric


def run_of(lab):
    return lab._standing.lock.run_id


def path_of(lab):
    return client.STATE / "ocs" / run_of(lab) / "ocs0"


def fresh(before):
    """The socket of the one panel that was not there before: other runs may last beside ours."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if found := set(client.sockets()) - before:
            return found.pop()
        time.sleep(0.01)
    raise AssertionError("no panel has come")


def commands(lab):
    network = lab._standing.network
    with network.held():
        return [
            text
            for _, where, kind, text in network.engine.panels.events().rows
            if (where, kind) == ("ocs0", "command")
        ]


def tcp_from(lab, host):
    """A connection from a host over the management network to the panel's TL1."""
    glue = lab._standing.network.glue
    return inside(
        glue.hosts[host].netns,
        lambda: socket.create_connection((glue.panels["ocs0"].management, PORT), timeout=30),
    )


def test_the_socket_is_the_runs_users_alone(uses_machine, monkeypatch):
    monkeypatch.setenv("SUDO_UID", str(USER))
    monkeypatch.setenv("SUDO_GID", str(USER))
    before = os.umask(0)
    try:
        with ln.lab(star(), clock="live") as lab:
            path = path_of(lab)
            found = path.lstat()
            assert stat.S_ISSOCK(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o600
            assert (found.st_uid, found.st_gid) == (USER, USER)
            for folder in (path.parent, path.parent.parent):
                status = folder.lstat()
                assert stat.S_ISDIR(status.st_mode) and status.st_uid == 0
                assert stat.S_IMODE(status.st_mode) == 0o755
            asks = (
                "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]);"
                's.sendall(b\'{"command": "show half-circuits"}\\n\'); print(s.recv(99))'
            )
            said = {}
            for user in (USER, USER + 1):
                said[user] = subprocess.run(
                    ["/usr/bin/python3", "-c", asks, str(path)],
                    capture_output=True,
                    text=True,
                    user=user,
                    group=user,
                    extra_groups=[],
                    cwd="/",
                )
            assert said[USER].stdout == "b'{\"ok\": []}\\n'\n"
            assert "PermissionError" in said[USER + 1].stderr
    finally:
        os.umask(before)
    assert not path.parent.exists()


@pytest.mark.parametrize("placement", ["engine", "xdp"])
def test_the_command_during_a_run(loomnet, tmp_path, capsys, placement):
    (tmp_path / "long.py").write_text(LONG)
    before = set(client.sockets())
    run = loomnet.start("run", "long.py", "--clock", "live", "--set", f"placement={placement}")
    run.until(TRAFFIC)
    ours = ("--run", fresh(before).run)

    def ocs(*words):
        assert main(["ocs", *words, *ours]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    assert ocs("show", "cross-connect", "status", "--panel", "ocs0").splitlines()[1:] == [
        "1A-2B  1A      2B      tuned          tuned",
        "2A-1B  2A      1B      tuned          tuned",
    ]
    assert ocs("config", "cross-connect", "add", "3A-4B", "safe") == (
        "cross-connect add: 1 succeeded\n"
    )
    assert "one direction alone: 3A-4B" in ocs("show", "cross-connect", "status")
    assert ocs("reconcile", "3-4") == "added 4A-3B\ntuned\n"
    assert ocs("reconcile", "3-4") == "nothing to do\ntuned\n"
    assert main(["ocs", "config", "cross-connect", "add", "1A-5B", "safe", *ours]) == 2
    assert "Error: port 1A is in another cross-connect" in capsys.readouterr().err
    assert ocs("config", "port", "label", "1A", "rack 3") == "port label succeeded\n"
    assert run.wait(60) in (0, 3), run.output  # 3: a busy machine, not this test's matter
    report = loomnet.report()
    assert report["deterministic"] is False
    assert main(["ocs", "show", "port", "status", *ours]) == 2
    assert f'no run "{ours[1]}" with a panel' in capsys.readouterr().err


def test_what_was_asked_is_in_the_events_with_emulated_time(uses_machine, tmp_path):
    asked, before = {}, set(client.sockets())

    def ask():
        with fresh(before).connect() as link:
            for listed in ("3-4", "3-4"):
                asked[len(asked)] = client.ask(link, command="reconcile", list=listed)

    asker = threading.Thread(target=ask)
    asker.start()
    r = ln.run(
        star(),
        ln.Flows(pairs=[(2, 3)], sizes="20 kB", transport="mrc"),
        clock="live",
        directory=tmp_path,
    )
    asker.join(10)
    assert asked[0]["added"] == ["3A-4B", "4A-3B"] and asked[0]["tuned"]
    assert asked[1]["added"] == asked[1]["removed"] == []
    rows = [row for row in r.events.rows if row["kind"] == "command"]
    assert [(row["where"], row["value"]) for row in rows] == [("ocs0", "reconcile 3-4")] * 2
    tuning = [row["time"] for row in r.events.rows if row["value"] == "tuning"]
    assert set(tuning) == {rows[0]["time"]}, "taken at the time that its note says"


def test_a_tl1_session_over_the_management_network(uses_machine):
    bars = ln.load(BARS).function.__globals__
    with ln.lab(star(ports=48, profile="polatis"), clock="live") as lab:
        ask = bars["Client"].__new__(bars["Client"])
        ask.link = tcp_from(lab, "h3")
        assert bars["mismatches"](ask) == []
        # As the prototype: circuits between servers, whose time is that of the command.
        ask("ACT-USER::admin:1::root;")
        begin = time.monotonic()
        answer = ask("ENT-PATCH::1&2,50&49:2:;")
        took = time.monotonic() - begin
        assert b"M  2 COMPLD" in answer and 0.02 < took < 0.2
        assert set(re.findall(rb'"(\d+),(\d+)"', ask("RTRV-PATCH:::3:;"))) == {
            (b"1", b"50"),
            (b"2", b"49"),
        }
        assert lab.exec("h0", f"ping -6 -c 2 -i 0.05 -W 1 {lab.address('h1')}").returncode == 0
        noted = commands(lab)
        assert noted[-1] == "tl1 ENT-PATCH::1&2,50&49:2:" and not any(
            "root" in each for each in noted
        )
        ask.link.close()


def test_hostile_clients_do_not_disturb_the_engine(uses_machine):
    from panel_probe import Probe

    fabric = star(profile="ideal", carrier="none")
    fabric.panel("ocs0").circuits([("h0", "h1")])
    with ln.lab(fabric, clock="live") as lab:
        ending, links = threading.Event(), []

        def flood():
            link = socket.socket(socket.AF_UNIX)
            link.connect(str(path_of(lab)))
            links.append(link)
            with link.makefile("rb") as answers:
                while not ending.is_set():
                    link.sendall(b'{"command": "config cross-connect add", "list": "3A-4B"}\n')
                    answers.readline()

        def garbage():
            link = tcp_from(lab, "h2")
            links.append(link)
            link.settimeout(0.01)
            while not ending.is_set():
                try:
                    link.sendall(os.urandom(4096))
                    link.recv(4096)
                except TimeoutError:
                    pass

        probe = Probe(lab, "h0", "h1", 1.5)
        probe.begin()
        hung = [tcp_from(lab, "h3") for _ in range(20)]  # most are refused; none reads
        threads = [
            threading.Thread(target=each, daemon=True)
            for each in (flood, flood, flood, garbage, garbage)
        ]
        for each in threads:
            each.start()
        sent = probe.end()
        lost = [number for number, (_, arrived) in enumerate(sent) if not arrived]
        assert len(sent) > 500
        assert not lost, f"{len(lost)} of {len(sent)} lost, numbers {lost[0]} to {lost[-1]}"
        asks = socket.socket(socket.AF_UNIX)
        asks.settimeout(10)
        asks.connect(str(path_of(lab)))
        asks.sendall(b'{"command": "show cross-connect status"}\n')
        rows = json.loads(asks.makefile().readline())["ok"]
        assert [row["id"] for row in rows] == ["1A-2B", "2A-1B", "3A-4B"]
        ending.set()
        for each in threads:
            each.join(5)
        begin = time.monotonic()
    assert time.monotonic() - begin < 10, "no client keeps the lab from its end"
    for each in (asks, *hung, *links):
        each.close()


def test_a_killed_run_leaves_a_socket_that_clean_removes(loomnet, tmp_path, capsys):
    (tmp_path / "long.py").write_text(LONG)
    before = set(client.sockets())
    run = loomnet.start("run", "long.py", "--clock", "live")
    run.until(TRAFFIC)
    found = fresh(before)
    run.process.send_signal(signal.SIGKILL)
    run.process.wait(10)
    assert found.path.is_socket()
    assert main(["ocs", "show", "port", "status", "--run", found.run]) == 2, "it is not waited for"
    assert "nothing with a panel runs live" in capsys.readouterr().err
    assert f"run {found.run}: sockets {found.path.parent}" in loomnet.clean()
    assert not found.path.parent.exists()


def test_a_folder_that_others_can_write_in_is_not_used(uses_machine, tmp_path):
    from loomnet.live.socket_folder import SocketFolder, remove_sockets

    (tmp_path / "ocs").mkdir()
    (tmp_path / "ocs").chmod(0o777)
    with pytest.raises(OSError, match="can be written by other users"):
        SocketFolder(tmp_path, "k3f9")
    (tmp_path / "ocs").rmdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "ocs").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError):
        SocketFolder(tmp_path, "k3f9")
    assert remove_sockets(tmp_path, "k3f9") == []
    assert list((tmp_path / "elsewhere").iterdir()) == []
