"""Pipeline parallel schedules: each rank has stages of one model, micro-batches go between them."""

import torch
import torch.distributed as dist
from models import WIDTH, Block
from registry import Rank, case
from torch import nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
)

MICRO = 8  # micro-batches


def stage(index: int) -> nn.Module:
    torch.manual_seed(20 + index)
    return Block()


def pipeline(r: Rank, schedule: type, *, per_rank: int = 1, folded: bool = False, steps: int = 2):
    """Trains; the losses of the last stage, and this rank's parameters."""
    count = r.world * per_rank
    mine = [r.rank + r.world * i for i in range(per_rank)]
    if folded:  # the last stage is with the first
        mine = [r.rank, count - 1 - r.rank]
    modules = [stage(index) for index in mine]
    stages = [
        PipelineStage(module, index, count, torch.device("cpu"))
        for module, index in zip(modules, mine, strict=True)
    ]
    run = schedule(
        stages[0] if per_rank == 1 else stages,
        MICRO,
        loss_fn=lambda y, target: (y - target).square().mean(),
    )
    optimizer = torch.optim.SGD([p for m in modules for p in m.parameters()], lr=0.05)
    losses: list[float] = []
    for step in range(steps):
        generator = torch.Generator().manual_seed(step)
        x, target = (torch.randn(2 * MICRO, WIDTH, generator=generator) for _ in range(2))
        optimizer.zero_grad()
        of_step: list[torch.Tensor] = []
        first, last = 0 in mine, count - 1 in mine
        run.step(*([x] if first else []), **({"target": target, "losses": of_step} if last else {}))
        optimizer.step()
        losses += [loss.item() for loss in of_step]
    return {"losses": losses, "parameters": [p for m in modules for p in m.parameters()]}


@case()
def pipeline_gpipe(r: Rank):
    return pipeline(r, ScheduleGPipe)


@case(live=True)
def pipeline_1f1b(r: Rank):
    return pipeline(r, Schedule1F1B)


@case()
def pipeline_interleaved_1f1b(r: Rank):
    return pipeline(r, ScheduleInterleaved1F1B, per_rank=2)


@case()
def pipeline_looped_bfs(r: Rank):
    return pipeline(r, ScheduleLoopedBFS, per_rank=2)


@case()
def pipeline_interleaved_zero_bubble(r: Rank):
    return pipeline(r, ScheduleInterleavedZeroBubble, per_rank=2)


@case()
def pipeline_zbv_zero_bubble(r: Rank):
    return pipeline(r, ScheduleZBVZeroBubble, per_rank=2, folded=True)


@case()
def pipeline_beside_data_parallel(r: Rank):
    """Two pipelines of half the ranks; their replicas of a stage average gradients."""
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (2, r.world // 2), mesh_dim_names=("data", "stage"))
    index = mesh.get_local_rank("stage")
    module = stage(index)
    run = Schedule1F1B(
        PipelineStage(
            module, index, r.world // 2, torch.device("cpu"), group=mesh.get_group("stage")
        ),
        4,
        loss_fn=lambda y, target: (y - target).square().mean(),
    )
    generator = torch.Generator().manual_seed(mesh.get_local_rank("data"))
    x, target = (torch.randn(8, WIDTH, generator=generator) for _ in range(2))
    last = index == r.world // 2 - 1
    run.step(*([x] if index == 0 else []), **({"target": target} if last else {}))
    for parameter in module.parameters():
        dist.all_reduce(parameter.grad, group=mesh.get_group("data"))
    return [p.grad for p in module.parameters()]
