"""Run in every rank: each case compares a collective over the emulated NIC with stock Gloo in the
same processes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta

import harness
import torch
import torch.distributed as dist
from harness import case

rank = world = 0
gloo: dist.ProcessGroup

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int32, torch.int64, torch.uint8, torch.int8)


def sample(dtype: torch.dtype, size: int, seed: int = 0) -> torch.Tensor:
    """Values that differ by rank."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    if dtype.is_floating_point:
        return (torch.rand(size, generator=generator) * 2 - 1).to(dtype)
    low, high = (0, 4) if dtype == torch.uint8 else (-3, 4)
    return torch.randint(low, high, (size,), generator=generator).to(dtype)


def same(mine: torch.Tensor, theirs: torch.Tensor, what: object = "") -> None:
    """Integers to the bit, floats within what another order of additions may change."""
    if mine.dtype.is_floating_point:
        eps = torch.finfo(mine.dtype).eps
        torch.testing.assert_close(mine, theirs, rtol=16 * eps, atol=16 * eps,
                                   msg=lambda m: f"{what}: {m}")
    else:
        assert torch.equal(mine, theirs), f"{what}: {mine} is not {theirs}"


def refused(call: Callable[[], object], *words: str) -> str:
    try:
        call()
    except (RuntimeError, ValueError, TypeError) as error:
        for word in words:
            assert word in str(error), f"{word!r} not in: {error}"
        return str(error)
    raise AssertionError(f"nothing raised; expected {words}")


@case
def all_reduce() -> None:
    ops = {"SUM": dist.ReduceOp.SUM, "MIN": dist.ReduceOp.MIN, "MAX": dist.ReduceOp.MAX,
           "PRODUCT": dist.ReduceOp.PRODUCT}
    for dtype in (*FLOATS, *INTEGERS):
        for name, op in ops.items():
            for size in (1, 7, 1000):
                mine, theirs = sample(dtype, size), sample(dtype, size)
                dist.all_reduce(mine, op=op)
                dist.all_reduce(theirs, op=op, group=gloo)
                same(mine, theirs, (dtype, name, size))
    for dtype, size in ((torch.float32, 300_001), (torch.int32, 300_001), (torch.float64, 65_536)):
        mine, theirs = sample(dtype, size), sample(dtype, size)
        dist.all_reduce(mine)
        dist.all_reduce(theirs, group=gloo)
        same(mine, theirs, (dtype, size))


@case
def all_reduce_other_operators() -> None:
    for op in (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR):
        mine, theirs = sample(torch.int32, 99), sample(torch.int32, 99)
        dist.all_reduce(mine, op=op)
        dist.all_reduce(theirs, op=op, group=gloo)
        same(mine, theirs, op)
    for dtype in (torch.float32, torch.float64):
        mine, theirs = sample(dtype, 99), sample(dtype, 99)
        dist.all_reduce(mine, op=dist.ReduceOp.AVG)
        dist.all_reduce(theirs, group=gloo)
        same(mine, theirs / world, "AVG")
    mine, theirs = sample(torch.float32, 99), sample(torch.float32, 99) * 0.5
    dist.all_reduce(mine, op=dist._make_nccl_premul_sum(0.5))
    dist.all_reduce(theirs, group=gloo)
    same(mine, theirs, "PREMUL_SUM")
    mine = torch.complex(sample(torch.float32, 50), sample(torch.float32, 50, 1))
    theirs = mine.clone()
    dist.all_reduce(mine)
    dist.all_reduce(theirs, group=gloo)
    same(torch.view_as_real(mine), torch.view_as_real(theirs), "complex")


@case
def all_reduce_of_odd_memory() -> None:
    mine = sample(torch.float32, 60).reshape(6, 10)
    theirs = mine.clone()
    dist.all_reduce(mine.t())
    dist.all_reduce(theirs, group=gloo)
    same(mine, theirs, "transposed")
    mine = sample(torch.float32, 60)
    work = dist.all_reduce(mine[::2], async_op=True)
    work.wait()
    theirs = sample(torch.float32, 60)
    part = theirs[::2].contiguous()
    dist.all_reduce(part, group=gloo)
    same(mine[::2], part, "strided")
    assert torch.equal(mine[1::2], theirs[1::2]), "bytes between were touched"
    empty = torch.empty(0)
    dist.all_reduce(empty)
    leaf = torch.nn.Parameter(sample(torch.float32, 5))
    dist.broadcast(leaf.data, 0)
    dist.broadcast(leaf, 0)
    refused(lambda: dist.all_reduce(torch.zeros(2, dtype=torch.uint16)), "uint16")


