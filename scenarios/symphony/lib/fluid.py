"""What a ring gains when links serve its rearmost flows first instead of all alike: a fluid model
of one ring all-reduce, without packets, queues or hosts. It bounds no measurement of hosts with a
congestion control, which may lose more or less than max-min sharing. The publication (Symphony,
arXiv 2604.16880) has no such model; this is our completion."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any, Literal

from loomnet.base.arguments import checked_call
from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean, quoted

STRICT = 1 << 20  # a weight of the rearmost that leaves those ahead next to nothing
HEADERS = 1.02  # length of a full packet on the wire to that of its 4,096 B of payload
_MOST_SEEDS = 100_000
# The conditions that bars S4 to S6 name; arguments of fluid_gain().
CASES: dict[str, dict[str, Any]] = {
    "fixed + jitter": {"rehash": "fixed", "jitter": 0.3},
    "fixed + bursts": {"rehash": "fixed", "bursts": 0.3},
    "re-hash": {},
    "re-hash, 2:1": {"oversubscription": 2},
    "re-hash + bursts": {"bursts": 0.3},
}
# Mean gains in percent at 8, 16 and 32 hosts that an earlier model of ours gave at 24 seeds, by the
# same conditions. Bars S5 and S6 are its rows "re-hash" and "re-hash + bursts".
EARLIER: dict[str, tuple[float, float, float]] = {
    "fixed + jitter": (0.3, -0.2, -0.4),
    "fixed + bursts": (0.4, 1.2, 1.8),
    "re-hash": (2.6, 7.2, 10.2),
    "re-hash, 2:1": (0.0, 4.1, 8.2),
    "re-hash + bursts": (7.3, 11.9, 16.0),
}


@dataclass(frozen=True)
class SeedGain:
    """One seed, with the same paths, pauses and bursts twice: links shared equally (`plain`), and
    the rearmost flows served first (`first`). Times are in steps that a NIC link carries alone;
    a step gap is the steps completed by the foremost rank less those by the rearmost, mean over
    time. `throttled`: of the time in which flows send, the share in which they are behind others
    in priority."""

    seed: int
    plain_steps: float
    first_steps: float
    plain_gap: float
    first_gap: float
    throttled: float

    @property
    def gain(self) -> float:
        """Reduction of the completion time, as a share of it; negative: it takes longer."""
        return 1 - self.first_steps / self.plain_steps


@dataclass(frozen=True)
class FluidGain:
    """`settings` are all arguments of the fluid_gain() that gave it."""

    settings: dict[str, Any]
    seeds: tuple[SeedGain, ...]

    @property
    def mean(self) -> float:
        return statistics.fmean(each.gain for each in self.seeds)

    @property
    def least(self) -> float:
        return min(each.gain for each in self.seeds)

    @property
    def most(self) -> float:
        return max(each.gain for each in self.seeds)

    @property
    def first_share(self) -> float:
        """Mean time with the rearmost first, to that of a ring whose steps meet nothing."""
        steps = 2 * (self.settings["hosts"] - 1)
        return statistics.fmean(each.first_steps for each in self.seeds) / steps

    def room(self, measured_s: float, least_s: float) -> float:
        """What is left between a measured mean time and this model with the rearmost first, as a
        share of the measured time. `least_s`: of all steps, each alone on its link, payload alone;
        headers make packets HEADERS times as long."""
        return 1 - HEADERS * self.first_share * least_s / measured_s

    @property
    def gaps(self) -> tuple[float, float]:
        """Mean step gap without and with the priority, in steps."""
        return (
            statistics.fmean(each.plain_gap for each in self.seeds),
            statistics.fmean(each.first_gap for each in self.seeds),
        )


@checked_call
def fluid_gain(
    hosts: int,
    *,
    rehash: Literal["step", "fixed"] = "step",
    oversubscription: int = 1,
    leaves: int = 1,
    jitter: float = 0.0,
    bursts: float = 0.0,
    capacity: float = 0.2,
    burst_mean: float = 5.0,
    ahead: int = 1,
    weight: int | Literal["strict"] = "strict",
    scope: Literal["link", "switch"] = "link",
    seeds: int = 24,
    first_seed: int = 1,
) -> FluidGain:
    """The gain of one ring all-reduce, 2 (hosts - 1) steps, when links serve the rearmost first.

    A rank sends its step s once it has sent step s - 1 and received it. Each flow has the NIC link
    of its own and an uplink by hash, which has a NIC link's rate; both are shared in fluid max-min
    fairness, weighted.

    Args:
        hosts: 2 to 4,096.
        rehash: "step": each step of a rank takes a random uplink; "fixed": all its steps take one.
        oversubscription: there are hosts // oversubscription uplinks.
        leaves: rank i hashes to the uplinks of leaf i mod `leaves`, which has its equal part of
            them; ring_fabric() has two.
        jitter: mean of a rank's exponential pause before each of its steps, in steps.
        bursts: share of the time that an uplink is in a burst; 0: none.
        capacity: of an uplink during a burst.
        burst_mean: mean of the exponential length of a burst, in steps. The bars leave it open. The
            default is the length at which the rows with bursts come closest to EARLIER; from 1 to
            10 steps the gain at "re-hash + bursts" grows by 3 to 4 points.
        ahead: a flow is throttled that has completed so many steps more than the rearmost.
        weight: of the others to 1 of a throttled flow; "strict": it has what they leave.
        scope: the rearmost among the flows of the same uplink, or of all.
        seeds: how many, paired; from `first_seed` on.

    Raises:
        UsageError: an argument out of range.
    """
    settings = dict(locals())
    _choice("rehash", rehash, ("step", "fixed"))
    _choice("scope", scope, ("link", "switch"))
    for name, value, least, most in (
        ("hosts", hosts, 2, 4096),
        ("oversubscription", oversubscription, 1, hosts),
        ("ahead", ahead, 1, 1 << 20),
        ("seeds", seeds, 1, _MOST_SEEDS),
        ("first_seed", first_seed, 0, 1 << 63),
        ("weight", STRICT if weight == "strict" else weight, 1, STRICT),
        ("leaves", leaves, 1, 4096),
    ):
        if type(value) is not int or not least <= value <= most:
            raise UsageError(
                f"fluid_gain: {name}={quoted(value)} must be a whole number from "
                f"{least} to {most:,}"
            )
    if hosts // oversubscription % leaves:
        raise UsageError(
            f"fluid_gain: leaves={leaves} must divide the number of uplinks, "
            f"{hosts // oversubscription}"
        )
    for name, number, low, high in (
        ("jitter", jitter, 0, 1000),
        ("bursts", bursts, 0, 0.99),
        ("capacity", capacity, 0.001, 1),
        ("burst_mean", burst_mean, 0.001, 1000),
    ):
        if (
            isinstance(number, bool)
            or not isinstance(number, int | float)
            or not low <= number <= high
        ):
            raise UsageError(
                f"fluid_gain: {name}={quoted(number)} must be a number from {low} to {high}"
            )
    import loomnet._core as _core

    def run(seed: int, gap: int) -> tuple[float, float, float]:
        return _core.fluid_ring(
            ranks=hosts,
            uplinks=hosts // oversubscription,
            leaves=leaves,
            rehash=rehash == "step",
            jitter=jitter,
            burst_share=bursts,
            burst_capacity=capacity,
            burst_mean=burst_mean,
            gap=gap,
            weight=STRICT if weight == "strict" else weight,
            switch_wide=scope == "switch",
            seed=seed,
        )

    rows = []
    for seed in range(first_seed, first_seed + seeds):
        (plain, plain_gap, _), (first, first_gap, throttled) = run(seed, 0), run(seed, ahead)
        rows.append(SeedGain(seed, plain, first, plain_gap, first_gap, throttled))
    return FluidGain(settings, tuple(rows))


def _choice(name: str, value: Any, known: tuple[str, ...]) -> None:
    if value not in known:
        raise UsageError(
            f"fluid_gain: {name}={quoted(value)} is none of {', '.join(known)}"
            f"{did_you_mean(value, known)}"
        )
