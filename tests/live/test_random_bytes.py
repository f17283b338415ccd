"""Random bytes from a host's kernel, or out of a switch's port, into a live run: counted and
dropped by name, and the run's own bytes stay right."""

import json
import random
import subprocess
import sys
from pathlib import Path

import machine
import pytest
from command_line import TRAFFIC

import loomnet as ln
from loomnet.labs.lab import Lab
from loomnet.live.clock import LiveClock
from loomnet.processes import journal as ownership

NOISE = Path(__file__).parent / "rank_scripts" / "noise.py"


def nodes_of(run) -> dict[str, int]:
    """Node -> pid of its shell."""
    (run_id,) = (r for r, pid in machine.runs_alive().items() if pid == run.process.pid)
    journal = (ownership.state_directory() / "runs" / f"{run_id}.jsonl").read_text()
    rows = [json.loads(line) for line in journal.splitlines()]
    return {row["node"]: row["pid"] for row in rows if row.get("node")}


def noise(pid: int, count: int, seed: int, *interfaces: str) -> subprocess.Popen:
    command = [
        "mnexec",
        "-a",
        str(pid),
        sys.executable,
        "-I",
        "-S",
        str(NOISE),
        str(count),
        str(seed),
        *interfaces,
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def heard(senders) -> int:
    total = 0
    for sender in senders:
        output, _ = sender.communicate(timeout=30)
        assert sender.returncode == 0
        total += int(output)
    return total


def test_noise_on_every_port_is_dropped_by_name_and_no_byte_is_altered(loomnet):
    run = loomnet.live("exchange", "repeat=40")
    run.until(TRAFFIC)
    nodes = nodes_of(run)
    hosts = [noise(nodes[h], 300, i, "p0", "p1") for i, h in enumerate(("h0", "h1"))]
    switches = [
        noise(pid, 100, 9, "s0", "s1", "s2") for name, pid in nodes.items() if "leaf" in name
    ]
    assert len(switches) == 4
    from_hosts, from_switches = heard(hosts), heard(switches)
    assert from_hosts > 600 and from_switches > 600
    assert run.wait(60) in (0, 3), run.output  # 3: a busy machine may be late; lost it has nothing
    assert "ok   bytes-right" in run.output
    fidelity = loomnet.report()["fidelity"][0]
    assert fidelity["unexplained"] == 0 and "unexplained" not in fidelity["verdict"], fidelity
    drops = {
        (d["where"], d["reason"]): d["packets"]
        for d in loomnet.counters()["runs"]["exchange"]["drops"]
    }
    # What switches' ports sent of themselves has no number of the engine's.
    assert drops["engine", "foreign"] >= from_switches * 0.99, drops
    # Two thirds of what hosts sent are no IPv6, or have no route; the rest is other hosts' traffic.
    assert {("switch", "not_ipv6"), ("switch", "no_route")} <= drops.keys(), drops
    dropped = sum(n for (where, _), n in drops.items() if where == "switch")
    assert dropped > from_hosts * 0.5, drops


@pytest.mark.parametrize("transport", ["mrc", "roce"])
def test_noise_into_switches_and_nics_themselves(uses_machine, tmp_path, monkeypatch, transport):
    """As if a link's far end had gone mad: straight into each switch's port and each NIC."""
    dice, sent = random.Random(3), {"switch": 0, "nic": 0}
    look = LiveClock.pass_time

    def and_noise(self, until_ps, plays):
        for _ in range(10):
            node = dice.choice([*self.plan.hosts, *self.plan.switches])
            kind = "nic" if node.number < len(self.plan.hosts) else "switch"
            frame = bytearray(dice.randbytes(dice.randrange(14, 1500)))
            if dice.random() < 0.7:  # deeper into the parsers
                frame[12:15] = b"\x86\xdd\x60"
                frame[20:21] = dice.choice((b"\x11", b"\x29"))  # UDP, IPv6 in IPv6
            self.live.inject(node.number, dice.randrange(len(node.ports)), bytes(frame))
            sent[kind] += 1
        return look(self, until_ps, plays)

    monkeypatch.setattr(LiveClock, "pass_time", and_noise)
    fabric = ln.clos.two_tier(
        planes=2, leaves=2, spines=2, hosts_per_leaf=1, rate="20 Mb/s", delay="0.5 ms"
    )
    lab = Lab("noise", clock="live", directory=tmp_path / "lab")
    r = lab.run(fabric, ln.AllReduce(size="200 kB", repeat=30, transport=transport), payload=True)
    assert r["errors"] == 0, r.data.errors  # altered bytes are errors
    assert len(r.data.iterations) == 30
    assert min(sent.values()) > 100
    found = {"switch": 0, "nic": 0}
    for name, counters in r.data.totals.items():
        kind = name.partition(" ")[0]
        if kind in found:
            found[kind] += sum(
                n
                for counter, n in counters.items()
                if counter.startswith("drop_") or counter.endswith("_dropped")
            )
    assert found["nic"] == sent["nic"], (found, sent, r.data.totals)
    assert found["switch"] == sent["switch"], (found, sent)
    assert r.data.fidelity.unexplained == 0
