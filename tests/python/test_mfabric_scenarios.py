"""Scenarios of MixNet: which of their bars hold, and that those which do not say why."""

from __future__ import annotations

from pathlib import Path

import pytest

import loomnet as ln

FOLDER = Path(__file__).parents[2] / "scenarios" / "mfabric"


def run(name: str, tmp_path: Path, **values) -> ln.Report:
    return ln.load(FOLDER / f"{name}.py").run(directory=tmp_path / "run", **values)


def test_one_all_to_all_takes_the_time_of_the_closed_forms(tmp_path):
    report = run("fluid_times", tmp_path)
    assert len(report.checks) == 44
    assert [check.name for check in report.checks if not check.ok] == []


def test_a_wrong_rate_is_seen(tmp_path, monkeypatch):
    scenario = ln.load(FOLDER / "fluid_times.py")
    compared = scenario.function.__globals__["mixnet"].compared

    def slower(name, **values):
        fabric = {"rate": "390 Gb/s"} if name == "eps_only" else {}
        return compared(name, **(values | {"fabric": values["fabric"] | fabric}))

    monkeypatch.setitem(scenario.function.__globals__, "mixnet", type(
        "Slower", (), {**vars(scenario.function.__globals__["mixnet"]),
                       "compared": staticmethod(slower)}))
    report = scenario.run(directory=tmp_path / "run")
    assert [check.name for check in report.checks if not check.ok] == ["A6-GV1-without-circuits"]


def test_published_iteration_times_of_the_first_point(tmp_path):
    report = run("headline", tmp_path, points="S1")
    checks = {check.name: check for check in report.checks}
    assert checks["S1-rail"].ok
    # The published ratio has no room for 25 ms in every layer; without these it is near.
    assert not checks["S1"].ok and "without that the ratio is 1.1" in str(checks["S1"].reason)
    assert checks["S1"].published == pytest.approx(1.454 / 1.374)
    rows = {row.name: row.value for row in report.rows}
    assert rows["S1-exposed"] == pytest.approx(56 * 0.025, rel=0.25)  # 7 layers x 8 micro-batches
    assert rows["S1-without-exposed"] == pytest.approx(1.454 / 1.374, rel=0.1)
    assert (tmp_path / "run" / "headline.png").stat().st_size > 10_000
