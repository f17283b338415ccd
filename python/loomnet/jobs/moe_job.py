"""A mixture of experts in training without PyTorch, played by the engine. Specification only,
validated on construction."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Unpack

from pydantic import BeforeValidator, Field, model_validator

from loomnet.base.bounds import MOST_BYTES
from loomnet.base.constructor import constructor
from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean, in_quotes
from loomnet.base.spec import given
from loomnet.base.transport_names import ONE_PATH
from loomnet.base.units import Rate, Size, Time, rate_or_none, size_or_none, time_or_none
from loomnet.jobs.circuit_control import CircuitControl
from loomnet.jobs.edges import Pair
from loomnet.jobs.model import Count, Job, Seed, check_places, check_ranks
from loomnet.jobs.moe_models import MICRO_BATCH, MOE_MODELS, SEQUENCE, VALUE_BYTES, MoeModel
from loomnet.jobs.options import ExpertOptions, TransportName

GPUS = 8  # of a server
DEFAULT_CIRCUITS = CircuitControl()
Degree = Annotated[int, Field(ge=1, le=1 << 15, strict=True)]


def _model(value: Any) -> Any:
    if not isinstance(value, str) or value not in MOE_MODELS:
        raise UsageError(
            f"no mixture of experts {in_quotes(value)}"
            f"{did_you_mean(value, MOE_MODELS)}; there are {', '.join(MOE_MODELS)}"
        )
    return value


def _matrix(value: Any) -> Any:
    if value is None:
        raise UsageError('"drift", "fixed", a file, a folder or an array is needed, not None')
    return value if isinstance(value, (str, Path)) else _Counts(value)


class _Counts:
    """Gate counts as given: an array (layers, sources, experts), or one for each iteration."""

    def __init__(self, given: Any) -> None:
        self.given = given

    def __repr__(self) -> str:
        return "an array"


class MoeJob(Job):
    """Training of a mixture of experts without PyTorch: `iterations` of forward and backward over
    `micro_batches`, four all-to-alls of each layer, pipeline stages and gradients of replicas.

    ln.ModelJob("mixtral_8x7b", …) makes one, too. Eight GPUs are a server; a region is as many
    servers as one group of experts fills, and where its servers have links to a panel, its own
    controller patches that as `circuits` says; None: panels stay as they are.

    `model`: mixtral_8x22b, mixtral_8x7b, llama_moe, qwen_moe or deepseek_r1. `data`, `tensor`,
    `pipeline` and `expert` are its degrees of parallelism, `expert` the ranks that its experts are
    spread over; by default those published, and as many replicas as the hosts have room for.
    `layers` of all stages. `compute`: of one layer forward for a micro-batch; backward takes twice
    that. `micro_batch` in sequences of `sequence` tokens. `exchange`: what a GPU sends in an
    all-to-all, by default micro_batch x sequence x top_k x hidden x 2 B / tensor. `matrix`: tokens
    of each source for each expert: "drift", "fixed" (the published one), a file or folder, or an
    array; `matrix_scale="simulator"` counts bytes as the authors' simulator does with more than 8
    experts. `nvlink`: rate of a GPU inside its server; None: of the hosts' local link. `spares`:
    (server, GPU) of GPUs that have failed and whose work a spare does: what it exchanges with other
    servers takes the wires of the failed GPU's server. `seed` of the drift; None: the run's.
    `scale` divides bytes and compute alike.
    """

    kind: ClassVar[str] = "moe"
    positional: ClassVar[tuple[str, ...]] = ("model",)
    model: Annotated[str, BeforeValidator(_model)] = Field(kw_only=False)
    transport: Any = ONE_PATH
    iterations: Count = 4
    data: Degree | None = None
    tensor: Degree | None = None
    pipeline: Degree | None = None
    expert: Degree | None = None
    layers: Degree | None = None
    micro_batches: Degree = 8
    micro_batch: Degree = MICRO_BATCH
    sequence: Degree = SEQUENCE
    compute: Time | None = given(default=None, converter=time_or_none)
    exchange: Size | None = given(default=None, converter=size_or_none)
    matrix: Annotated[Any, BeforeValidator(_matrix)] = Field(default="drift", repr=False)
    matrix_scale: Literal["row_sum", "simulator"] = "row_sum"
    nvlink: Rate | None = given(default=None, converter=rate_or_none)
    spares: tuple[tuple[int, int], ...] = ()
    seed: Seed | None = None
    scale: Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)] = 1.0
    circuits: CircuitControl | None = Field(default=DEFAULT_CIRCUITS, repr=False)

    @constructor
    def __init__(
        self,
        model: str,
        *,
        transport: TransportName = ONE_PATH,
        iterations: int = 4,
        compute: Time | str | None = None,
        scale: float = 1.0,
        **rest: Unpack[ExpertOptions],
    ) -> None: ...

    @model_validator(mode="after")
    def _whole(self) -> MoeJob:
        whole = self.expert_ranks * self.tensor_ranks
        if whole % GPUS:
            raise UsageError(
                f"expert={self.expert_ranks} x tensor={self.tensor_ranks} are {whole} "
                f"GPUs of a region, which do not fill servers of {GPUS}"
            )
        if self.layer_count < self.stages:
            raise UsageError(f"layers={self.layer_count} are fewer than pipeline={self.stages}")
        if self.of.experts % self.expert_ranks:
            raise UsageError(
                f"expert={self.expert_ranks} ranks do not divide the "
                f"{self.of.experts} experts of {self.model}"
            )
        if self.matrix == "fixed" and self.expert_ranks % 8:
            raise UsageError(
                f'matrix="fixed" is of 8 experts and their multiples, not of '
                f"expert={self.expert_ranks}"
            )
        if any(server < 0 or not 0 <= gpu < GPUS for server, gpu in self.spares):
            raise UsageError(
                f"MoeJob.spares: {in_quotes(str(self.spares))}: each is a server's "
                f"number from 0 and a GPU from 0 to {GPUS - 1}"
            )
        if self.ranks is not None and self.ranks % (whole * self.stages):
            raise UsageError(
                f"ranks={self.ranks} is no multiple of expert x tensor x pipeline = "
                f"{whole * self.stages}"
            )
        if self.bytes_per_rank > MOST_BYTES:
            raise UsageError(f"exchange={Size.of(self.bytes_per_rank)} is above 2^60 B")
        return self

    # --- degrees ----------------------------------------------------------------------------------
    @property
    def of(self) -> MoeModel:
        return MOE_MODELS[self.model]

    @property
    def expert_ranks(self) -> int:
        return self.of.expert if self.expert is None else self.expert

    @property
    def tensor_ranks(self) -> int:
        return self.of.tensor if self.tensor is None else self.tensor

    @property
    def stages(self) -> int:
        return self.of.pipeline if self.pipeline is None else self.pipeline

    @property
    def layer_count(self) -> int:
        return self.of.layers if self.layers is None else self.layers

    @property
    def stage_layers(self) -> list[int]:
        """Of each stage; the first have one more where they do not divide evenly."""
        each, rest = divmod(self.layer_count, self.stages)
        return [each + (stage < rest) for stage in range(self.stages)]

    @property
    def region_servers(self) -> int:
        return self.expert_ranks * self.tensor_ranks // GPUS

    def replicas(self, ranks: int) -> int:
        return ranks // (self.expert_ranks * self.tensor_ranks * self.stages)

    # --- bytes and times, at the job's scale ------------------------------------------------------
    @property
    def bytes_per_rank(self) -> int:
        """That a GPU sends in an all-to-all, its own part among them."""
        if self.exchange is not None:
            stated = self.exchange.bytes
        else:
            stated = self.tokens * self.of.top_k * self.of.hidden * VALUE_BYTES // self.tensor_ranks
        if self.matrix_scale == "simulator":
            stated = stated * self.expert_ranks // 8
        return max(round(stated / Fraction(self.scale)), 1)

    @property
    def tokens(self) -> int:
        """Of a micro-batch."""
        return self.micro_batch * self.sequence

    @property
    def activation_bytes(self) -> int:
        """That a server hands the next stage for a micro-batch."""
        stated = self.tokens * self.of.hidden * VALUE_BYTES * GPUS // self.tensor_ranks
        return round(stated / Fraction(self.scale)) if self.stages > 1 else 0

    @property
    def gradient_bytes(self) -> int:
        """Of a server, which its replicas sum. Each of its tensor-parallel groups has experts of
        its own; attention and the experts that all tokens take are the same in all of them, so
        their gradients are summed inside the server and leave it once."""
        own = self.of.expert_parameters * self.of.experts // self.expert_ranks * GPUS
        common = self.of.common_parameters * min(self.tensor_ranks, GPUS)
        per_layer = (own + common) // self.tensor_ranks
        return round(per_layer * max(self.stage_layers) * VALUE_BYTES / Fraction(self.scale))

    @property
    def layer_compute_ps(self) -> int:
        if self.compute is not None:
            stated = Fraction(self.compute.count)
        else:
            stated = Fraction(self.of.compute.count) * self.tokens / (MICRO_BATCH * SEQUENCE)
        return round(stated / Fraction(self.scale))

    @property
    def attention_ps(self) -> int:
        return self.layer_compute_ps - self.experts_ps

    @property
    def experts_ps(self) -> int:
        return round(self.layer_compute_ps * self.of.experts_share(self.sequence))

    # --- placement --------------------------------------------------------------------------------
    @property
    def patches(self) -> bool:
        return self.circuits is not None

    def place(self, places: list[int]) -> list[int]:
        replica = self.expert_ranks * self.tensor_ranks * self.stages
        if self.data is not None:
            wanted = replica * self.data
            if self.ranks not in (None, wanted):
                raise UsageError(
                    f"MoeJob: ranks={self.ranks} and data={self.data}, which are "
                    f"{wanted} ranks; give one"
                )
        elif self.ranks is not None:
            wanted = self.ranks
        else:
            wanted = len(places) // replica * replica
            if wanted == 0:
                raise UsageError(
                    f"{in_quotes(self.model)}: one copy of the model is on expert="
                    f"{self.expert_ranks} x tensor={self.tensor_ranks} x pipeline={self.stages} = "
                    f"{replica} ranks, by default as published, and the hosts have {len(places)} "
                    "places; give the fabric more, or the job smaller degrees, as pipeline=1"
                )
        check_places("MoeJob.ranks", wanted, places)
        check_ranks("MoeJob.ranks", wanted)
        return places[:wanted]

    def servers_of(self, placed: Sequence[int]) -> list[tuple[int, ...]]:
        """Of each server the hosts of its GPUs: one host for all, or one for each."""
        found = []
        for first in range(0, len(placed), GPUS):
            hosts = tuple(placed[first : first + GPUS])
            if len(set(hosts)) not in (1, GPUS):
                raise UsageError(
                    f"MoeJob: ranks {first} to {first + GPUS - 1} are a server's and "
                    f"are on {len(set(hosts))} hosts: hosts of ranks={GPUS}, or of "
                    "one rank each, make servers"
                )
            found.append(hosts)
        return found

    def pairs_of(self, placed: list[int]) -> list[Pair]:
        each = self.expert_ranks * self.tensor_ranks
        return [
            (first + rank, first + (rank + GPUS) % each)
            for first in range(0, len(placed), each)
            for rank in range(0, each, GPUS)
            if each > GPUS
        ]

    def check_clock(self, clock: str) -> None:
        if clock == "live":
            raise UsageError(
                f"MoeJob: {self.model} runs on the virtual clock; live, train one by ln.TorchJob"
            )

    def describe(self) -> str:
        return (
            f"{self.iterations} x MoeJob of {self.model} (expert {self.expert_ranks}, tensor "
            f"{self.tensor_ranks}, pipeline {self.stages}, {self.layer_count} layers, "
            f"{Size.of(self.bytes_per_rank)} of a GPU in an all-to-all) over {self.transport}"
        )
