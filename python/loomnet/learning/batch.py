"""Bottlenecks side by side, stepped together from one decision to the next."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import numpy as np

import loomnet._core as _core
from loomnet.base.arguments import checked_call
from loomnet.base.errors import UsageError
from loomnet.base.units import Rate, Time
from loomnet.labs.typed_function import called
from loomnet.learning.bottleneck import Bottleneck
from loomnet.running.traffic import FlowTraffic
from loomnet.running.virtual_clock import plugins_named
from loomnet.worlds.world import World

TERMS: tuple[str, ...] = tuple(_core.Episodes.TERMS)
# Of one interval, as Step.inputs has five of them, the newest last (features "ours11"): the first
# ten are the publication's. Ratios are to the flow's largest throughput, its least round trip and
# its window; most_throughput is log2(1 + 10 us of it in bytes) / 12, least_rtt log2(1 + ms) / 8,
# queue log2(1 + packets of the flow in queues) / 8.
FEATURES = (
    "throughput",
    "rtt",
    "smoothed_rtt",
    "window",
    "most_throughput",
    "least_rtt",
    "loss",
    "in_flight",
    "pacing",
    "retransmitted",
    "queue",
)
DECISION, BOUND = 0, 1  # as _core.Episodes.advance() has it
SLICE_PS = 10**12  # between two looks at the keyboard, of emulated time


@dataclass(frozen=True)
class Reward:
    """Weights of the reward (Liao et al., EuroSys 2024, with the corrections of docs/learning.md).

    Attributes:
        throughput, latency, loss, fairness, stability: of the five terms.
        beta: round trips up to 1 + beta times the base cost nothing.
        latency_cap: the most that the latency's term counts; None: as published, without one.
    """

    throughput: float = 0.1
    latency: float = 0.02
    loss: float = 1.0
    fairness: float = 0.02
    stability: float = 0.01
    beta: float = 0.5
    latency_cap: float | None = 5.0

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value is None and each.name == "latency_cap":
                continue
            if value is None or not math.isfinite(value):
                raise UsageError(f"Reward.{each.name}: {value} is not a finite number")


@dataclass(frozen=True)
class Step:
    """What flows show when a decision is due: arrays that the next step writes over, rows
    [episode, flow], a flow in the place that it has in Bottleneck.flows.

    Attributes:
        due: bool; flows that wait for an action.
        present: bool; flows under way.
        born, left: bool; flows that have come and gone since the step before.
        inputs: float32[…, features x frames], what a policy sees; of flows that are due.
        terms: float64[…, len(TERMS)], measurements of each flow's last interval.
        reward: float64[episodes], one for all flows of an episode, between -0.1 and 0.1 where it
            is Reward's.
        reward_terms: float64[episodes, 5]: throughput, latency, loss, fairness, stability.
        global_state: float32[episodes, 12], what a central critic sees.
        now: float64[episodes], seconds since the episode's begin.
        done: bool[episodes]; the episode's time is over. It stands until reset().
    """

    due: np.ndarray
    present: np.ndarray
    born: np.ndarray
    left: np.ndarray
    inputs: np.ndarray
    terms: np.ndarray
    reward: np.ndarray
    reward_terms: np.ndarray
    global_state: np.ndarray
    now: np.ndarray
    done: np.ndarray


# A reward of one's own: float64[episodes] of a step, whose `reward` is Reward()'s then.
RewardFunction = Callable[[Step], np.ndarray]


class Batch:
    """Several bottlenecks, each with the flows of its own, in one process.

        batch = Batch([Bottleneck(rate="50 Mb/s"), Bottleneck(rate="200 Mb/s")])
        step = batch.reset(seed=1)
        while not step.done.all():
            step = batch.step(policy(step.inputs))

    A step passes time in every episode by itself, to its next wake-up (each 5 ms, as of an agent of
    the kernel's TCP) at which a flow has ended an interval. An action is -1 to 1, as float64
    [episodes, flows]; those of flows that are not due are not looked at, and NaN decides nothing:
    the window stays until the flow is due again.

    `worlds` are their fabrics, as ln.World has them: `batch.worlds[0].flows`.

    Args:
        reward: its weights, or a function of a Step that gives float64[episodes] in its place
            (loomnet.learning.rewards has some).
        flows: rows of each episode; None: as many as the bottleneck with the most flows has.

    Raises UsageError where bottlenecks show policies different inputs, or have more flows than
    there are rows.
    """

    @checked_call
    def __init__(
        self,
        bottlenecks: Sequence[Bottleneck],
        *,
        reward: Reward | RewardFunction | None = None,
        flows: int | None = None,
    ) -> None:
        self.bottlenecks = list(bottlenecks)
        if not self.bottlenecks:
            raise UsageError("Batch: give one bottleneck or more")
        self._reward = reward if isinstance(reward, Reward) else Reward()
        self._function = None if isinstance(reward, Reward) else reward
        self.flows = max(len(each.flows) for each in self.bottlenecks) if flows is None else flows
        self.inputs = _inputs(self.bottlenecks)
        self.least_input = min(_least_input(each) for each in self.bottlenecks)
        for number, each in enumerate(self.bottlenecks):
            self._fits(number, each)
        self.worlds: list[World] = [each.world() for each in self.bottlenecks]
        self._step: Step | None = None  # before the first reset

    @checked_call
    def reset(self, seed: int | Sequence[int] = 0) -> Step:
        """Begins all episodes anew. `seed`: of the first, those of the others count on from it; or
        one for each."""
        count = len(self.worlds)
        if isinstance(seed, (int, np.integer)):
            seeds = [int(seed) + k for k in range(count)]
        else:
            seeds = [int(each) for each in seed]
        if len(seeds) != count:
            raise UsageError(f"Batch.reset: seed: {len(seeds)} seeds for {count} bottlenecks")
        self._core = _core.Episodes(self.flows, self.inputs)
        self._origins, self._ends = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self._until = np.zeros(count, np.int64)
        for k, its in enumerate(seeds):
            self._begin(k, its)
        arrays = dict(self._core.arrays())
        self._now_ps, self._now = arrays.pop("now_ps"), np.zeros(count)
        self._step = Step(**arrays, now=self._now, done=np.zeros(count, bool))
        return self._go_on(self._step, np.ones(count, bool))

    @checked_call
    def renew(
        self,
        which: np.ndarray,
        seeds: Sequence[int],
        bottlenecks: Sequence[Bottleneck] | None = None,
    ) -> Step:
        """Begins some episodes anew, to their first decisions, while the others stand.

        Args:
            which: bool[episodes].
            seeds, bottlenecks: of those, in order; None: the bottlenecks that they have.
        """
        if self._step is None:
            raise UsageError("Batch.renew: call reset() first")
        which = np.asarray(which)
        if which.shape != (len(self.worlds),) or which.dtype != bool:
            raise UsageError(f"Batch.renew: which: give bool[{len(self.worlds)}]")
        episodes = np.flatnonzero(which).tolist()
        links = [self.bottlenecks[k] for k in episodes] if bottlenecks is None else bottlenecks
        if not len(episodes) == len(seeds) == len(links):
            raise UsageError(
                f"Batch.renew: {len(episodes)} episodes have {len(seeds)} seeds and {len(links)} "
                "bottlenecks; give one of each"
            )
        if _inputs(links or self.bottlenecks) != self.inputs:
            raise UsageError(
                f"Batch.renew: bottlenecks that show policies {self.inputs} inputs, as before"
            )
        for k, link in zip(episodes, links, strict=True):
            self._fits(k, link)
        for k, its, link in zip(episodes, seeds, links, strict=True):
            if link is not self.bottlenecks[k]:
                self.bottlenecks[k], self.worlds[k] = link, link.world()
            self._begin(k, int(its))
            for each in fields(self._step):
                getattr(self._step, each.name)[k] = 0
        return self._go_on(self._step, which.copy())

    @checked_call
    def step(self, actions: np.ndarray) -> Step:
        """Acts for the flows that are due, and goes on to the next decisions."""
        if self._step is None:
            raise UsageError("Batch.step: call reset() first")
        self._core.act(actions)
        return self._go_on(self._step, ~self._step.done)

    @checked_call
    def repeat(self, actions: Sequence[Sequence[np.ndarray]]) -> Step:
        """After reset(), plays what each episode has had before, by itself: for each a float64
        [flows] for every step() that it took part in. With the bottlenecks, seeds and actions of
        then the episodes stand where they stood."""
        if self._step is None:
            raise UsageError("Batch.repeat: call reset() first")
        if len(actions) != len(self.worlds):
            raise UsageError(
                f"Batch.repeat: actions of {len(actions)} episodes, and there are "
                f"{len(self.worlds)}"
            )
        lengths = np.array([len(each) for each in actions])
        for number in range(lengths.max()):
            which = (number < lengths) & ~self._step.done
            chosen = np.full((len(actions), self.flows), np.nan)
            for k in np.flatnonzero(which).tolist():
                chosen[k] = actions[k][number]
            self._core.act(chosen)
            self._go_on(self._step, which)
        return self._step

    # --- inside -----------------------------------------------------------------------------------
    def _fits(self, number: int, bottleneck: Bottleneck) -> None:
        if len(bottleneck.flows) > self.flows:
            raise UsageError(
                f"Batch: bottlenecks[{number}] has {len(bottleneck.flows)} flows, and there are "
                f"rows for {self.flows}; give Batch flows={len(bottleneck.flows)}"
            )

    def _begin(self, k: int, seed: int) -> None:
        world, bottleneck, reward = self.worlds[k], self.bottlenecks[k], self._reward
        world.reset(seed)
        self._core.put(
            k,
            world.loop.clock.engine.network,
            [play.traffic.core for play in world.plays if isinstance(play.traffic, FlowTraffic)],
            capacity_Bps=bottleneck.capacity_Bps,
            buffer_bytes=bottleneck.buffer_bytes,
            base_rtt_us=[each.count / 1e6 for each in bottleneck.base_rtts],
            c0=reward.throughput,
            c1=reward.latency,
            c2=reward.loss,
            c3=reward.fairness,
            c4=reward.stability,
            beta=reward.beta,
            lat_cap=reward.latency_cap,
            changes=[
                (world.origin_ps + Time(at).count, Rate(rate).count / 8)
                for at, rate in bottleneck.changes
            ],
        )
        self._origins[k] = world.origin_ps
        self._ends[k] = world.origin_ps + Time(bottleneck.length).count
        self._until[k] = self._bound(k)

    def _go_on(self, step: Step, going: np.ndarray) -> Step:
        """To the next decisions of those episodes."""
        done = step.done
        while going.any():
            with plugins_named():
                stands = self._core.advance(self._until, going)
            going &= stands != DECISION
            for k in np.flatnonzero(going).tolist():
                loop = self.worlds[k].loop
                loop.attend("reached" if stands[k] == BOUND else "looked")
                loop.clock.check()
                done[k] = not loop.running or loop.clock.now_ps >= self._ends[k]
                self._until[k] = self._bound(k)
            going &= ~done
        self._core.show()
        self._now[:] = (self._now_ps - self._origins) / 1e12
        done |= self._now_ps >= self._ends  # a flow may be due at that very time
        if self._function is not None:
            step.reward[:] = _rewards(self._function, step)
        return step

    def _bound(self, k: int) -> int:
        """Up to when time may pass before the run's own loop must look."""
        loop = self.worlds[k].loop
        return min(loop.horizon(), loop.clock.now_ps + SLICE_PS, int(self._ends[k]))


def _rewards(function: RewardFunction, step: Step) -> np.ndarray:
    found = np.asarray(called(function, step), float)
    if found.shape != step.reward.shape or not np.isfinite(found).all():
        raise UsageError(
            f"Batch: reward gave an array of shape {found.shape} with "
            f"{np.isfinite(found).sum()} finite numbers; give one for each of the "
            f"{len(step.reward)} episodes"
        )
    return found


def _least_input(bottleneck: Bottleneck) -> float:
    """The least number that a policy can see: round trips that fall have a slope below 0."""
    return -1.0 if bottleneck.tcp.get("features") == "aurora3" else 0.0


def _inputs(bottlenecks: Sequence[Bottleneck]) -> int:
    """Numbers that a policy sees, of all bottlenecks alike."""
    widths = {}
    for number, each in enumerate(bottlenecks):
        features = str(each.tcp.get("features", "ours11"))
        width = len(_core.astraea.frame(features)) * int(each.tcp.get("frames", 5))
        widths.setdefault(width, number)
    if len(widths) > 1:
        (one, first), (other, second) = list(widths.items())[:2]
        raise UsageError(
            f"Batch: bottlenecks[{first}] shows policies {one} inputs, bottlenecks[{second}] "
            f"{other}; give both the same features and frames"
        )
    return next(iter(widths))
