"""Ways to make groups, to move objects and to hook into training that other families leave out, so
that every kind of call has a case: what PyTorch's next minor version is tried with."""

import threading

import torch
import torch.distributed as dist
from models import network, train, trained
from registry import Rank, case
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP


@case(2**14)
def ddp_builtin_hooks(r: Rank):
    """Hooks in C++. Values of one travel as fp16."""
    found = {}
    for kind in (dist.BuiltinCommHookType.ALLREDUCE, dist.BuiltinCommHookType.FP16_COMPRESS):
        model = DDP(network(), bucket_cap_mb=0.001)
        model._register_builtin_comm_hook(kind)
        found[kind.name] = trained(model, train(model, r.rank))
        found[f"{kind.name} logged"] = model._get_ddp_logging_data()["comm_hook"]
    return found


@case(0)
def expanded_tensor(r: Rank):
    """One element that stands for four, with room behind it: Gloo reads all four from memory."""
    room = torch.zeros(16)
    room[0] = r.rank + 1
    dist.all_reduce(whole := room[:1].expand(4))
    room[8] = r.rank + 1
    dist.reduce(at_one := room[8:9].expand(2, 3), 1)
    return [whole[0], at_one[0, 0] if r.rank == 1 else 0]


@case(0)
def split_groups(r: Rank):
    """Before 2.15 PyTorch splits groups of accelerators alone."""
    try:
        half = dist.split_group(split_ranks=[r.everyone[::2], r.everyone[1::2]])
    except RuntimeError:
        return "refused"
    dist.all_reduce(t := torch.tensor([10**r.rank]), group=half)
    return [t, dist.get_rank(half), dist.get_world_size(half)]


@case(0)
def store_queues_and_barriers(r: Rank):
    """Calls of a store that wait: a rank that comes late, a value that another takes."""
    store = dist.distributed_c10d._get_default_store()
    found = []
    for number in range(3):
        if r.rank == number:
            dist.all_reduce(torch.ones(1000), async_op=True).wait()
        else:
            dist.all_reduce(torch.ones(1000))
        store.barrier(f"barrier {number}", r.world)
        found.append(store.num_keys() > 0)
    if r.rank == 0:
        for rank in range(1, r.world):
            store.queue_push("work", f"piece {rank}")
        taken = sorted(store.queue_pop("done").decode() for _ in range(1, r.world))
        found.append(taken)
    else:
        store.queue_push("done", store.queue_pop("work").decode())
    try:
        store.queue_pop("nothing", block=False)
    except dist.QueueEmptyError:
        found.append("empty")
    store.barrier("last", r.world)
    return found


@case(0)
def two_threads_that_share_a_group(r: Rank):
    """Each posts in its turn: the ranks match calls by their order."""
    turns = [threading.Event() for _ in range(2)]
    tensors = [torch.full((500,), r.rank + i) for i in range(2)]

    def sums(i: int) -> None:
        for _ in range(10):
            turns[i].wait()
            turns[i].clear()
            dist.all_reduce(tensors[i], op=dist.ReduceOp.MAX)
            tensors[i] += 1
            turns[1 - i].set()

    turns[0].set()
    other = threading.Thread(target=sums, args=(1,))
    other.start()
    sums(0)
    other.join()
    return tensors


@case(0)
def groups_of_each_kind(r: Rank):
    """By new_group of a backend's name, of a device's, and of none."""
    found = []
    for backend in (None, "gloo", "cpu:gloo"):
        group = dist.new_group(r.everyone, backend=backend, group_desc="for a test")
        dist.all_reduce(t := torch.tensor([r.rank + 1]), group=group)
        found += [int(t), dist.get_backend(group), group.group_desc]
        dist.destroy_process_group(group)
    return found


@case()
def ddp_joined_with_a_hook(r: Rank):
    model = DDP(network())
    with Join([model]):
        losses = train(model, r.rank, steps=2 + r.rank % 2)
    return {**trained(model, losses[:2]), "steps": len(losses)}
