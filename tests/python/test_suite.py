"""loomnet/CC-v1: its links and its numbers do not move, and what they say of a control is true.

A test of this file that fails after a change of the engine, of a control or of the links says that
the numbers of CC-v1 have moved. Then either the change is undone, or there is a CC-v2."""

import hashlib
import math
import re
from importlib import resources

import numpy as np
import pages
import pytest

pytest.importorskip("loomnet._core")

from test_astraea import a_policy

from loomnet.base.errors import UsageError
from loomnet.learning import CC_V1, FEATURES, Bottleneck, Point, Ranges, evaluate
from loomnet.learning.cc_v1 import NEIGHBOURS, draw_one
from loomnet.learning.evaluation import (
    BASELINES,
    FILE,
    KEPT,
    Evaluation,
    Interval,
    baseline,
    baselines,
)
from loomnet.learning.grid import sealed_grid, selection_grid
from loomnet.learning.links import drawn

_core = pytest.importorskip("loomnet._core")

# Points of little work.
FEW = [Point(15, 22, 1.5, 1), Point(15, 8, 1.5, 2), Point(40, 22, 0.4, 4)]
CHANGING, BEYOND = Point(40, 22, 1.5, 2, changing=True), Point(6, 22, 1.5, 2)


def steady(inputs):
    """A rule in Python: eight packets of its own in the queue."""
    queued = 2 ** (8 * inputs[:, -len(FEATURES) :][:, FEATURES.index("queue")]) - 1
    return np.clip((8 - queued) / 8, -1, 1)


# --- what never moves -----------------------------------------------------------------------------
def test_the_links_are_those_of_version_1():
    assert CC_V1.name == "loomnet/CC-v1"
    assert CC_V1.digest_of_points() == (
        "88f5faf1f909ada27e6976cbd392035fef7dff2f664521e294fec1ec1834b22e"
    )
    assert CC_V1.digest_of_draws() == (
        "534521312acfb2ad3366ffb7877038921bd2793e777793f171645f8342cc53bb"
    )


def test_the_table_of_baselines_is_that_of_version_1():
    content = resources.files("loomnet.learning").joinpath(FILE).read_bytes()
    assert hashlib.sha256(content).hexdigest() == (
        "f4a5d4aeb8827c6a2112e34f73068a5ce1b74bb8acbfbfc820875a8e79fb1b09"
    )
    assert list(baselines()) == list(BASELINES)


@pytest.mark.parametrize("control", BASELINES)
def test_scores_are_those_of_version_1(control):
    points = [*FEW, CHANGING, BEYOND] if control in ("cubic", "vegas", "teacher") else FEW[:2]
    found = evaluate(control, points=points, jobs=1)
    expected = baseline(control)
    assert found.rows == {each: expected.rows[each] for each in points}


def test_the_score_of_a_function_is_that_of_version_1():
    """Which holds what a policy sees, when it is asked, and what its action does."""
    found = evaluate(steady, points=[*FEW[:2], CHANGING], jobs=1)
    assert [row["score"] for row in found.rows.values()] == [0.95061, -2.141315, 0.937214]


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("control", BASELINES)
def test_all_scores_are_those_of_version_1(control):
    assert evaluate(control).rows == baseline(control).rows


# --- its links ------------------------------------------------------------------------------------
def test_its_points():
    assert (len(CC_V1.points), len(CC_V1.scored), len(CC_V1.beyond)) == (162, 142, 20)
    assert len(set(CC_V1.points)) == 162 and all(each.counts for each in CC_V1.points)
    assert sum(each.changing for each in CC_V1.scored) == 24
    chosen_by = {*selection_grid(), *sealed_grid()}
    for name in ("rate_mbps", "rtt_ms", "buffer"):
        seen = {getattr(each, name) for each in chosen_by}
        assert seen.isdisjoint(getattr(each, name) for each in CC_V1.scored if not each.changing)
    assert chosen_by.isdisjoint(CC_V1.points)


def test_links_to_learn_on_are_within_the_ranges():
    random, kinds = np.random.default_rng(3), set()
    for _ in range(300):
        link = CC_V1.draw(random)
        point = Point(
            float(link.rate.split()[0]), float(link.rtt.split()[0]), link.buffer, len(link.flows)
        )
        assert CC_V1.ranges.holds(point) and all(flow.cc is None for flow in link.flows)
        kinds |= {name for name in ("loss", "changes") if getattr(link, name)}
        kinds |= {"bunching"} if link.bunching > 1 else set()
    assert kinds == {"loss", "changes", "bunching"}
    first, *others = draw_one(np.random.default_rng(9)).flows
    assert first.cc is None and others and {each.cc for each in others} <= set(NEIGHBOURS)


