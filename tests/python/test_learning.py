"""Bottlenecks for learners: when a step comes, what it shows, and that a policy that acts from
outside is the policy of an ordinary run, to the picosecond (Liao et al., EuroSys 2024)."""

import os
from dataclasses import fields, replace
from itertools import pairwise

import numpy as np
import pages
import pytest
from test_astraea import a_policy

import loomnet as ln
from loomnet.base.errors import UsageError
from loomnet.learning import TERMS, Batch, Bottleneck, Flow, Reward, parallel_env

_core = pytest.importorskip("loomnet._core")

# Three flows, of unlike round trips, that come and go; a link that loses some packets by itself.
STAIRS = Bottleneck(
    rate="40 Mb/s",
    rtt="20 ms",
    flows=[
        Flow(),
        Flow("0.7 s", "1.5 s", rtt="35 ms"),
        Flow("1.2 s", rtt="14 ms"),
    ],
    length="3 s",
    loss=0.001,
)
SHORT = Bottleneck(
    rate="20 Mb/s", buffer=0.5, flows=[Flow(), Flow("0.2 s", cc="cubic")], length="1 s"
)


def steps(batch, act, seed=0):
    """Copies of all steps of an episode; `act`: actions by step."""
    step, found = batch.reset(seed), []
    while True:
        found.append(replace(step, **{f.name: getattr(step, f.name).copy() for f in fields(step)}))
        if step.done.all():
            return found
        step = batch.step(act(step))


def hold(step):
    return np.zeros(step.due.shape)


def random_actions(seed=5):
    draw = np.random.default_rng(seed)
    return lambda step: draw.uniform(-1, 1, step.due.shape)


def same(one, other):
    return len(one) == len(other) and all(
        np.array_equal(getattr(a, f.name), getattr(b, f.name), equal_nan=f.name == "inputs")
        for a, b in zip(one, other, strict=True)
        for f in fields(a)
    )


def rows(flows):
    """Source, destination, bytes, start, end and arrival of each."""
    return [column.tolist() for column in flows.columns]


def flows_of(batch):
    return [rows(each) for world in batch.worlds for each in world.flows]


def test_a_policy_from_outside_is_the_policy_of_an_ordinary_run_to_the_picosecond(tmp_path):
    policy = a_policy(3)
    name = _core.astraea_policy(policy.to_bytes())
    lasts = [Flow("0 s", "2 s"), *(replace(each, lifetime="1 s") for each in STAIRS.flows[1:])]
    outside = replace(STAIRS, flows=lasts, length="8 s")  # until all that was under way has arrived
    inside = replace(
        outside, flows=[replace(each, cc={"cc": "astraea", "policy": name}) for each in lasts]
    )
    r = ln.Lab("inside", seed=4, directory=tmp_path).run(
        inside.fabric(),
        inside.jobs(),
        faults=inside.faults(),
        tcp={"mtu": 1500},
        jitter="0 s",
    )
    batch = Batch([outside])

    def act(step):
        rows = step.inputs.reshape(-1, batch.inputs)
        return policy.act(rows).reshape(step.due.shape).astype(float)

    assert len(steps(batch, act, seed=4)) > 100 and batch.worlds[0].done
    assert flows_of(batch) == [rows(part.data.flows) for part in r.parts]
    held = Batch([outside])
    steps(held, hold, seed=4)
    assert flows_of(held) != flows_of(batch), "the placebo: a policy that holds"


def a_bottleneck(draw):
    """One with up to four flows, of other controls too, that all end in time."""
    rtt_ms = 10 ** draw.uniform(0.5, 2)
    flows = [
        Flow(
            f"{draw.uniform(0, 1):.3f} s",
            f"{draw.uniform(0.2, 1):.3f} s",
            rtt=f"{rtt_ms * draw.uniform(0.5, 3):.3f} ms",
            cc=draw.choice([None, None, "cubic", "copa"]),
        )
        for _ in range(draw.integers(1, 5))
    ]
    return Bottleneck(
        rate=f"{10 ** draw.uniform(0.3, 2):.2f} Mb/s",
        rtt=f"{rtt_ms:.3f} ms",
        buffer=10 ** draw.uniform(-0.5, 0.7),
        flows=flows,
        length="20 s",
        loss=draw.choice([0.0, 0.003]),
        jitter=draw.choice(["0 s", "2 ms"]),
        bunching=int(draw.choice([1, 4, 44])),
        action_delay=draw.choice(["0 s", "10 ms"]),
        lockstep=bool(draw.integers(2)),
        changes=[
            (f"{0.3 * (k + draw.uniform(0.1, 1)):.3f} s", f"{10 ** draw.uniform(0.3, 2):.2f} Mb/s")
            for k in range(draw.integers(4))
        ],
    )


