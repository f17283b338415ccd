"""The learner of congestion control where the truth is known: the publication's networks, values of
a known reward, policies as files, two flows whose best is the equal split."""

import numpy as np
import pytest

pytest.importorskip("torch")

import one_torch_thread
import torch

from loomnet.base.errors import UsageError
from loomnet.learning import td3

_core = pytest.importorskip("loomnet._core")


@pytest.fixture(autouse=True)
def one_thread():
    yield from one_torch_thread.alone()


def weights(net, names=("weight", "bias")):
    return sum(p.numel() for n, p in net.named_parameters() if n.rpartition(".")[2] in names)


def test_the_networks_are_the_publications():
    paper, ours = td3.Learner(50, 12, td3.PAPER), td3.Learner(55, 12)
    assert weights(paper.actor, ("weight",)) == 53_824
    assert [weights(critic) for critic in paper.critics] == [57_473] * 2
    assert weights(ours.actor, ("weight",)) == 5_600


@pytest.mark.parametrize(
    ("constants", "inputs", "features"), [(td3.PAPER, 50, "astraea10"), (td3.Td3(), 55, "ours11")]
)
def test_a_policy_file_acts_as_the_actor(constants, inputs, features):
    """Also once running means have moved."""
    learner, draw = td3.Learner(inputs, 12, constants, seed=3), np.random.default_rng(1)
    for _ in range(30):
        learner.imitate(draw.normal(2, 3, (64, inputs)).astype(np.float32), draw.uniform(-1, 1, 64))
    policy = _core.astraea.Policy(
        learner.actor.layers(), features=features, batch_norm_folded=constants.batch_norm
    )
    seen = draw.normal(2, 3, (500, inputs)).astype(np.float32)
    asked, given = learner.act(seen), policy.act(seen)
    assert np.std(asked) > 0.05
    settled = np.where(np.abs(asked) < 1 / 256, 0, asked)
    assert np.abs(settled - given).max() < 5e-3 and np.abs(asked - given).mean() < 1e-3


def one_step(learner, rows=2_000, seed=2):
    """Transitions after which nothing comes, whose reward is known."""
    draw, replay = np.random.default_rng(seed), td3.Replay(2, 1)
    seen = draw.uniform(-1, 1, (rows, 2)).astype(np.float32)
    state = draw.uniform(-1, 1, (rows, 1)).astype(np.float32)
    action = draw.uniform(-1, 1, rows).astype(np.float32)
    reward = -np.abs(action - 0.5 * seen[:, 0]) + 0.3 * state[:, 0]
    replay.add(seen, state, action, reward, seen, state, np.ones(rows))
    return replay


def test_the_critics_learn_a_reward_and_the_actor_its_best():
    constants = td3.Td3(warm_up=200, policy_delay=2, actor_rate=1e-3)
    learner = td3.Learner(2, 1, constants, seed=1)
    replay = one_step(learner)
    for _ in range(1_500):
        learner.update(replay)
    seen, state, action, reward, *_ = replay.draw(500, np.random.default_rng(7))
    with torch.no_grad():
        values = [critic(torch.cat([seen, state], 1), action) for critic in learner.critics]
    for each in values:
        assert float((each - reward).abs().mean()) < 0.05
    found = learner.act(seen.numpy())
    assert np.abs(found - 0.5 * seen[:, 0].numpy()).mean() < 0.1


def test_initial_weights_are_those_asked_for():
    glorot, uniform = (
        td3.Learner(50, 12, td3.Td3(initial=each), 1) for each in ("glorot", "uniform")
    )
    for net in (*glorot.critics, glorot.actor):
        assert all(float(layer.bias.detach().abs().max()) == 0 for layer in net.dense)
    for net in (*uniform.critics, uniform.actor):
        for layer in net.dense:
            most = layer.in_features**-0.5
            for values in (layer.weight, layer.bias):
                assert 0 < float(values.detach().abs().max()) <= most


def test_an_actor_stays_near_what_it_was_as_long_as_it_is_asked_to():
    """By the weight's own arithmetic: where both terms are quadratic, the actor ends between."""
    found = {}
    for weight in (0.0, 0.1, 10.0):
        constants = td3.Td3(
            warm_up=200, policy_delay=2, actor_rate=1e-3, near=(weight, weight), near_over=100
        )
        learner = td3.Learner(2, 1, constants, seed=1)
        replay = one_step(learner)
        seen = replay.draw(500, np.random.default_rng(7))[0].numpy()
        was = learner.act(seen)
        learner.stay_near()
        for _ in range(800):
            learner.update(replay)
        found[weight] = float(np.abs(learner.act(seen) - was).mean())
    assert found[10.0] < 0.05 < 0.2 < found[0.0]
    assert found[10.0] < found[0.1] <= found[0.0] + 0.02


def test_the_weight_of_nearness_falls_evenly_in_its_logarithm():
    learner = td3.Learner(2, 1, td3.Td3(near=(1.0, 0.01), near_over=100), seed=1)
    assert learner.nearness == 0, "stay_near() has not been called"
    learner.stay_near()
    seen = []
    for learner.updates in (0, 50, 100, 1000):
        seen.append(learner.nearness)
    assert seen == pytest.approx([1.0, 0.1, 0.01, 0.01])


