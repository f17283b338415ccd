"""How the RPC agents of ranks reach each other: by sockets alone."""

from __future__ import annotations

import functools
import sys
from typing import Any

from loomnet.torch.private_names import replace

# TensorPipe's transport `shm` polls without a pause in every rank that has an agent: it takes a
# processor from the engine, and a thread that never sleeps looks like one that computes.
TRANSPORTS = ["uv"]
# TensorPipe's channel `cma` calls process_vm_readv(2) on the other rank. The ranks' Landlock
# domains forbid that call. TensorPipe looks for PID namespaces, Yama and capabilities before it
# chooses `cma`, but not for Landlock.
CHANNELS = ["mpt_uv", "basic"]


def install() -> None:
    """Leaves `shm` and `cma` out of what TensorPipeRpcBackendOptions chooses from where a script
    names no transports or channels. Once."""
    rpc = sys.modules.get("torch.distributed.rpc")
    if rpc is None or not rpc.is_available():
        return  # a PyTorch without RPC
    replace(
        rpc.TensorPipeRpcBackendOptions,
        "__init__",
        _by_sockets,
        "torch.distributed.rpc.TensorPipeRpcBackendOptions.__init__",
    )


def _by_sockets(original: Any) -> Any:
    @functools.wraps(original)
    def init(
        self: Any,
        *,
        _transports: list[str] | None = None,
        _channels: list[str] | None = None,
        **given: Any,
    ) -> None:
        original(
            self,
            _transports=TRANSPORTS if _transports is None else _transports,
            _channels=CHANNELS if _channels is None else _channels,
            **given,
        )

    return init