@pytest.mark.parametrize("number", range(6))
def test_of_random_bottlenecks_too_a_run_and_a_batch_are_one(number, tmp_path):
    seed = int(os.environ.get("LOOMNET_RELATIONS_SEED", "fixed"), 36) % 2**31 + number
    draw = np.random.default_rng(seed)
    outside, policy = a_bottleneck(draw), a_policy(seed)
    print(seed, outside)
    cc = {"cc": "astraea", "policy": _core.astraea_policy(policy.to_bytes())}
    inside = replace(outside, flows=[replace(each, cc=each.cc or cc) for each in outside.flows])
    batch = Batch([a_bottleneck(draw), outside])

    def act(step):
        return policy.act(step.inputs.reshape(-1, 55)).reshape(step.due.shape).astype(float)

    steps(batch, act, seed=[3, 9])
    world = inside.world(9)
    world.reset()
    world.step("20 s")
    assert world.done and [rows(each) for each in batch.worlds[1].flows] == [
        rows(each) for each in world.flows
    ]


def test_seeds_repeat_to_the_byte_and_neighbours_change_nothing():
    alone = steps(Batch([STAIRS]), random_actions(), seed=7)
    assert same(alone, steps(Batch([STAIRS]), random_actions(), seed=7))
    again = Batch([STAIRS])
    steps(again, hold)
    assert same(alone, steps(again, random_actions(), seed=7)), "what was before leaves nothing"
    assert not same(alone, steps(Batch([STAIRS]), random_actions(), seed=8))

    actions = random_actions()

    def beside(step):  # the same actions for the first episode, whatever the others do
        wide = actions(replace(step, due=step.due[:1]))
        return np.concatenate([wide, np.full((len(step.due) - 1, wide.shape[1]), 0.3)])

    crowd = steps(Batch([STAIRS, SHORT, STAIRS]), beside, seed=[7, 1, 2])
    crowd = crowd[: len(alone)]
    for one, many in zip(alone, crowd, strict=True):
        for name in ("due", "present", "born", "left", "inputs", "terms"):
            assert np.array_equal(getattr(one, name)[0], getattr(many, name)[0]), name
        assert (one.reward[0], one.now[0]) == (many.reward[0], many.now[0])


def test_a_step_is_a_wake_up_at_which_a_flow_is_due():
    found = steps(Batch([STAIRS]), random_actions())
    assert found[-1].done.all() and found[-1].now[0] == pytest.approx(3, abs=1e-9)
    assert all(each.due[0].any() for each in found[:-1])
    times = [each.now[0] for each in found]
    assert all(a < b for a, b in pairwise(times))
    assert sum(each.born[0].astype(int) for each in found).tolist() == [1, 1, 1]
    assert sum(each.left[0].astype(int) for each in found).tolist() == [0, 1, 0]
    gone = next(each.now[0] for each in found if each.left[0, 1])
    assert gone >= 2.2  # its lifetime, and then what it had under way
    for flow, (begin, end) in enumerate([(0, 3), (0.7, gone), (1.2, 3)]):
        due = [each for each in found if each.due[0, flow]]
        assert all(each.present[0, flow] for each in due)
        assert begin + 0.03 <= due[0].now[0] <= begin + 0.3  # its start-up is over
        assert end - 0.1 <= due[-1].now[0] <= end
        lengths = [each.terms[0, flow, TERMS.index("seconds")] for each in due]
        assert np.isclose(np.median(lengths), 0.03, atol=1e-4) and 0.024 < min(lengths)
    # Not all at once: each flow has a clock of its own.
    alone = [each.due[0].sum() == 1 for each in found if each.present[0].all()]
    assert np.mean(alone) > 0.5


