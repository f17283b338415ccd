"""scenarios/ina/ddp.py on the virtual clock, in small."""

from pathlib import Path

import pytest

import loomnet as ln

pytest.importorskip("torch")
DDP = Path(__file__).parents[2] / "scenarios" / "ina" / "ddp.py"


@pytest.mark.in_turns
@pytest.mark.parametrize("values", [{"policy": "esa", "levels": 2, "ranks": 4}])
def test_ddp_through_switches_that_sum(tmp_path, values):
    report = ln.load(DDP).run(directory=tmp_path, steps=3, rate="1 Gb/s", delay="20 us", **values)
    assert report.ok, report.failed
    figures = {row["name"]: row["value"] for row in report.metrics}
    assert 1.2 < figures["speed_up_over_ring"] < 1.7
    assert 0.5 < figures["summed_in_switches"] <= 1
