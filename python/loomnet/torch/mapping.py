"""Which backend a script gets: registers the names, and inside a run maps ``gloo`` to ours."""

from __future__ import annotations

import os
from typing import Any

from loomnet.base import rank_environment as env

NAME = "loomnet"
# What the name gloo is mapped to: Loomnet under that name, or Gloo with marks.
AS_GLOO, MEASURED_GLOO = "loomnet_as_gloo", "loomnet_gloo"


def register(dist: Any) -> None:
    """Makes the three names known to ``torch.distributed``; importing nothing else yet."""
    for name, creator in ((NAME, _create), (AS_GLOO, _create_as_gloo),
                          (MEASURED_GLOO, _create_gloo)):
        # A list: the string "cpu" would be taken for the devices c, p and u.
        dist.Backend.register_backend(name, creator, extended_api=True, devices=["cpu"])
    # Since 2.15 PyTorch attaches a flight recorder to each group but those of backends in this set.
    # It refuses a group that is written in Python and has devices.
    recording = getattr(dist.distributed_c10d, "_FR_SELF_RECORDING_BACKENDS", None)
    if recording is not None:
        recording.update((NAME, AS_GLOO, MEASURED_GLOO))


def install(dist: Any) -> None:
    """Inside a run: what asks for ``gloo`` gets the run's transport.

    Stock Gloo is wrapped for measurement where the transport is Gloo; otherwise the name is mapped
    if the launcher allows it (``TorchJob(map_backend=True)``), else left alone.
    """
    if os.environ.get(env.STOCK_GLOO, "0") == "1":
        _replace_gloo(dist, MEASURED_GLOO)
    elif os.environ.get(env.MAP_BACKEND, "0") == "1":
        _replace_gloo(dist, AS_GLOO)


def _replace_gloo(dist: Any, name: str) -> None:
    from loomnet.torch.private_names import replace

    # BackendConfig is where every way of making a group (init_process_group, new_group, DeviceMesh)
    # turns a backend's name into one backend per device.
    config = dist.distributed_c10d.BackendConfig
    original, shown = config.__init__, config.__repr__

    def init(self: Any, backend: Any) -> None:
        original(self, backend)
        for device, chosen in self.device_backend_map.items():
            if chosen == dist.Backend.GLOO:
                self.device_backend_map[device] = name
                if name == AS_GLOO:
                    _say_once()

    def show(self: Any) -> str:  # what dist.get_backend_config() answers
        return shown(self).replace(f":{name}", f":{dist.Backend.GLOO}")

    for attribute, function in (("__init__", init), ("__repr__", show)):
        replace(config, attribute, lambda _, function=function: function,
                f"torch.distributed.distributed_c10d.BackendConfig.{attribute}")


_said = False


def _say_once() -> None:
    global _said
    if not _said and os.environ.get("RANK", "0") == "0":
        transport = os.environ.get(env.TRANSPORT, NAME)
        print(f"loomnet: backend gloo mapped to loomnet ({transport})", flush=True)
    _said = True


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


def _create_gloo(options: Any, _group_options: Any) -> Any:
    from loomnet.torch.gloo import MeasuredGloo

    return MeasuredGloo.from_options(options, "gloo")
