"""A training in small: transitions are of decisions and what came of them, the score rises, and a
training that was stopped goes on."""

import numpy as np
import pytest

pytest.importorskip("torch")

import one_torch_thread
import torch

from loomnet.learning import Batch, Bottleneck, Flow
from loomnet.learning.experience import Experience
from loomnet.learning.td3 import Replay, Td3
from loomnet.learning.training import Pace, Training


@pytest.fixture(autouse=True)
def one_thread():
    yield from one_torch_thread.alone()


def drawn(draw):
    """Two flows, the second of which joins and may leave."""
    return Bottleneck(
        rate=f"{draw.uniform(20, 60):.2f} Mb/s",
        rtt=f"{draw.uniform(10, 30):.2f} ms",
        buffer=2,
        flows=[Flow(), Flow(f"{draw.uniform(0, 2):.2f} s", f"{draw.uniform(3, 6):.2f} s")],
        length="6 s",
    )


def score(policy, seeds=range(100, 104)):
    """Mean reward of episodes that no training sees."""
    batch = Batch([drawn(np.random.default_rng(each)) for each in seeds])
    step, rewards = batch.reset(seed=1), []
    while not step.done.all():
        rewards.extend(step.reward[step.due.any(1)].tolist())
        actions = policy.act(step.inputs.reshape(-1, batch.inputs)).reshape(step.due.shape)
        step = batch.step(np.where(step.due, actions.astype(float), np.nan))
    return float(np.mean(rewards))


class Hold:
    def act(self, inputs):
        return np.zeros(len(inputs))


def test_transitions_are_decisions_and_what_came_of_them():
    links = [drawn(np.random.default_rng(each)) for each in range(3)]
    batch, draw = Batch(links), np.random.default_rng(5)
    replay = Replay(batch.inputs, 12, 50_000)
    experience, expected, before = Experience(replay), [], {}
    step = batch.reset(seed=2)
    for _ in range(700):
        actions = np.where(step.due, draw.uniform(-1, 1, step.due.shape), np.nan)
        for k, f in zip(*np.nonzero(step.born | ~step.present), strict=True):
            before.pop((k, f), None)
        for k, f in zip(*np.nonzero(step.due), strict=True):
            if (k, f) in before:
                expected.append((*before.pop((k, f)), step.reward[k], step.inputs[k, f].copy()))
            if not step.done[k]:
                before[k, f] = (step.inputs[k, f].copy(), actions[k, f])
        experience.add(step, actions)
        if step.done.all():
            break
        over = step.done.copy()
        step = batch.step(actions)
        for k in np.flatnonzero(over):  # it stands: nothing more comes of it
            before = {place: each for place, each in before.items() if place[0] != k}
            step.due[k] = False
    kept = replay.state_dict()["columns"]
    assert len(expected) == replay.size > 600
    for column, place in ((0, 0), (2, 1), (3, 2), (4, 3)):
        rows = np.array([row[place] for row in expected], np.float32)
        assert np.array_equal(kept[column].numpy(), rows)
    assert not kept[6].numpy().any(), "time was up: no end of a value"


def small(seed, warm_up=200):
    return Training(
        drawn,
        flows=2,
        constants=Td3(actor_rate=5e-4, warm_up=warm_up),
        pace=Pace(episodes=4, before=1_000, explore=(0.5, 0.1), over=30_000, replay=50_000),
        seed=seed,
    )


@pytest.mark.timeout(600)
def test_the_score_rises_in_two_thousand_updates():
    """Of five seeds that were tried three rise, by 0.06 to 0.14, and two stay at the 0.02 that they
    began with; the most that there is is 0.1."""
    training = small(4)
    before = score(training.policy())
    told = training.go_on(2_000)
    after = score(training.policy())
    assert training.learner.updates == 2_000 and training.exploration == pytest.approx(0.1)
    assert set(told) == {"reward", "critics", "value", "utilisation", "floor", "low"}
    assert after > before + 0.03, (before, after)
    assert after > score(Hold()) + 0.1, "a policy that does nothing"


def test_a_training_that_was_stopped_is_one_that_was_not_to_the_bit(tmp_path):
    """Episodes are under way at the stop: their flows, and decisions of which nothing has come yet,
    are taken up where they were."""
    one = small(3, warm_up=20)
    one.go_on(60)
    torch.save(one.state_dict(), tmp_path / "kept.pt")
    before = one.policy().to_bytes()
    found = [(one.go_on(300), one.policy().to_bytes(), one.decisions)]
    other = small(4, warm_up=20)
    other.load_state_dict(torch.load(tmp_path / "kept.pt", weights_only=True))
    assert other.learner.updates == 60
    found.append((other.go_on(300), other.policy().to_bytes(), other.decisions))
    assert found[0] == found[1] and found[0][1] != before
    kept = [each.replay.state_dict()["columns"] for each in (one, other)]
    assert all(torch.equal(a, b) for a, b in zip(*kept, strict=True))


def test_another_draw_begins_other_episodes():
    training = small(3)
    training.go_on(20)
    seen = []

    def other(draw):
        seen.append(drawn(draw))
        return seen[-1]

    training.change(other)
    assert len(seen) == 4
    training.go_on(20)
    assert training.learner.updates == 40
