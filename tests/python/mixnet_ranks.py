"""What ranks of test_mixnet_torch.py do; each ends with a line that says what it found."""

import os
import sys

import torch
import torch.distributed as dist

# What backward() would import, here once for all ranks: they fork after the first imports.
import torch.fx.experimental.symbolic_shapes

import loomnet.torch
from loomnet.torch import mixnet


def exact(rounds: int, step=lambda: None) -> None:
    """Against torch.distributed's own all-to-all, values and gradients, bit for bit. Calls step()
    after each round."""
    rank, world = dist.get_rank(), dist.get_world_size()
    same = torch.Generator().manual_seed(7)
    for number in range(rounds):
        counts = torch.randint(0, 30, (world, world), generator=same)
        counts[torch.rand(world, world, generator=same) < 0.3] = 0  # pairs without a row
        if number == 0:
            counts[:] = 0
            counts[0, world - 1] = 5  # one rank sends, to one
        width = [(3,), (), (2, 5)][number % 3]
        dtype = [torch.float32, torch.float64, torch.bfloat16][number % 3]
        sent, came = counts[rank].tolist(), counts[:, rank].tolist()
        own = torch.Generator().manual_seed(1000 * number + rank)
        rows = torch.randn((sum(sent), *width), generator=own).to(dtype)
        rows.requires_grad_()
        there = mixnet.all_to_all(rows, sent, came, layer=number % 3)
        back = mixnet.all_to_all(there * 2, came, sent, layer=number % 3, combine=True)
        stock = torch.empty((sum(came), *width), dtype=dtype)
        dist.all_to_all_single(stock, rows.detach(), came, sent)
        assert torch.equal(there.detach().view(-1), stock.view(-1)), number
        assert torch.equal(back.detach(), rows.detach() * 2), number
        back.backward(torch.full_like(back, 3))
        assert torch.equal(rows.grad, torch.full_like(rows, 6)), number
        step()
    print("exact", rounds, flush=True)


def stepped(rounds: int) -> None:
    """As exact, each round an iteration. An optimizer would mark it too, as in moe_train.py."""
    exact(rounds, loomnet.torch.step)


def heavy(rounds: int) -> None:
    """Ranks of two servers send one another 1 MiB each, alike."""
    rank, world = dist.get_rank(), dist.get_world_size()
    across = [64 if (rank < world // 2) != (peer < world // 2) else 0 for peer in range(world)]
    for _ in range(rounds):
        rows = torch.full((sum(across), 4096), float(rank))
        there = mixnet.all_to_all(rows, across, across)
        sources = [peer for peer in range(world) for _ in range(across[peer])]
        assert torch.equal(there[:, 0], torch.tensor(sources, dtype=torch.float32))
    print("heavy", flush=True)


def sums(rounds: int) -> None:
    """An all-reduce adds in one order whatever the fabric; what it gives is printed."""
    rank, world = dist.get_rank(), dist.get_world_size()
    for number in range(rounds):
        size = [1, 7, 64, 1000, 4099][number % 5]
        parts = [
            torch.randn(size, generator=torch.Generator().manual_seed(world * number + each))
            for each in range(world)
        ]
        mine = parts[rank].clone()
        mixnet.all_reduce(mine)
        close = torch.stack(parts).double().sum(0)
        assert torch.allclose(mine.double(), close, atol=1e-5), number
        print("sum", number, mine.numpy().tobytes().hex()[:64], flush=True)


def mistakes(_: int) -> None:
    """Calls that are wrong on every rank say so and leave the group usable."""
    world = dist.get_world_size()
    rows = torch.ones(world, 2)
    ones = [1] * world
    for call, words in (
        (lambda: mixnet.all_to_all(rows, ones, ones, combine=True, layer=9), "no dispatch"),
        (lambda: mixnet.all_to_all(rows, ones[1:], ones), "input_split_sizes: "),
        (lambda: mixnet.all_to_all(rows[1:], ones, ones), f"input has {world - 1} rows"),
        (lambda: mixnet.all_to_all(rows, ones, ones, layer=-1), "layer=-1"),
        (lambda: mixnet.all_to_all(torch.ones(2 * world, 2), [2] * world, ones), "other ranks"),
    ):
        try:
            call()
        except ValueError as error:
            assert words in str(error), error
        else:
            raise AssertionError(words)
    mixnet.all_to_all(rows, ones, ones)
    print("mistakes found", flush=True)


def mistakes_then_sums(rounds: int) -> None:
    mistakes(rounds)
    sums(rounds)


def forged(_: int) -> None:
    """Rank 1 reports what is no report."""
    from loomnet.torch.connection import connection

    dist.barrier()
    if dist.get_rank() == 1:
        link = connection()
        number = link.session.report(os.urandom(40))
        link.session.answer(number)
    dist.barrier()


def late(_: int) -> None:
    """Rank 1 never reports, and the others wait for it."""
    world = dist.get_world_size()
    if dist.get_rank() != 1:
        state = mixnet._region(None)
        state.hear(state.report(0, 0, 0, [1] * world, 4))
    dist.barrier()


dist.init_process_group("gloo")
torch.set_num_threads(1)
{
    "exact": exact,
    "stepped": stepped,
    "heavy": heavy,
    "sums": sums,
    "mistakes then sums": mistakes_then_sums,
    "forged": forged,
    "late": late,
}[sys.argv[1]](int(sys.argv[2]))
dist.destroy_process_group()
