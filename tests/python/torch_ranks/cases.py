"""Run in every rank: each case compares a collective over the emulated NIC with stock Gloo in the
same processes."""

from __future__ import annotations

import sys
import threading
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
        torch.testing.assert_close(
            mine, theirs, rtol=16 * eps, atol=16 * eps, msg=lambda m: f"{what}: {m}"
        )
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
    ops = {
        "SUM": dist.ReduceOp.SUM,
        "MIN": dist.ReduceOp.MIN,
        "MAX": dist.ReduceOp.MAX,
        "PRODUCT": dist.ReduceOp.PRODUCT,
    }
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
    works = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, out, right), dist.P2POp(dist.irecv, into, left)]
    )
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
        sending, receiving = dist.isend(a, 1, tag=3), dist.irecv(b, 1, tag=3)
        sending.wait()
        receiving.wait()
        assert receiving._source_rank() == 1
        refused(sending._source_rank, "sourceRank() may only be called")
    else:
        if rank == 1:
            first = dist.isend(torch.tensor([2.0]), 0, tag=2)
            dist.send(torch.tensor([1.0]), 0, tag=1)
            first.wait()
        dist.send(torch.zeros(3), 0)
        if rank == 1:
            dist.recv(torch.zeros(1), 0, tag=3)
            dist.send(torch.zeros(1), 0, tag=3)


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
    assert torch.equal(gathered[48 * rank : 48 * (rank + 1)], x)
    mine = fc.wait_tensor(fc.reduce_scatter_tensor(x[: 12 * world], "sum", 0, everyone))
    same(mine, expected[12 * rank : 12 * (rank + 1)] if world == 4 else mine, "reduce_scatter")
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
        refused(lambda: dist.barrier(group=group), " Timed out waiting 2000ms for barrier")
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
def complex_reductions() -> None:
    op = dist.ReduceOp
    for dtype in (torch.complex64, torch.complex128):
        real = torch.float32 if dtype == torch.complex64 else torch.float64
        whole = torch.complex(sample(real, 20 * world), sample(real, 20 * world, 1))
        for what in (op.SUM, op.AVG):
            for root in (0, world - 1):
                mine, theirs = whole.clone(), whole.clone()
                dist.reduce(mine, root, what)
                dist.reduce(theirs, root, what, group=gloo)
                same_complex(mine, theirs if rank == root else whole, ("reduce", dtype, what))
            mine, theirs = (torch.zeros(20, dtype=dtype) for _ in range(2))
            dist.reduce_scatter_tensor(mine, whole, what)
            dist.reduce_scatter_tensor(theirs, whole, what, group=gloo)
            same_complex(mine, theirs, ("reduce_scatter_tensor", dtype, what))
            mine = torch.zeros(20, dtype=dtype)
            dist.reduce_scatter(mine, list(whole.reshape(world, 20).unbind()), what)
            same_complex(mine, theirs, ("reduce_scatter", dtype, what))
            mine, theirs = whole.clone(), whole.clone()
            group = dist.distributed_c10d._get_default_group()
            group.allreduce([mine], what).wait()  # as C++ calls it: torch has not seen the type
            dist.all_reduce(theirs, what, group=gloo)
            same_complex(mine, theirs, ("allreduce", dtype, what))
            assert mine.dtype == dtype
    mine, theirs = whole[:5].conj(), whole[:5].conj().resolve_conj()
    dist.reduce(mine, 0)
    dist.reduce(theirs, 0, group=gloo)
    if rank == 0:
        same_complex(mine.resolve_conj(), theirs, "conjugated")
    for what in (op.PRODUCT, op.MAX, op.BXOR):
        words = f"does not support {what.name} on complex tensors"
        refused(lambda: dist.reduce(whole, 0, what), words)  # noqa: B023
        refused(
            lambda: dist.reduce_scatter_tensor(mine, whole[: 5 * world], what),  # noqa: B023
            words,
        )


def same_complex(mine: torch.Tensor, theirs: torch.Tensor, what: object) -> None:
    same(torch.view_as_real(mine), torch.view_as_real(theirs), what)


