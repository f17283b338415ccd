"""The built-in communication hooks of DistributedDataParallel, over groups written in Python."""

from __future__ import annotations

import functools
from typing import Any

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from loomnet.torch.private_names import replace


def install() -> None:
    """Has the built-in hook FP16_COMPRESS run as PyTorch's own Python hook of the same arithmetic
    and the same bytes, where a model's group is Loomnet's. Once.

    The hook in C++ reads the future of an all-reduce as a list of tensors. A future that Python
    completes holds a Python object. No other reader in C++ wants more than that.
    """
    replace(DistributedDataParallel, "_register_builtin_comm_hook", _by_python)


def _by_python(register: Any) -> Any:
    @functools.wraps(register)
    def registered(self: Any, comm_hook_type: Any) -> None:
        from loomnet.torch.backend import LoomnetGroup

        group = self.process_group
        if comm_hook_type != dist.BuiltinCommHookType.FP16_COMPRESS or not isinstance(
            group, LoomnetGroup
        ):
            return register(self, comm_hook_type)
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

        self.logger._set_comm_hook_name(str(comm_hook_type))
        dist._register_comm_hook(self.reducer, group, fp16_compress_hook)
        return None

    return registered
