"""Iteration times published for MixNet, and the ranges of performance per dollar stated with them.

Source: `data/normalized_performance.csv` of https://mixnet-project.github.io, the public site of
MixNet (SIGCOMM 2025, doi 10.1145/3718958.3750465), for 1,024 GPUs and alpha = 6."""

from __future__ import annotations

from dataclasses import dataclass

GPUS, ALPHA = 1024, 6
SOURCE = "https://mixnet-project.github.io, data/normalized_performance.csv"
FABRICS = ("fattree", "mixnet", "rail", "topoopt")


@dataclass(frozen=True)
class Point:
    """One model at one rate. `times` holds iteration times by fabric; a model's four points have
    one unit, the model's own."""

    name: str
    model: str
    rate: str
    times: dict[str, float]

    def ratio(self, fabric: str, base: str = "fattree") -> float:
        """Iteration time of a fabric to that of `base`."""
        return self.times[fabric] / self.times[base]


_RATES = ("100G", "200G", "400G", "800G")
_BY_MODEL = {
    "Mixtral-8x22B": (
        (1.374, 1.454, 1.361, 2.697),
        (1.194, 1.201, 1.163, 1.976),
        (1.082, 1.114, 1.096, 1.575),
        (1.024, 1.013, 1.000, 1.267),
    ),
    "Mixtral-8x7B": (
        (1.210, 1.249, 1.189, 2.273),
        (1.079, 1.098, 1.057, 1.625),
        (1.030, 1.031, 1.013, 1.268),
        (1.000, 1.001, 1.000, 1.143),
    ),
    "LLaMA-MoE": (
        (3.932, 5.010, 5.314, 9.531),
        (2.188, 2.727, 2.932, 5.737),
        (1.346, 1.599, 1.675, 3.981),
        (1.000, 1.192, 1.124, 2.303),
    ),
    "Qwen-MoE": (
        (5.094, 6.174, 6.110, 7.775),
        (2.730, 3.205, 3.238, 4.553),
        (1.563, 1.764, 1.830, 2.802),
        (1.000, 1.053, 1.155, 1.789),
    ),
}
# S1 to S16: the rates of the first model, then those of the second, and so on.
TIMES = tuple(
    Point(f"S{len(_RATES) * i + j + 1}", model, rate, dict(zip(FABRICS, times, strict=True)))
    for i, (model, rows) in enumerate(_BY_MODEL.items())
    for j, (rate, times) in enumerate(zip(_RATES, rows, strict=True))
)
MODELS = tuple(_BY_MODEL)
