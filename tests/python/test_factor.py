"""Actions that are factors of another control's window: in runs, on bottlenecks of a learner, by
policies that were trained for them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

_core = pytest.importorskip("loomnet._core")
from test_learning import a_bottleneck, rows, steps  # noqa: E402

import loomnet as ln  # noqa: E402
from loomnet.learning import TERMS, Batch, Bottleneck, Flow  # noqa: E402

INNER = ("cubic", "reno", "vegas")


def a_policy(seed, inner, frames=5):
    """A small random network whose actions are factors."""
    random, inputs = np.random.default_rng(seed), 11 * frames
    layers = [
        (random.normal(0, inputs**-0.5, (8, inputs)), np.zeros(8)),
        (random.normal(0, 0.3, (1, 8)), random.normal(0, 0.1, 1)),
    ]
    made = [(weights.astype(np.float32), bias.astype(np.float32)) for weights, bias in layers]
    return _core.astraea.Policy(made, frames=frames, action="factor", inner=inner, alpha=2.0)


@pytest.mark.parametrize("number", range(6))
def test_an_action_of_0_is_the_inner_rule_on_random_bottlenecks(number):
    draw, inner = np.random.default_rng(100 + number), INNER[number % 3]
    link = a_bottleneck(draw)
    beneath = replace(link, tcp={"action": "factor", "inner": inner})
    flows = [replace(each, cc=each.cc or inner) for each in link.flows]
    batch = Batch([beneath])
    found = steps(batch, lambda step: np.zeros(step.due.shape), seed=[number])
    assert any(step.due.any() for step in found) or all(each.cc for each in link.flows)
    world = replace(link, flows=flows, action_delay="0 s", lockstep=False).world(number)
    world.reset()
    world.step("20 s")
    assert [rows(each) for each in batch.worlds[0].flows] == [rows(each) for each in world.flows]


@pytest.mark.parametrize("number", range(3))
def test_a_run_under_a_policy_and_a_batch_are_one(number):
    draw, inner = np.random.default_rng(200 + number), INNER[number]
    link, policy = a_bottleneck(draw), a_policy(number, inner)
    link = replace(link, tcp={"action": "factor", "inner": inner})
    cc = {"cc": "astraea", "policy": _core.astraea_policy(policy.to_bytes())}
    inside = replace(link, flows=[replace(each, cc=each.cc or cc) for each in link.flows])

    def act(step):
        return policy.act(step.inputs.reshape(-1, 55)).reshape(step.due.shape).astype(float)

    batch = Batch([link])
    steps(batch, act, seed=[5])
    world = inside.world(5)
    world.reset()
    world.step("20 s")
    assert [rows(each) for each in batch.worlds[0].flows] == [rows(each) for each in world.flows]


def test_an_action_is_a_factor_of_the_window_and_the_rule_goes_on_from_it():
    link = Bottleneck(
        rate="50 Mb/s",
        rtt="40 ms",
        buffer=8,
        flows=[Flow()],
        length="6 s",
        tcp={"action": "factor", "inner": "reno"},
    )
    window = TERMS.index("window_packets")

    def act(step):  # halves the window in the fifth second
        late = (step.now >= 4.0) & (step.now < 4.03)
        return np.where(late[:, None], -0.5, 0.0)

    found = [step for step in steps(Batch([link]), act) if step.due.any()]
    windows = np.array([step.terms[0, 0, window] for step in found])
    times = np.array([step.now[0] for step in found])
    cut = np.flatnonzero(times >= 4.0)[0]
    # Slow start has gone on for an interval: a packet for each that 50 Mb/s acknowledge in 30 ms.
    assert 0 <= windows[cut + 1] - windows[cut] / 2 <= 50e6 / 8 / 1538 * 0.030 + 1
    assert np.all(np.diff(windows[cut + 1 : cut + 4]) > 0), "from the window that was set"


def test_a_policys_file_says_what_its_actions_are(tmp_path):
    policy = a_policy(1, "vegas")
    file = tmp_path / "mine.astp"
    file.write_bytes(policy.to_bytes())
    again = _core.astraea.Policy.from_bytes(file.read_bytes())
    assert (again.action, again.inner, again.alpha, again.interval_rtts) == (
        "factor",
        "vegas",
        2.0,
        0.0,
    )
    fabric = ln.dumbbell(left=1, right=1, rate="100 Mb/s", delay="5 ms")
    job = ln.Flows("2 MB", pairs=[(0, 1)], transport="tcp")
    fits = {"cc": "astraea", "action": "factor", "inner": "vegas", "policy": str(file)}
    assert ln.run(fabric, job, tcp=fits, write=False)["errors"] == 0
    for wrong, words in (
        ({"action": "rate"}, 'action is "rate", and the policy was trained with "factor"'),
        ({"inner": "reno"}, 'inner is "reno", and the policy was trained with "vegas"'),
        ({"factor_exponent": 1}, "factor_exponent is 1, and the policy was trained with 2"),
        ({"inner": "bbr"}, "inner must be one of cubic, reno, vegas"),
        ({"action": "factors"}, "action must be one of window, rate, absolute, factor"),
    ):
        with pytest.raises(ln.UsageError) as refused:
            ln.run(fabric, job, tcp={**fits, **wrong}, write=False)
        assert words in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"action": "absolute"}, "absolute"),
        ({"action": "fast"}, "action: no fast; there are window, rate, absolute, factor"),
        ({"inner": "reno"}, 'inner: reno is of action "factor" alone'),
        ({"interval_rtts": 0.3}, "interval_rtts"),
        ({"action": "factor", "alpha": 9.0}, "exponent"),
    ],
)
def test_a_policy_of_no_such_action_is_one_line(values, words):
    layer = (np.zeros((1, 55), np.float32), np.zeros(1, np.float32))
    with pytest.raises(ValueError) as refused:
        _core.astraea.Policy([layer], **values)
    assert words in str(refused.value) and "\n" not in str(refused.value)