@case
def all_reduce_sparse() -> None:
    i = torch.tensor([[rank, 5]])
    mine = torch.sparse_coo_tensor(i, torch.tensor([1.0, 2.0]), (8,))
    dist.all_reduce(mine)
    expected = torch.zeros(8)
    expected[:world] += 1.0
    expected[5] += 2.0 * world
    same(mine.to_dense(), expected, "sparse")


@case
def broadcast_and_reduce() -> None:
    for root in range(world):
        for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool):
            mine = sample(torch.int32, 1001).to(dtype)
            theirs = mine.clone()
            dist.broadcast(mine, root)
            dist.broadcast(theirs, root, group=gloo)
            assert torch.equal(mine, theirs), (root, dtype)
        for dtype in (torch.float32, torch.int64):
            mine, theirs = sample(dtype, 501), sample(dtype, 501)
            dist.reduce(mine, root)
            dist.reduce(theirs, root, group=gloo)
            if rank == root:
                same(mine, theirs, ("reduce", root, dtype))
            else:
                assert torch.equal(mine, sample(dtype, 501)), "reduce wrote off the root"


@case
def gather_family() -> None:
    own = sample(torch.float32, 333)
    mine, theirs = ([torch.zeros(333) for _ in range(world)] for _ in range(2))
    dist.all_gather(mine, own)
    dist.all_gather(theirs, own, group=gloo)
    for a, b in zip(mine, theirs, strict=True):
        assert torch.equal(a, b)
    whole = torch.zeros(world, 333)
    dist.all_gather_into_tensor(whole, own)
    assert torch.equal(whole, torch.stack(theirs))
    uneven = [torch.zeros(r + 1, dtype=torch.int64) for r in range(world)]
    dist.all_gather(uneven, torch.full((rank + 1,), rank))
    assert all(torch.equal(t, torch.full((r + 1,), r)) for r, t in enumerate(uneven))
    for root in range(world):
        into = [torch.zeros(333) for _ in range(world)] if rank == root else None
        dist.gather(own, into, root)
        if into is not None:
            assert all(torch.equal(a, b) for a, b in zip(into, theirs, strict=True))
        out = torch.zeros(4)
        parts = [torch.full((4,), 10.0 * root + r) for r in range(world)] if rank == root else None
        dist.scatter(out, parts, root)
        assert torch.equal(out, torch.full((4,), 10.0 * root + rank))