def test_without_a_decision_a_window_stays():
    def silent(step):
        return np.full(step.due.shape, np.nan)

    # No loss in a queue that holds the windows of all, so that there is no timeout; no drain.
    calm = replace(STAIRS, loss=0, buffer=4, tcp={"extremes": "lifetime"})
    window = TERMS.index("window_packets")
    for flow in range(3):
        due = [each for each in steps(Batch([calm]), silent) if each.due[0, flow]]
        assert len(due) > 20 and len({each.terms[0, flow, window] for each in due}) == 1


def a_flow(act=hold, rtt="20 ms", length="4 s", **values):
    """Terms by name at each decision of one flow alone on 40 Mb/s."""
    link = Bottleneck(rate="40 Mb/s", rtt=rtt, buffer=4, flows=[Flow()], length=length, **values)
    found = [each.terms[0, 0] for each in steps(Batch([link]), act) if each.due[0, 0]]
    return {name: np.array([row[n] for row in found]) for n, name in enumerate(TERMS)}


def test_noise_moves_round_trips_and_nothing_else():
    """Of a held window that the link carries without a queue."""
    still = {"tcp": {"startup": "none", "initial_window": 20}}
    calm, late, together = (
        a_flow(**still, **noise)
        for noise in ({}, {"jitter": "8 ms"}, {"bunching": 33})  # slots of 10 ms
    )
    rises = [each["rtt_us"][10:].mean() - calm["rtt_us"][10:].mean() for each in (late, together)]
    assert calm["rtt_us"][10:].std() < 100
    assert 3_000 < rises[0] < 8_000, "in order: some wait for a later one before them"
    assert 2_000 < rises[1] < 10_000
    for noisy in (late, together):
        assert np.all(noisy["queue_loss_Bps"] == 0) and np.all(noisy["loss_Bps"] == 0)
        assert np.all(noisy["least_rtt_us"] >= calm["least_rtt_us"].min() - 1)


def test_a_decision_is_taken_after_its_delay():
    """The window that an interval shows is that of its end, and late ones have sent less."""
    at_once, late = (
        a_flow(lambda step: np.ones(step.due.shape), length="1 s", **values)
        for values in (
            {"tcp": {"startup": "none"}},
            {"tcp": {"startup": "none"}, "action_delay": "10 ms"},
        )
    )
    assert np.array_equal(at_once["window_packets"], late["window_packets"])
    assert np.all(late["throughput_Bps"][2:12] < at_once["throughput_Bps"][2:12])


