"""Collectives themselves: every kind, data type and shape of memory."""

import pickle

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as differentiable
from registry import Rank, case
from torch.distributed import ReduceOp

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int32, torch.int64, torch.uint8, torch.int8)
OPS = {"sum": ReduceOp.SUM, "product": ReduceOp.PRODUCT, "min": ReduceOp.MIN, "max": ReduceOp.MAX}


def sample(r: Rank, dtype: torch.dtype, *shape: int, seed: int = 0) -> torch.Tensor:
    """Values that differ by rank."""
    generator = torch.Generator().manual_seed(1000 * seed + r.rank)
    if dtype is torch.bool:
        return torch.rand(shape, generator=generator) < 0.5
    if dtype.is_complex:
        return torch.complex(*(torch.rand((2, *shape), generator=generator) * 2 - 1)).to(dtype)
    if dtype.is_floating_point:
        return (torch.rand(shape, generator=generator) * 2 - 1).to(dtype)
    low = 0 if dtype is torch.uint8 else -3
    return torch.randint(low, 4, shape, generator=generator).to(dtype)


@case(0)
def all_reduce_integers(r: Rank):
    found = {}
    for dtype in INTEGERS:
        for name, op in OPS.items():
            for size in (1, 7, 1000):
                dist.all_reduce(t := sample(r, dtype, size), op=op)
                found[f"{dtype} {name} {size}"] = t
    for name in ("BAND", "BOR", "BXOR"):
        dist.all_reduce(t := sample(r, torch.int32, 99), op=getattr(ReduceOp, name))
        found[name] = t
    return found


@case()
def all_reduce_floats(r: Rank):
    found = {}
    for dtype in FLOATS:
        for name, op in OPS.items():
            for size in (1, 7, 1000):
                dist.all_reduce(t := sample(r, dtype, size), op=op)
                found[f"{dtype} {name} {size}"] = t
    return found


@case()
def all_reduce_of_infinities_and_nans(r: Rank):
    """No rank adds opposite infinities: their sum would depend on the order."""
    t = torch.tensor([1.0, torch.inf, -torch.inf, torch.nan, -0.0, 3e38, 1e-45])
    if r.rank % 2:
        t[1:4] = torch.tensor([2.0, -1.0, 5.0])
    dist.all_reduce(total := t.clone())
    return {"sum": total}


@case(live=True)
def all_reduce_average(r: Rank):
    """Gloo divides as its own operator; whole numbers are averaged by Loomnet alone."""
    dist.all_reduce(t := sample(r, torch.float32, 501), op=ReduceOp.AVG)
    return t


@case()
def all_reduce_of_12_megabytes(r: Rank):
    dist.all_reduce(t := sample(r, torch.float32, 3_000_001))
    return t


@case()
def complex_numbers(r: Rank):
    found = {}
    for dtype in (torch.complex64, torch.complex128):
        own = sample(r, dtype, 40 * r.world)
        dist.all_reduce(total := own.clone())
        dist.broadcast(sent := own.clone(), 1)
        dist.all_gather(parts := [torch.zeros_like(own) for _ in r.everyone], own)
        dist.reduce(at_root := own.clone(), 1)
        dist.reduce_scatter(part := torch.zeros(40, dtype=dtype), list(own.chunk(r.world)))
        found[str(dtype)] = {
            "sum": total,
            "sent": sent,
            "gathered": parts,
            "part": part,
            "at_root": at_root if r.rank == 1 else None,
        }
    return found


@case(0)
def truth_values(r: Rank):
    own = sample(r, torch.bool, 77)
    dist.broadcast(sent := own.clone(), 2)
    dist.all_gather(parts := [torch.zeros_like(own) for _ in r.everyone], own)
    got = torch.zeros_like(own)
    works = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, own, r.right), dist.P2POp(dist.irecv, got, r.left)]
    )
    for work in works:
        work.wait()
    dist.scatter(
        one := torch.zeros(3, dtype=torch.bool),
        [torch.tensor([i % 2 == 0, True, i < 2]) for i in r.everyone] if r.rank == 0 else None,
        0,
    )
    return {"sent": sent, "gathered": parts, "from the left": got, "scattered": one}


