"""A model job on the live clock: its buckets cross XDP switches, and its compute times pass as wall
time does."""

import pytest

import loomnet as ln
from loomnet.labs.lab import Lab
from loomnet.live import doctor

_REASON = doctor.why_not_live()
pytestmark = pytest.mark.skipif(_REASON is not None, reason=str(_REASON))


@pytest.mark.parametrize("transport", ["mrc", "roce"])
def test_both_clocks_play_the_same_iterations(tmp_path, transport):
    fabric = ln.clos.two_tier(
        planes=2, leaves=2, spines=1, hosts_per_leaf=1, rate="40 Mb/s", delay="0.5 ms"
    )
    job = ln.ModelJob(
        size="200 kB", compute="20 ms", buckets=4, iterations=8, jitter=0.2, transport=transport
    )
    live, virtual = (
        Lab("model", clock=clock, seed=3, directory=tmp_path / clock).run(fabric, job)
        for clock in ("live", "virtual")
    )
    assert live["errors"] == 0 and live.data.ended == "finished", live.data.errors
    assert live.data.fidelity.notes["given"] > 500 and live.data.fidelity.unexplained == 0
    assert len(live.data.iterations) == 8
    assert live["before.iteration_s"] == pytest.approx(virtual["before.iteration_s"], rel=0.1)


def test_xdp_switches_sum_its_buckets(tmp_path):
    fabric = ln.star(hosts=3, rate="40 Mb/s", delay="0.5 ms")
    fabric.add_link(
        fabric.add_host("ps", role="server"), "p0.leaf0", rate="40 Mb/s", delay="0.5 ms"
    )
    fabric.program("*", "aggregate", policy="esa")
    job = ln.ModelJob(
        size="200 kB", compute="20 ms", buckets=4, iterations=8, jitter=0.2, allreduce="ina"
    )
    live, virtual = (
        Lab("model", clock=clock, seed=3, directory=tmp_path / clock).run(fabric, job, payload=True)
        for clock in ("live", "virtual")
    )
    for r in (live, virtual):
        assert r["errors"] == 0 and r.data.wrong == 0 and len(r.data.iterations) == 8
    assert live.switch("p0.leaf0").counters["complete"] > 8 * 200
    assert live["before.iteration_s"] == pytest.approx(virtual["before.iteration_s"], rel=0.1)