@pytest.mark.parametrize(("rtt_ms", "expected_ms"), [(5, 10), (40, 40), (160, 100)])
def test_intervals_by_round_trips_have_bounds(rtt_ms, expected_ms):
    terms = a_flow(rtt=f"{rtt_ms} ms", length="6 s", tcp={"interval_rtts": 1, "startup": "none"})
    lasted = terms["seconds"][len(terms["seconds"]) // 2 :]
    assert lasted.mean() == pytest.approx(expected_ms / 1000, rel=0.1)
    fixed = a_flow(rtt=f"{rtt_ms} ms", length="6 s", tcp={"startup": "none"})
    assert fixed["seconds"][-1] == pytest.approx(0.03)


def test_actions_that_are_rates():
    start = {"startup": "none", "initial_window": 20}
    grows = a_flow(lambda step: np.ones(step.due.shape), tcp={"action": "rate", **start})
    steady = grows["pacing_Bps"][2:22]
    assert np.diff(np.log(steady)) == pytest.approx(np.log(1.025), rel=1e-3)
    bounds = {"action": "absolute", "rate_least_bps": 1e6, "rate_most_bps": 1e8}
    for action, rate in ((-1, 1e6), (0, 1e7), (0.5, 10**7.5)):
        act = lambda step, a=action: np.full(step.due.shape, float(a))  # noqa: E731
        terms = a_flow(act, tcp={**bounds, **start})
        # Headers count in a link's rate, not in a rate of payload.
        assert terms["pacing_Bps"][-1] * 8 == pytest.approx(rate * 1500 / 1428, rel=0.02)
        assert terms["throughput_Bps"][-5:].mean() * 8 == pytest.approx(rate, rel=0.05)


def test_in_lockstep_all_flows_decide_at_once():
    together, alone = (
        [step for step in steps(Batch([link]), random_actions()) if step.due.any()]
        for link in (replace(STAIRS, lockstep=True), STAIRS)
    )
    apart = [(step.now[0] - together[0].now[0]) / 0.03 for step in together]
    assert apart == pytest.approx(np.round(apart), abs=1e-6)
    all_three = [step for step in together if step.present.all()]
    assert len(all_three) > 10 and np.mean([step.due.all() for step in all_three]) > 0.9
    assert not any(step.due.all() for step in alone)


def test_the_reward_is_the_publications_and_its_weights_are_the_callers():
    found = steps(Batch([SHORT]), random_actions(), seed=2)[-1]
    thr, lat, loss, fair, stab = found.reward_terms[0]
    raw = 0.1 * thr - 0.02 * lat - loss - 0.02 * fair - 0.01 * stab
    assert found.reward[0] == pytest.approx(np.clip(raw, -0.1, 0.1)) and 0 < thr < 1
    assert fair == 0, "a flow of another control has no interval"
    selfish = Batch([SHORT], reward=Reward(latency=0, loss=0, fairness=0, stability=0))
    assert steps(selfish, random_actions(), seed=2)[-1].reward[0] == pytest.approx(
        min(0.1 * thr, 0.1)
    )


def test_long_episodes_end():
    """A run looks now and then whether its flows still get on, and so must a batch."""
    found = steps(Batch([replace(SHORT, rate="2 Mb/s", length="30 s")]), hold)
    assert found[-1].now[0] == 30


def test_a_call_that_is_refused_has_acted_for_nobody():
    pair, good = Batch([SHORT, SHORT]), np.full((2, 2), 0.5)
    untried = Batch([SHORT, SHORT])
    pair.reset(np.int64(1))
    untried.reset(1)
    with pytest.raises(ValueError, match=r"actions\[1, 0\]"):
        pair.step(np.array([[-1.0, 0], [7, 0]]))
    for _ in range(5):
        one, other = pair.step(good), untried.step(good)
        assert np.array_equal(one.terms, other.terms) and np.array_equal(one.now, other.now)


def test_a_flow_of_another_control_is_never_due():
    found = steps(Batch([SHORT]), hold)
    assert not any(each.due[0, 1] for each in found) and any(each.present[0, 1] for each in found)


def test_a_link_changes_its_rate_when_it_is_told_to():
    """Flows of BBR, one for each of its rates, have what they leave; the reward counts by the rate
    of the moment."""
    rates, second = [20, 60, 5, 40, 20], 2.0
    link = Bottleneck(
        rate="20 Mb/s",
        rtt="10 ms",
        flows=[Flow(f"{k * second} s", f"{second} s", cc="bbr") for k in range(5)],
        buffer=4,
        length=f"{5 * second + 1} s",
        changes=[(f"{k * second} s", f"{rates[k]} Mb/s") for k in range(1, 5)],
    )
    batch = Batch([link])
    assert batch.reset().done.all()
    sent = [rows(each)[2][0] * 8e-6 / second for each in batch.worlds[0].flows]
    queue = link.buffer_bytes * 8e-6 / second  # what a flow leaves there is its own, too
    for rate, had in zip(rates, sent, strict=True):
        assert 0.8 * rate < had < 1448 / 1538 * rate + 1.5 * queue, (rate, had)
    found = steps(Batch([replace(link, flows=[Flow(), Flow("0.5 s")])]), hold)
    whole = [each.terms[0, :, 1].sum() / each.reward_terms[0, 0] for each in found]
    early, late = (
        np.median([w for w, each in zip(whole, found, strict=True) if a < each.now[0] < a + 1])
        for a in (0.6, 2.4)
    )
    assert late / early == pytest.approx(3)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Bottleneck(changes=[("0 s", "1 Mb/s")]), "Bottleneck.changes: give times above 0"),
        (lambda: Bottleneck(changes=[("2 s", "1 Mb/s"), ("1 s", "2 Mb/s")]), "later than the last"),
        (lambda: Bottleneck(changes=[("60 s", "1 Mb/s")]), "60 s is not within the length, 60 s"),
        (lambda: Bottleneck(changes=[("1 s", "fast")]), "fast"),
        (lambda: Bottleneck(flows=[]), "Bottleneck.flows is empty"),
        (lambda: Bottleneck(buffer=0), "Bottleneck.buffer: 0 is not above 0"),
        (lambda: Bottleneck(loss=1.0), "Bottleneck.loss: 1.0 is no share"),
        (lambda: Bottleneck(bunching=0), "Bottleneck.bunching: 0 packets, not 1 to 1000"),
        (lambda: Bottleneck(jitter="2"), "Bottleneck.jitter"),
        (
            lambda: Batch([Bottleneck(action_delay="30 ms")]).reset(),
            "action_delay_us: 30000 is not below",
        ),
        (
            lambda: Bottleneck(lockstep=True, tcp={"interval_rtts": 1}),
            "leave wake_us and interval_rtts out",
        ),
        (lambda: Bottleneck(tcp={"cc": "cubic"}), "'cc' is given by flow"),
        (lambda: Bottleneck(flows=[Flow(rtt="9 ms")]), r"Bottleneck.flows\[0\].rtt: 9 ms"),
        (lambda: Batch([]), "Batch: give one bottleneck or more"),
        (
            lambda: Batch([Bottleneck(), Bottleneck(tcp={"frames": 3})]),
            r"bottlenecks\[0\] shows policies 55 inputs, bottlenecks\[1\] 33",
        ),
        (lambda: Batch([SHORT]).reset([1, 2]), "2 seeds for 1 bottlenecks"),
        (lambda: Bottleneck(tcp={"wake_us": 0}), None),
    ],
)
def test_what_does_not_fit_is_one_line(make, words):
    if words is None:
        batch = Batch([make()])
        with pytest.raises(ValueError, match="give its control a grid, wake_us") as refused:
            batch.reset()
    else:
        with pytest.raises(UsageError, match=words) as refused:
            make()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("value", [1.5, -2, np.inf])
