"""scenarios/ina/ddp.py on the virtual clock, in small."""

import pytest
import quick_ranks

import loomnet as ln

pytest.importorskip("torch")


@pytest.mark.parametrize("values", [{"policy": "esa", "levels": 2, "ranks": 4}])
def test_ddp_through_switches_that_sum(tmp_path, values):
    ddp = quick_ranks.scenario("ina/ddp.py", "train_digits.py", tmp_path)
    report = ln.load(ddp).run(
        directory=tmp_path / "run", steps=3, rate="1 Gb/s", delay="20 us", **values
    )
    assert report.ok, report.failed
    figures = {row["name"]: row["value"] for row in report.metrics}
    assert 1.2 < figures["speed_up_over_ring"] < 1.7
    assert 0.5 < figures["summed_in_switches"] <= 1
