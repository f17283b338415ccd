"""Clients that patch the panel of a run whose transport or controller counts on its circuits."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from test_ocs_live import fresh

import loomnet as ln
from loomnet.live.attach import command_in, live_nodes
from loomnet.ocs import client

SCENARIOS = Path(__file__).parents[2] / "scenarios" / "mfabric"
# Runs in the namespace of a host. argv: the address, then commands of one session.
SESSION = """
import socket, sys, time
link = socket.create_connection((sys.argv[1], 3082), timeout=30)
for command in sys.argv[2:]:
    link.sendall(command.encode())
    answer = b""
    while not answer.endswith(b"\\r\\n;"):
        answer += link.recv(65536) or sys.exit("the panel has left")
    print(" ".join(answer.decode().split()), flush=True)
    time.sleep(0.1)
"""


class Meanwhile(threading.Thread):
    """Calls talk(panel) once the run's panel is there; the panel is a client's socket."""

    def __init__(self, talk):
        super().__init__(daemon=True)
        self.before, self.talk = set(client.sockets()), talk
        self.start()

    def run(self):
        self.talk(fresh(self.before))


@pytest.fixture(scope="module")
def training():
    """What trains, and on what: half of the scenario's rate, so that it is dilated by half."""
    made = ln.load(SCENARIOS / "moe_ddp.py").function.__globals__
    job = ln.TorchJob(
        SCENARIOS / "moe_train.py",
        args=["--steps=4", "--layers=2", "--hidden=200", "--batch=32", "--beside=0"],
        ranks=8,
        transport="roce",
        compute="2 ms",
        log=made["LOG"],
        circuits=ln.CircuitControl(rule="share"),
    )
    return made["fabric"]("mixnet", "sim25", "200 Mb/s"), job, made["LOG"]


@pytest.fixture(scope="module")
def undisturbed(training, tmp_path_factory):
    """Rank 0's losses where nothing fails."""
    fabric, job, log = training
    return ln.run(fabric, job, directory=tmp_path_factory.mktemp("runs") / "still").logged(0, log)


def test_tl1_repatches_a_mixture_of_experts_while_it_trains(
    uses_machine, tmp_path, training, undisturbed
):
    """Circuits of the region move and go under packets: losses are those of an undisturbed run."""
    fabric, job, log = training
    asked = []

    def talk(panel):
        with panel.connect() as link:  # until the controller patches, so until ranks train
            while not client.ask(link, command="show cross-connect status"):
                time.sleep(0.05)
        while live_nodes()["h0"][1] != panel.run:  # another run has come since
            time.sleep(0.05)
        # 1 to 12 are ports, three of each server; 13 to 24 the same as egress.
        session = ["ACT-USER::admin:1::root;"]
        for number in range(2):
            session += [
                f"ENT-PATCH::1&{4 + number},{16 + number}&13:{number + 2}:;",
                f"DLT-PATCH::1&{4 + number}:{number + 2}:;",
            ]
        asked.extend(
            subprocess.run(
                command_in("h0", [sys.executable, "-c", SESSION, "198.18.0.5", *session]),
                capture_output=True,
                text=True,
                timeout=60,
            ).stdout.splitlines()
        )

    talker = Meanwhile(talk)
    r = ln.run(fabric, job, clock="live", dilation=5, directory=tmp_path / "raced")
    talker.join(30)
    assert len(asked) == 5 and "M 1 COMPLD" in asked[0]
    assert sum("COMPLD" in each for each in asked) >= 2, asked  # others find a port in use
    rows = [row["value"] for row in r.events.rows if row["kind"] == "command"]
    assert any(row.startswith("tl1 ENT-PATCH") for row in rows)
    assert "outside" in [each.event for each in r.experts.events]
    assert (r.data.ended, r.data.reason, r.data.errors) == ("finished", None, [])
    assert r.logged(0, log) == undisturbed


@pytest.mark.soak  # tests/python/test_mixnet_torch.py does it on the virtual clock
def test_ranks_outlive_their_controller_and_their_panel(
    uses_machine, tmp_path, training, undisturbed
):
    fabric, job, log = training
    faults = [
        ln.kill("ocs0.controller", at="60 ms", duration="60 ms"),
        ln.kill("ocs0", at="200 ms", duration="40 ms"),
    ]
    # A timeout of 0.3 s: the 4.3 s of NCCL would be 22 s of wall time.
    r = ln.run(
        fabric,
        job,
        faults=faults,
        clock="live",
        dilation=5,
        directory=tmp_path / "failed",
        roce={"timeout_exponent": 16},
    )
    assert (r.data.ended, r.data.reason, r.data.errors) == ("finished", None, [])
    assert r.logged(0, log) == undisturbed
    quiet = [each.at_ps for each in r.experts.events if 61e9 < each.at_ps < 119e9]
    assert quiet == []  # of the controller that is gone
    assert any(each.at_ps > 120e9 and each.event == "demand" for each in r.experts.events)
    assert any(each.event == "fail" for each in r.experts.events)


def test_a_second_circuit_of_two_hosts_is_answered_and_not_used(uses_machine, tmp_path):
    """RoCE has one path between two hosts, and a client of the panel does not know."""
    fabric = ln.Fabric("double")
    fabric.add_panel("ocs0", ports=8, profile="sim25")
    for host, ports in (("h0", 2), ("h1", 2), ("h2", 1), ("h3", 1)):
        fabric.add_host(host)
        for _ in range(ports):
            fabric.add_link(host, "ocs0", rate="40 Mb/s", delay="50 us")
    answers = []

    def talk(panel):
        # Both flows wait for their circuits, so the run ends only after the last command.
        with panel.connect() as link:
            for pairs in ("1-3", "2-4", "2-4", "5-6"):
                answers.append(client.ask(link, command="reconcile", list=pairs))

    talker = Meanwhile(talk)
    r = ln.run(
        fabric,
        ln.Flows(
            pairs=[(0, 1), (2, 3)],
            sizes="2 MB",
            count=2,
            starts=["0 s", "0 s"],
            transport="roce",
            stall_timeout="1 min",
        ),
        clock="live",
        directory=tmp_path,
    )
    talker.join(30)
    assert [each["added"] for each in answers] == [
        ["1A-3B", "3A-1B"],
        ["2A-4B", "4A-2B"],
        [],
        ["5A-6B", "6A-5B"],
    ]
    assert (r.data.ended, r.data.reason, r.data.errors) == ("finished", None, [])
    assert [flow["bytes"] for flow in r.flows] == [2_000_000, 2_000_000]
    assert r.flows[0]["fct_s"] >= 0.4, "2 MB at the 40 Mb/s of one circuit"