def test_an_action_that_is_none_is_one_line(value):
    batch = Batch([SHORT])
    step = batch.reset()
    assert step.due[0, 0]
    with pytest.raises(ValueError, match=r"actions\[0, 0\] is .*an action is -1 to 1"):
        batch.step(np.full((1, 2), value))
    assert np.isfinite(batch.step(np.full((1, 2), 0.5)).now).all(), "a refused call changes nothing"
    with pytest.raises(UsageError, match="call reset"):
        Batch([SHORT]).step(np.zeros((1, 2)))
    with pytest.raises(ValueError, match=r"actions: shape \(1, 2\)"):
        batch.step(np.zeros((2, 2)))


# --- Gymnasium and PettingZoo ---------------------------------------------------------------------
BESIDE_CUBIC = replace(SHORT, length="2 s")


@pytest.mark.filterwarnings("error")
def test_gymnasium_takes_one_flow_as_its_own():
    gymnasium = pytest.importorskip("gymnasium")
    from gymnasium.utils.env_checker import check_env

    env = gymnasium.make("loomnet/OneFlow-v0", bottleneck=BESIDE_CUBIC)
    check_env(env.unwrapped, skip_render_check=True)
    check_env(gymnasium.make("loomnet/OneFlow-v0").unwrapped, skip_render_check=True)
    observation, info = env.reset(seed=3)
    seen, over = [info["time_s"]], False
    while not over:
        observation, reward, terminated, over, info = env.step(np.array([0.5], np.float32))
        assert env.observation_space.contains(observation) and not terminated
        assert abs(reward) <= 0.1
        seen.append(info["time_s"])
    assert seen[-1] == 2 and np.isclose(np.median(np.diff(seen)), 0.03, atol=1e-9)
    with pytest.raises(gymnasium.error.ResetNeeded):
        gymnasium.make("loomnet/OneFlow-v0", bottleneck=SHORT).step(np.zeros(1, np.float32))
    with pytest.raises(UsageError, match="first flow learns and has no cc"):
        gymnasium.make("loomnet/OneFlow-v0", bottleneck=STAIRS).reset()


