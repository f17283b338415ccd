"""The switch program "symphony" on the live clock: its egress hooks run in the engine, whether its
switch is in the kernel or not; their rows and counters stand beside the switch's own."""

import struct

import pytest

import loomnet as ln
from loomnet.faults.timetable import SwitchChange


def fabric(pattern=None):
    # Epochs of 134 ms: what a script sends is far apart.
    made = ln.clos.two_tier(
        planes=1, leaves=2, spines=1, hosts_per_leaf=1, rate="40 Mb/s", delay="0.5 ms"
    )
    made.program("p0.*", "symphony", shift=27, stale=1000, warm=0, gate=0)
    return made.place(pattern, "engine") if pattern else made


def step(rank, steps):
    """A step header of job 7, ring 0, of 8 ranks."""
    return struct.pack(">HBBHHHHI", 0x5359, 0x10, 1, 7, 0, rank, 8, int(steps * 65536))


def send(lab, *headers):
    script = (
        "import socket; s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); "
        "s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, 2)\n"
        f"for each in {headers!r}: s.sendto(each + bytes(64), "
        f"('{lab.address('h1')}', 18771))"
    )
    assert lab.exec("h0", ["python3", "-c", script]).returncode == 0
    lab.exec("h0", "sleep 0.2")


@pytest.mark.parametrize("pattern", [None, "p*"])
def test_hooks_of_a_switch_mark_count_and_forget(uses_machine, pattern):
    with ln.lab(fabric(pattern), clock="live") as lab:
        send(lab, step(0, 10), step(1, 11), step(1, 12), step(9, 12))
        leaf = lab.switch("p0.leaf0")
        [row] = leaf.snapshot()["rings"]
        assert (row["job"], row["owner"], row["low"], row["marks"]) == (7, 0, 10 << 16, 1)
        [tally] = leaf.snapshot()["jobs"]
        for name, n in {"tagged": 3, "extra_marks": 1, "init": 1, "bypass": 1}.items():
            assert tally[name] == n
            assert leaf.counters[name] >= n
        spine = lab.switch("p0.spine0").counters
        assert spine["base_marks"] == 1 and "extra_marks" not in spine, "it came marked"
        assert "tagged" not in lab.switch("p0.leaf1").counters, "its ports end at hosts"
        network, node = lab._standing.network, lab._plan.topology.number["p0.leaf0"]
        network.apply([SwitchChange(node, False)])
        network.apply([SwitchChange(node, True)])
        assert lab.switch("p0.leaf0").snapshot()["rings"] == []
        send(lab, step(1, 12))
        [row] = lab.switch("p0.leaf0").snapshot()["rings"]
        assert (row["owner"], row["marks"]) == (1, 0)
        assert lab.switch("p0.leaf0").counters["tagged"] == 4, "counters are the run's"