@case
def reduce_scatter_family() -> None:
    whole = sample(torch.float32, 40 * world)
    expected = whole.clone()
    dist.all_reduce(expected, group=gloo)
    expected = expected.reshape(world, 40)[rank]
    out = torch.zeros(40)
    dist.reduce_scatter_tensor(out, whole)
    same(out, expected, "reduce_scatter_tensor")
    out = torch.zeros(40)
    dist.reduce_scatter(out, list(whole.reshape(world, 40).unbind()))
    same(out, expected, "reduce_scatter")
    parts = [torch.full((r + 2,), rank + 1, dtype=torch.int32) for r in range(world)]
    out = torch.zeros(rank + 2, dtype=torch.int32)
    dist.reduce_scatter(out, parts)
    assert torch.equal(out, torch.full((rank + 2,), world * (world + 1) // 2, dtype=torch.int32))


@case
def all_to_all() -> None:
    own = torch.arange(world * 5).reshape(world, 5) + 100 * rank
    mine, theirs = torch.zeros_like(own), torch.zeros_like(own)
    dist.all_to_all_single(mine, own)
    dist.all_to_all_single(theirs, own, group=gloo)
    assert torch.equal(mine, theirs)
    send = [(rank + to) % world for to in range(world)]
    receive = [(source + rank) % world for source in range(world)]
    rows = sample(torch.float32, sum(send) * 3).reshape(-1, 3)
    mine, theirs = torch.zeros(sum(receive), 3), torch.zeros(sum(receive), 3)
    dist.all_to_all_single(mine, rows, receive, send)
    dist.all_to_all_single(theirs, rows, receive, send, group=gloo)
    assert torch.equal(mine, theirs), "uneven"
    ins = [torch.full((to + 1, 2), float(rank)) for to in range(world)]
    outs = [torch.zeros(rank + 1, 2) for _ in range(world)]
    dist.all_to_all(outs, ins)
    assert all(torch.equal(t, torch.full((rank + 1, 2), float(r))) for r, t in enumerate(outs))


@case
def point_to_point() -> None:
    right, left = (rank + 1) % world, (rank - 1) % world
    out, into = torch.full((70_000,), float(rank)), torch.zeros(70_000)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, out, right),
                                    dist.P2POp(dist.irecv, into, left)])
    for work in works:
        work.wait()
    assert torch.equal(into, torch.full((70_000,), float(left)))
    if rank == 0:
        a, b = torch.zeros(1), torch.zeros(1)
        second = dist.irecv(b, 1, tag=2)
        dist.recv(a, 1, tag=1)
        second.wait()
        assert a.item() == 1 and b.item() == 2
        seen = {dist.recv(torch.zeros(3)) for _ in range(world - 1)}
        assert seen == set(range(1, world)), seen
    else:
        if rank == 1:
            first = dist.isend(torch.tensor([2.0]), 0, tag=2)
            dist.send(torch.tensor([1.0]), 0, tag=1)
            first.wait()
        dist.send(torch.zeros(3), 0)


@case
def objects() -> None:
    seen: list[object] = [None] * world
    dist.all_gather_object(seen, {"rank": rank, "pad": "x" * (100 * rank)})
    assert [s["rank"] for s in seen] == list(range(world))  # type: ignore[index]
    box = [("from", rank)] if rank == 1 else [None]
    dist.broadcast_object_list(box, 1)
    assert box == [("from", 1)]
    got = [None] * world if rank == 2 else None
    dist.gather_object(rank * rank, got, 2)
    assert got is None or got == [r * r for r in range(world)]
    out: list[object] = [None]
    dist.scatter_object_list(out, [f"to {r}" for r in range(world)] if rank == 0 else None, 0)
    assert out == [f"to {rank}"]


@case
def functional() -> None:
    import torch.distributed._functional_collectives as fc

    x = sample(torch.float32, 48)
    expected = x.clone()
    dist.all_reduce(expected, group=gloo)
    everyone = list(range(world))
    same(fc.wait_tensor(fc.all_reduce(x, "sum", everyone)), expected, "all_reduce")
    gathered = fc.wait_tensor(fc.all_gather_tensor(x, 0, everyone))
    assert torch.equal(gathered[48 * rank:48 * (rank + 1)], x)
    mine = fc.wait_tensor(fc.reduce_scatter_tensor(x[:12 * world], "sum", 0, everyone))
    same(mine, expected[12 * rank:12 * (rank + 1)] if world == 4 else mine, "reduce_scatter")
    swapped = fc.wait_tensor(fc.all_to_all_single(x[:world], None, None, everyone))
    assert swapped.shape == (world,)
    assert fc.wait_tensor(fc.broadcast(torch.tensor([float(rank)]), 1, everyone)).item() == 1.0
    a, b = fc.all_reduce_coalesced([x, x * 2], "sum", everyone)
    same(fc.wait_tensor(a), expected, "coalesced")
    same(fc.wait_tensor(b), expected * 2, "coalesced")


