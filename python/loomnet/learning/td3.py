"""TD3 with central critics: one actor for all flows, which sees what a flow has measured itself,
and two critics that see the bottleneck besides.

Fujimoto et al., "Addressing Function Approximation Error in Actor-Critic Methods", ICML 2018; Lowe
et al., "Multi-Agent Actor-Critic for Mixed Cooperative-Competitive Environments", NIPS 2017; for
congestion control, Liao et al., EuroSys 2024. Needs PyTorch (extra `torch`).
"""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import nn

from loomnet.base.errors import UsageError

SLOPE = 0.2  # of leaky ReLUs below 0, as policy files have it
NORM_EPSILON, NORM_MOMENTUM = 1e-3, 0.01


@dataclass(frozen=True)
class Td3:
    """Constants of a learner.

    Attributes:
        actor, critic: widths of the hidden layers; a critic takes the action at its second layer.
        batch_norm: of the actor's hidden layers, with an offset and no scale.
        batch: transitions of an update.
        discount: of the next step's value.
        soft: share of its network that a target takes over at each update.
        actor_rate, critic_rate: learning rates of Adam.
        policy_delay: updates of the critics for one of the actor.
        initial: first weights: "glorot", as published (Glorot and Bengio, 2010; biases 0), or
            "uniform", PyTorch's own, up to 1/sqrt(inputs), biases too. Where the actor learns from
            the first update on, two of four seeds of "glorot" ended at one constant action.
        noise, noise_clip: of target actions: standard deviation, and the largest.
        warm_up: updates of the critics before the first of the actor.
        clip: the largest norm of a gradient; None: none.
        near: weight of the mean squared distance to the actions of the actor that `stay_near()`
            took, first and last: a policy that imitates a rule is lost while critics know little,
            else (Schmitt et al., "Kickstarting Deep Reinforcement Learning", 2018).
        near_over: updates in which that weight falls from the one to the other, evenly in its
            logarithm, or evenly to 0.
    """

    actor: tuple[int, ...] = (64, 32)
    critic: tuple[int, ...] = (64, 64)
    batch_norm: bool = False
    initial: Literal["glorot", "uniform"] = "glorot"
    batch: int = 192
    discount: float = 0.98
    soft: float = 0.005
    actor_rate: float = 5e-5
    critic_rate: float = 1e-3
    policy_delay: int = 4
    noise: float = 0.05
    noise_clip: float = 0.1
    warm_up: int = 2000
    clip: float | None = 1.0
    near: tuple[float, float] = (0.0, 0.0)
    near_over: int = 1


# As the publication has it, as far as it says so.
PAPER = Td3(
    actor=(256, 128, 64),
    critic=(256, 128, 64),
    batch_norm=True,
    policy_delay=20,
    warm_up=0,
    clip=None,
)


def _dense(inputs: int, outputs: int, initial: str) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    if initial == "glorot":
        nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(layer.bias)
    return layer


class _Norm(nn.Module):
    """Batch normalisation with an offset and no scale."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(width, NORM_EPSILON, NORM_MOMENTUM, affine=False)
        self.offset = nn.Parameter(torch.zeros(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x) + self.offset


class Actor(nn.Module):
    """Actions float32[flows], -1 to 1, of inputs float32[flows, inputs]."""

    def __init__(self, inputs: int, constants: Td3) -> None:
        super().__init__()
        hidden = constants.actor
        self.dense = nn.ModuleList(
            _dense(a, b, constants.initial) for a, b in itertools.pairwise([inputs, *hidden, 1])
        )
        self.norms = nn.ModuleList(map(_Norm, hidden)) if constants.batch_norm else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, dense in enumerate(self.dense):
            x = dense(x)
            if number + 1 < len(self.dense):
                if self.norms is not None:
                    x = self.norms[number](x)
                x = nn.functional.leaky_relu(x, SLOPE)
        return torch.tanh(x).squeeze(-1)

    def layers(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Weights float32[out, in] and biases float32[out] as a policy file has them: what batch
        normalisation does to a layer by its running means is part of the layer."""
        found = []
        for number, dense in enumerate(cast("Iterable[nn.Linear]", self.dense)):
            weight, bias = (each.detach().double() for each in (dense.weight, dense.bias))
            if self.norms is not None and number < len(self.norms):
                each = cast(_Norm, self.norms[number])
                mean, variance = (
                    cast(torch.Tensor, value).double()
                    for value in (each.norm.running_mean, each.norm.running_var)
                )
                spread = (variance + NORM_EPSILON).sqrt()
                weight = weight / spread[:, None]
                bias = (bias - mean) / spread + each.offset.double()
            found.append((weight.detach().float().numpy(), bias.detach().float().numpy()))
        return found


