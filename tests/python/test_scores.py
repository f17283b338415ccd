"""Scores of flows that share a link, against values computed by hand, and grids of links."""

import contextlib
import fcntl
import subprocess
import sys
import time

import numpy as np
import pytest

pytest.importorskip("loomnet._core")

from loomnet.base.errors import UsageError
from loomnet.learning import Bottleneck, Curriculum, Flow, Point, Ranges, Reward, Stage
from loomnet.learning.grid import mean_score, score, sealed_grid, selection_grid, subset, summary
from loomnet.learning.measured import measured, series
from loomnet.learning.scores import BIN, Series, jain, scores, segments, settlings


def made(share, there=None, stretch=1.0, arrived=1000, dropped=0):
    """A series of rows of shares, one for each bin."""
    share = np.repeat(np.array(share, float), BIN, 0)
    there = share > 0 if there is None else np.repeat(np.array(there, bool), BIN, 0)
    return Series(share, there, np.full(share.shape, float(stretch)), arrived, dropped)


def test_jain_by_hand():
    assert jain(np.array([0.5, 0.5])) == 1
    assert jain(np.array([1.0, 0.0])) == 0.5
    assert jain(np.array([0.6, 0.3])) == pytest.approx(0.9**2 / (2 * 0.45))
    assert jain(np.zeros(3)) == 1


def test_scores_by_hand():
    """Alone for two bins with the whole link, then beside another for four: 0.75 to 0.25, then
    equal."""
    rows = [[1, 0], [1, 0], [0.75, 0.25], [0.75, 0.25], [0.5, 0.5], [0.5, 0.4]]
    found = scores(made(rows, stretch=1.4, arrived=2000, dropped=10))
    uneven, last = 1 / (2 * (0.75**2 + 0.25**2)), 0.9**2 / (2 * (0.5**2 + 0.4**2))
    assert found.contested_jain == pytest.approx((2 * uneven + 1 + last) / 4)
    assert found.steady_jain == pytest.approx(0.95**2 / (2 * (0.5**2 + 0.45**2)))
    assert found.utilisation == pytest.approx((5 + 0.9) / 6)
    assert found.stretch == pytest.approx(1.4) and found.loss == 0.005
    assert found.least_to_most == pytest.approx((1 / 3 + 1 / 3 + 1 + 0.8) / 4)
    # Of the first time's half there is one bin only; of the second's the flows have 0 and 0.05.
    assert found.deviation == pytest.approx(0.025)
    assert found.score == pytest.approx(
        found.utilisation * found.contested_jain - 0.1 * 0.4 - 10 * 0.005
    )
    assert found.row()["score"] == found.score and len(found.row()) == 10
    assert found.converged_s is None and found.unsettled == 0, "no time of 5 s"


def test_a_bin_in_which_a_flow_comes_is_not_contested():
    series = made([[1, 0], [0.5, 0.5], [0.5, 0.5]])
    series.there[: BIN + 3, 1] = False
    assert scores(series).contested_jain == 1
    series.share[BIN : BIN + 3] = [1, 0]
    assert scores(series).contested_jain == 1
    assert list(segments(series.there)) == [(0, 13), (13, 30)]


def test_one_flow_is_fair():
    found = scores(made([[0.8]] * 4, stretch=np.nan))
    assert found.contested_jain == found.steady_jain == 1 and found.stretch == 1
    assert found.score == pytest.approx(0.8)
    with pytest.raises(ValueError, match="5 steps, and a bin has 10"):
        scores(Series(np.ones((5, 1)), np.ones((5, 1), bool), np.ones((5, 1)), 1, 0))


