"""megatron-core as its users start it: parallel state over nccl, and layers of tensor parallelism
on `cuda:LOCAL_RANK`, whose sums are those of one whole layer."""

import os

import torch
import torch.distributed as dist
from megatron.core import ModelParallelConfig, parallel_state, tensor_parallel

local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
dist.init_process_group("nccl")
world = dist.get_world_size()
parallel_state.initialize_model_parallel(tensor_model_parallel_size=2)
tensor_parallel.model_parallel_cuda_manual_seed(7)
config = ModelParallelConfig(tensor_model_parallel_size=2)
options = {
    "config": config,
    "bias": False,
    "init_method": lambda weight: torch.nn.init.normal_(weight, 0, 0.1),
}
column = tensor_parallel.ColumnParallelLinear(8, 16, gather_output=False, **options)
row = tensor_parallel.RowParallelLinear(
    16, 4, input_is_parallel=True, skip_bias_add=True, **options
)
torch.manual_seed(3)
inputs = torch.randn(5, 2, 8, device="cuda")
outputs, _ = row(column(inputs)[0])
outputs.sum().backward()

group = parallel_state.get_tensor_model_parallel_group()


def whole(shard: torch.Tensor, along: int) -> torch.Tensor:
    parts = [torch.empty_like(shard) for _ in range(2)]
    dist.all_gather(parts, shard.detach().contiguous(), group=group)
    return torch.cat(parts, along)


expected = inputs @ whole(column.weight, 0).T @ whole(row.weight, 1).T
assert torch.allclose(outputs, expected, atol=1e-5), (outputs - expected).abs().max()
assert column.weight.grad is not None and row.weight.grad is not None
print(
    "RIGHT",
    dist.get_rank(),
    world,
    parallel_state.get_tensor_model_parallel_rank(),
    parallel_state.get_data_parallel_world_size(),
    dist.get_backend(),
    flush=True,
)
