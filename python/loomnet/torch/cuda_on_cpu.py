"""``TorchJob(cuda="cpu")``: a script that moves to ``cuda:LOCAL_RANK`` runs on the CPU, unchanged.

Functions of PyTorch that take a device are told "cpu" where the script says cuda. A move between
the CPU and cuda is a copy, as on a GPU: a mark on a tensor's storage says that the script takes it
to be on cuda. A tensor still says `device` cpu and `is_cuda` False.
"""

from __future__ import annotations

import functools
import os
import types
from collections.abc import Callable
from typing import Any

import torch

from loomnet.base import rank_environment as env
from loomnet.torch.private_names import PrivateNameError

_CPU = torch.device("cpu")
_ADVICE = 'TorchJob(cuda="cpu") runs a script that asks for cuda on the CPU'
_FACTORIES = (
    "empty",
    "empty_strided",
    "empty_permuted",
    "empty_like",
    "ones",
    "ones_like",
    "zeros",
    "zeros_like",
    "full",
    "full_like",
    "rand",
    "rand_like",
    "randn",
    "randn_like",
    "randint",
    "randint_like",
    "randperm",
    "normal",
    "arange",
    "range",
    "linspace",
    "logspace",
    "eye",
    "tensor",
    "as_tensor",
    "asarray",
    "scalar_tensor",
    "tril_indices",
    "triu_indices",
    "sparse_coo_tensor",
    "sparse_csr_tensor",
    "sparse_compressed_tensor",
    "hann_window",
    "hamming_window",
    "bartlett_window",
    "blackman_window",
    "kaiser_window",
    "from_file",
)
_NEW = ("new_tensor", "new_empty", "new_empty_strided", "new_full", "new_ones", "new_zeros")


def install(dist: Any) -> None:
    """Inside a run: as the job's `cuda` says."""
    if os.environ.get(env.CUDA, "off") == "cpu":
        _install(dist)
    elif not torch.cuda.is_available():
        _advise()


# --- cuda="off" -----------------------------------------------------------------------------------
def _advise() -> None:
    """Errors of scripts that ask for cuda name the way out."""
    cuda: Any = torch.cuda
    for owner, name in (
        (cuda, "_lazy_init"),
        (cuda, "set_device"),
        (cuda.Stream, "__new__"),
        (cuda.Event, "__new__"),
    ):
        setattr(owner, name, _advising(getattr(owner, name)))


