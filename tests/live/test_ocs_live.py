"""`loomnet ocs` during a live run: its panel is shown and patched from another process, by the
user of the run, and nothing of it is left."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCENARIO = """
import loomnet as ln

@ln.scenario
def lasts(lab: ln.Lab, seconds: int = 8):
    fabric = ln.Fabric("star")
    fabric.add_panel("ocs0", ports=8, profile="sim25")
    for i in range(4):
        fabric.add_host(f"h{i}")
        fabric.add_link(f"h{i}", "ocs0", rate="100 Mb/s", delay="10 us")
    fabric.panel("ocs0").circuits([("h0", "h1")])
    job = ln.Flows(pairs=[(0, 1)], sizes="10 kB", count=seconds * 20, transport="roce",
                   starts=[f"{50 * i} ms" for i in range(seconds * 20)], ranks=2)
    r = lab.run(fabric, job)
    lab.check("patched-from-outside", sum(e["kind"] == "status" for e in r.events), ge=4)
"""
FOLDER = Path("/run/loomnet/panels")


def loomnet(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "loomnet", *words], capture_output=True, text=True,
                          timeout=60)


@pytest.fixture
def running(tmp_path):
    file = tmp_path / "lasts.py"
    file.write_text(SCENARIO)
    before = set(FOLDER.glob("*.sock"))
    run = subprocess.Popen([sys.executable, "-m", "loomnet", "run", str(file), "--clock", "live"],
                           cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           text=True)
    deadline = time.monotonic() + 30
    while not (mine := set(FOLDER.glob("*.sock")) - before) and time.monotonic() < deadline:
        assert run.poll() is None, run.stdout.read()
        time.sleep(0.05)
    [path] = mine
    time.sleep(1.0)
    yield run, path
    if run.poll() is None:
        run.terminate()
        run.wait(30)
    assert not path.exists()


def test_a_run_is_shown_and_patched_from_outside(running, tmp_path):
    run, path = running
    which = ("--run", path.stem.partition("-")[0])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and path.stat().st_uid == os.getuid()
    shown = loomnet("ocs", "show", "cross-connect", "status", *which, "--json")
    assert shown.returncode == 0, shown.stderr
    assert {row["id"]: row["a_side_status"] for row in json.loads(shown.stdout)} == {
        "1A-2B": "tuned", "2A-1B": "tuned"}
    added = loomnet("ocs", "config", "cross-connect", "add", "3A-4B,4A-3B", *which)
    assert added.returncode == 0 and "succeeded" in added.stdout, added.stderr
    again = loomnet("ocs", "reconcile", "3A-4B,4A-3B", *which)
    assert again.returncode == 0 and "nothing to do" in again.stdout
    table = loomnet("ocs", "show", "cross-connect", "config", *which).stdout
    assert "3A-4B" in table and max(map(len, table.splitlines())) <= 80
    for words, error in (
            (("config", "cross-connect", "add", "3A-4A"), "Invalid cross-connect id"),
            (("config", "cross-connect", "add", "9A-1B"), "Error: no port 9"),
            (("config", "cross-connect", "add", "1A-4B", "safe"), "Error:"),
            (("show", "cross-connects"), "ocs show: "),
            (("config", "port", "state", "1A", "off"), "Invalid port state")):
        refused = loomnet("ocs", *words, *which)
        assert refused.returncode == 2 and error in refused.stderr, refused.stderr
        assert len(refused.stderr.splitlines()) == 1
    assert "ocs: no panel" in loomnet("ocs", "show", "port", "config", "--panel", "ocs7",
                                      *which).stderr
    # Clients that mean ill do not hold the run.
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(b"x" * 300_000)
        assert b"Invalid request" in client.recv(4096)
    out, _ = run.communicate(timeout=60)
    assert run.returncode == 0, out
    report = json.loads(next(tmp_path.glob("runs/*/report.json")).read_text())
    assert report["deterministic"] is False
    assert "ocs0 at " in json.dumps(report["fidelity"])


def test_without_a_run_there_is_one_line():
    found = loomnet("ocs", "show", "port-mapping", "--run", "none")
    assert found.returncode == 2 and "no run with a panel lasts" in found.stderr


def test_a_killed_runs_socket_is_cleaned(running):
    run, path = running
    run.kill()
    run.wait(10)
    assert path.exists()
    assert loomnet("clean").returncode == 0
    assert not path.exists()
