"""Where a live run's switches are: in the kernel, in the engine, or both; hosts' kernels and ranks
see the same fabric, and every packet is accounted for."""

import pytest

import loomnet as ln
from loomnet.labs.lab import Lab


def fabric(pattern):
    made = ln.clos.two_tier(
        planes=2, leaves=2, spines=2, hosts_per_leaf=1, rate="20 Mb/s", delay="0.5 ms"
    )
    return made.place(pattern, "engine") if pattern else made


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("p*", "8 switches in the engine"),
        ("p*.spine*", "4 XDP switches and 4 switches in the engine"),
    ],
)
def test_a_job_runs_where_the_switches_are(uses_machine, tmp_path, pattern, line):
    said = []
    lab = Lab("placed", clock="live", directory=tmp_path / "run", say=said.append)
    fault = ln.down("p0.leaf0--p0.spine0", at=ln.step(3), duration="0.5 s", phase="down")
    r = lab.run(
        fabric(pattern),
        ln.AllReduce(size="200 kB", repeat=10, transport="mrc"),
        [fault],
        payload=True,
        reroute_delay="0.1 s",
    )
    assert f"2 planes, {line}, 12 links" in said[0]
    assert r["errors"] == 0, r.data.errors  # altered elements are errors
    assert len(r.data.iterations) == 10
    notes, fidelity = r.data.fidelity.notes, r.data.fidelity
    assert notes["placement"] == line and fidelity.unexplained == 0
    assert (notes["given"] == 0) is (pattern == "p*"), "packets that went into the kernel"
    assert notes["given"] == notes["returned"] + notes["switch_drops"]
    assert fidelity.lateness_p99_ps > 0
    assert r.data.totals["switch p0.spine1"]


def test_kernels_of_hosts_talk_through_the_engine(uses_machine):
    with ln.lab(fabric("p*"), clock="live", reroute_delay="50 ms") as lab:
        command = f"ping -6 -c 4 -i 0.05 -W 1 {lab.address('h1')}"
        assert "4 received" in lab.exec("h0", command).stdout
        lab.down("p*.leaf0--p*.spine0")
        lab.exec("h0", "sleep 0.5")  # tables of switches in the engine reconverge too
        assert "4 received" in lab.exec("h0", command).stdout
        with pytest.raises(ln.UsageError, match=r'no node "p0.leaf0"'):
            lab.exec("p0.leaf0", "true")
        counted = lab.counters()
        spines = [counted.get(f"switch p{plane}.spine1", {}) for plane in range(2)]
        assert sum(sum(each.values()) for each in spines) >= 8, counted


@pytest.mark.parametrize("pattern", [None, "p*"])
def test_a_killed_switch_boots_and_forwards_again(uses_machine, tmp_path, pattern):
    """The one spine is the only way between two hosts; while it boots it drops by name."""
    made = ln.clos.two_tier(
        planes=1, leaves=2, spines=1, hosts_per_leaf=1, rate="20 Mb/s", delay="0.5 ms"
    )
    if pattern:
        made.place(pattern, "engine")
    fault = ln.kill("p0.spine0", at=ln.step(2), duration="0.3 s", reboot="0.3 s", phase="dead")
    r = Lab("boots", clock="live", directory=tmp_path / "run").run(
        made, ln.AllReduce(size="100 kB", repeat=6, transport="mrc"), [fault], payload=True
    )
    assert r["errors"] == 0, r.data.errors  # altered elements are errors
    assert len(r.data.iterations) == 6 and r.data.fidelity.unexplained == 0
    assert r.data.totals["switch p0.spine0"]["drop_no_route"] > 0
    # What had passed the spine arrives up to two links later.
    assert 0.55 <= r["dead.blip_s"] < 2
