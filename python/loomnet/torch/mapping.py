"""Which backend a script gets: registers the names, and inside a run maps ``gloo`` to ours."""

from __future__ import annotations

import os
from typing import Any

NAME = "loomnet"
MEASURED_GLOO = "loomnet_gloo"


def register(dist: Any) -> None:
    """Makes the two names known to ``torch.distributed``; importing nothing else yet."""
    for name, creator in ((NAME, _create), (MEASURED_GLOO, _create_gloo)):
        # A list: the string "cpu" would be taken for the devices c, p and u.
        dist.Backend.register_backend(name, creator, extended_api=True, devices=["cpu"])


def install(dist: Any) -> None:
    """Inside a run: what asks for ``gloo`` gets the run's transport.

    Stock Gloo is wrapped for measurement where the transport is Gloo; otherwise the name is mapped
    if the launcher allows it (``TorchJob(map_backend=True)``), else left alone.
    """
    if os.environ.get("LOOMNET_TRANSPORT", "") == "gloo":
        _replace_gloo(dist, MEASURED_GLOO)
    elif os.environ.get("LOOMNET_MAP_BACKEND", "0") == "1":
        _replace_gloo(dist, NAME)


def _replace_gloo(dist: Any, name: str) -> None:
    # BackendConfig is where every way of making a group (init_process_group, new_group, DeviceMesh)
    # turns a backend's name into one backend per device.
    config = dist.distributed_c10d.BackendConfig
    original = config.__init__

    def init(self: Any, backend: Any) -> None:
        original(self, backend)
        for device, chosen in self.device_backend_map.items():
            if chosen == dist.Backend.GLOO:
                self.device_backend_map[device] = name
                if name == NAME:
                    _say_once()

    config.__init__ = init


_said = False


def _say_once() -> None:
    global _said
    if not _said and os.environ.get("RANK", "0") == "0":
        transport = os.environ.get("LOOMNET_TRANSPORT", NAME)
        print(f"loomnet: backend gloo mapped to loomnet ({transport})", flush=True)
    _said = True


def _create(options: Any, _group_options: Any) -> Any:
    from loomnet.torch.backend import LoomnetGroup

    return LoomnetGroup.from_options(options)


def _create_gloo(options: Any, _group_options: Any) -> Any:
    from loomnet.torch.gloo import MeasuredGloo

    return MeasuredGloo.from_options(options)
