"""Parameters in shards: FSDP1, FSDP2, hybrid sharding over a mesh, and checkpoints of them."""

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from models import Block, batches, loss_of, network, sgd, train, trained
from registry import Rank, case
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    FullyShardedDataParallel,
    MixedPrecision,
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

BLOCKS = ModuleWrapPolicy({Block})
CPU = torch.device("cpu")


def fsdp1(r: Rank, **options: object):
    """The old FSDP, trained; its whole parameters."""
    model = FullyShardedDataParallel(network(), device_id=CPU, auto_wrap_policy=BLOCKS, **options)
    losses = train(model, r.rank)
    with FullyShardedDataParallel.summon_full_params(model):
        return {
            "losses": losses,
            "parameters": {n: p.detach().clone() for n, p in model.named_parameters()},
        }


@case()
def fsdp1_full_shard(r: Rank):
    return fsdp1(r, use_orig_params=True)


@case()
def fsdp1_flat_parameters(r: Rank):
    return fsdp1(r, use_orig_params=False)


@case()
def fsdp1_shard_gradients_alone(r: Rank):
    return fsdp1(r, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP, use_orig_params=True)


@case()
def fsdp1_no_shard(r: Rank):
    return fsdp1(r, sharding_strategy=ShardingStrategy.NO_SHARD, use_orig_params=True)


@case()
def fsdp1_hybrid_shard(r: Rank):
    mesh = init_device_mesh("cpu", (2, r.world // 2), mesh_dim_names=("replicate", "shard"))
    return fsdp1(
        r, sharding_strategy=ShardingStrategy.HYBRID_SHARD, device_mesh=mesh, use_orig_params=True
    )


@case(2**16)
def fsdp1_bf16(r: Rank):
    """Gradients are reduced as bf16: an order of additions shows in the eighth bit."""
    return fsdp1(
        r,
        use_orig_params=True,
        mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16),
    )


@case()
def fsdp1_clipping_and_optimizer_state(r: Rank):
    model = FullyShardedDataParallel(
        network(), device_id=CPU, auto_wrap_policy=BLOCKS, use_orig_params=True
    )
    optimizer, norms = sgd(model), []
    for x, y in batches(r.rank):
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        norms.append(model.clip_grad_norm_(0.3).item())
        optimizer.step()
    whole = FullyShardedDataParallel.full_optim_state_dict(model, optimizer)
    return {"norms": norms, "state": whole["state"] if r.rank == 0 else {}}


def fsdp2(model: torch.nn.Module, **options: object) -> torch.nn.Module:
    for module in model:
        if isinstance(module, Block):
            fully_shard(module, **options)
    return fully_shard(model, **options)


def fsdp2_trained(r: Rank, **options: object):
    model = fsdp2(network(), **options)
    losses = train(model, r.rank)
    return {
        "own": trained(model, losses),
        "whole": {n: p.full_tensor() for n, p in model.named_parameters()},
    }


@case(live=True)
def fsdp2_full_shard(r: Rank):
    return fsdp2_trained(r)


@case()
def fsdp2_without_resharding(r: Rank):
    return fsdp2_trained(r, reshard_after_forward=False)


@case(2**16)
def fsdp2_bf16(r: Rank):
    return fsdp2_trained(
        r, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    )


@case()
def fsdp2_accumulation_and_clipping(r: Rank):
    model = fsdp2(network())
    optimizer, norms = sgd(model), []
    for number, (x, y) in enumerate(batches(r.rank, 6)):
        last = number % 3 == 2
        model.set_requires_gradient_sync(last)
        loss_of(model(x), y).backward()
        if last:
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.3)
            norms.append(norm.full_tensor().item())
            optimizer.step()
            optimizer.zero_grad()
    return {"norms": norms, "parameters": {n: p for n, p in model.named_parameters()}}


@case()
def hsdp(r: Rank):
    mesh = init_device_mesh("cpu", (2, r.world // 2), mesh_dim_names=("replicate", "shard"))
    return fsdp2_trained(r, mesh=mesh)


@case()
def hsdp_made_after_a_collective(r: Rank):
    dist.all_reduce(torch.ones(3))
    mesh = init_device_mesh("cpu", (r.world // 2, 2), mesh_dim_names=("replicate", "shard"))
    return fsdp2_trained(r, mesh=mesh)


# --- checkpoints ----------------------------------------------------------------------------------
def restored(r: Rank, save) -> dict[str, object]:
    """Trains, saves by `save(state, folder)`, trains on; loads and trains on again: the same."""
    model = fsdp2(network())
    optimizer = sgd(model)
    train(model, r.rank, optimizer, steps=2)
    parts = get_state_dict(model, optimizer)
    save({"model": parts[0], "optimizer": parts[1]}, r.folder)
    further = train(model, r.rank, optimizer)
    other = fsdp2(network(seed=8))
    its = sgd(other)
    parts = get_state_dict(other, its)
    state = {"model": parts[0], "optimizer": parts[1]}
    dcp.load(state, checkpoint_id=r.folder)
    set_state_dict(other, its, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    again = train(other, r.rank, its)
    assert again == further, f"after the checkpoint {again}, before {further}"
    return trained(other, again)


@case()
def checkpoint(r: Rank):
    return restored(r, lambda state, folder: dcp.save(state, checkpoint_id=folder))


@case()
def checkpoint_async(r: Rank):
    """Saved by a thread, in a group of its own, while the training goes on."""
    group = dist.new_group(r.everyone)

    def save(state, folder):
        work = dcp.async_save(state, checkpoint_id=folder, process_group=group)
        dist.all_reduce(torch.ones(5))
        work.result()

    return restored(r, save)


@case()
def checkpoint_of_whole_parameters(r: Rank):
    model = fsdp2(network())
    losses = train(model, r.rank)
    whole = get_model_state_dict(
        model, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=False)
    )
    if r.rank == 0:
        torch.save(whole, f"{r.folder}/whole.pt")
    dist.barrier()
    return {"losses": losses, "read": torch.load(f"{r.folder}/whole.pt", weights_only=True)}


@case()
def checkpoint_in_another_sharding(r: Rank):
    """Saved from shards of all ranks, loaded into shards of half of them."""
    model = fsdp2(network())
    train(model, r.rank)
    dcp.save({"model": get_model_state_dict(model)}, checkpoint_id=r.folder)
    mesh = init_device_mesh("cpu", (2, r.world // 2), mesh_dim_names=("replicate", "shard"))
    other = fsdp2(network(seed=8), mesh=mesh)
    state = {"model": get_model_state_dict(other)}
    dcp.load(state, checkpoint_id=r.folder)
    other.load_state_dict(state["model"])
    return {n: p.full_tensor() for n, p in other.named_parameters()}
