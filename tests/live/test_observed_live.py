"""Series of what senders hold on the live clock, read beside the engine's loop."""

import pytest

import loomnet as ln
from loomnet.labs.lab import Lab


@pytest.mark.parametrize("transport", ["mrc", "roce"])
def test_a_live_run_keeps_what_it_is_asked_for(uses_machine, tmp_path, transport):
    made = ln.clos.two_tier(planes=1, leaves=2, spines=1, hosts_per_leaf=1, rate="40 Mb/s",
                            delay="0.5 ms")
    r = Lab("observed", clock="live", directory=tmp_path / "run").run(
        made, ln.AllReduce("200 kB", 5, transport), sample="10 ms", observe=["acked", "in_flight"])
    assert r["errors"] == 0 and r.data.fidelity.unexplained == 0
    table = r.series("acked", where="h0->h1*")
    assert len(table) > 5
    values = table.column("value")
    assert values == sorted(values) and values[-1] > 10**5
    assert (tmp_path / "run" / "observed.csv").exists()
