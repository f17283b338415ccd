"""Learned controls beside Astraea: their rewards by hand, their training files, a short training of
each whose policy plays in an ordinary run."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

_core = pytest.importorskip("loomnet._core")
pytest.importorskip("torch")

import one_torch_thread  # noqa: E402
import pages  # noqa: E402
from test_learning import SHORT, random_actions, steps  # noqa: E402

import loomnet as ln  # noqa: E402
from loomnet.base.errors import UsageError  # noqa: E402
from loomnet.learning import TERMS, Batch, Cloning, Curriculum, Flow, Point, Stage, Step  # noqa: E402
from loomnet.learning.grid import score  # noqa: E402
from loomnet.learning.rewards import PAYLOAD, AuroraReward, OrcaReward  # noqa: E402
from loomnet.learning.training import Pace, Training  # noqa: E402
from loomnet.learning.training_file import load_training  # noqa: E402

FILE = f"{pages.ROOT}/scenarios/astraea/baselines.py"


@pytest.fixture(autouse=True)
def one_thread():
    yield from one_torch_thread.alone()


def a_step(*flows, present=True, share=0.0):
    """One episode, a row of terms by name for each flow."""
    terms = np.zeros((1, len(flows), len(TERMS)))
    for number, values in enumerate(flows):
        for name, value in {"seconds": 0.03, **values}.items():
            terms[0, number, TERMS.index(name)] = value
    blank = {each.name: np.zeros(0) for each in fields(Step)}
    there = np.full((1, len(flows)), present)
    shares = np.array([[share, 0, 0, 0, 0]])
    return Step(**{**blank, "terms": terms, "present": there, "reward_terms": shares})


def test_auroras_reward_is_the_publications():
    flow = {"throughput_Bps": 294 * PAYLOAD, "loss_Bps": 6 * PAYLOAD, "rtt_us": 100_000}
    # 0.001 (10 x 294 - 1000 x 0.1 - 2000 x 6 / 300)
    assert AuroraReward()(a_step(flow)) == pytest.approx([2.8])
    idle = {"seconds": 0}
    assert AuroraReward()(a_step(flow, idle)) == pytest.approx([2.8]), "it has no interval yet"
    assert AuroraReward()(a_step(flow, present=False)) == [0]
    # 0.001 (10 x 300 x 0.9 - 100 - 40)
    assert AuroraReward(of_link=300)(a_step(flow, share=0.9)) == pytest.approx([2.56])
    assert AuroraReward()(a_step({})) == [0] and AuroraReward(of_link=300)(a_step({})) == [0]


def test_orcas_reward_is_the_publications():
    flow = {
        "throughput_Bps": 5e6,
        "loss_Bps": 1e5,
        "most_throughput_Bps": 6e6,
        "rtt_us": 50_000,
        "least_rtt_us": 30_000,
    }
    # (5 - 0.5) / 6, times 1.25 x 30 / 50
    assert OrcaReward()(a_step(flow)) == pytest.approx([0.75 * 0.75])
    assert OrcaReward()(a_step({**flow, "rtt_us": 37_500})) == pytest.approx([0.75])
    assert OrcaReward()(a_step({**flow, "rtt_us": 31_000}, flow)) == pytest.approx([0.65625])
    assert OrcaReward()(a_step({})) == [0]


def test_a_reward_of_ones_own_takes_the_place_of_reward():
    own = AuroraReward()
    found = steps(Batch([SHORT], reward=own), random_actions(), seed=2)
    plain = steps(Batch([SHORT]), random_actions(), seed=2)
    assert np.array_equal(found[-1].terms, plain[-1].terms)
    assert found[-1].reward == pytest.approx(own(found[-1])) and found[-1].reward != 0
    terms = plain[-1].terms[0, 0]
    most, thr = TERMS.index("most_throughput_Bps"), TERMS.index("throughput_Bps")
    assert terms[most] >= terms[thr] > 0
    for wrong in (lambda step: np.zeros(3), lambda step: np.array([np.nan])):
        with pytest.raises(UsageError, match=r"reward gave an array of shape .* 1 episodes"):
            Batch([SHORT], reward=wrong).reset()


def test_cloning_is_refused_for_actions_that_the_rule_does_not_have():
    def draw(random):
        return SHORT

    point = Point(20, 10, 1, 2)
    common = {"stages": [Stage("S", draw, 9)], "flows": 1, "watched": [point]}
    common |= {"selection": [point], "cloning": Cloning(draw)}
    with pytest.raises(UsageError, match=r"cloning: .* action='factor' are not; leave cloning out"):
        Curriculum(**common, tcp={"action": "factor"})
    assert Curriculum(**common, tcp={"action": "rate"}).cloning


PLANS = [
    ("orca", {}, 110, ("factor", 2.0, 0.0)),
    ("aurora", {"ranges": "published"}, 30, ("rate", 0.025, 1.0)),
    ("aurora", {"ranges": "ours"}, 30, ("rate", 0.025, 1.0)),
]


@pytest.mark.parametrize(("name", "values", "inputs", "said"), PLANS)
def test_each_trains_on_one_flow_and_its_policy_plays_in_a_run(
    name, values, inputs, said, tmp_path
):
    plan = load_training(f"{FILE}::{name}").made(values)
    assert plan.updates == 430_000 and len(plan.selection) == 180 and len(plan.watched) == 36
    assert len(plan.sealed) == 425 and plan.flows == 1
    draw = plan.stages[0].draw
    for number in range(40):
        link = draw(np.random.default_rng(number))
        [flow] = link.flows
        assert flow.cc is None and dict(link.tcp) == dict(plan.tcp)
        if values != {"ranges": "published"}:
            continue
        assert 1.2e6 <= ln.Rate(link.rate).count <= 6e6 and 0 <= link.loss <= 0.05
        assert 50 <= ln.Time(link.rtt).count / 1e9 <= 500
        assert 3_000 <= link.buffer_bytes <= 1_500 * 2_983

    def short(random):
        same = {"rate": "5 Mb/s", "rtt": "50 ms", "flows": [Flow()]}
        return replace(draw(random), length="3 s", changes=(), **same)

    constants = replace(plan.constants, warm_up=10, batch=64)
    training = Training(
        short,
        flows=1,
        constants=constants,
        pace=Pace(episodes=2, decisions=5, before=100, replay=2_000),
        reward=plan.reward,
    )
    told = training.go_on(15)
    assert np.isfinite(list(told.values())).all() and training.learner.updates == 15
    policy = training.policy()
    assert policy.inputs == inputs
    assert (policy.action, policy.alpha, policy.interval_rtts) == (
        said[0],
        pytest.approx(said[1]),
        said[2],
    )
    file = tmp_path / "mine.astp"
    file.write_bytes(policy.to_bytes())
    fabric = ln.dumbbell(left=1, right=1, rate="100 Mb/s", bottleneck="20 Mb/s", delay="5 ms")
    job = ln.Flows("1 MB", pairs=[(0, 1)], transport="tcp")
    r = ln.run(fabric, job, tcp={"cc": "astraea", "policy": str(file), **plan.tcp}, write=False)
    assert r["errors"] == 0 and r.data.ended == "finished"
    with pytest.raises(UsageError, match=f'action is "window", and .* "{said[0]}"'):
        others = {k: v for k, v in plan.tcp.items() if k != "action"}
        ln.run(fabric, job, tcp={"cc": "astraea", "policy": str(file), **others}, write=False)
    [(_, found)] = score([Point(20, 10, 1, 2)], policy.to_bytes(), plan.tcp)
    assert 0 < found.utilisation <= 1.01
