"""Compute times of the published models, which the publication does not give: one constant for each
model, fitted to its four published fat-tree times."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass

from loomnet.base.units import Time
from loomnet.jobs.moe_job import MoeJob
from loomnet.jobs.moe_models import MOE_MODELS

MODELS = {
    "Mixtral-8x22B": "mixtral_8x22b",
    "Mixtral-8x7B": "mixtral_8x7b",
    "LLaMA-MoE": "llama_moe",
    "Qwen-MoE": "qwen_moe",
}
# Of models with more than 8 experts with the bytes that the authors' simulator counts for them
# (`matrix_scale="simulator"`); the other constants are MoeJob's own.
SIMULATOR = {"llama_moe": Time("18.166 ms"), "qwen_moe": Time("11.944 ms")}
# Dense bfloat16 operations per second of an H800, of which the publication's production cluster is
# made (NVIDIA's data sheet of the H100, whose arithmetic it has).
PEAK = 989.4e12


@dataclass(frozen=True)
class Fit:
    """compute_ms: of one layer forward for a micro-batch. apart: the widest deviation of a time
    from the published ones, as a ratio less 1."""

    compute_ms: float
    apart: float


def fitted(
    times_at: Callable[[float], list[float]],
    published: list[float],
    first_ms: float,
    tolerance: float = 1e-4,
) -> Fit:
    """The constant whose times are nearest to `published` up to one common factor: published times
    are normalised. Nearest by the sum of squares of the logarithms of their ratios.

    `times_at(ms)`: an iteration's times with that constant, in the order of `published`, in any
    unit. They are nearly linear in the constant, so they are measured at two near values and
    the best value of the lines through them is where it is measured next, until that moves it by
    less than `tolerance` of itself. Raises ValueError where it does not come to rest.
    """
    now = first_ms
    for _ in range(12):
        near, far = times_at(now), times_at(now * 1.02)
        slopes = [(b - a) / (0.02 * now) for a, b in zip(near, far, strict=True)]

        def spread(
            at: float, near: list[float] = near, slopes: list[float] = slopes, base: float = now
        ) -> float:
            return statistics.pvariance(
                [
                    math.log((time + slope * (at - base)) / wanted)
                    for time, slope, wanted in zip(near, slopes, published, strict=True)
                ]
            )

        best = _lowest(spread, max(now / 2, 1e-3), now * 2)
        if abs(best / now - 1) < tolerance:
            logs = [math.log(time / wanted) for time, wanted in zip(near, published, strict=True)]
            middle = statistics.mean(logs)
            return Fit(now, max(abs(math.expm1(each - middle)) for each in logs))
        now = best
    raise ValueError("the constant does not come to rest")


def _lowest(value: Callable[[float], float], low: float, high: float) -> float:
    """Where a function with one minimum is lowest, by golden section."""
    ratio = (math.sqrt(5) - 1) / 2
    while high - low > 1e-7 * high:
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if value(left) < value(right):
            high = right
        else:
            low = left
    return (low + high) / 2


def compute_of(model: str, matrix_scale: str) -> Time:
    """The constant of a model for one of the two counts of bytes."""
    return SIMULATOR[model] if matrix_scale == "simulator" else MOE_MODELS[model].compute


def operations_per_second(job: MoeJob) -> float:
    """That a job's compute time asks of a GPU."""
    each = sum(job.of.operations(job.sequence)) * job.tokens / job.tensor_ranks
    return each / (job.layer_compute_ps / 1e12)
