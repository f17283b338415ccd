"""Astraea's scenarios: a run of the lab is measured as a link that policies are scored on, to the
byte; bars hold for the rule and fail for a control that does nothing; times that do not end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scenario_lib import lib

import loomnet as ln
from loomnet.labs.lab import Lab
from loomnet.learning import Bottleneck, Flow
from loomnet.learning.measured import series
from loomnet.learning.scores import BIN, STEP_S, Series

astraea = lib("astraea")
FOLDER = Path(__file__).parents[2] / "scenarios" / "astraea"
TEACHER = {"cc": "astraea", "policy": "teacher"}


def go(tmp_path: Path, name: str, **values: Any) -> Any:
    return ln.load(FOLDER / f"{name}.py").run(seed=1, directory=tmp_path, **values)


def failed(report: Any) -> set[str]:
    return {check.name for check in report.checks if not check.ok}


@pytest.mark.parametrize("cc", [TEACHER, {"cc": "cubic"}])
def test_a_run_of_the_lab_is_measured_as_a_link_of_a_grid(tmp_path: Path, cc: dict) -> None:
    link = Bottleneck(
        rate="40 Mb/s",
        rtt="20 ms",
        flows=[Flow("0 s", "4 s"), Flow("1 s"), Flow("2.5 s", rtt="30 ms")],
        length="6 s",
        changes=[("3 s", "30 Mb/s")],
        loss=0.001,
    )
    played = astraea.play(Lab("x", directory=tmp_path), link, cc, "run", 3)
    seen, wanted = played.series, series(link, cc, 3)
    for name in ("share", "there", "stretch"):
        assert np.array_equal(getattr(seen, name), getattr(wanted, name), equal_nan=True), name
    assert seen.share.sum() > 0.8 * seen.there.any(1).sum()
    # A run goes on until the last packet has come.
    assert 0 <= seen.arrived - wanted.arrived < 400
    assert played.result["errors"] == 0


def test_one_flow_of_another_control_among_others(tmp_path: Path) -> None:
    """The others alone are the same run as all of them, where the one has their control."""
    link = astraea.stair(3, ln.Time("1 s"), length="5 s", rate="30 Mb/s")
    lab = Lab("x", directory=tmp_path)
    alike = astraea.among(lab, link, {"cc": "cubic"}, {"cc": "cubic"}, "alike")
    whole = astraea.play(lab, link, {"cc": "cubic"}, "whole")
    assert np.array_equal(alike.series.share, whole.series.share)
    mixed = astraea.among(lab, link, TEACHER, {"cc": "cubic"}, "mixed")
    assert not np.array_equal(mixed.series.share, whole.series.share)


def stepped(rows: list[tuple[float, float]]) -> Series:
    """Two flows that are always there, a row for each bin of 0.5 s."""
    share = np.repeat(np.array(rows), BIN, axis=0)
    there = np.ones(share.shape, bool)
    there[: 2 * BIN, 1] = False
    return Series(share, there, np.full(share.shape, np.nan), 1, 0)


def test_times_that_do_not_end_are_censored() -> None:
    assert astraea.median([1.0, 2.0, 3.0]) == 2.0
    assert astraea.median([1.0, 2.0], [3.0, 3.0, 3.0]) is None
    # Of two that are left at 2 s, one ends: 0.75, then 0.375.
    assert astraea.median([1.0, 2.0], [1.5, 4.0]) == 2.0
    assert astraea.median([], [1.0]) is None and astraea.median([]) is None

    alone = [(1.0, 0.0)] * 2
    shares = stepped(alone + [(0.9, 0.1)] * 4 + [(0.5, 0.5)] * 16)
    found = astraea.settled([shares])
    # The first of the windows of 0.5 s whose means are within a quarter of one half.
    assert found.median == pytest.approx(2.0 - 0.5 + 7 * STEP_S, abs=STEP_S)
    assert (found.never, found.count) == (0, 1)
    assert astraea.settled([shares], who="left").count == 0, "none left"
    never = astraea.settled([stepped(alone + [(0.9, 0.1)] * 20)])
    assert (never.median, never.never) == (None, 1.0)
    assert astraea.settled([stepped(alone + [(0.9, 0.1)] * 6)]).count == 0, "shorter than 5 s"


def test_bars_of_the_stair_hold_for_the_rule(tmp_path: Path) -> None:
    report = go(tmp_path, "stair3", schemes="teacher, cubic", apart="8 s", rate="60 Mb/s")
    assert {
        "O1-contested_jain",
        "P3-steady_jain",
        "P2-most",
        "P2-cubic",
        "P4-utilisation",
    } <= {check.name for check in report.checks}
    assert not {name for name in failed(report) if name.startswith(("O1", "P3", "P4"))}
    # Where half of CUBIC's times do not end there is no ratio of them.
    (row,) = [row for row in report.rows if row.dotted == "cubic.P1_ratio"]
    assert row.value is None and "cubic never settles" in row.reason
    assert (tmp_path / "throughput.png").stat().st_size > 10_000
    assert (tmp_path / "efficiency.png").stat().st_size > 10_000


def test_bars_of_the_stair_fail_for_one_that_does_nothing(tmp_path: Path) -> None:
    """The placebo: windows as the start has left them, which deviate least of all."""
    report = go(tmp_path, "stair3", schemes="hold,cubic", apart="8 s", rate="60 Mb/s")
    headlines = {"P1-cubic", "P2-cubic", "P2-most", "P3-contested_jain", "P4-utilisation"}
    assert {"O1-contested_jain", "R1-contested_jain", *headlines} <= failed(report)


def test_a_bar_by_its_name(tmp_path: Path) -> None:
    report = go(tmp_path, "bars", only="R14", draws=1)
    assert {check.name for check in report.checks} == {
        f"R14-{figure}" for figure in ("utilisation", "stretch", "loss")
    }
    assert failed(report) <= {"R14-loss"}  # its start finds the queue full before it can know
    for given, said in (
        ({"only": "R99"}, "only: no bar 'R99'"),
        ({"scheme": "cubik"}, "schemes: no 'cubik'"),
        ({"scheme": "vegas,copa"}, "scheme: 'vegas,copa': give one"),
        ({"scheme": "vegas", "only": "R2"}, "only: no bar 'R2'"),
    ):
        with pytest.raises(ln.UsageError, match=said):
            go(tmp_path / "no", "bars", **given)


def test_a_link_whose_round_trip_changes(tmp_path: Path) -> None:
    """A flow that does nothing has the round trips that were drawn, and a stretch of 1."""
    within = astraea.Within((40, 80), (10, 60))
    drawn = astraea.changing(within, 4, length_s=30)
    assert len(drawn.rtts) == 3 and all(10 <= each <= 60 for each in drawn.rtts)
    held = {"cc": "astraea", "policy": "hold", "startup": "none"}
    lab = Lab("x", directory=tmp_path)
    played = astraea.play(lab, drawn.link, held, "run", 1, drawn.faults)
    assert drawn.stretch(played.series) == pytest.approx(1, abs=0.03)
    part = played.series.stretch[:, 0].reshape(3, -1)[:, 100:].mean(1)
    assert part == pytest.approx(np.array(drawn.rtts) / min(drawn.rtts), rel=0.05)


def test_one_flow_where_links_change(tmp_path: Path) -> None:
    report = go(
        tmp_path,
        "responsiveness",
        schemes="teacher,cubic",
        cubic="2",
        beyond=False,
        draws=1,
        length=20,
    )
    figures = {row.dotted: row.value for row in report.rows}
    for scheme in ("teacher", "cubic"):
        assert 0.3 < figures[f"in_range.{scheme}.alone.utilisation"] <= 1
        assert 0 < figures[f"in_range.{scheme}.2cubic.equal_share"] < 3
    assert (tmp_path / "responsiveness_in_range.png").stat().st_size > 10_000
    with pytest.raises(ln.UsageError, match="cubic: 'two' is no list of numbers"):
        go(tmp_path / "no", "responsiveness", cubic="two")
