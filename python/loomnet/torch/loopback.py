"""Scripts that name localhost for their rendezvous. On the live clock each host has a loopback of
its own, so that name leads only the ranks of rank 0's host to rank 0."""

from __future__ import annotations

import functools
import ipaddress
import os
from typing import Any

import torch.distributed as dist

from loomnet.base import rank_environment as env

_NAMES = frozenset({"localhost", "localhost.localdomain", "ip6-localhost"})
_said: set[str] = set()


def reachable(host: str, port: int, world: int | None) -> str:
    """The address by which `world` ranks meet on a port of `host`: rank 0's host on the management
    network where `host` is the loopback and the ranks are not all on one host. A store whose number
    of members is not stated may be one host's own."""
    master = os.environ.get(env.MASTER)
    if (
        master is None
        or _is_loopback(master)
        or not _is_loopback(host)
        or world is None
        or world <= int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    ):
        return host
    if (
        line := f"loomnet: {host}:{port} is taken for rank 0's host, {master} on the management "
        "network: each host has a loopback of its own"
    ) not in _said:
        _said.add(line)
        print(line, flush=True)
    return master


def _is_loopback(host: str) -> bool:
    if host.lower().rstrip(".") in _NAMES:
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def install() -> None:
    """Makes every store that ranks of several hosts meet in reachable. Once."""
    original: Any = dist.TCPStore.__init__

    @functools.wraps(original)
    def init(
        self: Any,
        host_name: str,
        port: int,
        world_size: int | None = None,
        *rest: Any,
        **options: Any,
    ) -> None:
        original(self, reachable(host_name, port, world_size), port, world_size, *rest, **options)

    dist.TCPStore.__init__ = init
