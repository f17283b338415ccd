"""Run in every rank, over a NIC that sums: what only sums of the network can do, and what a script
sees of them."""

from __future__ import annotations

import math
import sys

import harness
import torch
import torch.distributed as dist
from harness import case
from torch.nn.parallel import DistributedDataParallel as DDP

import loomnet.torch
from loomnet.torch.hooks import LayerState, by_layer, layer_priority

rank = world = 0
gloo: dist.ProcessGroup


@case
def every_rank_has_the_same_bits() -> None:
    torch.manual_seed(rank)
    for count in (1, 63, 64, 65, 512, 5000, 100_000):
        mine = torch.randn(count) * torch.rand(count).exp2()
        exact = mine.double()
        dist.all_reduce(exact, group=gloo)
        largest = mine.abs().max()
        dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=gloo)
        dist.all_reduce(mine)
        copies = [torch.empty_like(mine) for _ in range(world)]
        dist.all_gather(copies, mine, group=gloo)
        assert all(torch.equal(copy, mine) for copy in copies)
        # A block's error is at most n / (2 f), with 2^e at most twice its largest value.
        bound = world**2 * 2 * largest.item() / 2**32 + exact.abs().max().item() * 2.0**-23
        assert (mine.double() - exact).abs().max() <= bound


@case
def integers_wrap_and_averages_are_divided_once() -> None:
    whole = torch.full((1000,), 2**30 + rank, dtype=torch.int32)
    dist.all_reduce(whole)
    want = (world * 2**30 + sum(range(world)) + 2**31) % 2**32 - 2**31
    assert whole.eq(want).all()
    half = torch.full((1000,), 60_000.0, dtype=torch.float16)
    dist.all_reduce(half, op=dist.ReduceOp.AVG)
    assert half.eq(60_000.0).all(), "the sum alone is infinite in float16"


@case
def not_a_number_reaches_every_rank_and_no_other_block() -> None:
    t = torch.ones(1000)
    if rank == 1:
        t[130] = math.nan
    if rank == 0:
        t[700] = math.inf
    dist.all_reduce(t)
    bad = t.isnan()
    assert bad[128:192].all() and bad[640:704].all() and bad.sum() == 128
    assert t[~bad].eq(world).all()


@case
def operations_on_one_tensor_keep_their_order() -> None:
    t = torch.ones(3000)
    works = [dist.all_reduce(t, async_op=True) for _ in range(3)]
    works.append(dist.broadcast(t, 0, async_op=True))
    works.append(dist.all_reduce(t, async_op=True))
    for work in works:
        work.wait()
    assert t.eq(float(world) ** 4).all()


@case
def a_call_says_what_it_has_received() -> None:
    t = torch.ones(1000)
    with loomnet.torch.attributes(layer=5, priority=77, loss_tolerance=0.5) as seen:
        dist.all_reduce(t)
    assert seen.delivered == seen.expected == t.nbytes and seen.mask()[0].all()


@case
def layers_count_from_the_front() -> None:
    assert [layer_priority(layer, 16) for layer in (0, 15)] == [160, 128]
    assert layer_priority(0, 1) == 128 and layer_priority(0, 1000) == 207
    assert layer_priority(65534, 1) == 1 and layer_priority(0, 2**20) == 255
    torch.manual_seed(1)
    model = torch.nn.Sequential(*(torch.nn.Linear(100, 100) for _ in range(8)))
    ddp = DDP(model, bucket_cap_mb=0.05)
    state = LayerState()
    ddp.register_comm_hook(state, by_layer)
    for _ in range(4):
        ddp(torch.ones(2, 100)).sum().backward()
    assert state.buckets >= 4
    print("buckets", state.buckets, flush=True)


def main() -> bool:
    global rank, world, gloo
    rank, world, gloo = harness.join()
    return harness.run(sys.argv[1:], gloo)


if __name__ == "__main__":
    sys.exit(main())
