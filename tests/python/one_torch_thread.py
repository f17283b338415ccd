"""PyTorch on one thread: of small networks several wait for one another for longer than they
compute, and more so on a busy machine."""

from collections.abc import Iterator

import torch


def alone() -> Iterator[None]:
    """What a fixture yields from."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
