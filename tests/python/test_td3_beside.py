"""Our TD3 beside that of Stable-Baselines3, with the same constants and exploration, on Pendulum-v1
and on loomnet/OneFlow-v0: what they return is the same within what seeds make of it.

Networks begin as PyTorch's own do, for both: Td3(initial="uniform")."""

import itertools
import math
from typing import NamedTuple

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("gymnasium")

import gymnasium
import one_torch_thread

from loomnet.learning import Bottleneck, Flow, td3

SEEDS = range(4)
STUDENT = 2.447  # of 95 % and the six degrees of freedom of two times four seeds
RANDOM_STEPS, WIDTHS = 1_000, (64, 64)
EPISODES = 10  # in which a policy is scored
# A flow alone that begins at ten packets, of 34 that fit on the path. A policy that holds has a
# return of 3.4, one that keeps six packets in the queue 11.5.
LINK = Bottleneck(
    rate="20 Mb/s",
    rtt="20 ms",
    buffer=2,
    flows=[Flow()],
    length="4 s",
    tcp={"startup": "none", "alpha": 0.1},
)


class Task(NamedTuple):
    """Attributes: steps of learning; learning rate; standard deviation of the exploration; the
    return above which a policy has learned."""

    steps: int
    rate: float
    noise: float
    least: float


TASKS = {
    "Pendulum-v1": Task(8_000, 1e-3, 0.1, -300.0),
    "loomnet/OneFlow-v0": Task(4_000, 3e-4, 0.3, 8.0),
}


@pytest.fixture(autouse=True)
def one_thread():
    yield from one_torch_thread.alone()


def made(name):
    own = {"bottleneck": LINK} if name.startswith("loomnet/") else {}
    return gymnasium.wrappers.RescaleAction(
        gymnasium.make(name, **own), np.float32(-1), np.float32(1)
    )


def ours(name, seed):
    """Acts, keeps the transition and makes one update, step by step; there is no more state for
    the critics than what the actor sees."""
    task = TASKS[name]
    constants = td3.Td3(
        actor=WIDTHS,
        critic=WIDTHS,
        initial="uniform",
        batch=128,
        actor_rate=task.rate,
        critic_rate=task.rate,
        policy_delay=2,
        noise=0.2,
        noise_clip=0.5,
        warm_up=0,
    )
    env, random = made(name), np.random.default_rng(seed)
    learner = td3.Learner(env.observation_space.shape[0], 1, constants, seed)
    replay, nothing = td3.Replay(env.observation_space.shape[0], 1, task.steps), np.zeros((1, 1))
    seen, _ = env.reset(seed=seed)
    for number in range(task.steps):
        action = random.uniform(-1, 1)
        if number >= RANDOM_STEPS:
            action = np.clip(learner.act(seen[None])[0] + random.normal(0, task.noise), -1, 1)
        then, reward, over, truncated, _ = env.step(np.array([action], np.float32))
        columns = seen[None], nothing, [action], [reward], then[None], nothing, [float(over)]
        replay.add(*(np.asarray(each, np.float32) for each in columns))
        seen = env.reset()[0] if over or truncated else then
        if number >= RANDOM_STEPS:
            learner.update(replay)
    return lambda seen: learner.act(seen[None])


def theirs(name, seed):
    baselines = pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.noise import NormalActionNoise

    task = TASKS[name]
    learner = baselines.TD3(
        "MlpPolicy",
        made(name),
        policy_kwargs={"net_arch": [*WIDTHS]},
        batch_size=128,
        gamma=0.98,
        buffer_size=task.steps,
        learning_rate=task.rate,
        learning_starts=RANDOM_STEPS,
        action_noise=NormalActionNoise(np.zeros(1), np.full(1, task.noise)),
        seed=seed,
    )
    learner.learn(task.steps)
    return lambda seen: learner.predict(seen, deterministic=True)[0]


def returned(name, act):
    """The mean return of episodes that nobody has learned from."""
    env, found = made(name), []
    for episode in range(EPISODES):
        seen, _ = env.reset(seed=1_000 + episode)
        found.append(0.0)
        for _ in itertools.count():
            seen, reward, over, truncated, _ = env.step(np.asarray(act(seen), np.float32))
            found[-1] += float(reward)
            if over or truncated:
                break
    return float(np.mean(found))


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", list(TASKS))
def test_two_learners_return_the_same(name):
    """The difference of their means is within its 95 % interval of Student's t, and both have
    learned."""
    pytest.importorskip("stable_baselines3")
    found = {
        who.__name__: [returned(name, who(name, seed)) for seed in SEEDS] for who in (ours, theirs)
    }
    print(name, found)
    one, other = (np.array(each) for each in found.values())
    least, spread = TASKS[name].least, math.sqrt((one.var(ddof=1) + other.var(ddof=1)) / len(one))
    assert one.mean() > least and other.mean() > least, found
    assert returned(name, lambda seen: np.zeros(1)) < least, "the placebo: a policy that holds"
    assert abs(one.mean() - other.mean()) < STUDENT * spread, found