def test_one_flow_is_the_flow_of_a_batch():
    pytest.importorskip("gymnasium")
    from loomnet.learning.one_flow import OneFlow

    env = OneFlow(BESIDE_CUBIC)
    _, info = env.reset(seed=3)
    seed = int(np.random.Generator(np.random.PCG64(np.random.SeedSequence(3))).integers(2**31))
    found = steps(Batch([BESIDE_CUBIC]), lambda step: np.full((1, 2), 0.25), seed=seed)
    assert info["time_s"] == found[0].now[0]
    for each in found[1:]:
        observation, reward, _, over, info = env.step(np.array([0.25]))
        assert np.array_equal(observation, each.inputs[0, 0])
        assert (reward, over, info["time_s"]) == (each.reward[0], each.done[0], each.now[0])


@pytest.mark.filterwarnings("error")
def test_pettingzoo_takes_flows_that_come_and_go_as_its_agents():
    testing = pytest.importorskip("pettingzoo.test")
    crowd = replace(STAIRS, flows=[*STAIRS.flows, Flow("0.1 s", "1 s", cc="cubic")])
    env = parallel_env(crowd)
    assert env.possible_agents == ["flow_0", "flow_1", "flow_2"]
    testing.parallel_api_test(env, num_cycles=1000)
    testing.parallel_seed_test(lambda: parallel_env(crowd))
    env.reset(seed=7)
    lives = {name: [] for name in env.possible_agents}
    while env.agents:
        asked = list(env.agents)
        # Windows shrink: a flow that loses most of its packets leaves late.
        seen = env.step({name: np.array([-0.3], np.float32) for name in asked})
        told = set(seen[0])
        assert all(set(each) == told for each in seen) and told >= set(asked)
        assert told - set(asked) <= set(env.agents) | {n for n in told if seen[3][n]}
        assert not any(seen[2].values()) and len(set(seen[1].values())) == 1
        for name in told:
            lives[name].append(seen[4][name]["time_s"])
            assert seen[3][name] == (name not in env.agents)
    begins = {name: times[0] for name, times in lives.items()}
    assert begins["flow_0"] < 0.7 <= begins["flow_1"] < 1.2 <= begins["flow_2"] < 1.4
    assert lives["flow_1"][-1] < 2.9 and lives["flow_0"][-1] == lives["flow_2"][-1] == 3
    with pytest.raises(UsageError, match="every flow has a cc"):
        parallel_env(replace(SHORT, flows=[Flow(cc="cubic")]))


@pytest.mark.filterwarnings("error")
def test_agents_may_wait_for_their_flows():
    """TorchRL's wrapper asks for every agent at reset()."""
    testing = pytest.importorskip("pettingzoo.test")
    testing.parallel_api_test(parallel_env(STAIRS, waiting=True), num_cycles=300)
    found = {}
    for waiting in (False, True):
        env = parallel_env(STAIRS, waiting=waiting)
        observations, _ = env.reset(seed=2)
        assert set(observations) == set(env.possible_agents if waiting else env.agents)
        seen = []
        while env.agents:
            told = env.step({name: np.array([0.3], np.float32) for name in env.agents})
            seen.append({n: each.tolist() for n, each in told[0].items() if told[4][n]["due"]})
            late = [n for n in env.agents if told[4][n]["time_s"] < (0.7 if n == "flow_1" else 1.2)]
            if waiting and {"flow_1", "flow_2"} <= set(late):
                assert not told[0]["flow_2"].any() and not told[4]["flow_2"]["due"]
        found[waiting] = seen
    assert found[True] == found[False] and len(found[True]) > 50


def test_bottlenecks_are_learned_on():
    # The third is test_suite.py's, the last test_train_command.py's.
    code, faces, *_ = pages.python_blocks("docs/learning.md")
    names = {}
    exec(code, names)
    step, rewards = names["step"], names["rewards"]
    assert step.done.all() and step.now == pytest.approx([4, 4])
    # Alone and then beside an equal the rule of the page fills the link with a short queue.
    late = np.mean(rewards[len(rewards) // 2 :], axis=0)
    assert 0.06 < late[0] <= 0.1 and late[1] < late[0]
    pytest.importorskip("gymnasium")
    exec(faces, names)
    assert names["over"] and names["info"]["time_s"] == 2 and not names["several"].agents
    assert names["ended"] == 4