@case
def overlapping_memory() -> None:
    one = torch.full((1,), float(rank))
    for call in (
        lambda: dist.all_reduce(torch.arange(6.0).unfold(0, 3, 1)),
        lambda: dist.all_reduce(torch.arange(9.0).as_strided((3, 2), (2, 2))),
        lambda: dist.all_gather([one.expand(4)] * world, torch.zeros(4)),
        lambda: dist.recv(one.expand(4), (rank + 1) % world),
    ):
        refused(call, "more than one element of the written-to tensor")
        assert one.item() == rank
    # Elements that expand() has made of one have one sum.
    for shape in ((4,), (2, 3), (1, 1)):
        dist.all_reduce(expanded := torch.full((1,), rank + 1.0).expand(shape))
        assert torch.equal(expanded, torch.full(shape, world * (world + 1) / 2)), expanded
    rows = torch.arange(3.0)[:, None] + rank
    dist.all_reduce(rows.expand(3, 4))
    assert torch.equal(rows, torch.arange(3.0)[:, None] * world + sum(range(world))), rows
    nan = torch.full((1,), float("nan"))
    dist.reduce(nan.expand(5), 1)
    # A rank whose elements are apart has a sum for each.
    if rank == 0:
        refused(lambda: dist.all_reduce(one.expand(4)), "other ranks' tensors have different")
    else:
        dist.all_reduce(torch.arange(4.0))
    assert one.item() == rank
    # Read only, such a tensor is as good as any.
    mine, theirs = ([torch.zeros(4) for _ in range(world)] for _ in range(2))
    dist.all_gather(mine, one.expand(4))
    dist.all_gather(theirs, one.expand(4), group=gloo)
    assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))
    tensor = one.expand(4) if rank == 1 else torch.zeros(4)
    dist.broadcast(tensor, 1)
    assert torch.equal(tensor, torch.ones(4))
    # Strides that interleave without meeting: 0, 3, 2, 5, 4, 7.
    own = sample(torch.float32, 10)
    mine, theirs = own.clone().as_strided((3, 2), (2, 3)), own.as_strided((3, 2), (2, 3)).clone()
    dist.all_reduce(mine)
    dist.all_reduce(theirs, group=gloo)
    same(mine, theirs, "interleaved")


@case
def calls_of_two_threads_on_one_group() -> None:
    """What one thread coalesces holds no work of the other. The number of calls is the group's."""
    group = dist.new_group(list(range(world)))
    before = group._get_sequence_number_for_group()
    tensors = [torch.full((100,), float(rank)) for _ in range(2)]
    inside, over = threading.Event(), threading.Event()

    def call() -> None:
        inside.wait()
        dist.all_reduce(tensors[1], group=group)
        over.set()

    other = threading.Thread(target=call)
    other.start()
    group._start_coalescing(torch.device("cpu"))
    group.allreduce([tensors[0]])
    inside.set()
    over.wait()
    work = group._end_coalescing(torch.device("cpu"))
    other.join()
    assert len(work._works) == 1
    work.wait()
    assert group._get_sequence_number_for_group() == before + 2
    assert all(torch.equal(t, torch.full((100,), float(sum(range(world))))) for t in tensors)


