"""Run in every rank, over a NIC that loses what it may: attributes that a script states, and what
it hears of its bytes."""

from __future__ import annotations

import sys
import threading

import harness
import torch
import torch.distributed as dist
from harness import case
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel as DDP

import loomnet.torch
from loomnet.torch.work_attributes import Stated, stated

rank = world = 0
gloo: dist.ProcessGroup

SIZE = 100_000


def kept_by_all(masks: list[torch.Tensor]) -> torch.Tensor:
    """Elements of the one mask that are True on every rank."""
    (mask,) = masks
    everywhere = mask.to(torch.uint8)
    dist.all_reduce(everywhere, op=dist.ReduceOp.MIN, group=gloo)
    return everywhere.to(torch.bool)


@case
def what_tolerates_nothing_is_whole() -> None:
    t = torch.full((SIZE,), rank + 1)
    with loomnet.torch.attributes(layer=2, priority=7, tag=9) as seen:
        dist.all_reduce(t)
    assert torch.equal(t, torch.full((SIZE,), sum(range(world + 1))))
    assert seen.delivered == seen.expected > 0
    assert seen.mask()[0].shape == t.shape and seen.mask()[0].all()


@case
def a_lossy_sum_is_right_where_no_rank_lost_a_byte() -> None:
    t = torch.arange(SIZE).reshape(100, -1) + rank
    total = world * torch.arange(SIZE).reshape(100, -1) + sum(range(world))
    with loomnet.torch.attributes(loss_tolerance=0.2) as seen:
        work = dist.all_reduce(t, async_op=True)
        assert stated() == Stated(loss_tolerance=0.2)
    assert stated() == Stated()
    work.wait()
    (call,) = seen.calls
    assert call.name.startswith("all_reduce(int64, 100000 elements")
    ring = 2 * (world - 1) * t.nbytes // world
    assert abs(seen.expected - ring) <= 2 * world * t.element_size()
    assert 0.02 * seen.expected < seen.expected - seen.delivered <= 0.2 * seen.expected
    (mask,) = seen.mask()
    assert mask.shape == t.shape and 0 < mask.sum() < mask.numel()
    kept = kept_by_all(seen.mask())
    assert torch.equal(t[kept], total[kept])
    assert 0 < kept.sum() < mask.sum()
    assert (t[~kept] != total[~kept]).any()


@case
def a_lossy_message_is_zero_where_it_is_masked() -> None:
    if rank > 1:
        return
    whole = torch.arange(1, SIZE + 1, dtype=torch.float64).reshape(1000, -1)
    for shape in (whole, whole.t()):  # contiguous; copied back behind the scenes
        into = torch.empty_like(shape, memory_format=torch.preserve_format)
        with loomnet.torch.attributes(loss_tolerance=0.1) as seen:
            dist.send(shape, 1) if rank == 0 else dist.recv(into, 0)
        if rank == 0:
            assert seen.expected == seen.delivered == 0 and seen.mask() == []
            continue
        (mask,) = seen.mask()
        assert mask.shape == shape.shape and 0 < (~mask).sum() <= 0.11 * SIZE
        assert torch.equal(into, torch.where(mask, shape, torch.zeros_like(shape)))
        lost = seen.expected - seen.delivered
        assert seen.expected == shape.nbytes and 0 < lost <= 8 * int((~mask).sum())


@case
def each_tensor_has_its_mask() -> None:
    own = torch.full((SIZE,), float(rank + 1))
    outs = [torch.empty(SIZE) for _ in range(world)]
    with loomnet.torch.attributes(loss_tolerance=0.2) as seen:
        dist.all_gather(outs, own)
    masks = seen.mask()
    assert [m.shape for m in masks] == [o.shape for o in outs]
    assert masks[rank].all() and torch.equal(outs[rank], own)
    assert not torch.stack(masks).all()
    for peer, (out, mask) in enumerate(zip(outs, masks, strict=True)):
        assert (out[~mask] == 0).all()
        assert ((out[mask] == 0) | (out[mask] == peer + 1)).all()  # zero: lost before this rank


