"""Groups of some of the ranks: made late, made by the hundred, made again."""

from datetime import timedelta

import torch
import torch.distributed as dist
from registry import Rank, case
from torch.distributed.device_mesh import init_device_mesh


def total(group: dist.ProcessGroup | None, value: int) -> int:
    dist.all_reduce(t := torch.tensor([value]), group=group)
    return int(t)


@case(0, live=True)
def subgroups_made_late(r: Rank):
    """After traffic on the default group, and used before the next one is made."""
    found = [total(None, r.rank)]
    pairs = [dist.new_group([2 * i, 2 * i + 1]) for i in range(r.world // 2)]
    found.append(total(pairs[r.rank // 2], 10**r.rank))
    halves = [dist.new_group(ranks) for ranks in (r.everyone[::2], r.everyone[1::2])]
    found.append(total(halves[r.rank % 2], 10**r.rank))
    turned = dist.new_group(r.everyone[::-1])
    dist.broadcast(t := torch.tensor([r.rank]), r.world - 1, group=turned)
    found += [int(t), dist.get_rank(turned), dist.get_group_rank(turned, 1)]
    everyone = dist.new_group()
    return [*found, total(everyone, 1), total(None, 3)]


@case(0)
def hundred_groups(r: Rank):
    groups = [dist.new_group(r.everyone) for _ in range(100)]
    found = [total(group, r.rank * number) for number, group in enumerate(groups)]
    tensors = [torch.tensor([number + r.rank]) for number in range(100)]
    works = [
        dist.all_reduce(t, group=group, async_op=True)
        for group, t in zip(groups, tensors, strict=True)
    ]
    for work in works:
        work.wait()
    return [found, tensors]


@case(0)
def many_groups_with_messages(r: Rank):
    """Each group carries collectives and messages between two ranks."""
    found = []
    for number in range(12):
        group = dist.new_group(r.everyone)
        work = dist.isend(torch.tensor([r.rank + 10 * number]), r.right, group=group)
        dist.recv(t := torch.zeros(1, dtype=torch.int64), r.left, group=group)
        work.wait()
        found.append([int(t), total(group, 1)])
    return found


@case(0)
def groups_one_after_another(r: Rank):
    found = []
    for number in range(40):
        members = [i for i in r.everyone if (i + number) % 3 or i < 2]
        group = dist.new_group(members)
        if r.rank in members:
            found.append(total(group, 10**r.rank))
            dist.barrier(group)
            dist.destroy_process_group(group)
    return found


@case(0)
def new_subgroups(r: Rank):
    mine, all_of_them = dist.new_subgroups(2)
    found = [total(mine, 10**r.rank), len(all_of_them)]
    mine, _ = dist.new_subgroups_by_enumeration([r.everyone[::2], r.everyone[1::2]])
    return [*found, total(mine, 10**r.rank)]


@case(0)
def groups_made_by_their_members_alone(r: Rank):
    found = [total(None, 1)]
    pair = [r.rank // 2 * 2, r.rank // 2 * 2 + 1]
    group = dist.new_group(pair, use_local_synchronization=True)
    found.append(total(group, 10**r.rank))
    if r.rank in (1, 3):
        group = dist.new_group([1, 3], use_local_synchronization=True)
        found.append(total(group, 10**r.rank))
    return [*found, total(None, 2)]


@case(0)
def groups_busy_at_once(r: Rank):
    """Each rank starts them in an order of its own."""
    groups = [dist.new_group(r.everyone) for _ in range(3)]
    tensors = [torch.full((50_000,), r.rank + i) for i in range(3)]
    orders = ((0, 1, 2), (2, 0, 1), (1, 2, 0), (0, 2, 1))
    works = [
        dist.all_reduce(tensors[i], group=groups[i], async_op=True) for i in orders[r.rank % 4]
    ]
    pair, _ = dist.new_subgroups(2)
    inner = total(pair, 10**r.rank)
    for work in reversed(works):
        work.wait()
    return [tensors, inner]


@case(0)
def mesh_made_late(r: Rank):
    dist.barrier()
    mesh = init_device_mesh("cpu", (2, r.world // 2), mesh_dim_names=("a", "b"))
    found = [total(mesh.get_group(name), 10**r.rank) for name in ("a", "b")]
    again = init_device_mesh("cpu", (r.world // 2, 2), mesh_dim_names=("c", "d"))
    flat = again["c", "d"]._flatten()
    return [*found, total(again.get_group("d"), 10**r.rank), total(flat.get_group(), 1)]


@case(0)
def objects_in_a_subgroup(r: Rank):
    halves = [dist.new_group(ranks) for ranks in (r.everyone[::2], r.everyone[1::2])]
    group = halves[r.rank % 2]
    dist.all_gather_object(seen := [None] * (r.world // 2), (r.rank, "word"), group=group)
    root = dist.get_global_rank(group, 1)
    dist.broadcast_object_list(box := [r.rank], root, group=group)
    return [seen, box]


@case(0)
def monitored_barriers(r: Rank):
    dist.monitored_barrier(timeout=timedelta(seconds=20))
    total(None, 1)
    dist.monitored_barrier(timeout=timedelta(seconds=20), wait_all_ranks=True)
    return {"rank": dist.get_rank(), "backend": dist.get_backend()}


@case(0)
def what_a_group_says_of_itself(r: Rank):
    half = dist.new_group(r.everyone[: r.world // 2])
    group = dist.distributed_c10d._get_default_group()
    found = {
        "rank": group.rank(),
        "size": group.size(),
        "initialized": dist.is_initialized(),
        "backend": dist.get_backend(),
        "ranks": dist.get_process_group_ranks(group),
        "half": dist.get_world_size(half),
        "own": dist.get_rank(half),
    }
    if r.rank < r.world // 2:
        found["half's ranks"] = dist.get_process_group_ranks(half)
    return found