def test_a_flow_has_half_of_the_links_round_trip_at_least():
    """Also where rounding to microseconds goes down: of 7.003 ms half is 3.5015."""

    class Least(np.random.Generator):
        def uniform(self, low=0.0, high=1.0, size=None):
            return low

    link = drawn(Ranges(rtt_ms=(7.003, 7.003), flows=(3, 3)), mixed=1)(Least(np.random.PCG64(1)))
    assert {flow.rtt for flow in link.flows} == {"3.502 ms"}


@pytest.mark.filterwarnings("error")
def test_gymnasium_makes_it_by_name():
    gymnasium = pytest.importorskip("gymnasium")
    from gymnasium.utils.env_checker import check_env

    env = gymnasium.make("loomnet/CC-v1")
    check_env(env.unwrapped, skip_render_check=True)
    one, other = (env.reset(seed=seed)[0] for seed in (1, 2))
    assert not np.array_equal(one, other)
    links = gymnasium.make_vec("loomnet/CC-v1", num_envs=2, autoreset_mode="SameStep")
    seen, _ = links.reset(seed=1)
    assert seen.shape == (2, 10, 55)
    for _ in range(5):
        seen, reward, *_, infos = links.step(links.action_space.sample())
        assert links.observation_space.contains(seen) and (abs(reward) <= 0.1).all()
    assert infos["present"].any(1).all()


# --- what scores say ------------------------------------------------------------------------------
def test_a_function_that_acts_as_a_policy_has_its_scores(tmp_path):
    """Exactly: as bytes, as a file, as a function, in other processes."""
    policy = a_policy(4)
    (tmp_path / "mine.astp").write_bytes(policy.to_bytes())
    points = [*FEW, CHANGING]
    by_bytes = evaluate(policy.to_bytes(), points=points, jobs=1)
    by_file = evaluate(str(tmp_path / "mine.astp"), points=points, jobs=2)
    by_function = evaluate(lambda inputs: policy.act(inputs)[:, None], points=points, jobs=2)
    assert by_bytes.rows == by_file.rows == by_function.rows
    assert (by_bytes.name, by_file.name, by_function.name) == ("policy", "mine.astp", "function")
    other = evaluate(a_policy(5).to_bytes(), points=points, jobs=1)
    assert other.rows != by_bytes.rows, "the placebo: another policy"


def test_options_are_those_of_the_control():
    shapes = set()

    def hold(inputs):
        shapes.add(inputs.shape[1:])
        assert inputs.dtype == np.float32
        return np.zeros(len(inputs))

    one = evaluate(hold, points=FEW[:1], jobs=1)
    other = evaluate(hold, points=FEW[:1], jobs=1, options={"features": "astraea10", "frames": 3})
    assert shapes == {(55,), (30,)} and one.rows == other.rows, "it sees another, and does the same"
    with_control = evaluate({"cc": "vegas"}, points=FEW[:1], jobs=1)
    assert with_control.rows == evaluate("vegas", points=FEW[:1], jobs=1).rows
    assert with_control.name == "vegas"


def test_features_have_their_names():
    seen = {
        "max_tput": 12e6,
        "min_rtt": 30_000,
        "avg_thr": 6e6,
        "avg_urtt": 36_000,
        "srtt_x8": 280_000,
        "cwnd": 250,
        "packets_out": 225,
        "pacing": 9e6,
        "loss": 1.2e6,
        "retrans_out": 50,
    }
    found = dict(zip(FEATURES, _core.astraea.frame("ours11", **seen).tolist(), strict=True))
    expected = {
        "throughput": 0.5,
        "rtt": 1.2,
        "smoothed_rtt": 35 / 30,
        "window": 250 * 1460 * 8 / 0.03 / 12e6 / 10,
        "most_throughput": math.log2(1 + 120) / 12,
        "least_rtt": math.log2(1 + 30) / 8,
        "loss": 0.1,
        "in_flight": 0.9,
        "pacing": 0.75,
        "retransmitted": 0.2,
        "queue": math.log2(1 + 250 * (1 - 30 / 36)) / 8,
    }
    assert found == pytest.approx(expected, rel=1e-5)


def test_intervals_by_hand():
    assert Interval.of([0.3] * 5) == pytest.approx((0.3, 0.3, 0.3))
    values = np.random.default_rng(1).normal(2, 0.5, 400)
    found = Interval.of(values)
    assert found.mean == values.mean() and Interval.of(values) == found
    assert found.high - found.low == pytest.approx(2 * 1.96 * values.std() / 20, rel=0.05)
    with pytest.raises(ValueError, match="no values"):
        Interval.of([])


def of_scores(name, scores):
    rows = {
        point: {**dict.fromkeys(KEPT, 0.5), "score": each}
        for point, each in zip([*CC_V1.scored, *CC_V1.beyond], scores, strict=False)
    }
    return Evaluation(name, rows)


