"""What PyTorch asks of any group beside its operations: its name, its store, its devices."""

from __future__ import annotations

from typing import Any, Self

import torch
import torch.distributed as dist

from loomnet.torch.skip import skip_in_dynamo


class NamedGroup(dist.ProcessGroup):
    """A group of ranks on the CPU that holds its own name. Built of (store, rank, size, timeout,
    name); whoever derives from it sets `_name`, `_desc` and `_store`."""

    _name: str
    _desc: str
    _store: dist.Store

    @classmethod
    def from_options(cls, options: Any) -> Self:
        """From torch's ``DistributedBackendOptions``."""
        return cls(options.store, options.group_rank, options.group_size, options.timeout,
                   options.group_id)  # fmt: skip

    def getGroupName(self) -> str:
        return self._name

    def setGroupName(self, name: str) -> None:
        self._name = name

    def getGroupDesc(self) -> str:
        return self._desc

    def setGroupDesc(self, desc: str) -> None:
        self._desc = desc

    def get_group_store(self) -> dist.Store:
        return self._store

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu")]


skip_in_dynamo(NamedGroup)
