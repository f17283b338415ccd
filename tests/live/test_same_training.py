"""The same training on both clocks: eight ranks on eight planes compute the same to the bit over
real packets, at rates that a small machine affords, and on the virtual clock at 400 Gb/s."""

from pathlib import Path

import pytest

import loomnet as ln

pytest.importorskip("torch")
SCENARIO = Path(__file__).parents[2] / "scenarios" / "ddp_eight_planes.py"
LIVE = {"rate": "12 Mb/s", "delay": "0.5 ms"}  # 138,000 switch passes a second
STEPS = 3  # the fault begins after the second


@pytest.mark.soak  # test_several_jobs_live.py holds losses of both clocks together at two ranks
@pytest.mark.timeout(400)
def test_losses_are_equal_to_the_bit_on_both_clocks(uses_machine, tmp_path):
    curves = {}
    for clock, values in (("live", LIVE), ("virtual", {})):
        report = ln.load(SCENARIO).run(
            seed=1, clock=clock, directory=tmp_path / clock, steps=STEPS, **values
        )
        # Whether a busy machine kept up is not judged here: lateness changes times, never bytes.
        assert all(check.ok for check in report.checks), report.failed
        figures = {metric.name: metric.value for metric in report.rows}
        curves[clock] = [figures[f"step_{number}_loss"] for number in range(1, STEPS + 1)]
        (result,) = report.results.values()
        assert result.data.ended == "finished", result.data.reason
        assert result.data.fidelity.unexplained == 0
    assert curves["live"] == curves["virtual"]
    assert len(set(curves["live"])) == STEPS