@case(0)
def zero_sizes(r: Rank):
    """Tensors without elements, alone and among others."""
    found = {}
    for name, shape in (("flat", (0,)), ("rows", (0, 4)), ("columns", (3, 0))):
        dist.all_reduce(t := torch.zeros(shape))
        dist.broadcast(u := torch.zeros(shape, dtype=torch.int64), 0)
        dist.all_gather(parts := [torch.zeros(shape) for _ in r.everyone], torch.zeros(shape))
        found[name] = [t, u, parts]
    dist.all_gather_into_tensor(whole := torch.zeros(0), torch.zeros(0))
    dist.all_to_all_single(moved := torch.zeros(0, 2), torch.zeros(0, 2))
    # Rank 0 alone has rows to give, everyone has one to take.
    send = [1] * r.world if r.rank == 0 else [0] * r.world
    take = [1] + [0] * (r.world - 1)
    rows = torch.arange(2 * sum(send)).reshape(-1, 2)
    dist.all_to_all_single(one := torch.zeros(1, 2, dtype=torch.int64), rows, take, send)
    found["moved"] = [whole, moved, one]
    dist.all_reduce(scalar := torch.tensor(r.rank + 1))
    found["no dimension"] = scalar
    return found


@case()
def non_contiguous_memory(r: Rank):
    """Where Gloo refuses or writes between a tensor's elements, a copy stands for it."""
    own = sample(r, torch.float32, 6, 10)
    dist.all_reduce(turned := own.clone().t())
    dist.all_reduce(
        channels := sample(r, torch.float32, 2, 3, 4, 4).to(memory_format=torch.channels_last)
    )
    dist.all_gather(parts := [torch.zeros(6, 10) for _ in r.everyone], own.t().contiguous().t())
    base = torch.zeros(8, 8)
    box = base[2:4].view(-1)
    dist.broadcast(box.copy_(sample(r, torch.float32, 16)), 1)
    dist.all_reduce(shifted := sample(r, torch.float32, 21)[3:])
    return {
        "turned": turned,
        "channels": channels,
        "parts": parts,
        "base": base,
        "shifted": shifted,
    }


@case()
def sparse_tensors(r: Rank):
    found = []
    for case_ in range(4):
        if case_ == 0:  # overlapping and own places
            t = torch.sparse_coo_tensor([[r.rank, 5]], [1.0, 2.0], (8,))
        elif case_ == 1:  # values that are rows
            t = torch.sparse_coo_tensor([[r.rank, 0]], sample(r, torch.float32, 2, 3), (9, 3))
        elif case_ == 2:  # two sparse dimensions, whole numbers
            t = torch.sparse_coo_tensor([[0, 1], [r.rank, r.rank]], [1, 10], (2, r.world))
        else:  # most ranks have nothing
            places = [[3]] if r.rank == 1 else [[]]
            t = torch.sparse_coo_tensor(
                torch.tensor(places, dtype=torch.int64), torch.ones(len(places[0])), (5,)
            )
        dist.all_reduce(t)
        found.append(t.to_dense())
    return found


@case(0)
def broadcasts(r: Rank):
    found = {}
    for root in r.everyone:
        for dtype in (*FLOATS, *INTEGERS, torch.bool, torch.complex64):
            dist.broadcast(t := sample(r, dtype, 101), root)
            found[f"{root} {dtype}"] = t
    return found


@case()
def reduces(r: Rank):
    found = {}
    for root in r.everyone:
        for dtype in (torch.float32, torch.int64, torch.bfloat16):
            dist.reduce(t := sample(r, dtype, 101), root, op=ReduceOp.MAX)
            dist.reduce(u := sample(r, dtype, 101), root)
            if r.rank == root:
                found[f"{root} {dtype}"] = [t, u]
    return found or {"root": False}


