"""Bottlenecks side by side, stepped together from one decision to the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import loomnet._core as _core
from loomnet.base.arguments import checked_call
from loomnet.base.errors import UsageError
from loomnet.base.units import Time
from loomnet.learning.bottleneck import Bottleneck
from loomnet.running.traffic import FlowTraffic
from loomnet.running.virtual_clock import plugins_named
from loomnet.worlds.world import World

TERMS: tuple[str, ...] = tuple(_core.Episodes.TERMS)
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
        reward: float64[episodes], one for all flows of an episode, between -0.1 and 0.1.
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

    Raises UsageError where bottlenecks show policies different inputs.
    """

    @checked_call
    def __init__(self, bottlenecks: Sequence[Bottleneck], *, reward: Reward | None = None) -> None:
        self.bottlenecks = list(bottlenecks)
        if not self.bottlenecks:
            raise UsageError("Batch: give one bottleneck or more")
        self._reward = reward or Reward()
        self.flows = max(len(each.flows) for each in self.bottlenecks)
        self.inputs = _inputs(self.bottlenecks)
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
        for world, bottleneck, its in zip(self.worlds, self.bottlenecks, seeds, strict=True):
            world.reset(its)
            self._add(world, bottleneck)
        self._origins = np.array([world.origin_ps for world in self.worlds])
        lengths = [Time(each.length).count for each in self.bottlenecks]
        self._ends = self._origins + np.array(lengths)
        arrays = dict(self._core.arrays())
        now_ps = arrays.pop("now_ps")
        self._now_ps, self._now = now_ps, np.zeros(count)
        self._until = np.array([self._bound(k) for k in range(count)])
        self._step = Step(**arrays, now=self._now, done=np.zeros(count, bool))
        return self._go_on(self._step)

    @checked_call
    def step(self, actions: np.ndarray) -> Step:
        """Acts for the flows that are due, and goes on to the next decisions."""
        if self._step is None:
            raise UsageError("Batch.step: call reset() first")
        self._core.act(actions)
        return self._go_on(self._step)

    # --- inside -----------------------------------------------------------------------------------
    def _add(self, world: World, bottleneck: Bottleneck) -> None:
        reward = self._reward
        self._core.add(
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
        )

    def _go_on(self, step: Step) -> Step:
        done = step.done
        going = ~done
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
        return step

    def _bound(self, k: int) -> int:
        """Up to when time may pass before the run's own loop must look."""
        loop = self.worlds[k].loop
        return min(loop.horizon(), loop.clock.now_ps + SLICE_PS, int(self._ends[k]))


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