def _advising(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def advised(*args: Any, **options: Any) -> Any:
        try:
            return call(*args, **options)
        except (AssertionError, AttributeError, RuntimeError) as error:
            raise type(error)(f"{error}; loomnet: {_ADVICE}") from None

    return advised


# --- cuda="cpu" -----------------------------------------------------------------------------------
def _install(dist: Any) -> None:
    from loomnet.torch import accelerator_module, cuda_module

    if not _is_marked(_marked(torch.empty(1)).view(1)):
        raise PrivateNameError("torch.Tensor.untyped_storage()", "does not keep its attributes")
    cuda_module.install()
    accelerator_module.install()
    for name in _FACTORIES:
        if (make := getattr(torch, name, None)) is not None:
            setattr(torch, name, _making(make))
    for name in _NEW:
        setattr(torch.Tensor, name, _making(getattr(torch.Tensor, name)))
    tensor: Any = torch.Tensor
    tensor.to, tensor.type = _moving(tensor.to), _typed(tensor.type)
    tensor.cuda, tensor.cpu = _to_cuda, _to_cpu
    tensor.pin_memory = lambda self, device=None: self.clone()
    tensor.record_stream = lambda self, stream: None
    module: Any = torch.nn.Module
    module.to = _module_to(module.to)
    torch.load = _loading(torch.load)
    torch.Generator = _generators(torch.Generator)
    _install_autocast()
    _install_distributed(dist)
    if os.environ.get("RANK", "0") == "0":
        print('loomnet: cuda is the CPU here (TorchJob(cuda="cpu"))', flush=True)


def _is_cuda(device: Any) -> bool:
    if isinstance(device, str):
        return device.partition(":")[0] == "cuda"
    if isinstance(device, torch.device):
        return device.type == "cuda"
    return isinstance(device, int) and not isinstance(device, bool)  # an index is a GPU's


def _storage(tensor: Any) -> Any:
    """Where the mark of a tensor that the script takes to be on cuda is; None for a tensor without
    storage of its own. PyTorch keeps the object as long as the storage."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided:
        return None
    return tensor.untyped_storage()


def _marked(tensor: Any) -> Any:
    if (storage := _storage(tensor)) is not None:
        storage.of_cuda = True
    return tensor


def _is_marked(tensor: Any) -> bool:
    return getattr(_storage(tensor), "of_cuda", False)


def _making(make: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make)
    def made(*args: Any, **options: Any) -> Any:
        options.pop("pin_memory", None)
        if not _is_cuda(options.get("device")):
            return make(*args, **options)
        return _marked(make(*args, **{**options, "device": _CPU}))

    return made


def _moving(to: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(to)
    def moved(self: Any, *args: Any, **options: Any) -> Any:
        device = options.get("device", args[0] if args else None)
        if isinstance(device, torch.Tensor):
            device = "cuda" if _is_marked(device) else None
        marked = _is_marked(self)
        to_cuda, names_cpu = _is_cuda(device), device == "cpu" or device == _CPU
        if not (to_cuda or names_cpu):
            result = to(self, *args, **options)
            return _marked(result) if marked else result
        if "device" in options:
            options["device"] = _CPU
        elif args and not isinstance(args[0], torch.Tensor):
            args = (_CPU, *args[1:])
        result = to(self, *args, **options)
        if result is self and not (marked and to_cuda) and _storage(self) is not None:
            result = self.clone()
        return _marked(result) if to_cuda else result

    return moved


def _to_cuda(self: Any, device: Any = None, non_blocking: bool = False, **options: Any) -> Any:
    return self.to("cuda", **options)


def _to_cpu(self: Any, **options: Any) -> Any:
    return self.to("cpu", **options)


def _typed(cast: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(cast)
    def typed(self: Any, dtype: Any = None, *args: Any, **options: Any) -> Any:
        if isinstance(dtype, str):
            dtype = dtype.replace("torch.cuda.", "torch.")
        result = cast(self, dtype, *args, **options)
        return result if dtype is None or not _is_marked(self) else _marked(result)

    return typed


def _module_to(to: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(to)
    def moved(self: Any, *args: Any, **options: Any) -> Any:
        if args and _is_cuda(args[0]):
            args = ("cuda", *args[1:])
        if _is_cuda(options.get("device")):
            options["device"] = "cuda"
        return to(self, *args, **options)

    return moved


def _loading(load: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(load)
    def loaded(f: Any, map_location: Any = None, *args: Any, **options: Any) -> Any:
        if map_location is None or _is_cuda(map_location):
            map_location = "cpu"
        return load(f, map_location, *args, **options)

    return loaded


def _generators(original: Any) -> Any:
    """`torch.Generator`, which cannot be told a device after it is made."""

    class Kind(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original)

    class Generator(metaclass=Kind):
        def __new__(cls, device: Any = "cpu") -> Any:
            return original(device=_CPU if _is_cuda(device) else device)

    return Generator


def _install_autocast() -> None:
    amp: Any = torch.amp
    cast, scaler = amp.autocast_mode.autocast, amp.grad_scaler.GradScaler
    begin, scale = cast.__init__, scaler.__init__

    @functools.wraps(begin)
    def autocast(
        self: Any, device_type: str, dtype: Any = None, *args: Any, **options: Any
    ) -> None:
        if _is_cuda(device_type):  # with cuda's default
            device_type, dtype = "cpu", dtype or torch.float16
        begin(self, device_type, dtype, *args, **options)

    @functools.wraps(scale)
    def grad_scaler(self: Any, device: str = "cuda", *args: Any, **options: Any) -> None:
        scale(self, "cpu" if _is_cuda(device) else device, *args, **options)

    cast.__init__, scaler.__init__ = autocast, grad_scaler
    enabled, dtype_of = torch.is_autocast_enabled, torch.get_autocast_dtype
    torch.is_autocast_enabled = lambda device="cuda": enabled("cpu" if _is_cuda(device) else device)
    torch.get_autocast_dtype = lambda device="cuda": dtype_of("cpu" if _is_cuda(device) else device)
    torch.get_autocast_gpu_dtype = lambda: dtype_of("cpu")


def _install_sharding() -> None:
    """FSDP and meshes: a mesh of cuda is one of the CPU."""
    import torch.distributed.fsdp as fsdp
    from torch.distributed import device_mesh

    shard: Any = fsdp.FullyShardedDataParallel.__init__
    mesh: Any = device_mesh.DeviceMesh.__init__
    make = device_mesh.init_device_mesh

    @functools.wraps(shard)
    def sharded(self: Any, *args: Any, device_id: Any = None, **options: Any) -> None:
        shard(self, *args, device_id=_CPU, **options)

    @functools.wraps(mesh)
    def of_cpu(self: Any, device_type: str, *args: Any, **options: Any) -> None:
        mesh(self, "cpu" if _is_cuda(device_type) else device_type, *args, **options)

    @functools.wraps(make)
    def init_device_mesh(device_type: str, *args: Any, **options: Any) -> Any:
        return make("cpu" if _is_cuda(device_type) else device_type, *args, **options)

    fsdp.FullyShardedDataParallel.__init__, device_mesh.DeviceMesh.__init__ = sharded, of_cpu
    device_mesh.init_device_mesh = init_device_mesh
    torch.distributed.init_device_mesh = init_device_mesh


def _install_distributed(dist: Any) -> None:
    from torch.nn.parallel import DistributedDataParallel

    wrap: Any = DistributedDataParallel.__init__

    @functools.wraps(wrap)
    def ddp(
        self: Any,
        module: Any,
        device_ids: Any = None,
        output_device: Any = None,
        *args: Any,
        **options: Any,
    ) -> None:
        # DDP refuses devices for a module whose parameters are on the CPU.
        wrap(self, module, None, None, *args, **options)

    DistributedDataParallel.__init__ = ddp
    _install_sharding()
    make = dist.init_process_group

    @functools.wraps(make)
    def init_process_group(*args: Any, device_id: Any = None, **options: Any) -> None:
        make(*args, **options)

    module = dist.distributed_c10d
    dist.init_process_group = module.init_process_group = init_process_group
    if not dist.is_nccl_available():
        dist.is_nccl_available = module.is_nccl_available = lambda: True

        class ProcessGroupNCCL:
            """What a script names to set options that nothing here reads."""

            class Options(types.SimpleNamespace):
                def __init__(self, *args: Any, **options: Any) -> None:
                    super().__init__(config=types.SimpleNamespace(), **options)

        dist.ProcessGroupNCCL = module.ProcessGroupNCCL = ProcessGroupNCCL
