"""Has tests that ask for GPUs run on the CPU: what they say about DDP holds there too."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


def _is_gpu(value: Any) -> bool:
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, str) and value.startswith("cuda")


class _OnCpu(TorchFunctionMode):
    """Sends what would go to a GPU, named by a device or by a rank, to the CPU."""

    def __torch_function__(
        self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(function, "__name__", "")
        if name == "cuda":
            return args[0]
        device = kwargs.get("device")
        if _is_gpu(device) or (isinstance(device, int) and not isinstance(device, bool)):
            kwargs["device"] = "cpu"
        if name == "to":
            args = tuple(
                "cpu" if k and (_is_gpu(a) or type(a) is int) else a for k, a in enumerate(args)
            )
        return function(*args, **kwargs)


def skip_no_more(common_distributed: Any) -> None:
    """In the suite's parent, before its module is imported: no test is skipped for want of GPUs."""

    def as_it_is(test: Any) -> Any:
        return test

    for name in ("skip_if_no_gpu", "nccl_skip_if_lt_x_gpu", "skip_if_rocm_multiprocess"):
        setattr(common_distributed, name, lambda *a: a[0] if callable(a[0]) else as_it_is)
    common_distributed.skip_if_lt_x_gpu = lambda n, **_: as_it_is
    common_distributed.require_n_gpus_for_nccl_backend = lambda *_: as_it_is
    common_distributed.init_multigpu_helper = lambda world, _: {r: [r] for r in range(world)}


def begin() -> None:
    """In a rank: what torch.cuda would do is left out from here on."""
    for name in ("set_device", "synchronize", "empty_cache", "manual_seed", "manual_seed_all"):
        setattr(torch.cuda, name, lambda *_: None)  # each its own: torch.compile tells them apart
    torch.cuda.device = lambda *_: contextlib.nullcontext()  # type: ignore[assignment, misc]
    torch.nn.Module.cuda = lambda self, *_: self  # type: ignore[method-assign, assignment]
    moved = torch.nn.Module.to

    def to(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if args and (_is_gpu(args[0]) or type(args[0]) is int):
            args = ("cpu", *args[1:])
        return moved(self, *args, **kwargs)

    torch.nn.Module.to = to  # type: ignore[method-assign]
    kind = torch.nn.parallel.DistributedDataParallel
    made = kind.__init__

    def make(
        self: Any,
        module: Any,
        device_ids: Any = None,
        output_device: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        made(self, module, None, None, *args, **kwargs)

    kind.__init__ = make  # type: ignore[method-assign]
    _OnCpu().__enter__()
