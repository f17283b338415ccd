"""What `torch.cuda` is where a job says ``cuda="cpu"``: devices that are this rank's processor.

A host has as many devices as ranks. Work on a device is done when the call that asks for it
returns, so streams and events are in order by themselves. Figures of a GPU's memory and load are 0.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import os
import threading
import time
import types
from collections.abc import Iterator
from typing import Any

import torch

_NAME = 'CPU (TorchJob(cuda="cpu"))'
# Asked for their number of bytes or calls, and told 0.
_NOTHING = (
    "memory_allocated",
    "max_memory_allocated",
    "memory_reserved",
    "max_memory_reserved",
    "memory_cached",
    "max_memory_cached",
    "device_memory_used",
    "memory_usage",
    "utilization",
    "temperature",
    "power_draw",
    "clock_rate",
    "get_sync_debug_mode",
    "get_per_process_memory_fraction",
)
# Called for what they do to a GPU, which there is not.
_IDLE = (
    "init",
    "synchronize",
    "empty_cache",
    "reset_peak_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_accumulated_memory_stats",
    "ipc_collect",
    "set_per_process_memory_fraction",
    "set_sync_debug_mode",
    "_sleep",
    "caching_allocator_enable",
    "check_error",
    "reset_peak_host_memory_stats",
    "reset_accumulated_host_memory_stats",
)
_REFUSED = (
    "CUDAGraph",
    "graph",
    "make_graphed_callables",
    "MemPool",
    "use_mem_pool",
    "CUDAPluggableAllocator",
    "change_current_allocator",
    "memory_snapshot",
    "cudart",
    "get_stream_from_external",
    "ExternalStream",
    "current_blas_handle",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "current_solver_handle",
    "graph_pool_handle",
    "GreenContext",
)


class _Here(threading.local):
    """Of each thread, as CUDA has it."""

    device = 0
    stream: Any = None


_here = _Here()


def install() -> None:
    cuda: Any = torch.cuda
    for name in _NOTHING:
        setattr(cuda, name, lambda *args, **options: 0)
    for name in _IDLE:
        setattr(cuda, name, lambda *args, **options: None)
    for name in _REFUSED:
        setattr(cuda, name, refusing(f"torch.cuda.{name}", getattr(cuda, name, None)))
    for function in (
        is_available,
        is_initialized,
        device_count,
        current_device,
        set_device,
        device,
        device_of,
        get_device_name,
        get_device_capability,
        get_device_properties,
        get_arch_list,
        can_device_access_peer,
        is_bf16_supported,
        is_tf32_supported,
        mem_get_info,
        memory_stats,
        memory_stats_as_nested_dict,
        memory_summary,
        host_memory_stats,
        host_memory_stats_as_nested_dict,
        list_gpu_processes,
        get_allocator_backend,
        get_gencode_flags,
        is_current_stream_capturing,
        caching_allocator_disabled,
        Stream,
        StreamContext,
        Event,
        stream,
        set_stream,
        current_stream,
        default_stream,
        get_rng_state,
        set_rng_state,
        get_rng_state_all,
        set_rng_state_all,
        manual_seed,
        manual_seed_all,
        seed,
        seed_all,
        initial_seed,
        _lazy_init,
        _lazy_call,
    ):
        setattr(cuda, function.__name__, function)
    cuda.streams.Stream, cuda.streams.Event = Stream, Event
    for module in (cuda.memory, cuda.random, cuda.graphs):  # `from torch.cuda.memory import …`
        for name in vars(module).keys() & vars(cuda).keys():
            if callable(vars(module)[name]) and not name.startswith("__"):
                setattr(module, name, vars(cuda)[name])
    cuda.default_generators = (torch.default_generator,) * device_count()
    for name in ("range_push", "range_pop", "range_start", "range_end", "mark"):
        setattr(cuda.nvtx, name, lambda *args, **options: None)
    cuda.nvtx.range = lambda *args, **options: contextlib.nullcontext()
    for name in (
        "Float",
        "Double",
        "Half",
        "BFloat16",
        "Long",
        "Int",
        "Short",
        "Char",
        "Byte",
        "Bool",
    ):  # tensors' types of old
        setattr(cuda, f"{name}Tensor", getattr(torch, f"{name}Tensor"))


def refusing(name: str, original: Any = None) -> Any:
    """In the place of a function, which keeps what PyTorch's code reads of it, or of a class:
    PyTorch asks whether values are of some of these."""
    said = f'loomnet: {name} needs a real CUDA device; TorchJob(cuda="cpu") has none'

    class Refused:
        def __init__(self, *args: Any, **options: Any) -> None:
            raise RuntimeError(said)

    if isinstance(original, type) or not callable(original):
        return Refused

    @functools.wraps(original)
    def refused(*args: Any, **options: Any) -> Any:
        raise RuntimeError(said)

    return refused


def _lazy_init() -> None:
    """What PyTorch's own code calls before it uses the device."""
    raise RuntimeError(
        'loomnet: this call reaches CUDA inside PyTorch, where TorchJob(cuda="cpu") '
        "cannot put the CPU in its place; give it a tensor or device of the CPU"
    )


