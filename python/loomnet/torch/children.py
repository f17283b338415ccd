"""Processes that a rank starts: they have no NIC, and a group that they ask for is refused.

A script that starts its ranks itself (mp.spawn, torchrun inside it, Ray) would otherwise train over
stock Gloo and this machine's loopback, or fail in words of shared memory.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Any

from loomnet.base import rank_environment as env

REFUSED = (
    "loomnet: this process was started by a rank (mp.spawn, torchrun, Ray, os.fork …), and only "
    "the processes that the run starts have a NIC: let TorchJob(ranks=…) start the ranks, and make "
    "the group in them. TorchJob(map_backend=False) leaves gloo alone here, outside the emulated "
    "network"
)
# PyTorch's own, of asynchronous checkpoints: it moves metadata over Gloo and no tensor.
_CHECKPOINTS = "_async_process_executor.py"


def is_child() -> bool:
    """Whether a rank, and not the run, has started this process."""
    rank = os.environ.get(env.RANK_PID)
    return rank is not None and rank != str(os.getpid())


def refuse() -> None:
    """Raises RuntimeError in a process that a rank has started."""
    if is_child():
        raise RuntimeError(REFUSED)


def install(dist: Any) -> None:
    """In such a process: init_process_group() is refused where a rank would get a group of the
    emulated network."""
    original = dist.init_process_group

    @functools.wraps(original)
    def init_process_group(backend: Any = None, *args: Any, **options: Any) -> None:
        names = str(backend or dist.Backend.GLOO).lower()
        ours = (
            ("loomnet",)
            if os.environ.get(env.MAP_BACKEND, "0") == "0"
            else ("loomnet", dist.Backend.GLOO, dist.Backend.NCCL)
        )
        caller = sys._getframe(1).f_code.co_filename
        if any(name in names for name in ours) and not caller.endswith(_CHECKPOINTS):
            refuse()
        original(backend, *args, **options)

    dist.init_process_group = dist.distributed_c10d.init_process_group = init_process_group
