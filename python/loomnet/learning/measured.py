"""A bottleneck as a run of flows under one control, and what its flows do: for a trained policy and
for the rules beside it alike, by counters of the links."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

import loomnet._core as _core
from loomnet.base.units import Rate, Time
from loomnet.fabrics.link_settings import FRAMING_BYTES
from loomnet.learning.bottleneck import FRAME, Bottleneck
from loomnet.learning.scores import STEP_S, Scores, Series, scores
from loomnet.worlds.world import World

# Bytes of a full packet that a link counts as carried, in those that it takes time for.
PAYING = (FRAME - FRAMING_BYTES) / FRAME
BOTTLENECK = 0  # the direction of the first link
Control = str | Mapping[str, Any]


def control_of(policy: Any, options: Mapping[str, Any]) -> Control:
    """What flows of this process take as cc= to follow this `_core.astraea.Policy`, with options of
    Astraea's control."""
    return {"cc": "astraea", "policy": _core.astraea_policy(policy.to_bytes()), **options}


def measured(bottleneck: Bottleneck, control: Control, seed: int = 1) -> Scores:
    """Of the bottleneck's flows that learn, under this control in their place."""
    return scores(series(bottleneck, control, seed))


def series(bottleneck: Bottleneck, control: Control, seed: int = 1) -> Series:
    """What flows do under this control, where the bottleneck names none."""
    flows = [each if each.cc else replace(each, cc=control) for each in bottleneck.flows]
    world = replace(bottleneck, flows=flows, tcp={}).world(seed)
    world.reset()
    samples = Samples(bottleneck, world)
    while samples.due is not None:
        samples.take(world.step(samples.due))
    return samples.series()


class Samples:
    """What the flows of a world do, looked at after each step of a Series."""

    def __init__(self, bottleneck: Bottleneck, world: World) -> None:
        self._bottleneck, self._world = bottleneck, world
        count = len(bottleneck.flows)
        self._step = Time.of(round(STEP_S * 1e12))
        self._steps = Time(bottleneck.length).count // self._step.count
        # Of each flow the direction of the link from the bottleneck to its receiver.
        self._halves = [2 * (2 + 2 * flow) + 1 for flow in range(count)]
        self._base = np.array([each.count for each in bottleneck.base_rtts], float)
        self._taken = 0
        self._carried = np.zeros((self._steps + 1, count))
        self._stretch = np.full((self._steps, count), np.nan)

    @property
    def due(self) -> Time | None:
        """When to look next, counted from the begin; None: all steps are over."""
        return Time.of((self._taken + 1) * self._step.count) if self._taken < self._steps else None

    def take(self, rows: np.ndarray) -> None:
        """At that time; `rows` as World.step gives them."""
        self._carried[self._taken + 1] = self._world.loop.clock.carried(self._halves)
        who = rows["job"]
        self._stretch[self._taken, who] = rows["srtt_ps"] / self._base[who]
        self._taken += 1

    def series(self) -> Series:
        """Once all have been taken."""
        stretch = np.where(self._stretch > 0, self._stretch, np.nan)  # 0: no acknowledgement yet
        present = there(self._bottleneck, self._steps)
        stretch[~present] = np.nan
        able = capacity(self._bottleneck, self._steps)[:, None]
        counters = self._world.loop.clock.engine.network.link_counters()
        row = counters["half"].tolist().index(BOTTLENECK)
        dropped = int(counters["drop_queue_full"][row])
        return Series(
            share=np.diff(self._carried, axis=0) / (able * STEP_S * PAYING),
            there=present,
            stretch=stretch,
            arrived=int(counters["packets"][row]) + dropped,
            dropped=dropped,
        )


def there(bottleneck: Bottleneck, steps: int) -> np.ndarray:
    """bool[steps, flows]: whether the flow is to send for all of the step."""
    begins = np.arange(steps)[:, None] * STEP_S
    starts = np.array([Time(each.start).seconds for each in bottleneck.flows])
    lasts = [
        np.inf if each.lifetime is None else Time(each.lifetime).seconds
        for each in bottleneck.flows
    ]
    little = STEP_S / 1000
    return (begins >= starts - little) & (begins + STEP_S <= starts + np.array(lasts) + little)


def capacity(bottleneck: Bottleneck, steps: int) -> np.ndarray:
    """Bytes a second that the link carries, by step: of a rate that changes the mean."""
    at = [0.0, *(Time(when).seconds for when, _ in bottleneck.changes), np.inf]
    rates = [Rate(bottleneck.rate).count, *(Rate(rate).count for _, rate in bottleneck.changes)]
    begins = np.arange(steps) * STEP_S
    found = np.zeros(steps)
    for begin, end, rate in zip(at, at[1:], rates, strict=False):
        within = np.minimum(begins + STEP_S, end) - np.maximum(begins, begin)
        found += np.clip(within, 0, STEP_S) / STEP_S * rate / 8
    return found