@case
def contexts_nest_and_belong_to_their_thread() -> None:
    elsewhere = []
    with loomnet.torch.attributes(layer=1, priority=2, tag=3) as outer:
        dist.barrier()
        with loomnet.torch.attributes(priority=4, loss_tolerance=0.5) as inner:
            assert stated() == Stated(1, 4, 0.5, 3)
            dist.barrier()
            thread = threading.Thread(target=lambda: elsewhere.append(stated()))
            thread.start()
            thread.join()
        assert stated() == Stated(1, 2, 0.0, 3)
    assert elsewhere == [Stated()]
    assert (len(outer.calls), len(inner.calls)) == (2, 1)
    assert outer.mask() == [] and outer.delivered == outer.expected


@case
def what_is_under_way_or_failed_says_nothing() -> None:
    with loomnet.torch.attributes(loss_tolerance=0.5) as seen:
        group = dist.new_group()
        t = torch.zeros(SIZE)
        work = dist.irecv(t, (rank + 1) % world, group=group) if rank == 0 else None
    if work is not None:
        for ask in (seen.mask, lambda: seen.delivered):
            refuses(ask, "is under way; wait for it")
        group.abort()
        for ask in (seen.mask, lambda: seen.expected):
            refuses(ask, "has failed and cannot say")


def refuses(call, words: str) -> None:
    try:
        call()
    except RuntimeError as error:
        assert words in str(error), error
        return
    raise AssertionError(f"nothing raised; expected {words!r}")


@case
def values_out_of_range_are_refused() -> None:
    for given, words in [
        ({"priority": 256}, "priority must be a whole number from 0 to 255, not 256"),
        ({"priority": -1}, "priority"),
        ({"priority": True}, "priority"),
        ({"layer": 65535}, "layer must be a whole number from 0 to 65534, not 65535"),
        ({"layer": 1.5}, "layer"),
        ({"tag": 2**32}, "tag"),
        ({"loss_tolerance": 1.01}, "loss_tolerance must be a share from 0 to 1, not 1.01"),
        ({"loss_tolerance": float("nan")}, "loss_tolerance"),
        ({"loss_tolerance": "1%"}, "loss_tolerance"),
    ]:
        try:
            with loomnet.torch.attributes(**given):
                raise AssertionError(f"{given} was taken")
        except ValueError as error:
            assert words in str(error) and "\n" not in str(error), error


# --- DDP ------------------------------------------------------------------------------------------
def trained(hook=None, state=None) -> torch.Tensor:
    """The parameters after five steps with several buckets."""
    torch.manual_seed(1)
    model = nn.Sequential(*(nn.Linear(200, 200) for _ in range(8)))
    ddp = DDP(model, bucket_cap_mb=0.2)
    if hook is not None:
        ddp.register_comm_hook(state, hook)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(100 + rank)
    for _ in range(5):
        optimizer.zero_grad()
        ddp(torch.randn(8, 200, generator=generator)).square().mean().backward()
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@case
def a_bucket_hook_changes_no_result() -> None:
    plain, state = trained(), loomnet.torch.hooks.BucketState()
    assert torch.equal(plain, trained(loomnet.torch.hooks.bucket_hook))
    assert torch.equal(plain, trained(loomnet.torch.hooks.bucket_hook, state))
    assert sorted(state.deliveries) == list(range(len(state.deliveries)))
    assert len(state.deliveries) >= 3
    assert all(m.all() for seen in state.deliveries.values() for m in seen.mask())
    halves = trained(default_hooks.fp16_compress_hook)
    wrapped = loomnet.torch.hooks.bucket_wrapper(default_hooks.fp16_compress_hook)
    assert torch.equal(halves, trained(wrapped))


@case
def a_bucket_hook_states_layer_and_priority() -> None:
    seen = {}

    def spy(state, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        seen[bucket.index()] = stated()
        return default_hooks.allreduce_hook(state, bucket)

    trained(loomnet.torch.hooks.bucket_wrapper(spy))
    assert len(seen) >= 3
    assert all(s == Stated(index, index) for index, s in seen.items())


@case
def a_lossy_bucket_says_which_gradients() -> None:
    state = loomnet.torch.hooks.BucketState(loss_tolerance=0.1, priority=lambda index: 9 - index)
    trained(loomnet.torch.hooks.bucket_hook, state)
    for seen in state.deliveries.values():
        (call,) = seen.calls
        assert call.done and 0 < call.expected - call.delivered <= 0.1 * call.expected
        (mask,) = call.mask()
        assert 0 < (~mask).sum() <= 0.25 * mask.numel()


def main() -> bool:
    global rank, world, gloo
    rank, world, gloo = harness.join()
    return harness.run(sys.argv[1:], gloo)


if __name__ == "__main__":
    sys.exit(main())
