"""Bottlenecks side by side as a vector environment of Gymnasium: each of its three ways to begin
episodes anew gives the same episodes, which are those of a batch."""

from dataclasses import fields, replace

import numpy as np
import pytest

from loomnet.base.errors import UsageError
from loomnet.learning import Batch, Bottleneck, Flow

gymnasium = pytest.importorskip("gymnasium")
from loomnet.learning.shared import SharedBottleneckVector, drawn_together  # noqa: E402

NAME = "loomnet.learning:loomnet/SharedBottleneck-v0"
MODES = ("NextStep", "SameStep", "Disabled")
PAIR = Bottleneck(
    rate="20 Mb/s", rtt="20 ms", flows=[Flow(), Flow("0.2 s", "0.3 s")], length="0.8 s"
)
LONE = Bottleneck(rate="50 Mb/s", rtt="10 ms", flows=[Flow("0.1 s")], length="0.5 s")


def two_links(draw):
    return PAIR if draw.uniform() < 0.5 else LONE


def actions(infos):
    """Of the time since each episode's begin, so that it is of the episode alone."""
    times = infos["time_s"][:, None]
    return np.sin(9 * times + np.arange(infos["due"].shape[1])).astype(np.float32)


def episodes(mode, *, count, envs=3, seed=11, bottleneck=two_links):
    """The first `count` episodes of each sub-environment: what was seen, its time, the reward."""
    env = SharedBottleneckVector(envs, bottleneck, flows=2, autoreset_mode=mode)
    observation, infos = env.reset(seed=seed)
    found = [[[(observation[k], infos["time_s"][k], 0.0)]] for k in range(envs)]
    over = np.zeros(envs, bool)
    while min(len(each) for each in found) <= count:
        before = over
        observation, reward, terminated, over, infos = env.step(actions(infos))
        assert not terminated.any() and observation.dtype == np.float32
        known = infos
        for k in range(envs):
            seen = observation[k], known["time_s"][k], reward[k]
            if mode == "NextStep" and before[k]:
                assert reward[k] == 0 and not over[k]
                found[k].append([seen])
            elif mode == "SameStep" and over[k]:
                last = infos["final_info"]
                assert infos["_final_obs"][k] and last["_time_s"][k]
                found[k][-1].append((infos["final_obs"][k], last["time_s"][k], reward[k]))
                found[k].append([(observation[k], known["time_s"][k], 0.0)])
            else:
                found[k][-1].append(seen)
        if mode == "Disabled" and over.any():
            with pytest.raises(gymnasium.error.ResetNeeded, match="reset_mask"):
                env.step(actions(infos))
            observation, infos = env.reset(options={"reset_mask": over})
            for k in np.flatnonzero(over):
                found[k].append([(observation[k], infos["time_s"][k], 0.0)])
    return [each[:count] for each in found]


def alike(one, other):
    return len(one) == len(other) and all(
        len(a) == len(b)
        and all(np.array_equal(x[0], y[0]) and x[1:] == y[1:] for x, y in zip(a, b, strict=True))
        for a, b in zip(one, other, strict=True)
    )


def test_three_ways_to_begin_anew_give_the_same_episodes():
    found = {mode: episodes(mode, count=4) for mode in MODES}
    for k in range(3):
        ends = [each[-1][1] for each in found["NextStep"][k]]
        assert set(ends) <= {0.8, 0.5}, ends
        assert alike(found["NextStep"][k], found["SameStep"][k])
        assert alike(found["NextStep"][k], found["Disabled"][k])
    assert len({len(each) for row in found["NextStep"] for each in row}) > 1
    assert not alike(found["NextStep"][0], found["NextStep"][1]), "the placebo: another seed"


@pytest.mark.parametrize("mode", MODES)
def test_neighbours_and_repeating_change_nothing(mode):
    together = episodes(mode, count=2)
    for k in range(3):
        (alone,) = episodes(mode, count=2, envs=1, seed=11 + k)
        assert alike(together[k], alone)


def copies(step):
    return {each.name: getattr(step, each.name).copy() for each in fields(step)}


