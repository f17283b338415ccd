"""scenarios/symphony/ddp.py live, in small: real bytes of four ranks, marked on the way."""

from pathlib import Path

import pytest

import loomnet as ln

pytest.importorskip("torch")
DDP = Path(__file__).parents[2] / "scenarios" / "symphony" / "ddp.py"


@pytest.mark.timeout(300)
def test_real_bytes_of_ranks_are_marked_and_stay_as_they_are(uses_machine, tmp_path):
    # At a third of the scenario's dilation: for what is compared here the engine need not keep up.
    report = ln.load(DDP).run(
        clock="live", directory=tmp_path, steps=3, ranks=4, hidden=384, dilation=80
    )
    # Whether a busy machine kept up is not judged here: lateness changes times, never bytes.
    assert all(check.ok for check in report.checks if not check.name.startswith("kept-up"))
    for r in report.results.values():
        assert r.data.ended == "finished", r.data.reason
        assert r.data.fidelity.unexplained == 0
        assert {len(times) for times in r.ring_steps.completions().values()} == {3 + 3 * 6}
    assert sum(row.get("extra_marks", 0) for row in report.results["on"].data.totals.values()) > 0