def test_the_score_is_the_mean_within_the_ranges():
    count = len(CC_V1.scored)
    found = of_scores("mine", [0.5] * count + [-3.0] * 20)
    assert found.whole and found.score == 0.5 and found.part("beyond") == -3
    assert found.part("still") == found.part("changing") == 0.5
    part = of_scores("mine", [0.5] * 10)
    assert not part.whole and part.part("beyond") is None
    assert "142 points within the ranges, 20 beyond\n" in str(found)
    assert "the suite has 162: this is no score of it" in str(part)


def test_one_is_better_where_the_whole_interval_of_the_differences_is_above_0():
    """Also where the scores themselves are farther apart than the two means."""
    wild = np.random.default_rng(2).normal(0, 1, len(CC_V1.scored))
    one, other = of_scores("one", wild + 0.05), of_scores("other", wild)
    assert one.interval.low < other.interval.high
    assert one.against(other) == pytest.approx((0.05, 0.05, 0.05))
    assert one.against(one) == (0, 0, 0)
    vegas = baseline("vegas")
    assert vegas.against("vegas") == (0, 0, 0)
    assert vegas.against("cubic").mean == pytest.approx(vegas.score - baseline("cubic").score)


def test_the_table_has_the_baselines_on_the_same_points():
    rows = {each: dict.fromkeys(KEPT, 0.9) for each in FEW}
    table = Evaluation("mine", rows).table()
    assert set(table.column("control")) == {"mine *", *BASELINES}
    expected = np.mean([baseline("vegas").rows[each]["score"] for each in FEW])
    by_name = {row["control"]: row for row in table}
    assert by_name["vegas"]["score"] == f"{expected:.3f}"
    assert by_name["vegas"]["* less it"].startswith(f"{0.9 - expected:+.3f} (")
    scores = [float(each) for each in table.column("score")]
    assert scores == sorted(scores, reverse=True) and by_name["mine *"]["* less it"] == ""


def test_the_page_has_a_policy_that_is_better_than_vegas(capsys):
    """On the points of the page."""
    code = pages.python_blocks("docs/learning.md")[2]
    names = {}
    exec(code, names)
    found, said = names["found"], capsys.readouterr().out
    assert set(found.rows) == set(CC_V1.scored[::20]) and found.name == "mine"
    assert said.startswith("loomnet/CC-v1: 8 points within the ranges, 0 beyond; the suite has 162")
    assert said.endswith("\nbetter than Vegas\n") and found.against("vegas").low > 0.03
    assert found.rows != baseline("vegas").rows


def test_the_page_shows_the_table():
    """Scores of the rules, as the package has them."""
    page = pages.PAGES["docs/learning.md"]
    for each in baselines().values():
        row = re.search(rf"^    {each.name} +(-?[\d.]+) ", page, re.M)
        assert row and row[1] == f"{each.score:.3f}", each.name


def test_it_says_how_far_it_is():
    told = []
    evaluate("vegas", points=FEW[:2], jobs=1, watch=lambda *each: told.append(each))
    assert told == [(1, 2), (2, 2)]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: evaluate("vegsa", points=FEW[:1], jobs=1), "vegsa"),
        (lambda: evaluate(3), "a int is no control"),
        (lambda: evaluate(b"nothing"), "evaluate: policy: "),
        (lambda: evaluate("not-there.astp"), "not-there.astp"),
        (lambda: evaluate("vegas", jobs=0), "jobs: 0 is not above 0"),
        (lambda: evaluate("vegas", points=[]), "points: give one or more"),
        (lambda: evaluate("vegas", points=[Point(1, 2, 3, 4)]), "1Mbps-2ms-3bdp-4flows is no po"),
        (lambda: evaluate(lambda x: x, points=FEW[:1], jobs=1), r"shape \(1, 55\) for the inputs"),
        (lambda: baseline("vegsa"), "no baseline 'vegsa'.*vegas"),
        (lambda: of_scores("mine", [1.0]).part("all"), "no part 'all'; there are still"),
        (
            lambda: Evaluation("x", {BEYOND: dict.fromkeys(KEPT, 1.0)}).score,
            "no point within the ranges",
        ),
    ],
)
def test_what_does_not_fit_is_one_line(call, words):
    with pytest.raises(UsageError, match=words) as refused:
        call()
    assert "\n" not in str(refused.value)


def test_an_action_beyond_1_is_refused_in_another_process_too():
    for jobs in (1, 2):
        with pytest.raises(ValueError, match="an action is -1 to 1"):
            evaluate(lambda x: np.full(len(x), 2.0), points=FEW[:2], jobs=jobs)


def test_baselines_are_of_their_suite_alone():
    from dataclasses import replace

    other = replace(CC_V1, name="mine", points=CC_V1.points[:3])
    assert baselines(other) == {} and isinstance(other.draw(np.random.default_rng(1)), Bottleneck)
    found = Evaluation("x", {p: dict.fromkeys(KEPT, 1.0) for p in other.points}, other)
    assert len(found.table()) == 1
