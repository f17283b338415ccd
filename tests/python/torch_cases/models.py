"""Small models and batches that the cases train with: every number is seeded, every optimizer is
SGD, because AdamW's division by a small root turns another order of additions into per cents."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

WIDTH, CLASSES, BATCH = 16, 4, 6


class Block(nn.Module):
    """Two layers and a residual, as a transformer's feed-forward part has."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.tanh(self.up(x)))


def network(blocks: int = 2, seed: int = 7) -> nn.Sequential:
    """The same weights in every rank. Widths 16 and 32 divide by 4 and 8 ranks, 4 classes do not by
    8."""
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(*(Block() for _ in range(blocks)), nn.Linear(WIDTH, CLASSES))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_((torch.rand(parameter.shape, generator=generator) - 0.5) * 0.5)
    return model


def batches(rank: int, count: int = 4, size: int = BATCH) -> Iterator[tuple[torch.Tensor, ...]]:
    """Inputs and classes of one rank: other ranks get other ones."""
    generator = torch.Generator().manual_seed(100 + rank)
    for _ in range(count):
        yield (
            torch.randn(size, WIDTH, generator=generator),
            torch.randint(0, CLASSES, (size,), generator=generator),
        )


def loss_of(output: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    """As float32, which autocast chooses too: a loss of bfloat16 moves by steps of 0.8 %."""
    return nn.functional.cross_entropy(output.float(), classes)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)


def train(
    model: nn.Module, rank: int, optimizer: torch.optim.Optimizer | None = None, steps: int = 4
) -> list[float]:
    """`steps` steps; the loss of each."""
    optimizer, losses = optimizer or sgd(model), []
    for x, y in batches(rank, steps):
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def state(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def trained(model: nn.Module, losses: list[float]) -> dict[str, object]:
    return {"losses": losses, "parameters": state(model)}
