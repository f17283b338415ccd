"""Which backend a script gets: registers the names, and inside a run maps ``gloo`` and ``nccl`` to
ours."""

from __future__ import annotations

import os
from typing import Any

from loomnet.base import rank_environment as env

NAME = "loomnet"
# What the names gloo and nccl are mapped to: Loomnet under that name, or Gloo with marks.
AS_GLOO, AS_NCCL = "loomnet_as_gloo", "loomnet_as_nccl"
MEASURED_GLOO, MEASURED_AS_NCCL = "loomnet_gloo", "loomnet_gloo_as_nccl"


def register(dist: Any) -> None:
    """Makes our names known to ``torch.distributed``; importing nothing else yet."""
    for name, creator in (
        (NAME, _create),
        (AS_GLOO, _create_as_gloo),
        (AS_NCCL, _create_as_nccl),
        (MEASURED_GLOO, _create_gloo),
        (MEASURED_AS_NCCL, _create_gloo_as_nccl),
    ):
        # A list: the string "cpu" would be taken for the devices c, p and u.
        dist.Backend.register_backend(name, creator, extended_api=True, devices=["cpu"])
    # Since 2.15 PyTorch attaches a flight recorder to each group but those of backends in this set.
    # It refuses a group that is written in Python and has devices.
    recording = getattr(dist.distributed_c10d, "_FR_SELF_RECORDING_BACKENDS", None)
    if recording is not None:
        recording.update((NAME, AS_GLOO, AS_NCCL, MEASURED_GLOO, MEASURED_AS_NCCL))


def install(dist: Any) -> None:
    """Inside a run: what asks for ``gloo`` or ``nccl`` gets the run's transport.

    Stock Gloo is wrapped for measurement where the transport is Gloo; otherwise the names are
    mapped if the launcher allows it (``TorchJob(map_backend=True)``). Left alone, ``gloo`` is
    PyTorch's own, and ``nccl`` is refused where PyTorch has none.
    """
    gloo, nccl = dist.Backend.GLOO, dist.Backend.NCCL
    if os.environ.get(env.STOCK_GLOO, "0") == "1":
        _replace(dist, {gloo: MEASURED_GLOO, nccl: MEASURED_AS_NCCL})
    elif os.environ.get(env.MAP_BACKEND, "0") == "1":
        _replace(dist, {gloo: AS_GLOO, nccl: AS_NCCL})
    elif not dist.is_nccl_available():
        _replace(dist, {nccl: None})


def _replace(dist: Any, names: dict[str, str | None]) -> None:
    """`names`: what each name is mapped to; None: it is refused."""
    from loomnet.torch.private_names import replace

    # BackendConfig is where every way of making a group (init_process_group, new_group, DeviceMesh)
    # turns a backend's name into one backend per device.
    config = dist.distributed_c10d.BackendConfig
    original, shown = config.__init__, config.__repr__

    def init(self: Any, backend: Any) -> None:
        original(self, backend)
        for device, chosen in self.device_backend_map.items():
            if chosen not in names:
                continue
            name = names[chosen]
            if name is None:
                raise RuntimeError(
                    f'loomnet: backend "{chosen}": this PyTorch has none, and '
                    "TorchJob(map_backend=False) leaves the name alone; leave "
                    'map_backend out, or ask for "loomnet"'
                )
            self.device_backend_map[device] = name
            _say_once(str(chosen))

    def show(self: Any) -> str:  # what dist.get_backend_config() answers
        asked = {name: backend for backend, name in names.items()}
        pairs = (pair.partition(":") for pair in shown(self).split(","))
        return ",".join(f"{device}{colon}{asked.get(name, name)}" for device, colon, name in pairs)

    for attribute, function in (("__init__", init), ("__repr__", show)):
        replace(
            config,
            attribute,
            lambda _, function=function: function,
            f"torch.distributed.distributed_c10d.BackendConfig.{attribute}",
        )
    if not dist.is_nccl_available():
        # PyTorch warns where it has no default time limit for the name.
        module = dist.distributed_c10d
        module.default_pg_nccl_timeout = module.default_pg_timeout


_STOCK = "gloo"  # PyTorch's own backend, which the hosts' kernels carry
_said: set[str] = set()


def _say_once(asked: str) -> None:
    measured = os.environ.get(env.STOCK_GLOO, "0") == "1"
    as_asked = measured and asked == _STOCK
    if asked in _said or os.environ.get("RANK", "0") != "0" or as_asked:
        return
    _said.add(asked)
    ours = "gloo (kernel TCP)" if measured else f"loomnet ({os.environ.get(env.TRANSPORT, NAME)})"
    print(f"loomnet: backend {asked} mapped to {ours}", flush=True)


def _create(options: Any, _group_options: Any) -> Any:
    from loomnet.torch.backend import LoomnetGroup

    return LoomnetGroup.from_options(options, NAME)


def _create_as_gloo(options: Any, _group_options: Any) -> Any:
    from loomnet.torch.backend import LoomnetGroup
    from loomnet.torch.naming import lone_gloo

    try:
        gloo = lone_gloo()
    except RuntimeError:  # no loopback address, say: the group then keeps its own name
        return LoomnetGroup.from_options(options, NAME)
    group = LoomnetGroup.from_options(options, "gloo")
    group._answer_loggers(gloo)
    return group


def _create_as_nccl(options: Any, _group_options: Any) -> Any:
    from loomnet.torch.backend import LoomnetGroup

    return LoomnetGroup.from_options(options, "nccl")


def _create_gloo(options: Any, _group_options: Any, name: str = "gloo") -> Any:
    from loomnet.torch.gloo import MeasuredGloo

    return MeasuredGloo.from_options(options, name)


def _create_gloo_as_nccl(options: Any, group_options: Any) -> Any:
    return _create_gloo(options, group_options, "nccl")
