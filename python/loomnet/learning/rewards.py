"""Rewards of learned controls that Astraea is compared with, as `reward=` of a batch or a training
takes them: functions of a step. Each is of one flow; of several flows their mean is taken, since an
episode has one reward."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from loomnet.learning.batch import TERMS, Step

PAYLOAD = 1428  # bytes in a packet of 1,500


def _columns(step: Step) -> dict[str, np.ndarray]:
    """float64[episodes, flows] of each term."""
    return {name: step.terms[..., number] for number, name in enumerate(TERMS)}


def _mean(step: Step, rewards: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """float64[episodes], over flows that are present and have measured an interval; 0 without."""
    measured = step.present & (seconds > 0)
    count = measured.sum(1)
    return np.where(measured, rewards, 0).sum(1) / np.maximum(count, 1)


def _ratio(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """0 where `other` is."""
    return np.divide(one, other, out=np.zeros_like(one), where=other > 0)


@dataclass(frozen=True)
class AuroraReward:
    """0.001 (10 throughput - 1000 latency - 2000 loss), with packets a second, seconds and the lost
    share of packets: Jay et al., "A Deep Reinforcement Learning Perspective on Internet Congestion
    Control", ICML 2019, section 4.2, scaled as in the authors' released simulator.

    Attributes:
        throughput, latency, loss, scale: its constants.
        of_link: None: as published, where links carry 100 to 500 packets a second. Else throughput
            is the used share of the link, times so many packets a second: on links from 10 to 400
            Mb/s, the published sum would be throughput alone.
    """

    throughput: float = 10
    latency: float = 1000
    loss: float = 2000
    scale: float = 0.001
    of_link: float | None = None

    def __call__(self, step: Step) -> np.ndarray:
        """float64[episodes]."""
        term = _columns(step)
        carried, lost = term["throughput_Bps"], term["loss_Bps"]
        packets = carried / PAYLOAD
        if self.of_link is not None:
            # A step's first reward term is the used share of the link, of all its flows.
            all_of_them = np.where(step.present, carried, 0).sum(1, keepdims=True)
            packets = self.of_link * _ratio(carried, all_of_them * np.ones_like(carried))
            packets = packets * step.reward_terms[:, :1]
        whole = (
            self.throughput * packets
            - self.latency * term["rtt_us"] / 1e6
            - self.loss * _ratio(lost, lost + carried)
        )
        return _mean(step, self.scale * whole, term["seconds"])


@dataclass(frozen=True)
class OrcaReward:
    """(throughput - 5 loss) / largest throughput, times least over mean round trip where the mean
    is above 1.25 of the least: Abbasloo et al., SIGCOMM 2020, with the constants of the authors'
    released configuration. Largest and least are those that the flow remembers.

    Attributes:
        loss: bytes of throughput that a lost byte counts for.
        margin: round trips up to so many times the least one cost nothing.
    """

    loss: float = 5
    margin: float = 1.25

    def __call__(self, step: Step) -> np.ndarray:
        """float64[episodes]."""
        term = _columns(step)
        power = _ratio(
            term["throughput_Bps"] - self.loss * term["loss_Bps"], term["most_throughput_Bps"]
        )
        rtt, least = term["rtt_us"], self.margin * term["least_rtt_us"]
        near = np.where(rtt > least, _ratio(least, rtt), 1.0)
        return _mean(step, power * near, term["seconds"])