def test_convergence_by_hand():
    """A second flow comes at 1 s; both are near their shares from 2.5 s on, by windows of 0.5 s
    whose mean is within 25 % of a half."""
    rows = [[1, 0]] * 2 + [[1, 1e-9]] * 3 + [[0.5, 0.5]] * 12
    alone, both = settlings(made(rows))
    assert alone.lasts == 1 and alone.all is None
    # A window of ten steps is near once three of four are: eight of the new ones, two of the old.
    assert both.lasts == 7.5 and both.all == pytest.approx(1.5 - 0.1)
    assert both.entering == both.all
    assert settlings(made(rows), band=0.1)[1].all == pytest.approx(1.5)
    assert settlings(made(rows[:-5]))[1].all is None, "not for 5 s"
    found = scores(made(rows))
    assert found.converged_s == pytest.approx(1.4) and found.unsettled == 0
    wild = [[0.9, 0.1] if k % 2 else [0.1, 0.9] for k in range(20)]
    assert scores(made(wild)).unsettled == 1 and scores(made(wild)).converged_s is None


def test_what_flows_do_is_measured_alike_for_a_rule_and_a_policy():
    link = Bottleneck(
        rate="20 Mb/s",
        rtt="20 ms",
        flows=[Flow(), Flow("2 s", "4 s")],
        length="8 s",
        tcp={"interval_us": 20_000},
    )
    for control in ("cubic", {"cc": "astraea", "policy": "teacher"}):
        found = series(link, control)
        assert found.share.shape == (160, 2)
        assert found.there.sum(0).tolist() == [160, 80] and found.there[40:120, 1].all()
        total = found.share[40:].sum(1)
        assert 0.9 < total.mean() <= 1.001 and total.max() < 1.1
        assert found.share[:40, 1].sum() < 0.01 and found.share[130:, 1].sum() < 0.01
        known = found.stretch[np.isfinite(found.stretch)]
        assert 1 <= known.min() and known.max() < 2.5, "a queue of one bandwidth-delay product"
        assert found.arrived > 8 * 20e6 / 8 / 1514 * 0.9
    queue = [measured(link, each).stretch for each in ("cubic", "vegas")]
    assert queue[0] > queue[1] + 0.2


def test_a_rate_that_changes_is_the_one_that_is_used():
    link = Bottleneck(
        rate="40 Mb/s", rtt="10 ms", flows=[Flow()], length="4 s", changes=[("2 s", "20 Mb/s")]
    )
    found = series(link, "cubic").share[:, 0]
    assert found[20:38].mean() == pytest.approx(1, abs=0.03)
    assert found[50:].mean() == pytest.approx(1, abs=0.03)


def test_the_grids():
    selection, sealed = selection_grid(), sealed_grid()
    assert len(selection) == 180 and len(sealed) == 425 and not set(selection) & set(sealed)
    left = [str(each) for each in selection if not each.counts]
    assert left == ["20Mbps-10ms-0.5bdp-10flows", "20Mbps-10ms-1bdp-10flows"]
    part = subset(selection)
    assert len(part) == 36 and set(part) < set(selection)
    assert len({(each.rtt_ms, each.buffer, each.flows) for each in part}) == 36
    rates = [each.rate_mbps for each in part]
    assert all(7 <= rates.count(rate) <= 8 for rate in (20, 50, 100, 200, 400))
    # None of what the selection grid has is in the sealed one.
    for name in ("rate_mbps", "rtt_ms", "buffer", "flows"):
        assert not {getattr(each, name) for each in selection} & {
            getattr(each, name) for each in sealed
        }
    within = [each for each in sealed if Ranges().holds(each)]
    assert 0 < len(within) < len(sealed)
    assert not any(each.rtt_ms == 250 or each.flows == 20 for each in within)
    assert {each.rate_mbps for each in within if each.changing} == {33, 75, 150}


def test_a_point_is_a_link_whose_flows_come_and_go():
    link = Point(100, 30, 0.5, 3).bottleneck()
    assert [each.start for each in link.flows] == ["0 s", "3 s", "6 s"]
    assert [each.lifetime for each in link.flows] == ["20 s", None, None]
    assert link.buffer_bytes == 187_500 and link.length == "30 s"
    assert len(Point(33, 7, 0.8, 4, changing=True).bottleneck().changes) == 9
    assert Point(10, 10, 1, 1).bottleneck().flows[0].lifetime is None


