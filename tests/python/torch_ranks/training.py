"""Run in every rank: training wrappers over the emulated NIC against the same over stock Gloo."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator

import harness
import torch
import torch.distributed as dist
from harness import case
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

rank = world = 0
gloo: dist.ProcessGroup


def network(seed: int = 1) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)
    )


def batches(count: int = 5) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(100 + rank)
    for _ in range(count):
        yield torch.randn(8, 16, generator=generator), torch.randn(8, 4, generator=generator)


def train(model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> None:
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in batches():
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()


def close(a: nn.Module, b: nn.Module, what: str) -> None:
    for (name, p), q in zip(a.named_parameters(), b.parameters(), strict=True):
        torch.testing.assert_close(
            p.data, q.data, rtol=1e-4, atol=1e-5, msg=lambda m, name=name: f"{what} {name}: {m}"
        )


def equal_on_all_ranks(model: nn.Module) -> None:
    for p in model.parameters():
        low, high = p.data.clone(), p.data.clone()
        dist.all_reduce(low, op=dist.ReduceOp.MIN, group=gloo)
        dist.all_reduce(high, op=dist.ReduceOp.MAX, group=gloo)
        assert torch.equal(low, high), "parameters differ between ranks"


def reference(**options: object) -> nn.Module:
    model = DDP(network(), process_group=gloo, **options)
    train(model)
    return model.module


@case
def ddp_modes() -> None:
    expected = reference()
    for options in (
        {},
        {"gradient_as_bucket_view": True},
        {"static_graph": True},
        {"find_unused_parameters": True},
        {"bucket_cap_mb": 0.005},
    ):
        model = DDP(network(), **options)
        train(model)
        close(model.module, expected, str(options))
        equal_on_all_ranks(model.module)


@case
def ddp_no_sync_and_join() -> None:
    model = DDP(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i, (x, y) in enumerate(batches()):
        loss = nn.functional.mse_loss(model(x), y)
        if i % 2 == 0:
            with model.no_sync():
                loss.backward()
        else:
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    equal_on_all_ranks(model.module)
    with model.join():
        for x, y in batches(2 + rank):
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
    equal_on_all_ranks(model.module)


@case
def ddp_communication_hooks() -> None:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    expected = reference()
    model = DDP(network())
    model.register_comm_hook(None, default_hooks.allreduce_hook)
    train(model)
    close(model.module, expected, "allreduce_hook")
    model = DDP(network())
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    train(model)
    for p, q in zip(model.module.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(p.data, q.data, rtol=0.05, atol=0.01)
    model = DDP(network())
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    train(model)
    equal_on_all_ranks(model.module)


@case
def ddp_sparse_gradients() -> None:
    torch.manual_seed(3)
    plain = nn.Sequential(nn.Embedding(20, 8, sparse=True), nn.Linear(8, 1))
    results = []
    for group in (None, gloo):
        model = DDP(copy.deepcopy(plain), process_group=group)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for i in range(3):
            optimizer.zero_grad()
            model(torch.tensor([rank, i, 7])).sum().backward()
            optimizer.step()
        results.append(model.module)
    close(results[0], results[1], "sparse")


@case
def fsdp1() -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

    expected = reference()
    model = FSDP(network(), device_id=torch.device("cpu"), use_orig_params=True)
    train(model)
    with FSDP.summon_full_params(model):
        close(model.module, expected, "FSDP1")


@case
def fsdp2() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    expected = reference()
    for mesh in (
        init_device_mesh("cpu", (world,)),
        init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("copy", "shard")),
    ):
        model = network()
        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        train(model)
        for (name, p), q in zip(model.named_parameters(), expected.parameters(), strict=True):
            torch.testing.assert_close(p.full_tensor(), q.data, rtol=1e-4, atol=1e-5, msg=name)


@case
def tensor_parallel() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = init_device_mesh("cpu", (world,))
    model = parallelize_module(network(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    x = torch.ones(3, 16)
    torch.testing.assert_close(model(x), network()(x), rtol=1e-4, atol=1e-5)


@case
def zero_redundancy() -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    expected = reference()
    model = DDP(network())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
    train(model, optimizer)
    close(model.module, expected, "ZeRO")


def main() -> bool:
    global rank, world, gloo
    rank, world, gloo = harness.join()
    return harness.run(sys.argv[1:], gloo)


if __name__ == "__main__":
    sys.exit(main())