def test_an_episode_that_is_begun_anew_is_that_of_a_batch_of_its_own():
    crowd = [PAIR, LONE, PAIR]

    def act(step):
        return np.sin(7 * step.now[:, None] + np.arange(2))

    def go(batch, step, count):
        found = [copies(step)]
        for _ in range(count):
            step = batch.step(act(step))
            found.append(copies(step))
        return found

    whole = Batch(crowd)
    plain = go(whole, whole.reset(5), 20)
    batch, other = Batch(crowd), replace(LONE, rate="30 Mb/s")
    begin = go(batch, batch.reset(5), 8)
    step = batch.renew(np.array([True, False, False]), [77], [other])
    renewed = go(batch, step, 12)
    alone = Batch([other], flows=2)
    own = go(alone, alone.reset(77), 12)
    for name in plain[0]:
        for k in (1, 2):  # those beside it stood meanwhile
            rows = [each[name][k] for each in begin[:-1] + renewed]
            assert all(map(np.array_equal, rows, [each[name][k] for each in plain])), name
        assert all(
            np.array_equal(a[name][0], b[name][0]) for a, b in zip(renewed, own, strict=True)
        ), name
    assert batch.bottlenecks[0] is other and not any(each["present"][0, 1] for each in renewed)


@pytest.mark.filterwarnings("error")
def test_gymnasium_makes_it_by_name():
    env = gymnasium.make_vec(NAME, num_envs=2, autoreset_mode="SameStep")
    assert env.metadata["autoreset_mode"] is gymnasium.vector.AutoresetMode.SAME_STEP
    observation, _ = env.reset(seed=1)
    assert observation.shape == env.observation_space.shape == (2, 4, 55)
    for _ in range(5):
        observation, reward, _, _, infos = env.step(env.action_space.sample())
        assert env.observation_space.contains(observation)
        assert (abs(reward) <= 0.1).all() and infos["_due"].all() and infos["due"].any()
    recorded = gymnasium.wrappers.vector.RecordEpisodeStatistics(
        SharedBottleneckVector(2, LONE), buffer_length=8
    )
    recorded.reset(seed=1)
    for _ in range(60):
        recorded.step(recorded.action_space.sample())
    assert len(recorded.return_queue) >= 4


def test_a_seed_that_nobody_gave_is_told_and_repeats():
    env = SharedBottleneckVector(1, two_links, flows=2)
    first, _ = env.reset()
    seed = int(np.random.default_rng(env.np_random_seed).integers(2**31))
    assert env.np_random_seed >= 0
    again, _ = SharedBottleneckVector(1, two_links, flows=2).reset(seed=seed)
    assert np.array_equal(first, again)
    later, _ = env.reset()
    env.reset(seed=[seed])
    assert np.array_equal(later, env.reset()[0]), "without a seed the next episode of the last one"


def test_drawn_links_fit_into_its_rows():
    draw = np.random.default_rng(4)
    found = [drawn_together(draw) for _ in range(200)]
    assert {len(each.flows) for each in found} == {2, 3, 4}
    assert all(flow.cc is None for each in found for flow in each.flows)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: SharedBottleneckVector(0), "num_envs: 0 is not above 0"),
        (lambda: SharedBottleneckVector(1, PAIR, flows=1), "has 2 flows, and there are rows for 1"),
        (
            lambda: SharedBottleneckVector(1, replace(LONE, flows=[Flow(cc="cubic")])),
            "every flow has a cc",
        ),
        (lambda: SharedBottleneckVector(2, LONE).reset(seed=[1]), "1 seeds for 2 sub-env"),
        (
            lambda: SharedBottleneckVector(2, LONE).reset(options={"reset_mask": [1, 0]}),
            r"reset_mask: give bool\[2\]",
        ),
        (lambda: Batch([LONE]).renew(np.array([True]), [1]), r"call reset\(\) first"),
    ],
)
def test_what_does_not_fit_is_one_line(make, words):
    with pytest.raises(UsageError, match=words) as refused:
        make()
    assert "\n" not in str(refused.value)
