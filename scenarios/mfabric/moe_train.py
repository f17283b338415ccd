"""A mixture of experts that learns to read digits: a rank for each expert, whose tokens travel by
all-to-alls, and all other weights on every rank. Of Loomnet it imports two functions, which outside
a run are those of torch.distributed: torchrun --nproc-per-node 8 moe_train.py

Digits are scikit-learn's, 1,797 images of 8 x 8 pixels. Each image is eight tokens, its rows. In
each layer a learned gate sends a token to two experts and weighs their answers; a small loss keeps
the experts' loads alike (Fedus et al., "Switch Transformers", JMLR 2022). A rank reads images of
one digit in a step and of another in the next, as ranks of a large job read documents of different
kinds, so which servers exchange most changes all the time."""

import argparse

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

from loomnet.torch import mixnet

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--batch", type=int, default=32, help="images of a rank in a step")
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--hidden", type=int, default=200)
parser.add_argument("--rate", type=float, default=2e-3)
parser.add_argument("--balance", type=float, default=0.01, help="weight of the loads' loss")
parser.add_argument(
    "--beside",
    type=int,
    default=0,
    metavar="BYTES",
    help="of another all-to-all, which goes on beside a step's",
)
parser.add_argument("--stock", action="store_true", help="torch.distributed's own collectives")


class Experts(nn.Module):
    """The layer's experts, of which this rank has one, and the gate before them."""

    def __init__(self, layer: int, hidden: int, top: int = 2) -> None:
        super().__init__()
        self.layer, self.top, self.count = layer, top, dist.get_world_size()
        self.norm = nn.LayerNorm(hidden)
        self.gate = nn.Linear(hidden, self.count, bias=False)
        generator = torch.Generator().manual_seed(1000 * layer + dist.get_rank())
        self.up = nn.Linear(hidden, hidden)
        self.down = nn.Linear(hidden, hidden)
        for linear in (self.up, self.down):
            linear.expert = True
            with torch.no_grad():
                linear.weight.normal_(0, hidden**-0.5, generator=generator)
                linear.bias.zero_()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        seen = self.norm(tokens)
        shares = torch.softmax(self.gate(seen), -1)
        weights, experts = torch.topk(shares, self.top)
        order = torch.argsort(experts.reshape(-1), stable=True)
        to = torch.bincount(experts.reshape(-1), minlength=self.count)
        rows = seen.repeat_interleave(self.top, 0)[order]
        self.balance = self.count * (to / to.sum() * shares.mean(0)).sum()
        came = counts_from(to)
        there = exchange(rows, to.tolist(), came.tolist(), self.layer, False)
        answers = self.down(F.gelu(self.up(there)))
        back = exchange(answers, came.tolist(), to.tolist(), self.layer, True)
        found = torch.empty_like(back).index_copy(0, order, back).view(-1, self.top, back.shape[1])
        return tokens + (found * weights.unsqueeze(-1)).sum(1)


def counts_from(to: torch.Tensor) -> torch.Tensor:
    """How many rows each rank will send to this one."""
    came = torch.empty_like(to)
    dist.all_to_all_single(came, to)
    return came


class Stock(torch.autograd.Function):
    """torch.distributed's all-to-all, with its gradient."""

    @staticmethod
    def forward(ctx, rows, sent, received):
        ctx.lists = sent, received
        output = rows.new_empty((sum(received), rows.shape[1]))
        dist.all_to_all_single(output, rows.contiguous(), received, sent)
        return output

    @staticmethod
    def backward(ctx, gradient):
        sent, received = ctx.lists
        output = gradient.new_empty((sum(sent), gradient.shape[1]))
        dist.all_to_all_single(output, gradient.contiguous(), sent, received)
        return output, None, None


def exchange(rows, sent, received, layer, combine):
    if arguments.stock:
        return Stock.apply(rows, sent, received)
    return mixnet.all_to_all(rows, sent, received, layer=layer, combine=combine)


class Reader(nn.Module):
    def __init__(self, layers: int, hidden: int) -> None:
        super().__init__()
        self.embed = nn.Linear(8, hidden)
        self.places = nn.Parameter(torch.zeros(8, hidden))
        self.experts = nn.ModuleList(Experts(layer, hidden) for layer in range(layers))
        self.head = nn.Linear(8 * hidden, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        tokens = (self.embed(images.view(-1, 8, 8)) + self.places).flatten(0, 1)
        for layer in self.experts:
            tokens = layer(tokens)
        return self.head(tokens.view(len(images), -1))


def start_beside(group):
    """Traffic that knows nothing of circuits, so that some is under way when they change: among the
    ranks of even numbers, the first of each server where servers have two."""
    if not arguments.beside:
        return None
    size = dist.get_world_size(group)
    rows = torch.zeros(size * (arguments.beside // size // 4))
    work = dist.all_to_all_single(torch.empty_like(rows), rows, async_op=True, group=group)
    work.rows = rows
    return work


def main() -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank, world = dist.get_rank(), dist.get_world_size()
    others = dist.new_group(list(range(0, world, 2)))
    torch.manual_seed(1)
    model = Reader(arguments.layers, arguments.hidden)
    own = {
        id(p)
        for module in model.modules()
        if getattr(module, "expert", False)
        for p in module.parameters()
    }
    shared = [p for p in model.parameters() if id(p) not in own]
    optimizer = torch.optim.Adam(model.parameters(), arguments.rate)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16
    labels = torch.tensor(digits.target)
    draw = torch.Generator().manual_seed(2)
    for step in range(arguments.steps):
        digit = int(torch.randperm(10, generator=draw)[rank % 10])
        mine = torch.nonzero(labels == digit).flatten()
        picks = torch.randint(1 << 30, (world, arguments.batch), generator=draw)[rank]
        chosen = mine[picks % len(mine)]
        scores = model(images[chosen])
        loss = F.cross_entropy(scores, labels[chosen])
        loads = sum(layer.balance for layer in model.experts)
        optimizer.zero_grad()
        beside = start_beside(others) if rank % 2 == 0 else None
        (loss + arguments.balance * loads).backward()
        flat = torch.cat([p.grad.reshape(-1) for p in shared])
        dist.all_reduce(flat) if arguments.stock else mixnet.all_reduce(flat)
        at = 0
        for p in shared:
            p.grad.copy_(flat[at : at + p.numel()].view_as(p) / world)
            at += p.numel()
        for p in model.parameters():
            if id(p) in own and p.grad is not None:
                p.grad.div_(world)
        if beside is not None:
            beside.wait()
        if rank == 0:
            right = (scores.argmax(-1) == labels[chosen]).float().mean().item()
            print(f"step {step} loss {loss.item():.17g} accuracy {right:.4f}", flush=True)
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    arguments = parser.parse_args()
    main()
