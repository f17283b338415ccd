"""Switch programs by glob on the live clock: in the kernel and in the engine, with their state, and
a reboot that clears it."""

import pytest

import loomnet as ln
from loomnet.faults.timetable import SwitchChange
from loomnet.labs.lab import Lab

SUM_PORT = 0xBF00  # of ebpf/sum_abi.h: UDP destination ports of its rows begin here


def fabric(pattern=None):
    made = ln.clos.two_tier(
        planes=1, leaves=2, spines=1, hosts_per_leaf=1, rate="40 Mb/s", delay="0.5 ms"
    ).program("p0.leaf0", "sum")
    return made.place(pattern, "engine") if pattern else made


def send(lab, count, row):
    script = (
        "import socket; s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\n"
        f"for _ in range({count}): s.sendto(b'\\x01' * 64, ('{lab.address('h1')}', "
        f"{SUM_PORT + row}))"
    )
    assert lab.exec("h0", ["python3", "-c", script]).returncode == 0
    lab.exec("h0", "sleep 0.2")


@pytest.mark.parametrize("pattern", [None, "p*"])
def test_a_switch_holds_packets_and_forgets_them_when_it_reboots(uses_machine, pattern):
    with ln.lab(fabric(pattern), clock="live") as lab:
        send(lab, 3, row=5)
        leaf = lab.switch("p0.leaf0")
        [row] = leaf.snapshot()["sums"]
        assert (row["row"], row["count"]) == (5, 3) and row["bytes"] == b"\x03" * 64
        assert leaf.program == "sum" and leaf.counters["absorbed"] == 3
        send(lab, 1, row=5)
        leaf = lab.switch("p0.leaf0")
        assert leaf.snapshot()["sums"][0]["count"] == 0 and leaf.counters["summed"] == 1
        send(lab, 2, row=1)
        assert [row["count"] for row in lab.switch("p0.leaf0").snapshot()["sums"]] == [2, 0]
        network, node = lab._standing.network, lab._plan.topology.number["p0.leaf0"]
        network.apply([SwitchChange(node, False)])
        assert lab.switch("p0.leaf0").snapshot() == {"sums": []}
        network.apply([SwitchChange(node, True)])
        ping = lab.exec("h0", f"ping -6 -c 2 -i 0.05 -W 1 {lab.address('h1')}")
        assert "2 received" in ping.stdout, "it has its tables again"
        assert lab.switch("p0.leaf0").counters["absorbed"] == 5, "counters are the run's"
        with pytest.raises(ln.UsageError, match=r'no switch "p0.leaf9"; nearest'):
            lab.switch("p0.leaf9")


@pytest.mark.parametrize("pattern", [None, "p*"])
def test_a_run_has_the_state_of_its_switches_and_a_kill_goes_through_it(
    uses_machine, tmp_path, pattern
):
    fault = ln.kill("p0.leaf0", at=ln.step(2), duration="0.2 s", reboot="0.1 s", phase="dead")
    made = fabric(pattern).program("p0.spine0", "mirror", sample=2)
    r = Lab("programs", clock="live", directory=tmp_path / "run").run(
        made, ln.AllReduce(size="100 kB", repeat=6), [fault], payload=True
    )
    assert r["errors"] == 0 and r.data.fidelity.unexplained == 0
    assert r.switch("p0.leaf0").snapshot() == {"sums": []}
    assert r.switch("p0.leaf0").counters["drop_no_route"] > 0
    spine = r.switch("p0.spine0")
    assert (spine.program, spine.options) == ("mirror", {"sample": 2})
    assert spine.snapshot() == {} and r.switch("p0.leaf1").program == "forward"
