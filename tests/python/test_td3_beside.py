"""Our TD3 beside that of Stable-Baselines3, with the same constants, exploration and seeds, on
Pendulum-v1 and on loomnet/OneFlow-v0: what they return is the same within what seeds make of it."""

import itertools
import math

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("gymnasium")

import gymnasium
import one_torch_thread

from loomnet.learning import Bottleneck, Flow, td3

SEEDS = range(4)
RANDOM_STEPS, NOISE, RATE, WIDTHS = 1_000, 0.1, 1e-3, (64, 64)
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
# Steps; the return that a policy must have to be one that has learned.
TASKS = {"Pendulum-v1": (8_000, -300.0), "loomnet/OneFlow-v0": (4_000, 4.0)}


@pytest.fixture(autouse=True)
def one_thread():
    yield from one_torch_thread.alone()


def made(name):
    own = {"bottleneck": LINK} if name.startswith("loomnet/") else {}
    return gymnasium.wrappers.RescaleAction(
        gymnasium.make(name, **own), np.float32(-1), np.float32(1)
    )


def ours(name, seed, steps):
    """Acts, keeps the transition and makes one update, step by step; there is no more state for
    the critics than what the actor sees."""
    constants = td3.Td3(
        actor=WIDTHS,
        critic=WIDTHS,
        batch=128,
        actor_rate=RATE,
        critic_rate=RATE,
        policy_delay=2,
        noise=0.2,
        noise_clip=0.5,
        warm_up=0,
    )
    env, random = made(name), np.random.default_rng(seed)
    learner = td3.Learner(env.observation_space.shape[0], 1, constants, seed)
    replay, nothing = td3.Replay(env.observation_space.shape[0], 1, steps), np.zeros((1, 1))
    seen, _ = env.reset(seed=seed)
    for number in range(steps):
        action = random.uniform(-1, 1)
        if number >= RANDOM_STEPS:
            action = np.clip(learner.act(seen[None])[0] + random.normal(0, NOISE), -1, 1)
        then, reward, over, truncated, _ = env.step(np.array([action], np.float32))
        columns = seen[None], nothing, [action], [reward], then[None], nothing, [float(over)]
        replay.add(*(np.asarray(each, np.float32) for each in columns))
        seen = env.reset()[0] if over or truncated else then
        if number >= RANDOM_STEPS:
            learner.update(replay)
    return lambda seen: learner.act(seen[None])


def theirs(name, seed, steps):
    baselines = pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.noise import NormalActionNoise

    learner = baselines.TD3(
        "MlpPolicy",
        made(name),
        policy_kwargs={"net_arch": [*WIDTHS]},
        batch_size=128,
        gamma=0.98,
        buffer_size=steps,
        learning_rate=RATE,
        learning_starts=RANDOM_STEPS,
        action_noise=NormalActionNoise(np.zeros(1), np.full(1, NOISE)),
        seed=seed,
    )
    learner.learn(steps)
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
    """The difference of their means is within its 95 % interval of Welch's t, and both have
    learned: each mean is above what a policy of no learning has."""
    pytest.importorskip("stable_baselines3")
    steps, least = TASKS[name]
    found = {
        who.__name__: [returned(name, who(name, seed, steps)) for seed in SEEDS]
        for who in (ours, theirs)
    }
    print(name, found)
    (one, other) = (np.array(each) for each in found.values())
    spread = math.sqrt((one.var(ddof=1) + other.var(ddof=1)) / len(one))
    assert one.mean() > least and other.mean() > least, found
    assert returned(name, lambda seen: np.zeros(1)) < least, "the placebo: a policy that holds"
    assert abs(one.mean() - other.mean()) < 3.182 * spread, found  # t of 3 degrees, the widest
