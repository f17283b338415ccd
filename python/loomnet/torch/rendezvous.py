"""How the ranks of a new group agree on its number and members: each names the group to its NIC."""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch.distributed.constants import default_pg_timeout

import loomnet.torch.connection as _connection
from loomnet.base import rank_environment as env
from loomnet.base.names import how_many, joined_ranks
from loomnet.torch import loopback
from loomnet.torch.private_names import replace

DEFAULT_TIMEOUT = default_pg_timeout
CONNECTING = timedelta(minutes=1)


def chosen(timeout: timedelta) -> bool:
    """Whether a script chose this time limit: a limit that it did not choose does not keep the
    virtual clock from naming a deadlock."""
    return timeout != DEFAULT_TIMEOUT


def meet(name: str, rank: int, size: int, timeout: timedelta, link: Any) -> tuple[int, list[int]]:
    """(communicator number, job ranks of the members in group order).

    Waits until all `size` members have asked for the group `name`. Raises RuntimeError naming the
    ranks that did not come within `timeout`, or that call themselves the same rank of the group.
    """
    default = not dist.is_initialized()
    check_place(rank, size, link.session.world, default=default)
    digest = hashlib.blake2b(f"{size}/{name}".encode(), digest_size=16).digest()
    high, low = (int.from_bytes(half, "little") for half in (digest[:8], digest[8:]))
    number, came, doubles = link.session.meet(
        high, low, rank, size, int(timeout.total_seconds() * 1e9), chosen(timeout), default
    )
    members = dict(came)
    if doubles:
        ranks = joined_ranks(sorted([*doubles, link.session.rank]))
        raise RuntimeError(
            f"loomnet: {ranks} of the job {'both' if len(doubles) == 1 else 'all'} call themselves "
            f"rank {rank} of {size}: " + _HOW.format(rank=rank, size=size)
        )
    if number is None:
        missing = [r for r in range(size) if r not in members]
        raise RuntimeError(
            f"loomnet: ranks {missing} of a new group of {size} did not come within {timeout}"
        )
    return number, [members[r] for r in range(size)]


# What a script does that calls a rank by another rank's number.
_HOW = (
    "init_process_group(rank={rank}, world_size={size}); leave rank= and world_size= out, or "
    "take them from the variables RANK and WORLD_SIZE, not LOCAL_RANK"
)


def check_place(rank: int, size: int, world: int, *, default: bool) -> None:
    """Raises RuntimeError for a group that the job's `world` ranks could never fill."""
    if default and size > world:
        raise RuntimeError(
            f"loomnet: init_process_group(world_size={size}), but the job has "
            f"{how_many(world, 'rank')}: leave world_size= out, or run TorchJob(ranks={size})"
        )
    if not 0 <= rank < size:
        raise RuntimeError(
            f"loomnet: there is no rank {rank} of {size}: " + _HOW.format(rank=rank, size=size)
        )


def install() -> None:
    """Makes a default group wait for all of its ranks, over the session, before the first of them
    looks for the store. Once.

    The engine then knows of the wait: a rank that ends instead of coming is named at once. And of
    two default groups one after the other, rank 0's old store is open until rank 0 destroys its old
    group. Emulated time may give the last result of the old group to other ranks earlier: they
    would take the old store for the new one.
    """
    # torch.distributed has a function of that name, too.
    replace(sys.modules["torch.distributed.rendezvous"], "_create_c10d_store", _met_first)
    loopback.install()


def _met_first(original: Any) -> Any:
    @functools.wraps(original)
    def create(
        hostname: str,
        port: int,
        rank: int,
        world_size: int,
        timeout: timedelta,
        *rest: Any,
        **options: Any,
    ) -> dist.Store:
        hostname = loopback.reachable(hostname, port, world_size)
        link = _connection.existing()
        if link is None and env.RANK_FD in os.environ:
            link = _connection.connection()
        if link is not None and not dist.is_initialized():
            meet(f"store {hostname}:{port}", rank, world_size, timeout, link)
            # All ranks have come: how long they take to connect is a matter of this machine.
            link.session.local_call(True)
            try:
                store = original(
                    hostname, port, rank, world_size, max(timeout, CONNECTING), *rest, **options
                )
            finally:
                link.session.local_call(False)
            store.set_timeout(timeout)
            return store
        return original(hostname, port, rank, world_size, timeout, *rest, **options)

    return create
