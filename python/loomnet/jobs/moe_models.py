"""Mixtures of experts by name: their layers, how training spreads them over GPUs, and what a layer
computes and moves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from loomnet.base.units import Time

VALUE_BYTES = 2  # activations and gradients are bfloat16
SEQUENCE = 4096
MICRO_BATCH = 8  # sequences


@dataclass(frozen=True)
class MoeModel:
    """`experts` of each layer, of which a token takes `top_k`; `ffn`: inner width of an expert,
    `shared` of one that all tokens take; `key_value`: width of keys and of values. Degrees of
    data, tensor, pipeline and expert parallelism. `compute`: forward of one layer for a micro-batch
    of 8 sequences of 4,096 tokens."""

    layers: int
    experts: int
    top_k: int
    hidden: int
    ffn: int
    key_value: int
    data: int
    tensor: int
    pipeline: int
    expert: int
    compute: Time
    shared: int = 0

    @cached_property
    def attention_parameters(self) -> int:
        """Of one layer: projections of queries, keys, values and the output."""
        return 2 * self.hidden * (self.hidden + self.key_value)

    @property
    def expert_parameters(self) -> int:
        """Of one expert of one layer: three matrices, as SwiGLU has them."""
        return 3 * self.hidden * self.ffn

    @property
    def common_parameters(self) -> int:
        """Of one layer: those that every token takes, attention's and the shared expert's."""
        return self.attention_parameters + 3 * self.hidden * self.shared

    def experts_share(self, sequence: int) -> float:
        """Share of the experts in a layer's floating-point operations."""
        attention, experts = self.operations(sequence)
        return experts / (attention + experts)

    def operations(self, sequence: int) -> tuple[int, int]:
        """Floating-point operations of a layer forward for one token, of attention and of experts;
        attention looks at half of the sequence on average."""
        return (
            2 * self.attention_parameters + 2 * sequence * self.hidden,
            2 * (self.top_k * self.expert_parameters + 3 * self.hidden * self.shared),
        )


# Layers, experts, degrees and 1,024 GPUs as MixNet evaluates them (SIGCOMM 2025, doi
# 10.1145/3718958.3750465); widths of the public model cards. The publication gives no compute
# times: the constants are fitted to its four fat-tree points of each model
# (scenarios/mfabric/constants.py); of deepseek_r1, of which it gives none, operations take as long
# as mixtral_8x22b's.
MOE_MODELS = {
    "mixtral_8x22b": MoeModel(56, 8, 2, 6144, 16384, 1024, 2, 8, 8, 8, Time("58.848 ms")),
    "mixtral_8x7b": MoeModel(32, 8, 2, 4096, 14336, 1024, 8, 4, 4, 8, Time("92.387 ms")),
    "llama_moe": MoeModel(32, 16, 4, 4096, 688, 4096, 16, 1, 4, 16, Time("9.481 ms")),
    "qwen_moe": MoeModel(24, 32, 4, 2048, 1408, 2048, 8, 1, 4, 32, Time("3.248 ms"), shared=5632),
    "deepseek_r1": MoeModel(
        61, 256, 8, 7168, 2048, 1536, 1, 1, 16, 64, Time("361.35 ms"), shared=2048
    ),
}
