"""A training job without PyTorch: the bytes of a published model's gradients and its compute time,
played by the engine. Specification only, validated on construction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from typing import Annotated, Any, ClassVar, Unpack

from pydantic import BeforeValidator, Field, StrictStr, model_validator

from loomnet.base.bounds import MOST_BYTES, MOST_TIME, hours
from loomnet.base.constructor import constructor
from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean, in_quotes, quoted
from loomnet.base.spec import given
from loomnet.base.units import Size, Time, size_or_none, time_or_none
from loomnet.jobs.model import Count, Job, check_meshed
from loomnet.jobs.moe_models import MOE_MODELS
from loomnet.jobs.options import ModelOptions

VALUE_BYTES = 4  # gradients are float32
MOST_BUCKETS = 65534  # a layer's number has 16 bits, one of which says that there is none


@dataclass(frozen=True)
class Model:
    """`parameters`, each with a gradient of 4 bytes; `compute`: of one iteration on one GPU."""

    parameters: int
    compute: Time


# Parameters and V100 compute times per iteration as in the workloads of Sapio et al., "Scaling
# Distributed Machine Learning with In-Network Aggregation", NSDI 2021, rounded to three digits; the
# publication's batch sizes are not stated there.
MODELS = {
    "resnet50": Model(25_600_000, Time("325 ms")),
    "vgg16": Model(138_400_000, Time("426 ms")),
    "vgg11": Model(132_900_000, Time("181 ms")),
    "alexnet": Model(61_100_000, Time("256 ms")),
    "bert_large": Model(335_000_000, Time("237 ms")),
}
_ALIASES = {"bert_l": "bert_large"}


def _buckets(value: int | Iterable[Size | str]) -> int | tuple[Size, ...]:
    if isinstance(value, (str, Size)):
        raise UsageError(f"{quoted(value)}: write how many there are, or a list of their sizes")
    if isinstance(value, Iterable):
        sizes = tuple(map(Size, islice(value, MOST_BUCKETS + 1)))
        if not sizes:
            raise UsageError(
                "the list is empty; give the size of each bucket, the front-most first"
            )
        if len(sizes) > MOST_BUCKETS:
            raise UsageError(f"there are more than the {MOST_BUCKETS} of a job")
        for size in sizes:
            _check_values(size)
        return sizes
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_BUCKETS:
        raise UsageError(
            f"{quoted(value)}: write a whole number from 1 to {MOST_BUCKETS}, or a list of sizes"
        )
    return value


def _check_values(size: Size) -> None:
    if size.bytes < VALUE_BYTES or size.bytes % VALUE_BYTES:
        raise UsageError(
            f"{size} is no whole number of float32 gradients; give a multiple of "
            f"{VALUE_BYTES} B, above 0"
        )


def _size(value: Size | str | None) -> Size | None:
    size = size_or_none(value)
    if size is not None:
        _check_values(size)
    return size


def _model(value: Any) -> Any:
    if value is None:
        return None
    name = _ALIASES.get(value, value) if isinstance(value, str) else value
    if not isinstance(name, str) or name not in MODELS:
        hint = did_you_mean(value, [*MODELS, *MOE_MODELS])
        raise UsageError(
            f"no model {in_quotes(value)}{hint}; one of your own has size= and compute="
        )
    return name


class ModelJob(Job):
    """Training of a published model without PyTorch, on `workers` ranks.

    In each of `iterations` a rank computes forward, then backward, which gives the gradients in
    `buckets` from the back of the model to its front. Each bucket is summed over all ranks as soon
    as it is there, in this order, and the next iteration of a rank begins when it has all sums.

    `model`: resnet50, vgg16, vgg11, alexnet or bert_large; of a mixture of experts, mixtral_8x22b,
    mixtral_8x7b, llama_moe, qwen_moe or deepseek_r1, this makes an ln.MoeJob. `size` and `compute`
    are the bytes of its gradients and the compute time of one iteration; without a model's name
    both are needed. `workers` is the number of ranks by another name. `buckets`: how many of equal
    size, or a list of sizes, that of the model's front first. `forward`: its share of the compute
    time. `jitter`:
    each rank's compute time of each iteration is longer or shorter by up to this share, by the
    run's seed. `scale` divides bytes and compute time alike. `priority`: how urgent the buckets
    are; "esa", one of its factors alone ("trem", "ratio", "layer"), "none", "fifo", "random", or a
    class registered by @ln.plugin.priority.
    """

    def __new__(cls, *args: Any, **values: Any) -> Any:
        """A MoeJob where the model is a mixture of experts."""
        model = args[0] if args else values.get("model")
        if cls is ModelJob and isinstance(model, str) and model in MOE_MODELS:
            from loomnet.jobs.moe_job import MoeJob

            return MoeJob(*args, **values)
        return super().__new__(cls)

    kind: ClassVar[str] = "model"
    reduces: ClassVar[bool] = True
    positional: ClassVar[tuple[str, ...]] = ("model",)
    model: Annotated[str | None, BeforeValidator(_model)] = Field(default=None, kw_only=False)
    iterations: Count = 10
    workers: Count | None = None
    size: Annotated[Size | None, BeforeValidator(_size)] = given(default=None, converter=_size)
    compute: Time | None = given(default=None, converter=time_or_none)
    buckets: Annotated[int | tuple[Size, ...], BeforeValidator(_buckets)] = given(
        default=8, converter=_buckets
    )
    forward: Annotated[float, Field(ge=0, le=1, strict=True)] = 1 / 3
    jitter: Annotated[float, Field(ge=0, lt=1, strict=True)] = 0.0
    scale: Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)] = 1.0
    priority: StrictStr = "esa"

    @constructor
    def __init__(
        self,
        model: str | None = None,
        *,
        iterations: int = 10,
        workers: int | None = None,
        size: Size | str | None = None,
        compute: Time | str | None = None,
        buckets: int | Iterable[Size | str] = 8,
        forward: float = 1 / 3,
        jitter: float = 0.0,
        scale: float = 1.0,
        priority: str = "esa",
        **rest: Unpack[ModelOptions],
    ) -> None: ...

    @model_validator(mode="after")
    def _whole(self) -> ModelJob:
        if self.workers is not None:
            if self.ranks is not None:
                raise UsageError("workers= and ranks= are two names of one number; give one")
            object.__setattr__(self, "ranks", self.workers)  # the fields are frozen
        if isinstance(self.buckets, tuple) and self.size is not None:
            raise UsageError(
                f"size={self.size} and a list of buckets both give the bytes; give one"
            )
        if self.model is None:
            has_bytes = self.size is not None or isinstance(self.buckets, tuple)
            if not has_bytes or self.compute is None:
                missing = "compute=" if has_bytes else "size="
                raise UsageError(
                    f"{missing} is missing: a job of no published model has size= and "
                    f"compute=; the models are {', '.join(MODELS)}"
                )
        if min(self.bucket_bytes) < VALUE_BYTES:
            raise UsageError(
                f"scale={self.scale:g} and {len(self.bucket_bytes)} buckets leave a "
                "bucket without a gradient; give less of either"
            )
        if sum(self.bucket_bytes) > MOST_BYTES or self._compute_ps > MOST_TIME.count:
            raise UsageError(
                f"scale={self.scale:g} makes an iteration of more than 2^60 B or "
                f"{hours(MOST_TIME)}, which no run has; give a larger one"
            )
        return self

    @property
    def repeat(self) -> int:
        return self.iterations

    @property
    def bucket_bytes(self) -> tuple[int, ...]:
        """Bytes of each bucket, the front-most first, at the job's scale."""
        scale = Fraction(self.scale)
        if isinstance(self.buckets, tuple):
            return tuple(
                _values(size.bytes // VALUE_BYTES, scale) * VALUE_BYTES for size in self.buckets
            )
        stated = (
            MODELS[self.model or ""].parameters
            if self.size is None
            else self.size.bytes // VALUE_BYTES
        )
        each, rest = divmod(_values(stated, scale), self.buckets)
        return tuple((each + (number < rest)) * VALUE_BYTES for number in range(self.buckets))

    @property
    def gradients(self) -> Size:
        """Of all buckets of an iteration."""
        return Size.of(sum(self.bucket_bytes))

    @property
    def compute_time(self) -> Time:
        """Of one iteration without jitter, at the job's scale."""
        return Time.of(self._compute_ps)

    @property
    def _compute_ps(self) -> int:
        stated = MODELS[self.model or ""].compute if self.compute is None else self.compute
        return round(stated.count / Fraction(self.scale))

    def place(self, places: list[int]) -> list[int]:
        placed = super().place(places)
        if self.allreduce == "ring":
            check_meshed("ModelJob", len(placed))
        return placed

    def describe(self) -> str:
        of = self.model or "a model"
        return (
            f"{self.iterations} x ModelJob of {of} ({self.gradients} of gradients in "
            f"{len(self.bucket_bytes)} buckets, {self.compute_time} of compute) "
            f"{self._carried_by}"
        )


def _values(stated: int, scale: Fraction) -> int:
    return round(stated / scale)
