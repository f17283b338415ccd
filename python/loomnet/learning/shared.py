"""`loomnet/SharedBottleneck-v0`: bottlenecks side by side, each with flows that learn, as a vector
environment of Gymnasium. Needs the extra [rl]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from loomnet.base.errors import UsageError
from loomnet.learning.batch import Batch, Reward, RewardFunction, Step
from loomnet.learning.bottleneck import Bottleneck, Flow
from loomnet.learning.one_flow import MOST_INPUT, Draw, spread

MOST_FLOWS = 4
SHOWN = ("due", "present", "born", "left", "terms", "reward_terms", "global_state")

Info = dict[str, Any]


def drawn_together(draw: np.random.Generator) -> Bottleneck:
    """Two to four flows that learn: one for the whole 20 s, the others for a part of them."""
    rtt = spread(draw, 5, 100)
    others = [
        Flow(
            f"{draw.uniform(0, 8):.3f} s",
            f"{draw.uniform(5, 12):.3f} s",
            rtt=f"{rtt * draw.uniform(0.7, 1.5):.3f} ms",
        )
        for _ in range(int(draw.integers(1, MOST_FLOWS)))
    ]
    return Bottleneck(
        rate=f"{spread(draw, 10, 100):.3f} Mb/s",
        rtt=f"{rtt:.3f} ms",
        buffer=spread(draw, 0.3, 4),
        flows=[Flow(), *others],
        length="20 s",
    )


class SharedBottleneckVector(gymnasium.vector.VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """`num_envs` bottlenecks, stepped together; a sub-environment is one with all of its flows.

    A step goes on in each bottleneck to its next decision, as Batch.step() has it. Observations are
    float32[num_envs, flows, inputs], a flow in the row of its place in Bottleneck.flows, cut at 0
    and 10,000; a flow that is not due has the row that it saw last, one that never was has zeros.
    Actions are float32[num_envs, flows], -1 to 1; those of flows that are not due, and NaN, decide
    nothing. All flows of a bottleneck have one reward. Episodes never terminate: they are truncated
    when their time is over. `infos` has arrays by bottleneck: `due`, `present`, `born`, `left`,
    `terms`, `reward_terms`, `global_state`, as Step has them, and `time_s`.

    At an episode's end, by `autoreset_mode`:
        NEXT_STEP: the next step begins another, with reward 0, whatever its action is.
        SAME_STEP: another begins at once; the last observation is `infos["final_obs"][k]`, and
            what was known then `infos["final_info"]`.
        DISABLED: it stands until `reset(options={"reset_mask": bool[num_envs]})`; a step before
            that is refused.

    Args:
        bottleneck: the same in each episode, or a function that draws one; by default
            drawn_together().
        flows: rows; None: as many as the bottleneck has, 4 where it is drawn.
        reward: its weights.

    Raises UsageError where no flow learns.
    """

    def __init__(
        self,
        num_envs: int = 1,
        bottleneck: Bottleneck | Draw = drawn_together,
        *,
        flows: int | None = None,
        reward: Reward | RewardFunction | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    ) -> None:
        if num_envs < 1:
            raise UsageError(f"SharedBottleneck: num_envs: {num_envs} is not above 0")
        if callable(bottleneck):
            self._draw: Draw = bottleneck
            flows = MOST_FLOWS if flows is None else flows
        else:
            self._draw = lambda _: bottleneck
        self.num_envs = num_envs
        self.metadata: Info = {
            "autoreset_mode": AutoresetMode(autoreset_mode),
            "render_modes": [],
        }
        self._flows, self._reward = flows, reward
        example = self._made([self._draw(np.random.default_rng(0))])
        self._flows = example.flows
        shape = (example.flows, example.inputs)
        self._least = example.least_input
        self.single_observation_space = gymnasium.spaces.Box(
            self._least, MOST_INPUT, shape, np.float32
        )
        self.single_action_space = gymnasium.spaces.Box(-1, 1, shape[:1], np.float32)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._draws: list[np.random.Generator] = []  # of each sub-environment, once there is a seed
        self._batch: Batch | None = None
        self._over = np.zeros(num_envs, bool)  # truncated by the last step, and not begun anew

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: Info | None = None,
    ) -> tuple[np.ndarray, Info]:
        """`seed`: of the first sub-environment, those of the others count on from it; or one for
        each. `options={"reset_mask": bool[num_envs]}`: those alone."""
        which = self._mask(options)
        if seed is None or isinstance(seed, (int, np.integer)):
            super().reset(seed=None if seed is None else int(seed))
            seeds = [None if seed is None else int(seed) + k for k in range(self.num_envs)]
        else:
            seeds = list(seed)
            if len(seeds) != self.num_envs:
                raise UsageError(
                    f"SharedBottleneck.reset: seed: {len(seeds)} seeds for {self.num_envs} "
                    "sub-environments"
                )
        if not self._draws:  # those without a seed go by `np_random_seed`, which tells it
            first = int(self.np_random.integers(2**31))
            self._draws = [np.random.default_rng(first + k) for k in range(self.num_envs)]
        for k in np.flatnonzero(which).tolist():
            if seeds[k] is not None:
                self._draws[k] = np.random.default_rng(seeds[k])
        if self._batch is None or which.all():
            links, numbers = self._drawn(np.ones(self.num_envs, bool))
            self._batch = self._made(links)
            step = self._batch.reset(numbers)
        else:
            links, numbers = self._drawn(which)
            step = self._batch.renew(which, numbers, links)
        self._over &= ~which
        return self._seen(step), self._infos(step)

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, Info]:
        if self._batch is None:
            raise gymnasium.error.ResetNeeded("SharedBottleneck: call reset() before step()")
        mode, over = self.metadata["autoreset_mode"], self._over
        if mode == AutoresetMode.DISABLED and over.any():
            raise gymnasium.error.ResetNeeded(
                f"SharedBottleneck: sub-environments {np.flatnonzero(over).tolist()} are over; "
                'call reset(options={"reset_mask": …}) first'
            )
        step = self._batch.step(actions)  # one that is over stands
        reward, truncated = step.reward.copy(), step.done.copy()
        reward[over], truncated[over] = 0, False
        infos: Info = {}
        begun = over
        if mode == AutoresetMode.SAME_STEP and truncated.any():
            begun = truncated
            infos = self._final(step, truncated)
        if begun.any():
            links, numbers = self._drawn(begun)
            step = self._batch.renew(begun, numbers, links)
        self._over = truncated & (mode != AutoresetMode.SAME_STEP)
        infos |= self._infos(step)
        return self._seen(step), reward, np.zeros(self.num_envs, bool), truncated, infos

    # --- inside -----------------------------------------------------------------------------------
    def _mask(self, options: Info | None) -> np.ndarray:
        given = (options or {}).get("reset_mask")
        if given is None:
            return np.ones(self.num_envs, bool)
        mask = np.asarray(given)
        if mask.shape != (self.num_envs,) or mask.dtype != bool or not mask.any():
            raise UsageError(
                f"SharedBottleneck.reset: reset_mask: give bool[{self.num_envs}], one or more true"
            )
        return mask

    def _made(self, links: list[Bottleneck]) -> Batch:
        for link in links:
            if all(flow.cc is not None for flow in link.flows):
                raise UsageError(
                    "SharedBottleneck: every flow has a cc; leave out that of those that learn"
                )
        return Batch(links, reward=self._reward, flows=self._flows)

    def _drawn(self, which: np.ndarray) -> tuple[list[Bottleneck], list[int]]:
        draws = [self._draws[k] for k in np.flatnonzero(which).tolist()]
        links = [self._draw(draw) for draw in draws]
        return links, [int(draw.integers(2**31)) for draw in draws]

    def _seen(self, step: Step) -> np.ndarray:
        return np.clip(step.inputs, self._least, MOST_INPUT)

    def _infos(self, step: Step) -> Info:
        infos: Info = {name: getattr(step, name).copy() for name in SHOWN}
        infos["time_s"] = step.now.copy()
        everywhere = np.ones(self.num_envs, bool)
        return infos | {f"_{name}": everywhere.copy() for name in list(infos)}

    def _final(self, step: Step, which: np.ndarray) -> Info:
        """Of episodes that end in this step, as Gymnasium's own vector environments tell it."""
        seen, last = self._seen(step), np.full(self.num_envs, None, object)
        for k in np.flatnonzero(which).tolist():
            last[k] = seen[k]
        known = self._infos(step)
        known |= {name: which.copy() for name in known if name.startswith("_")}
        return {
            "final_obs": last,
            "_final_obs": which.copy(),
            "final_info": known,
            "_final_info": which.copy(),
        }
