"""Series of what senders hold on the live clock, read beside the engine's loop."""

import pytest

import loomnet as ln
from loomnet.labs.lab import Lab


@pytest.mark.parametrize("transport", ["mrc", "roce"])
def test_a_live_run_keeps_what_it_is_asked_for(uses_machine, tmp_path, transport):
    made = ln.clos.two_tier(
        planes=1, leaves=2, spines=1, hosts_per_leaf=1, rate="40 Mb/s", delay="0.5 ms"
    )
    r = Lab("observed", clock="live", directory=tmp_path / "run").run(
        made, ln.AllReduce("200 kB", 5, transport), sample="10 ms", observe=["acked", "in_flight"]
    )
    assert r["errors"] == 0 and r.data.fidelity.unexplained == 0
    table = r.series("acked", where="h0->h1*")
    assert len(table) > 5
    values = table.column("value")
    assert values == sorted(values) and values[-1] > 10**5
    assert (tmp_path / "run" / "observed.csv").exists()


def test_a_live_run_draws_its_links_and_its_fault(uses_machine, tmp_path):
    made = ln.clos.two_tier(
        planes=2, leaves=2, spines=1, hosts_per_leaf=1, rate="20 Mb/s", delay="0.5 ms"
    )
    fault = ln.down("h0--p0.leaf0", at=ln.step(6), duration=ln.iterations(6), phase="down")
    r = Lab("pictures", clock="live", directory=tmp_path / "run").run(
        made, ln.AllReduce("200 kB", 20), [fault], sample="20 ms", links=["p0.leaf0->h0"]
    )
    use = r.series("link_use").column("value")
    down = next(phase for phase in r.phases if phase.name == "down")
    dead = [
        row["value"]
        for row in r.series("link_use")
        if down.start_ps / 1e12 + 0.06 < row["time"] < down.end_ps / 1e12 - 0.02
    ]
    assert max(use) > 0.5 and dead and max(dead) < 0.1
    goodput, iterations = r.plot().axes
    assert goodput.get_ylabel() == "mrc\nsum of 2 hosts\n(Mb/s)"
    assert iterations.get_ylabel() == "iteration time (ms)"
    assert [text.get_text() for text in goodput.texts] == ["fault: down"]
    use, queues, *bars = r.plot("links").axes
    assert len(use.collections) == len(queues.collections) == 1 and len(bars) == 2