class Critic(nn.Module):
    """Values float32[rows] of states float32[rows, state] and actions float32[rows]."""

    def __init__(self, state: int, constants: Td3) -> None:
        super().__init__()
        widths = [state, *constants.critic, 1]
        extra = [0, 1, *[0] * len(constants.critic)]
        self.dense = nn.ModuleList(
            _dense(a + more, b, constants.initial)
            for (a, b), more in zip(itertools.pairwise(widths), extra, strict=False)
        )

    def forward(self, state: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        x = nn.functional.leaky_relu(self.dense[0](state), SLOPE)
        x = torch.cat([x, action[:, None]], 1)
        for dense in list(self.dense)[1:-1]:
            x = nn.functional.leaky_relu(dense(x), SLOPE)
        return self.dense[-1](x).squeeze(-1)


class Replay:
    """The last `capacity` transitions of single flows, float32: what a flow saw, the bottleneck's
    state, the action, the reward, both of the next step, and 1 where there is no next step to value
    (0 where time was up, or the flow left as was planned)."""

    def __init__(self, inputs: int, state: int, capacity: int = 400_000) -> None:
        self.size = self._next = 0
        self._capacity = capacity
        shapes = ((inputs,), (state,), (), (), (inputs,), (state,), ())
        self._columns = [np.zeros((capacity, *shape), np.float32) for shape in shapes]

    def add(self, *columns: np.ndarray) -> None:
        """Rows of all seven, in the order above; at most as many as there is room for."""
        count = len(columns[0])
        places = (self._next + np.arange(count)) % self._capacity
        for column, rows in zip(self._columns, columns, strict=True):
            column[places] = rows
        self._next = (self._next + count) % self._capacity
        self.size = min(self.size + count, self._capacity)

    def draw(self, count: int, random: np.random.Generator) -> list[torch.Tensor]:
        """So many, uniformly, with repetition."""
        rows = random.integers(self.size, size=count)
        return [torch.from_numpy(column[rows]) for column in self._columns]

    def state_dict(self) -> dict[str, Any]:
        kept = [torch.from_numpy(column[: self.size].copy()) for column in self._columns]
        return {"columns": kept, "next": self._next}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over what state_dict() gave. Raises UsageError, and keeps what it has, where that
        is more than its capacity, or of other widths."""
        columns, following = [kept.numpy() for kept in state["columns"]], state["next"]
        count = len(columns[0])
        if count > self._capacity:
            raise UsageError(
                f"Replay.load_state_dict: columns: {count:,} transitions are kept, and capacity is "
                f"{self._capacity:,}; give the capacity (of Pace: replay) that they were kept with"
            )
        for own, kept in zip(self._columns, columns, strict=True):
            if own.shape[1:] != kept.shape[1:]:
                raise UsageError(
                    f"Replay.load_state_dict: columns: rows of {kept.shape[1:]} were kept, where "
                    f"this one has {own.shape[1:]}; give the inputs and state of the kept one"
                )
        if following != count and count < self._capacity:
            # Kept by a full one of less capacity, whose oldest row is the one at `following`. From
            # here on rows are added behind the newest.
            columns = [np.roll(kept, -following, axis=0) for kept in columns]
            following = count
        self.size, self._next = count, following
        for own, kept in zip(self._columns, columns, strict=True):
            own[:count] = kept


class Learner:
    """The networks and what improves them. One `seed` and the same transitions give the same
    networks, on one machine and one number of threads.

    Args:
        inputs: numbers that a flow sees.
        state: numbers that the critics see besides.
    """

    def __init__(self, inputs: int, state: int, constants: Td3 = Td3(), seed: int = 0) -> None:
        self.constants = c = constants
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.actor = Actor(inputs, c)
            self.critics = nn.ModuleList(Critic(inputs + state, c) for _ in range(2))
        self._noise = torch.Generator().manual_seed(seed)
        self._random = np.random.default_rng(seed)
        self.target_actor = copy.deepcopy(self.actor)
        self.target_critics = copy.deepcopy(self.critics)
        for target in (self.target_actor, self.target_critics):
            target.requires_grad_(False)
        self.target_actor.eval()
        self._actor_follows = _Following(self.target_actor, self.actor)
        self._critics_follow = _Following(self.target_critics, self.critics)
        self._improve_actor = torch.optim.Adam(self.actor.parameters(), c.actor_rate)
        self._improve_critics = torch.optim.Adam(self.critics.parameters(), c.critic_rate)
        self.updates = 0
        self._example: Actor | None = None  # what the actor stays near

    def stay_near(self) -> None:
        """Makes the actor of now the example that later ones stay near, as constants.near says."""
        self._example = copy.deepcopy(self.actor).requires_grad_(False)
        self._example.eval()

    @property
    def nearness(self) -> float:
        """The weight of the distance now."""
        first, last = self.constants.near
        if self._example is None or not first:
            return 0.0
        done = min(self.updates / self.constants.near_over, 1)
        return first * (last / first) ** done if last else first * (1 - done)

    def act(self, inputs: np.ndarray) -> np.ndarray:
        """Actions float32[flows] of inputs float32[flows, inputs], without exploration."""
        self.actor.eval()
        with torch.no_grad():
            return self.actor(torch.from_numpy(np.ascontiguousarray(inputs))).numpy()

    def update(self, replay: Replay) -> dict[str, float]:
        """One step of the critics, and every so often one of the actor. Returns what they lose."""
        c = self.constants
        seen, state, action, reward, then_seen, then_state, over = replay.draw(
            c.batch, self._random
        )
        noise = torch.randn(len(action), generator=self._noise).mul_(c.noise)
        with torch.no_grad():
            then = self.target_actor(then_seen) + noise.clamp_(-c.noise_clip, c.noise_clip)
            after = torch.cat([then_seen, then_state], 1)
            values = [critic(after, then.clamp(-1, 1)) for critic in self.target_critics]
            wanted = reward + c.discount * (1 - over) * torch.minimum(*values)
        now = torch.cat([seen, state], 1)
        loss = torch.stack(
            [nn.functional.huber_loss(critic(now, action), wanted) for critic in self.critics]
        ).sum()
        self._step(self._improve_critics, loss)
        self.updates += 1
        self._critics_follow.step(c.soft)
        found = {"critics": float(loss.detach())}
        if self.updates > c.warm_up and self.updates % c.policy_delay == 0:
            self.actor.train()
            chosen = self.actor(seen)
            value = self.critics[0](now, chosen).mean()
            far = torch.zeros(())
            if nearness := self.nearness:
                assert self._example is not None
                far = nearness * nn.functional.mse_loss(chosen, self._example(seen))
            self._step(self._improve_actor, far - value)
            self._actor_follows.step(c.soft)
            found["value"] = float(value.detach())
        return found

    def imitate(self, inputs: np.ndarray, actions: np.ndarray, rate: float = 1e-3) -> float:
        """One step of the actor, and of its target at once, towards these actions; the mean squared
        error before it."""
        self.actor.train()
        asked = torch.from_numpy(np.ascontiguousarray(actions, np.float32))
        error = nn.functional.mse_loss(
            self.actor(torch.from_numpy(np.ascontiguousarray(inputs))), asked
        )
        for group in self._improve_actor.param_groups:
            group["lr"] = rate
        self._step(self._improve_actor, error)
        for group in self._improve_actor.param_groups:
            group["lr"] = self.constants.actor_rate
        self._actor_follows.step(1.0)
        return float(error.detach())

    def _step(self, optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if self.constants.clip is not None:
            parameters = optimizer.param_groups[0]["params"]
            nn.utils.clip_grad_norm_(parameters, self.constants.clip)
        optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        """All that a learner needs to go on as if it had never stopped, for torch.save();
        torch.load(weights_only=True) reads it."""
        return {
            "nets": [net.state_dict() for net in self._nets()],
            "example": None if self._example is None else self._example.state_dict(),
            "optimizers": [each.state_dict() for each in self._optimizers()],
            "noise": self._noise.get_state(),
            "random": json.dumps(self._random.bit_generator.state),
            "updates": self.updates,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for net, kept in zip(self._nets(), state["nets"], strict=True):
            net.load_state_dict(kept)
        self._example = None
        if state["example"] is not None:
            self.stay_near()
            cast(Actor, self._example).load_state_dict(state["example"])
        for optimizer, kept in zip(self._optimizers(), state["optimizers"], strict=True):
            optimizer.load_state_dict(kept)
        self._noise.set_state(state["noise"])
        self._random.bit_generator.state = json.loads(state["random"])
        self.updates = state["updates"]

    def _nets(self) -> Iterator[nn.Module]:
        yield from (self.actor, self.critics, self.target_actor, self.target_critics)

    def _optimizers(self) -> Iterator[torch.optim.Optimizer]:
        yield from (self._improve_actor, self._improve_critics)


class _Following:
    """A target that follows a network: parameters by a share, running means at once. Lists of
    parameters are made once, since PyTorch looks for them in all modules."""

    def __init__(self, target: nn.Module, net: nn.Module) -> None:
        self._parameters = list(zip(target.parameters(), net.parameters(), strict=True))
        self._means = list(zip(target.buffers(), net.buffers(), strict=True))

    def step(self, share: float) -> None:
        with torch.no_grad():
            for old, new in self._parameters:
                old.lerp_(new, share)
            for old, new in self._means:
                old.copy_(new)