@case(0)
def gathers_and_scatters(r: Rank):
    found = {}
    for root in r.everyone:
        own = sample(r, torch.float32, 33)
        into = [torch.zeros(33) for _ in r.everyone] if r.rank == root else None
        dist.gather(own, into, root)
        parts = [torch.arange(5) + 10 * i + 100 * root for i in r.everyone]
        dist.scatter(
            one := torch.zeros(5, dtype=torch.int64), parts if r.rank == root else None, root
        )
        found[str(root)] = [into, one]
    return found


@case(0)
def all_gathers(r: Rank):
    own = sample(r, torch.float32, 33)
    dist.all_gather(parts := [torch.zeros(33) for _ in r.everyone], own)
    dist.all_gather_into_tensor(whole := torch.zeros(33 * r.world), own)
    uneven = [torch.zeros(i + 1, 2, dtype=torch.int64) for i in r.everyone]
    padded = torch.full((r.world, 2), r.rank)
    dist.all_gather(full := [torch.zeros_like(padded) for _ in r.everyone], padded)
    for box, part in zip(uneven, full, strict=True):
        box.copy_(part[: box.shape[0]])
    return [parts, whole, uneven]


@case()
def reduce_scatters(r: Rank):
    whole = sample(r, torch.float32, 40 * r.world)
    dist.reduce_scatter_tensor(single := torch.zeros(40), whole)
    dist.reduce_scatter(part := torch.zeros(40), list(whole.chunk(r.world)))
    numbers = sample(r, torch.int64, 3 * r.world, 5)
    dist.reduce_scatter_tensor(
        most := torch.zeros(3, 5, dtype=torch.int64), numbers, op=ReduceOp.MAX
    )
    return [single, part, most]


@case(0)
def all_to_alls(r: Rank):
    own = torch.arange(r.world * 5).reshape(r.world, 5) + 100 * r.rank
    dist.all_to_all_single(even := torch.zeros_like(own), own)
    send = [(r.rank + to) % r.world for to in r.everyone]
    take = [(source + r.rank) % r.world for source in r.everyone]
    rows = sample(r, torch.float32, sum(send), 3)
    dist.all_to_all_single(uneven := torch.zeros(sum(take), 3), rows, take, send)
    return [even, uneven]


@case(0)
def point_to_point(r: Rank):
    out, into = torch.full((70_000,), float(r.rank)), torch.zeros(70_000)
    works = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, out, r.right), dist.P2POp(dist.irecv, into, r.left)]
    )
    for work in works:
        work.wait()
    found = {"ring": into}
    if r.rank == 0:
        second = dist.irecv(b := torch.zeros(1), 1, tag=2)
        dist.recv(a := torch.zeros(1), 1, tag=1)
        second.wait()
        found |= {"tags": [a, b]}
        sources = sorted(dist.recv(torch.zeros(3)) for _ in range(r.world - 1))
        found["any source"] = sources
    else:
        if r.rank == 1:
            first = dist.isend(torch.tensor([2.0]), 0, tag=2)
            dist.send(torch.tensor([1.0]), 0, tag=1)
            first.wait()
        dist.send(torch.zeros(3), 0)
    return found


@case(0)
def many_messages_in_both_directions(r: Rank):
    """Sizes from nothing to a megabyte, posted before any is waited for."""
    sizes = [0, 1, 3, 1000, 65_537, 250_000]
    sent = [torch.arange(n) + 7 * r.rank for n in sizes]
    got = [torch.zeros(n, dtype=torch.int64) for n in sizes]
    works = [dist.irecv(t, r.left, tag=i) for i, t in enumerate(got)]
    works += [dist.isend(t, r.right, tag=i) for i, t in enumerate(sent)]
    for work in works:
        work.wait()
    return got


