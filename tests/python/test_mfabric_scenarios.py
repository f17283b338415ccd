"""Scenarios of MixNet: which of their bars hold, and that those which do not say why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from scenario_lib import lib

import loomnet as ln
from loomnet.systems import mixnet

FOLDER = Path(__file__).parents[2] / "scenarios" / "mfabric"


def run(name: str, tmp_path: Path, **values) -> ln.Report:
    return ln.load(FOLDER / f"{name}.py").run(directory=tmp_path / "run", **values)


def test_one_all_to_all_takes_the_time_of_the_closed_forms(tmp_path):
    report = run("fluid_times", tmp_path)
    assert len(report.checks) == 44
    assert [check.name for check in report.checks if not check.ok] == []


def test_a_wrong_rate_is_seen(tmp_path, monkeypatch):
    scenario = ln.load(FOLDER / "fluid_times.py")
    compared = scenario.function.__globals__["mfabric"].compared

    def slower(name, **values):
        fabric = {"rate": "390 Gb/s"} if name == "eps_only" else {}
        return compared(name, **(values | {"fabric": values["fabric"] | fabric}))

    monkeypatch.setitem(
        scenario.function.__globals__,
        "mfabric",
        type(
            "Slower",
            (),
            {**vars(scenario.function.__globals__["mfabric"]), "compared": staticmethod(slower)},
        ),
    )
    report = scenario.run(directory=tmp_path / "run")
    assert [check.name for check in report.checks if not check.ok] == ["A6-GV1-without-circuits"]


def test_published_iteration_times_of_the_first_point(tmp_path):
    report = run("headline", tmp_path, points="S1", only_graded=True)
    checks = {check.name: check for check in report.checks}
    assert checks["S1-rail"].ok
    # The published ratio has no room for 25 ms in every layer; with 25 us, or once, it is near.
    assert not checks["S1"].ok and "with 25 us the ratio is 1.1" in str(checks["S1"].reason)
    assert checks["S1-25us"].ok and checks["S1-iteration"].ok
    for delay in ("", "-25us", "-iteration"):
        assert checks[f"S1{delay}"].published == pytest.approx(1.454 / 1.374)
    rows = {row.name: row.value for row in report.rows}
    # 7 layers x 8 micro-batches of a stage, and the stages that wait for one another.
    assert 56 * 0.025 < rows["S1-exposed"] == pytest.approx(2.3 * 56 * 0.025, rel=0.1)
    assert rows["near-row_sum"] == 0 and rows["near-row_sum-25us"] == 1
    assert (tmp_path / "run" / "headline.png").stat().st_size > 10_000


def test_a_constant_that_no_gpu_has_carries_no_bar():
    point_of = ln.load(FOLDER / "headline.py").function.__globals__["Point"]
    kinds = {}

    class Lab:
        def check(self, name, *_, **__):
            kinds[name] = "check"

        def metric(self, name, *_, **__):
            kinds[name] = "figure"

    [point] = [each for each in ln.cost.TIMES if each.name == "S13"]
    for scale in ("row_sum", "simulator"):
        point_of(Lab(), point, scale).bar("-25us", 1.0, 1.2, "why")
    assert kinds == {"S13-25us": "figure", "S13-simulator-25us": "check"}


def test_a_models_constant_is_what_is_fitted(tmp_path):
    report = run("constants", tmp_path, models="mixtral_8x22b")
    assert verdicts(report) == {"mixtral_8x22b.row_sum-is-its-fit": True}


def test_a_fit_finds_the_constant_that_made_the_times():
    """A straight line through two constants' times is fitted; what is added to all times by links
    of other rates is found again."""
    mfabric = lib("mfabric")
    published = [1.4, 1.2, 1.1, 1.05]

    def times_at(ms):
        return [7 * (3.0 * ms + 100 * share) for share in (2.0, 1.0, 0.5, 0.25)]

    exact = [time / times_at(50)[0] for time in times_at(50)]
    found = mfabric.fitted(times_at, exact, 30.0)
    assert found.compute_ms == pytest.approx(50, rel=1e-3) and found.apart < 1e-4
    off = mfabric.fitted(times_at, published, 30.0)
    best = min(
        (mfabric.fitted(times_at, published, start).compute_ms for start in (60, 200)),
        key=lambda ms: abs(ms - off.compute_ms),
    )
    assert off.compute_ms == pytest.approx(best, rel=1e-3) and 0 < off.apart < 0.1
    asks = {
        model: mfabric.operations_per_second(ln.MoeJob(model)) / 1e12
        for model in mfabric.MODELS.values()
    }
    assert asks["qwen_moe"] > 1800 > mfabric.PEAK / 1e12 > asks["llama_moe"] > 700
    assert asks["mixtral_8x22b"] == pytest.approx(100, rel=0.01)


def verdicts(report: ln.Report) -> dict[str, bool]:
    return {check.name: check.ok for check in report.checks}


@pytest.mark.in_turns
def test_flows_and_packets_agree_on_a_region(tmp_path):
    report = run(
        "modes",
        tmp_path,
        fabrics="mixnet,topoopt",
        rates="800 Gb/s",
        bars="",
        layers=1,
        prototypes="",
    )
    found = verdicts(report)
    assert {"agree-mixnet.800Gbs", "agree-topoopt.800Gbs"} <= found.keys()
    assert all(found.values())


def test_the_prototype_waits_for_its_panel(tmp_path):
    report = run("modes", tmp_path, fabrics="", rates="", bars="", prototypes="fluid")
    [check] = [check for check in report.checks if check.name == "P1-fluid"]
    assert check.ok or "42 ms" in str(check.reason)


def test_what_panels_and_controllers_do(tmp_path):
    found = verdicts(run("panel", tmp_path, iterations=5, packets=3, draws=500))
    for bar in (
        "E1-sim25",
        "E2-polatis",
        "E3-down",
        "E4-dark-together",
        "E6-half-circuit",
        "E9-apart",
        "E10-packets-lost",
        "E10-fluid-nothing-held",
        "P4",
        "P3-mean",
    ):
        assert found[bar], bar
    assert [name for name, ok in found.items() if not ok] == []


@pytest.mark.in_turns
def test_failed_parts_cost_little(tmp_path):
    report = run("failures", tmp_path, seeds=1, delays="-25us")
    found = verdicts(report)
    assert found["X2-25us"] and found["X2-25us-max"] and found["X3-above-X1-25us-max"]
    rows = {row.name: row.value for row in report.rows}
    # Equal pairs: by number the last server is left without a circuit.
    assert rows["R1-25us-max-to-fattree"] < 0.8 * rows["R1-25us-to-fattree"]


def test_shares_of_traffic_and_time(tmp_path):
    report = run("shares", tmp_path, iterations=100)
    found = verdicts(report)
    assert found["F1-llama_moe"] and found["F2-qwen_moe-expert"] and found["F4-hottest"]
    # The compute constant is fitted to iteration times, and is not moved to meet these.
    assert not found["F3-8"] and not found["F1-mixtral_8x7b"]
    assert all(check.ok or check.reason for check in report.checks)


@pytest.mark.in_turns
def test_what_patching_during_training_is_worth(tmp_path):
    matrices = tmp_path / "gates"
    matrices.mkdir()
    for iteration in range(2):
        path = matrices / f"{iteration}.json"
        path.write_text(json.dumps(mixnet.PUBLISHED[:, :: 1 - 2 * iteration].tolist()))
    report = run(
        "decisive", tmp_path, iterations=2, layers=2, micro_batches=1, trace=matrices, seeds=2
    )
    assert all(verdicts(report).values())
    rows = {row.name: row.value for row in report.rows}
    assert rows["sparse.mixnet.share"] < rows["sparse.static.share"]
    assert rows["recorded.mixnet.skip"] > 0
    assert rows["sparse.mixnet.share.most"] > rows["sparse.mixnet.share"]  # seeds draw demands
    assert (tmp_path / "run" / "decisive.png").stat().st_size > 10_000


def test_figures_of_circuits(tmp_path):
    report = run("figures", tmp_path)
    assert all(verdicts(report).values())
    for name in ("circuits.png", "strip.png"):
        assert (tmp_path / "run" / name).stat().st_size > 10_000
    drawn = (tmp_path / "run" / "panel.svg").read_text()
    assert drawn.startswith("<svg") and "48 ports, " in drawn and drawn.count("<circle") == 8
    assert drawn.count("<line") >= 20


def test_groups_that_have_ended_are_not_run_again(tmp_path, capsys):
    keep = tmp_path / "keep"
    whole = run("all", tmp_path, keep=keep, only="cost")
    assert "cost: took" in capsys.readouterr().out
    again = ln.load(FOLDER / "all.py").run(directory=tmp_path / "again", keep=keep, only="cost")
    assert "cost: kept from an earlier start" in capsys.readouterr().out
    assert verdicts(again) == verdicts(whole) and "cost.C1" in verdicts(again)
    assert "C2-400G" in (tmp_path / "again" / "bars.txt").read_text()
    (keep / "cost.json").write_text("{")  # cut off
    ln.load(FOLDER / "all.py").run(directory=tmp_path / "third", keep=keep, only="cost")
    assert "cost: took" in capsys.readouterr().out


def test_control_interfaces(tmp_path):
    report = run("control", tmp_path)
    assert {name.partition("-")[0] for name in verdicts(report)} >= {"E6", "E7", "E8"}
    assert all(verdicts(report).values())