def test_points_that_no_control_can_do_well_at_do_not_count():
    good, bad = Point(20, 10, 4, 2), Point(20, 10, 0.5, 10)
    found = {
        good: scores(made([[0.5, 0.5]] * 4)),
        bad: scores(made([[0.1, 0.1]] * 4)),
    }
    assert mean_score(found) == found[good].score == summary(found)["score"] == 1
    assert summary(found)["least_contested_jain"] == 1


def test_processes_that_score_end_with_one_that_is_killed(tmp_path):
    """They had waited for points for ever, with the lock of the training's folder."""
    lock = tmp_path / "lock"
    text = f"""
import fcntl
from loomnet.learning import Point
from loomnet.learning.grid import score
file = open({str(lock)!r}, "w")
fcntl.flock(file, fcntl.LOCK_EX)
points = [Point(20, 10, 1, flows) for flows in (2, 3, 4, 5, 6, 7, 8, 9)] * 20
for _ in score(points, "cubic", jobs=2):
    print("scored", flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"scored\n"
        process.kill()
    with lock.open("w") as file:
        for _ in range(200):
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            time.sleep(0.1)
    pytest.fail("a process still has the lock")


def test_sockets_do_not_bound_what_a_control_sends():
    """With 4 MB under way one flow of this path has 0.43 of it, whatever its control is."""
    link = Bottleneck("300 Mb/s", "250 ms", 0.8, [Flow()], "12 s")
    assert measured(link, {"cc": "astraea", "policy": "teacher"}).utilisation > 0.6


def test_copa_leaves_a_buffer_that_its_slow_start_has_filled():
    """While losses are repaired nothing is acknowledged in order: with windows counted by that its
    velocity stayed at 1, and a fifth of all packets was lost for good."""
    found = dict(score([Point(100, 100, 0.5, 2)], "copa"))
    assert next(iter(found.values())).loss < 0.04


def test_a_curriculum_that_cannot_be_says_why():
    def draw(random):
        return Bottleneck()

    stage, point = Stage("S", draw, 10), Point(20, 10, 1, 2)
    with pytest.raises(UsageError, match="no score 'jian'; there are contested_jain"):
        Stage("S", draw, 10, {"jian": 0.9})
    with pytest.raises(UsageError, match="two have one name: S, S"):
        Curriculum([stage, stage], 2, watched=[point], selection=[point])
    with pytest.raises(UsageError, match="20Mbps-10ms-1bdp-2flows is a point that chooses, too"):
        Curriculum([stage], 2, watched=[point], selection=[point], sealed=[point])
    with pytest.raises(UsageError, match="give a stage, watched points and selection points"):
        Curriculum([stage], 2)
    nowhere = Point(1, 1, 0.1, 9)
    with pytest.raises(UsageError, match=r"Curriculum.watched: on no point do the least windows"):
        Curriculum([stage], 2, watched=[nowhere], selection=[point])
    with pytest.raises(UsageError, match=r"Curriculum.selection: on no point"):
        Curriculum([stage], 2, watched=[point], selection=[nowhere])
    with pytest.raises(UsageError, match=r"Curriculum.stages: a int among them; give Stages"):
        Curriculum([1], 2, watched=[point], selection=[point])
    with pytest.raises(UsageError, match="flows: at most 1024"):
        Curriculum([stage], 10**9, watched=[point], selection=[point])
    for name in ("beside", "judged"):
        with pytest.raises(UsageError, match=rf"Curriculum.{name}: .*no control cubik"):
            Curriculum([stage], 2, watched=[point], selection=[point], **{name: ["cubik"]})


def test_points_and_rewards_are_of_numbers():
    for values, field in (
        ((-5, 10, 1, 2), "rate_mbps"),
        ((20, float("nan"), 1, 2), "rtt_ms"),
        ((20, 10, 0, 2), "buffer"),
        ((20, 10, 1, 2.5), "flows"),
        ((20, 10, 1, 0), "flows"),
    ):
        with pytest.raises(UsageError, match=rf"Point.{field}: "):
            Point(*values)
    assert Point(np.int64(20), np.float64(10), 1, np.int64(2)).counts
    with pytest.raises(UsageError, match=r"Reward.loss: nan is not a finite number"):
        Reward(loss=float("nan"))
    assert Reward(latency_cap=None).latency_cap is None
