"""Live runs leave nothing in the process that ran them."""

from pathlib import Path

import pytest

import endings
import freed
import loomnet as ln

TCP = Path(__file__).parents[2] / "scenarios" / "tcp_two_flows.py"


@ln.scenario
def one(lab: ln.Lab, kind: str):
    fabric = ln.clos.two_tier(
        planes=1, leaves=1, spines=1, hosts_per_leaf=2, rate="20 Mb/s", delay="0.5 ms"
    )
    row = endings.Row(kind, "mid", "last", 2, "live")
    lab.run(
        fabric,
        ln.Permutation(size="10 kB")
        if kind == "flows"
        else ln.TorchJob(endings.SCRIPT, args=row.arguments(0.1), ranks=2),
    )


@pytest.mark.parametrize("kind", ["flows", "raise"])
def test_a_live_run_that_is_over_holds_nothing(uses_machine, tmp_path, kind):
    with freed.without_collector():
        report = one.run(clock="live", directory=tmp_path / "runs", kind=kind)
        (result,) = report.results.values()
    assert (result.data.ended == "finished") == (kind == "flows"), result.data.reason


def test_a_live_run_of_the_kernels_tcp_holds_nothing(uses_machine, tmp_path):
    with freed.without_collector():
        report = ln.load(TCP).run(
            clock="live", directory=tmp_path / "runs", size="10 MB", second="0.5 s"
        )
        (result,) = report.results.values()
    assert result.data.ended == "finished"
