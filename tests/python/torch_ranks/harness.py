"""What scripts of many cases share: each runs in every rank and prints one line ``case NAME ok`` or
``case NAME FAILED`` per case and rank."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from datetime import timedelta

import torch.distributed as dist

CASES: dict[str, Callable[[], None]] = {}  # in the order in which they run


def case(function: Callable[[], None]) -> Callable[[], None]:
    CASES[function.__name__] = function
    return function


def join() -> tuple[int, int, dist.ProcessGroup]:
    """This rank, how many there are, and all of them over stock Gloo; Loomnet is the default."""
    dist.init_process_group("loomnet", timeout=timedelta(seconds=60))
    gloo = dist.new_group(backend="gloo", timeout=timedelta(seconds=60))
    return dist.get_rank(), dist.get_world_size(), gloo


def run(wanted: Sequence[str], gloo: dist.ProcessGroup) -> bool:
    """Runs the cases named, or all, in step with the other ranks; True if any failed."""
    failed = False
    for name in wanted or CASES:
        try:
            CASES[name]()
            print(f"case {name} ok", flush=True)
        except BaseException:
            failed = True
            print(f"case {name} FAILED\n{traceback.format_exc()}", flush=True)
        dist.barrier(group=gloo)
    dist.destroy_process_group()
    return failed