@pytest.mark.parametrize("near", [(0.0, 0.0), (1.0, 0.1)])
def test_a_learner_goes_on_as_if_it_had_not_stopped(tmp_path, near):
    constants = td3.Td3(warm_up=10, policy_delay=2, near=near, near_over=30)
    one = td3.Learner(2, 1, constants, seed=5)
    replay = one_step(one)
    if near[0]:
        one.stay_near()
    for _ in range(20):
        one.update(replay)
    torch.save({"learner": one.state_dict(), "replay": replay.state_dict()}, tmp_path / "kept")
    kept = torch.load(tmp_path / "kept", weights_only=True)
    other, again = td3.Learner(2, 1, constants, seed=99), td3.Replay(2, 1)
    other.load_state_dict(kept["learner"])
    again.load_state_dict(kept["replay"])
    for _ in range(20):
        assert one.update(replay) == other.update(again)
    seen = np.ones((4, 2), np.float32)
    assert np.array_equal(one.act(seen), other.act(seen))


def numbered(replay, numbers):
    """The replay, with a transition of each of these numbers added."""
    for n in numbers:
        each = np.full((1, 1), n, np.float32)
        replay.add(each, each, each[0], each[0], each, each, each[0])
    return replay


def numbers_in(replay):
    seen, *_ = replay.draw(300, np.random.default_rng(1))
    return set(seen[:, 0].tolist())


def test_the_replay_forgets_the_oldest():
    replay = numbered(td3.Replay(1, 1, capacity=5), range(8))
    assert numbers_in(replay) == {3, 4, 5, 6, 7} and replay.size == 5


def test_a_replay_with_more_room_goes_on_behind_the_newest():
    kept = numbered(td3.Replay(1, 1, capacity=5), range(1, 9)).state_dict()
    again = td3.Replay(1, 1, capacity=7)
    again.load_state_dict(kept)
    assert numbers_in(again) == {4, 5, 6, 7, 8}
    assert numbers_in(numbered(again, (9, 10, 11))) == {5, 6, 7, 8, 9, 10, 11}


def test_a_replay_refuses_what_does_not_fit():
    kept = numbered(td3.Replay(1, 1, capacity=5), range(8)).state_dict()
    small = numbered(td3.Replay(1, 1, capacity=4), (1,))
    with pytest.raises(UsageError, match=r"5 transitions are kept, and capacity is 4; give the"):
        small.load_state_dict(kept)
    assert small.size == 1 and numbers_in(small) == {1}
    with pytest.raises(UsageError, match=r"rows of \(1,\) were kept, where this one has \(2,\)"):
        td3.Replay(2, 1).load_state_dict(kept)


def two_flows(learner, draw, train: int) -> tuple[float, float]:
    """Two flows share a link of 1: a flow sees its rate and how full the link is, and multiplies
    its rate. The reward is what the link carries, less its excess, less how unlike the rates are.
    Returns Jain's index and the link's use after starts that are unlike."""

    def seen(rates):
        total = rates.sum(-1, keepdims=True)
        return np.stack([rates, np.broadcast_to(total, rates.shape)], -1).astype(np.float32)

    def moved(rates, action):
        return np.clip(rates * 1.3**action, 0.02, 1.5)

    def starts(count):
        return draw.uniform(0.05, 0.95, (count, 2))

    replay, rates = td3.Replay(2, 2, 20_000), starts(8)
    for number in range(train):
        shown = seen(rates)
        action = learner.act(shown.reshape(-1, 2)).reshape(rates.shape)
        wild = draw.random(action.shape) < max(1 - number / 1_000, 0.1)
        action = np.where(wild, draw.uniform(-1, 1, action.shape), action)
        after = moved(rates, action)
        total = after.sum(-1)
        unlike = np.abs(after[:, 0] - after[:, 1]) / total
        reward = np.minimum(total, 1) - np.maximum(total - 1, 0) * 2 - unlike
        for flow in range(2):
            own, then = shown[:, flow], seen(after)[:, flow]
            replay.add(own, rates, action[:, flow], reward, then, after, np.zeros(len(rates)))
        rates = after if (number + 1) % 25 else starts(8)
        learner.update(replay)
    rates = starts(64)
    for _ in range(40):
        rates = moved(rates, learner.act(seen(rates).reshape(-1, 2)).reshape(rates.shape))
    jain = rates.sum(-1) ** 2 / (2 * (rates**2).sum(-1))
    return float(jain.mean()), float(rates.sum(-1).mean())


@pytest.mark.timeout(300)
def test_two_flows_learn_the_equal_split():
    """Their best is known. (That each sees its own rate and both have one policy is what makes the
    split equal: it comes out so without a term for it, too.)"""
    constants = td3.Td3(
        actor=(32, 16),
        critic=(32, 32),
        discount=0.9,
        soft=0.02,
        policy_delay=2,
        actor_rate=1e-3,
        warm_up=200,
        batch=128,
    )
    learner = td3.Learner(2, 2, constants, seed=4)
    before = two_flows(learner, np.random.default_rng(4), 0)
    jain, use = two_flows(learner, np.random.default_rng(4), 2_000)
    assert jain > 0.98 and use == pytest.approx(1, abs=0.1), (jain, use)
    assert before[0] < 0.9 or abs(before[1] - 1) > 0.2