@case(0)
def objects(r: Rank):
    dist.all_gather_object(seen := [None] * r.world, {"rank": r.rank, "pad": "x" * 100 * r.rank})
    dist.broadcast_object_list(
        box := [("from", r.rank), None, "a" * 1000] if r.rank == 1 else [None] * 3, 1
    )
    dist.gather_object({r.rank, 99}, got := [None] * r.world if r.rank == 2 else None, 2)
    dist.scatter_object_list(
        out := [None], [f"to {i}" for i in r.everyone] if r.rank == 0 else None, 0
    )
    found = {
        "all": seen,
        "box": box,
        "gathered": [sorted(s) for s in got] if got else None,
        "scattered": out,
    }
    if r.rank == 0:
        dist.send_object_list([1, "two", [3.0]], 1)
    elif r.rank == 1:
        dist.recv_object_list(received := [None] * 3, 0)
        found["received"] = received
    assert pickle.loads(pickle.dumps(seen)) == seen
    return found


@case()
def asynchronous_works_and_futures(r: Rank):
    tensors = [torch.full((n,), float(r.rank + 1)) for n in (3, 50_000, 7)]
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    for work in reversed(works):
        work.wait()
    doubled = dist.all_reduce(t := torch.full((4,), float(r.rank)), async_op=True)
    doubled = doubled.get_future().then(lambda f: f.value()[0] * 2).wait()

    def again(future: torch.futures.Future) -> torch.Tensor:
        inner = dist.all_reduce(future.value()[0], async_op=True)
        return inner.get_future().wait()[0]

    nested = dist.all_reduce(torch.ones(5), async_op=True).get_future().then(again).wait()
    return [tensors, t, doubled, nested]


@case()
def coalesced(r: Rank):
    tensors = [sample(r, torch.float32, n) for n in (1, 99, 1000)]
    dist.all_reduce_coalesced(tensors)
    more = [sample(r, torch.float32, n, seed=2) for n in (5, 50)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for t in more:
            dist.all_reduce(t)
    manager.wait()
    return [tensors, more]


@case()
def functional_collectives(r: Rank):
    x = sample(r, torch.float32, 12 * r.world)
    everyone = r.everyone
    pair = functional.all_reduce_coalesced([x, x * 2], "sum", everyone)
    return {
        name: functional.wait_tensor(t)
        for name, t in {
            "all_reduce": functional.all_reduce(x, "sum", everyone),
            "max": functional.all_reduce(x, "max", everyone),
            "all_gather": functional.all_gather_tensor(x, 0, everyone),
            "all_gather of columns": functional.all_gather_tensor(x.reshape(-1, 2), 1, everyone),
            "reduce_scatter": functional.reduce_scatter_tensor(x, "sum", 0, everyone),
            "all_to_all": functional.all_to_all_single(x, None, None, everyone),
            "broadcast": functional.broadcast(x, 1, everyone),
            "first": pair[0],
            "second": pair[1],
        }.items()
    }


@case()
def functional_collectives_with_gradients(r: Rank):
    found = {}
    x = sample(r, torch.float32, 4 * r.world).requires_grad_()
    for name, call in {
        "all_gather": lambda: functional.all_gather_tensor_autograd(x, 0, r.everyone),
        "reduce_scatter": lambda: functional.reduce_scatter_tensor_autograd(
            x, "sum", 0, r.everyone
        ),
        "all_to_all": lambda: functional.all_to_all_single_autograd(x, None, None, r.everyone),
    }.items():
        out = functional.wait_tensor(call())
        (out.square().sum() * (r.rank + 1)).backward()
        found[name] = [out, x.grad]
        x.grad = None
    return found


@case()
def differentiable_collectives(r: Rank):
    found = {}
    x = sample(r, torch.float32, r.world, 6).requires_grad_()
    for name, call in {
        "all_reduce": lambda: differentiable.all_reduce(x * 1),
        "all_gather": lambda: torch.stack(differentiable.all_gather(x * 1)),
        "broadcast": lambda: differentiable.broadcast(x * 1, 1),
        "all_to_all_single": lambda: differentiable.all_to_all_single(torch.zeros_like(x), x * 1),
    }.items():
        out = call()
        (out.square().sum() * (r.rank + 1)).backward()
        found[name] = [out, x.grad]
        x.grad = None
    return found