@case
def several_groups_at_once() -> None:
    groups = [dist.new_group(list(range(world))) for _ in range(3)]
    pairs = [dist.new_group([2 * i, 2 * i + 1]) for i in range(world // 2)]
    tensors = [torch.full((50_000,), float(rank + i)) for i in range(3)]
    works = []
    for i in ((0, 1, 2), (2, 0, 1), (1, 2, 0), (0, 2, 1))[rank % 4]:  # each rank its own order
        works.append(dist.all_reduce(tensors[i], group=groups[i], async_op=True))
    pair = torch.tensor([float(rank)])
    if rank // 2 < len(pairs):
        dist.all_reduce(pair, group=pairs[rank // 2])
        assert pair.item() == 4 * (rank // 2) + 1
    for work in reversed(works):
        work.wait()
    for i, t in enumerate(tensors):
        assert torch.equal(t, torch.full((50_000,), float(world * (world - 1) // 2 + world * i)))
    for group in groups:
        dist.destroy_process_group(group)


@case
def futures() -> None:
    t = torch.full((10,), float(rank))
    work = dist.all_reduce(t, async_op=True)
    doubled = work.get_future().then(lambda f: f.value()[0] * 2)
    assert torch.equal(doubled.wait(), torch.full((10,), float(world * (world - 1))))
    # A callback that itself runs a collective and waits for its future.
    u = torch.full((10,), 1.0)

    def nested(future: torch.futures.Future) -> torch.Tensor:
        inner = dist.all_reduce(future.value()[0], async_op=True)
        return inner.get_future().wait()[0]

    out = dist.all_reduce(u, async_op=True).get_future().then(nested).wait()
    assert torch.equal(out, torch.full((10,), float(world * world)))
    assert work.is_completed() and work.is_success() and work.exception() is None


@case
def mismatch_is_named() -> None:
    group = dist.new_group(list(range(world)))
    uneven = torch.zeros(2 + (rank == 1))
    message = refused(lambda: dist.all_reduce(uneven, group=group), "all_reduce")
    assert "mismatch" in message or "disagree" in message or "elements" in message, message
    refused(lambda: dist.barrier(group=group))  # a failed group stays failed
    dist.barrier()  # and the others are untouched


@case
def timeout_is_named() -> None:
    group = dist.new_group(list(range(world)), timeout=timedelta(seconds=2))
    if rank == 0:
        message = refused(lambda: dist.barrier(group=group), "timed out after 2")
        assert "barrier" in message, message
    dist.barrier(group=gloo)
    if rank != 0:
        refused(lambda: dist.barrier(group=group), "rank 0 aborted")
    slow = dist.new_group(list(range(world)))
    work = None
    if rank == 0:
        work = dist.all_reduce(torch.zeros(1), group=slow, async_op=True)
        refused(lambda: work.wait(timedelta(milliseconds=200)), "Operation timed out!")
    dist.barrier(group=gloo)
    if work is None:
        work = dist.all_reduce(torch.zeros(1), group=slow, async_op=True)
    work.wait()  # it went on


@case
def bad_arguments() -> None:
    group = dist.distributed_c10d._get_default_group()
    refused(lambda: group.all_gather_single(torch.zeros(5), torch.zeros(2)), "5 elements")
    refused(lambda: group.allgather([[torch.zeros(2)]], [torch.zeros(2)]), "one tensor per rank")
    refused(lambda: dist.all_to_all_single(torch.zeros(world), torch.zeros(world), [1] * world,
                                           [2] * world))
    dist.barrier()


@case
def monitored_barrier() -> None:
    group = dist.new_group(list(range(world)))
    group.monitored_barrier(timedelta(seconds=20))
    if rank == 0:
        refused(lambda: group.monitored_barrier(timedelta(seconds=1), True), "ranks [1]")
    elif rank != 1:
        refused(lambda: group.monitored_barrier(timedelta(seconds=30)))
    dist.barrier()


@case
def shutdown_of_a_group() -> None:
    group = dist.new_group(list(range(world)))
    dist.barrier(group=group)
    dist.destroy_process_group(group)
    dist.barrier()
    group = dist.new_group(list(range(world)))
    work = dist.barrier(group=group, async_op=True) if rank else None
    if rank == 0:
        group.abort()
    else:
        refused(work.wait, "rank 0")


def main() -> bool:
    global rank, world, gloo
    rank, world, gloo = harness.join()
    return harness.run(sys.argv[1:], gloo)


if __name__ == "__main__":
    sys.exit(main())