@case
def tensors_that_share_memory() -> None:
    """Inputs are read before outputs are written, and outputs are written in their order."""
    for n in (4, 100_000):
        own = torch.arange(n) + 1000 * rank
        everyone = [torch.arange(n) + 1000 * r for r in range(world)]
        one = own.clone()
        dist.all_gather([one] * world, own)
        assert torch.equal(one, everyone[-1])
        half = torch.zeros(n * world, dtype=torch.int64)
        dist.all_gather([half[r * n // 2 :][:n] for r in range(world)], own)
        assert torch.equal(
            half[: n // 2 * (world + 1)],
            torch.cat([*(e[: n // 2] for e in everyone), everyone[-1][n // 2 :]]),
        )
        for at in (0, rank, world - 1):
            whole = torch.full((n * world,), -1)
            whole[at * n :][:n] = own
            dist.all_gather_into_tensor(whole, whole[at * n :][:n])
            assert torch.equal(whole, torch.cat(everyone)), (n, at)
        whole = torch.arange(n * world) + 1000 * rank
        dist.all_to_all_single(whole, whole)
        mine = torch.arange(n * world).reshape(world, n)[rank]
        assert torch.equal(whole, torch.cat([mine + 1000 * r for r in range(world)]))
        for at in (0, rank, world - 1):
            whole = torch.arange(n * world) + 1000 * rank
            dist.reduce_scatter_tensor(whole[at * n :][:n], whole)
            assert torch.equal(whole[at * n :][:n], mine * world + 500 * world * (world - 1))
        dist.gather(one := own.clone(), [one] * world if rank == 1 else None, 1)
        assert torch.equal(one, everyone[-1] if rank == 1 else own)
        dist.all_reduce_coalesced([own, own])
        assert torch.equal(own, torch.arange(n) * world + 500 * world * (world - 1))


@case
def bad_arguments() -> None:
    group = dist.distributed_c10d._get_default_group()
    ones, op = torch.ones, dist.ReduceOp
    rooted = dist.ReduceOptions()
    for call, words in (
        (lambda: group.all_gather_single(ones(5), ones(2)), "5 elements"),
        (lambda: group.allgather([[ones(2)]], [ones(2)]), "one tensor per rank"),
        (lambda: group.allgather([], [ones(2)]), "lists of 0 outputs and 1 inputs"),
        (lambda: group.allgather_coalesced([[ones(2)]] * world, []), "lists of 1 outputs"),
        (lambda: group.reduce_scatter([ones(2)], []), "lists of 1 outputs and 0 inputs"),
        (lambda: dist.reduce_scatter_tensor(ones(2), ones(2 * world + 1)), "times 2"),
        (
            lambda: dist.all_to_all_single(ones(world), ones(world), [1] * world, [2] * world),
            "splits",
        ),
        (lambda: dist.all_to_all_single(ones(world + 1), ones(world + 1)), "do not divide"),
        (lambda: group.broadcast(ones(2), world), f"invalid root rank: {world}"),
        (lambda: group.reduce([ones(2)], rooted), "invalid root rank: -1"),
        (lambda: group.gather([], [ones(2), ones(2)]), "gather takes a single tensor, not 2"),
        (lambda: group.scatter([ones(2)], [], rank), "scatter takes a single tensor, not 0"),
        (lambda: group.send([ones(2), ones(2)], (rank + 1) % world), "a single tensor, not 2"),
        (lambda: group.send([ones(2)], rank), "another rank"),
        (lambda: group.send([ones(2)], world), "another rank"),
        (lambda: group.recv([ones(2)], -1), "another rank"),
        (lambda: group.send([ones(2)], (rank + 1) % world, -1), "a tag must be"),
        (lambda: dist.all_reduce(ones(2), op.BAND), "band is not defined for float32"),
        (lambda: dist.all_reduce(ones(2).to(torch.uint16)), "uint16 tensors cannot be reduced"),
        (lambda: dist.all_reduce(ones(2).to_sparse(), op.MAX), "only works with ReduceOp.SUM"),
        (lambda: dist.all_reduce(torch.eye(2).to_sparse_csr()), "sparse_csr"),
        (lambda: dist.broadcast(ones(2).to_sparse(), 0), "sparse"),
        (lambda: group.broadcast(torch.ones(2, device="meta"), 0), "not meta"),
    ):
        rooted.rootRank = -1
        for expected in (RuntimeError, ValueError):  # as Gloo, and as one would think
            try:
                call()
            except expected as error:
                assert words in str(error), f"{words!r} not in: {error}"
            else:
                raise AssertionError(f"nothing raised; expected {words}")
    uneven = torch.sparse_coo_tensor(torch.tensor([[0]]), torch.ones(1), (8 + (rank == 1),))
    message = refused(lambda: dist.all_reduce(uneven), "sparse dimensions do not match")
    assert ("[9]" in message) and ("[8]" in message), message
    dist.barrier()


@case
def short_forms() -> None:
    """A group's methods without lists and options, as scripts call them."""
    limit, op, right = timedelta(seconds=30), dist.ReduceOp, (rank + 1) % world
    for mine in (dist.distributed_c10d._get_default_group(), gloo):
        t = torch.tensor([float(rank), 1.0])
        mine.allreduce(t, op.MAX, limit).wait()
        assert t.tolist() == [world - 1, 1]
        mine.allreduce([t], op=op.SUM, timeout=limit).wait()
        assert t.tolist() == [world * (world - 1), world]
        mine.broadcast(t := torch.tensor([rank]), 1, limit).wait()
        mine.broadcast(u := torch.tensor([rank]), root=2).wait()
        assert (t.item(), u.item()) == (1, 2)
        mine.reduce(t := torch.tensor([rank]), 1, op.MAX, limit).wait()
        mine.reduce(u := torch.tensor([rank]), root=1).wait()
        assert rank != 1 or (t.item(), u.item()) == (world - 1, world * (world - 1) // 2)
        parts = [torch.zeros(2) for _ in range(world)]
        mine.allgather(parts, torch.full((2,), float(rank)), timeout=limit).wait()
        assert [p.tolist() for p in parts] == [[r, r] for r in range(world)]
        into = [torch.zeros(1) for _ in range(world)] if rank == 1 else []
        mine.gather(into, torch.tensor([float(rank)]), 1, timeout=limit).wait()
        assert [p.item() for p in into] == (list(range(world)) if rank == 1 else [])
        own = torch.zeros(1)
        mine.scatter(
            own,
            [torch.tensor([10.0 + r]) for r in range(world)] if rank == 1 else [],
            1,
            timeout=limit,
        ).wait()
        assert own.item() == 10 + rank
        mine.reduce_scatter(
            own, [torch.tensor([float(r)]) for r in range(world)], op.MAX, limit
        ).wait()
        assert own.item() == rank
        out = torch.zeros(world)
        mine.alltoall_base(out, torch.full((world,), float(rank)), [], [], timeout=limit).wait()
        assert out.tolist() == list(range(world))
        mine.barrier(timeout=limit).wait()
        send = mine.send([torch.tensor([rank])], right, 5)
        mine.recv([u], (rank - 1) % world, 5).wait()
        send.wait()
        assert u.item() == (rank - 1) % world


@case
def introspection() -> None:
    ours = dist.new_group(list(range(world)), timeout=timedelta(seconds=50))
    theirs = dist.new_group(list(range(world)), timeout=timedelta(seconds=50), backend="gloo")
    cpu, told = torch.device("cpu"), []
    for group, name in ((ours, "loomnet"), (theirs, "gloo")):
        backend = group._get_backend(cpu)
        assert group.name() == group._get_backend_name() == backend.name() == name
        assert dist.get_backend(group) == backend.options.backend == name
        assert f"cpu:{name}" in dist.get_backend_config(group)
        assert backend.options.group_name == group.group_name
        told.append(
            (
                group.rank(),
                group.size(),
                backend.rank(),
                backend.size(),
                group.bound_device_id,
                group._has_hooks(),
                group.group_desc,
                backend.options._timeout,
                backend.options.global_ranks_in_group,
                backend.supports_coalescing,
                backend.supports_splitting,
                backend.supports_time_estimate,
                dist.get_process_group_ranks(group),
                type(group._id()),
                dist.get_global_rank(group, 1),
                _sequence(group),
            )
        )
        group.set_timeout(timedelta(seconds=40))
        assert backend.options._timeout == timedelta(seconds=40)
        backend._set_default_timeout(timedelta(seconds=45))
        assert backend.options._timeout == timedelta(seconds=45)
    for mine, gloos in zip(*told, strict=True):
        assert mine == gloos, told


def _sequence(group: dist.ProcessGroup) -> list[int]:
    """The group's sequence number after each of some calls."""
    tensor, numbers = torch.ones(3), [group._get_sequence_number_for_group()]
    for call in (
        lambda: dist.all_reduce(tensor, group=group),
        lambda: dist.all_reduce(tensor.to_sparse(), group=group),
        lambda: dist.all_gather_object([None] * world, rank, group=group),
        lambda: dist.barrier(group=group),
    ):
        call()
        numbers.append(group._get_sequence_number_for_group())
    return numbers


@case
def profiler_labels() -> None:
    """The events of both backends' calls, but for the backend's name, are the same."""
    from torch.profiler import ProfilerActivity, profile

    ours = dist.distributed_c10d._get_default_group()

    def calls(group: dist.ProcessGroup) -> dict[str, Callable[[], object]]:
        t, many = torch.ones(2, 3), [torch.ones(2, 3) for _ in range(world)]
        at_root = many if rank == 0 else None
        import torch.distributed._functional_collectives as fc

        return {
            "all_reduce": lambda: dist.all_reduce(t, group=group),
            "async": lambda: dist.all_reduce(t, group=group, async_op=True).wait(),
            "future": lambda: dist.all_reduce(t, group=group, async_op=True).get_future().wait(),
            "sparse": lambda: dist.all_reduce(t.to_sparse(), group=group),
            "broadcast": lambda: dist.broadcast(t, 1, group=group),
            "reduce": lambda: dist.reduce(t, 0, group=group),
            "all_gather": lambda: dist.all_gather(many, t, group=group),
            "into_tensor": lambda: dist.all_gather_into_tensor(torch.ones(2 * world, 3), t, group),
            "gather": lambda: dist.gather(t, at_root, 0, group=group),
            "scatter": lambda: dist.scatter(t, at_root, 0, group=group),
            "all_to_all": lambda: dist.all_to_all(many, [m.clone() for m in many], group=group),
            "single": lambda: dist.all_to_all_single(
                torch.ones(world), torch.ones(world), group=group
            ),
            "barrier": lambda: dist.barrier(group=group),
            "functional": lambda: fc.wait_tensor(fc.all_reduce(t, "sum", group)),
            "pairs": lambda: (
                (dist.send(t, rank ^ 1, group=group), dist.recv(t, rank ^ 1, group))
                if rank % 2
                else (dist.recv(t, group=group), dist.send(t, rank ^ 1, group))
            ),
        }

    for name in calls(ours):
        seen = []
        for group, label in ((ours, "loomnet:"), (gloo, "gloo:")):
            with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
                calls(group)[name]()
            seen.append(
                sorted(
                    (e.name.removeprefix(label), e.input_shapes, e.is_async)
                    for e in profiler.events()
                    if e.name.startswith(label)
                )
            )
        assert seen[0] == seen[1] and seen[0], (name, seen)
    whole = torch.ones(2 * world)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        dist.reduce_scatter_tensor(torch.ones(2), whole)
        work = dist.all_reduce(whole, async_op=True)
    events = [e for e in profiler.events() if e.name == "loomnet:reduce_scatter"]
    assert [e.input_shapes for e in events] == [[[2 * world]]], events
    work.wait()
    for _ in range(10):  # the profiler stops while events are open, or are just being ended
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            works = [dist.all_reduce(whole, async_op=True) for _ in range(10)]
        assert sum(e.name == "loomnet:all_reduce" for e in profiler.events()) == 10
        for work in works:
            work.wait()
    refused(lambda: _profiled(lambda: dist.all_reduce(whole, dist.ReduceOp.BAND)), "band")


def _profiled(call: Callable[[], object]) -> None:
    with torch.autograd.profiler.profile():
        call()


@case
def monitored_barrier() -> None:
    group = dist.new_group(list(range(world)))
    group.monitored_barrier(timedelta(seconds=20))
    group.monitored_barrier(timedelta(seconds=20), True)
    limit, late = timedelta(seconds=1), (1, world - 1)
    reached = (
        f"Rank {rank} successfully reached monitoredBarrier, but received errors while "
        "waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank."
    )
    for wait_all_ranks, words in (
        (False, "Rank 1 failed to pass monitoredBarrier in 1000 ms"),
        (True, f"Ranks 1, {world - 1} failed to pass monitoredBarrier in 1000 ms"),
    ):
        group = dist.new_group(list(range(world)))
        if rank == 0:
            refused(lambda: group.monitored_barrier(limit, wait_all_ranks), words)  # noqa: B023
        elif rank not in late:
            refused(lambda: group.monitored_barrier(limit, wait_all_ranks), reached)  # noqa: B023
        dist.barrier()
        refused(lambda: dist.barrier(group=group))  # noqa: B023  a failed group stays failed
    group = dist.new_group(list(range(world)))
    if rank == 0:
        refused(
            lambda: group.monitored_barrier(timedelta(0)),
            "Rank 0 timed out in monitoredBarrier after 0 ms",
            "No ranks successfully processed in monitoredBarrier.",
        )
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