def _lazy_call(callable: Any, **options: Any) -> None:
    """Calls that PyTorch keeps until the device is there, which is never."""


def is_available() -> bool:
    return True


def is_initialized() -> bool:
    return True


def device_count() -> int:
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def current_device() -> int:
    return _here.device


def _index(device: Any) -> int:
    if device is None:
        return _here.device
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        device = _here.device if device.index is None else device.index
    if not 0 <= int(device) < device_count():
        raise RuntimeError(
            f"CUDA error: invalid device ordinal {device}: this host has {device_count()}, one for "
            "each of its ranks; use LOCAL_RANK"
        )
    return int(device)


def set_device(device: Any) -> None:
    _here.device = _index(device)


class device:
    """A context in which another device is the current one."""

    def __init__(self, device: Any) -> None:
        self.idx = _index(device)

    def __enter__(self) -> None:
        self._before, _here.device = _here.device, self.idx

    def __exit__(self, *error: object) -> None:
        _here.device = self._before


class device_of(device):
    def __init__(self, tensor: Any) -> None:
        super().__init__(None)


def get_device_name(device: Any = None) -> str:
    return _NAME


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """Below any GPU's: no kernel of a GPU is there to be chosen."""
    return 0, 0


def get_device_properties(device: Any = None) -> types.SimpleNamespace:
    return types.SimpleNamespace(
        name=_NAME,
        major=0,
        minor=0,
        total_memory=mem_get_info()[1],
        multi_processor_count=os.cpu_count() or 1,
        warp_size=1,
        is_integrated=True,
        is_multi_gpu_board=False,
        gcnArchName="",
    )


def get_arch_list() -> list[str]:
    return []


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    return False


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return True


def is_tf32_supported() -> bool:
    return False


def is_current_stream_capturing() -> bool:
    return False


def get_gencode_flags() -> str:
    return ""


def get_allocator_backend() -> str:
    return "native"


@contextlib.contextmanager
def caching_allocator_disabled() -> Iterator[None]:
    yield


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Free and all memory of this machine, in bytes."""
    page = os.sysconf("SC_PAGE_SIZE")
    return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page


def memory_stats(device: Any = None) -> collections.defaultdict[str, int]:
    return collections.defaultdict(int)


def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
    return {}


def host_memory_stats() -> collections.defaultdict[str, int]:
    return collections.defaultdict(int)


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    return {}


def list_gpu_processes(device: Any = None) -> str:
    return f"{_NAME}: processes are not listed"


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    return f"{_NAME}: memory is not counted"


class Event:
    """A moment on the clock that the script reads."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._at: float | None = None

    def record(self, stream: Any = None) -> None:
        from loomnet.torch import script_time

        self._at = script_time.seconds()

    def elapsed_time(self, end_event: Event) -> float:
        """In milliseconds."""
        if self._at is None or end_event._at is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return (end_event._at - self._at) * 1e3

    def query(self) -> bool:
        return True

    def synchronize(self) -> None: ...

    def wait(self, stream: Any = None) -> None: ...


class Stream:
    """What is put on it has run by then."""

    cuda_stream = stream_id = native_handle = 0
    device_type = 1

    def __init__(self, device: Any = None, priority: int = 0, **options: Any) -> None:
        self.priority, self.device_index = priority, _index(device)

    @property
    def device(self) -> torch.device:
        return torch.device("cuda", self.device_index)

    def __enter__(self) -> Stream:
        self._context = StreamContext(self)
        self._context.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._context.__exit__(*error)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        return 0, 0

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return False

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def synchronize(self) -> None: ...

    def wait_event(self, event: Any) -> None: ...

    def wait_stream(self, stream: Any) -> None: ...


_default = Stream(0)


class StreamContext:
    """A context in which another stream is the current one."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        self._before, _here.stream = _here.stream, self.stream or _here.stream

    def __exit__(self, *error: object) -> None:
        _here.stream = self._before


def stream(stream: Any) -> StreamContext:
    return StreamContext(stream)


def set_stream(stream: Any) -> None:
    _here.stream = stream or _here.stream


def current_stream(device: Any = None) -> Any:
    return _here.stream or _default


def default_stream(device: Any = None) -> Stream:
    return _default


# One generator stands for the CPU's and the device's: tensors of both are made by it.
def get_rng_state(device: Any = "cuda") -> torch.Tensor:
    return torch.get_rng_state()


def set_rng_state(new_state: torch.Tensor, device: Any = "cuda") -> None:
    torch.set_rng_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    return [torch.get_rng_state() for _ in range(device_count())]


def set_rng_state_all(new_states: Any) -> None:
    for state in list(new_states)[current_device() :][:1]:
        torch.set_rng_state(state)


def manual_seed(seed: int) -> None:
    torch.default_generator.manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    manual_seed(seed)


def seed() -> None:
    manual_seed(time.time_ns())


def seed_all() -> None:
    seed()


def initial_seed() -> int:
    return torch.default_generator.initial_seed()
