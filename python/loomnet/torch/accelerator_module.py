"""What `torch.accelerator` is where a job says ``cuda="cpu"``: the same devices as `torch.cuda`.

PyTorch's own code asks it, too: an optimizer, whether its stream is being captured. A build with
CUDA would ask the driver, a build without it has no accelerator; here both answer alike.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from loomnet.torch import cuda_module as here

# Names of torch.accelerator that torch.cuda has under the same name.
_SAME = (
    "is_available",
    "device_count",
    "current_stream",
    "set_stream",
    "synchronize",
    "empty_cache",
    "memory_stats",
    "memory_allocated",
    "max_memory_allocated",
    "memory_reserved",
    "max_memory_reserved",
    "reset_peak_memory_stats",
    "reset_accumulated_memory_stats",
)


def install() -> None:
    """After torch.cuda has what it will have."""
    module: Any = torch.accelerator
    given = {name: getattr(torch.cuda, name) for name in _SAME} | {
        "current_accelerator": current_accelerator,
        "current_device_index": here.current_device,
        "current_device_idx": here.current_device,
        "set_device_index": here.set_device,
        "set_device_idx": here.set_device,
        "device_index": here.device,
        "get_memory_info": here.mem_get_info,
        "empty_host_cache": lambda: None,
        "get_device_capability": get_device_capability,
        "Graph": here.refusing("torch.accelerator.Graph"),
    }
    for name, value in given.items():
        for owner in (module, sys.modules.get("torch.accelerator.memory")):
            if hasattr(owner, name):  # some came with a later PyTorch
                setattr(owner, name, value)
    whole: Any = torch
    whole.Stream, whole.Event = here.Stream, here.Event


def current_accelerator(check_available: bool = False) -> torch.device:
    return torch.device("cuda")


def get_device_capability(device: Any = None) -> dict[str, Any]:
    return {
        "supported_dtypes": {
            torch.float64,
            torch.float32,
            torch.float16,
            torch.bfloat16,
            torch.int64,
            torch.int32,
            torch.int16,
            torch.int8,
            torch.uint8,
            torch.bool,
        }
    }
