"""Learners of other people take the environments as they are: Stable-Baselines3, the collector of
TorchRL and BenchMARL, 1,000 steps each, with flows that come and go.

BenchMARL asks for torchvision, whose build on the index does not load beside a PyTorch for the CPU,
so that no extra has it. Its test runs in an environment of its own:
    pip install stable-baselines3==2.9.2 "torchrl==0.11.*" hydra-core tqdm
    pip install --no-deps benchmarl==1.5.2
"""

import numpy as np
import pytest

pytest.importorskip("loomnet._core")
pytest.importorskip("torch")
pytest.importorskip("gymnasium")

import gymnasium
import one_torch_thread

from loomnet.learning import Bottleneck, Flow, evaluate, parallel_env
from loomnet.learning.cc_v1 import CC_V1

BESIDE_CUBIC = Bottleneck(
    rate="20 Mb/s", buffer=0.5, flows=[Flow(), Flow("0.2 s", cc="cubic")], length="2 s"
)
# Three flows, of unlike round trips, that come and go; a link that loses some packets by itself.
STAIRS = Bottleneck(
    rate="40 Mb/s",
    rtt="20 ms",
    flows=[Flow(), Flow("0.7 s", "1.5 s", rtt="35 ms"), Flow("1.2 s", rtt="14 ms")],
    length="3 s",
    loss=0.001,
)


@pytest.fixture(autouse=True)
def one_thread():
    yield from one_torch_thread.alone()


def test_gymnasiums_environments_pass_the_check_of_stable_baselines():
    pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.env_checker import check_env

    check_env(gymnasium.make("loomnet/OneFlow-v0", bottleneck=BESIDE_CUBIC).unwrapped)
    check_env(gymnasium.make("loomnet/CC-v1").unwrapped)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("TD3", {"learning_starts": 700}),
        ("SAC", {"learning_starts": 850}),
        ("PPO", {"n_steps": 250, "n_epochs": 1, "batch_size": 125}),
    ],
)
def test_stable_baselines_learn_on_one_flow(name, options):
    baselines = pytest.importorskip("stable_baselines3")
    env = gymnasium.make("loomnet/OneFlow-v0", bottleneck=BESIDE_CUBIC)
    learner = getattr(baselines, name)(
        "MlpPolicy", env, policy_kwargs={"net_arch": [32, 32]}, seed=1, **options
    )
    before = [each.detach().clone() for each in learner.policy.parameters()]
    learner.learn(1000)
    after = list(learner.policy.parameters())
    assert learner.num_timesteps == 1000
    assert any(not a.equal(b) for a, b in zip(before, after, strict=True)), "it has learned"
    assert len(learner.ep_info_buffer) > 10, "episodes end, and others begin"


def test_a_policy_of_stable_baselines_is_scored_by_the_suite():
    """By its function, in a process of its own besides."""
    baselines = pytest.importorskip("stable_baselines3")
    learner = baselines.PPO("MlpPolicy", gymnasium.make("loomnet/CC-v1"), n_steps=64, seed=1)

    def decide(inputs):
        return learner.predict(inputs, deterministic=True)[0]

    points = [each for each in CC_V1.scored if each.rate_mbps == 15][:2]
    found = evaluate(decide, points=points, jobs=2)
    assert found.rows == evaluate(decide, points=points, jobs=1).rows
    assert found.name == "decide" and -20 < found.score < 1


def test_torchrl_collects_from_flows_that_come_and_go():
    pytest.importorskip("torchrl")
    from torchrl import collectors
    from torchrl.envs.utils import RandomPolicy, check_env_specs

    env = torchrl_env(STAIRS)
    check_env_specs(env)
    policy = RandomPolicy(env.full_action_spec)
    collector = getattr(collectors, "Collector", None) or collectors.SyncDataCollector
    frames = dead = 0
    for data in collector(env, policy, frames_per_batch=250, total_frames=1000):
        frames += data.numel()
        dead += int((~data["flow", "mask"]).sum())
    assert frames == 1000 and dead > 0


def torchrl_env(bottleneck):
    from torchrl.envs.libs.pettingzoo import PettingZooWrapper

    return PettingZooWrapper(
        env=parallel_env(bottleneck, waiting=True), use_mask=True, done_on_any=False
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ["Ippo", "Maddpg"])
def test_benchmarl_learns_on_flows_that_come_and_go(name, tmp_path):
    pytest.importorskip("benchmarl")
    from benchmarl import algorithms
    from benchmarl.environments.common import TaskClass
    from benchmarl.experiment import Experiment, ExperimentConfig
    from benchmarl.models.mlp import MlpConfig

    masks = []

    class Links(TaskClass):
        """What BenchMARL asks of an environment that it does not know."""

        def get_env_fun(self, num_envs, continuous_actions, seed, device):
            return lambda: torchrl_env(STAIRS)

        def supports_continuous_actions(self):
            return True

        def supports_discrete_actions(self):
            return False

        def has_render(self, env):
            return False

        def __reduce__(self):  # an experiment keeps its task as a pickle
            return str, ("stairs",)

        def max_steps(self, env):
            return 1000

        def group_map(self, env):
            return env.group_map

        def observation_spec(self, env):
            spec = env.observation_spec.clone()
            for group in [*spec.keys()]:
                if group not in env.group_map:
                    del spec[group]
                    continue
                for key in [*spec[group].keys()]:
                    if key != "observation":
                        del spec[group, key]
            return spec

        def action_spec(self, env):
            return env.full_action_spec

        def info_spec(self, env):
            return None

        state_spec = action_mask_spec = info_spec

        @staticmethod
        def env_name():
            return "loomnet"

        @staticmethod
        def log_info(batch):
            masks.append(batch["flow", "mask"].clone())
            return {}

    plan = ExperimentConfig.get_from_yaml()
    plan.loggers, plan.create_json, plan.evaluation, plan.render = [], False, False, False
    plan.max_n_frames, plan.save_folder = 1000, str(tmp_path)
    plan.off_policy_collected_frames_per_batch = plan.on_policy_collected_frames_per_batch = 250
    plan.off_policy_n_envs_per_worker = plan.on_policy_n_envs_per_worker = 1
    plan.off_policy_n_optimizer_steps, plan.off_policy_train_batch_size = 4, 64
    plan.on_policy_n_minibatch_iters, plan.on_policy_minibatch_size = 1, 125
    plan.off_policy_memory_size = 1000
    experiment = Experiment(
        task=Links("stairs", {}),
        algorithm_config=getattr(algorithms, f"{name}Config").get_from_yaml(),
        model_config=MlpConfig.get_from_yaml(),
        critic_model_config=MlpConfig.get_from_yaml(),
        seed=1,
        config=plan,
    )
    experiment.run()
    there = np.concatenate([each.reshape(-1, 3).numpy() for each in masks])
    assert experiment.total_frames == len(there) == 1000
    assert there[:, 0].all() and 0 < (~there).sum() < 1000, "a flow leaves, and the others stay"
