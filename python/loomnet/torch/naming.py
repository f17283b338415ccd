"""What PyTorch asks of any group beside its operations: its name, its store, its devices, and what
its backend can do."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Self

import torch
import torch.distributed as dist

from loomnet.torch import rank_notes
from loomnet.torch.private_names import verify_group
from loomnet.torch.skip import skip_in_dynamo


class GroupOptions:
    """What ``group._get_backend(device).options`` is for a built-in backend."""

    def __init__(self, group: NamedGroup, ranks: Sequence[int]) -> None:
        self._group = group
        self.global_ranks_in_group = list(ranks)

    @property
    def backend(self) -> str:
        return self._group.getBackendName()

    @property
    def group_name(self) -> str:
        return self._group.getGroupName()

    @property
    def group_desc(self) -> str:
        return self._group.getGroupDesc()

    @property
    def _timeout(self) -> timedelta:
        return self._group._timeout

    @_timeout.setter
    def _timeout(self, timeout: timedelta) -> None:
        self._group.set_timeout(timeout)


class NamedGroup(dist.ProcessGroup):
    """A group of ranks on the CPU that holds its own name.

    PyTorch takes the object for the group's backend too, so what it asks of a backend is here.
    """

    _ranks: Sequence[int] = ()  # of the job; none: all of them
    _gloo: Any = None  # what C++ finds, see _answer_loggers
    supports_coalescing = False
    supports_splitting = True
    supports_shrinking = False
    supports_time_estimate = False

    def __init__(
        self,
        store: dist.Store,
        rank: int,
        size: int,
        timeout: timedelta,
        name: str,
        backend_name: str,
    ) -> None:
        # torch's stub lacks the constructor of groups that are written in Python.
        super().__init__(rank, size)  # pyright: ignore[reportCallIssue]
        self._store, self._timeout = store, timeout
        self._name, self._desc, self._backend_name = name, "", backend_name
        rank_notes.say("made", str(size))

    @classmethod
    def from_options(cls, options: Any, backend_name: str) -> Self:
        """From torch's ``DistributedBackendOptions``."""
        group = cls(
            options.store,
            options.group_rank,
            options.group_size,
            options.timeout,
            options.group_id,
            backend_name,
        )
        group._ranks = options.global_ranks_in_group
        verify_group(group)
        return group

    def getBackendName(self) -> str:
        return self._backend_name

    def _get_backend_name(self) -> str:
        return self._backend_name

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

    def set_timeout(self, timeout: timedelta) -> None:
        """Of operations started from now on."""
        self._timeout = timeout

    def _set_default_timeout(self, timeout: timedelta) -> None:
        self.set_timeout(timeout)

    @property
    def options(self) -> GroupOptions:
        return GroupOptions(self, self._ranks)

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        return False

    def _has_hooks(self) -> bool:
        return False

    def eager_connect_single_device(self, device: torch.device | None = None) -> None:
        """What init_process_group(device_id=…) asks of NCCL. The group has met already."""

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu")]

    def _answer_loggers(self, gloo: Any) -> None:
        """Makes `gloo` the object that C++ finds when it looks for a Gloo group inside this one.

        DDP's logger does so where the backend is named gloo. The device is one that no collective
        is ever called for: what this class lacks must stay an error, and not be Gloo's.
        """
        self._register_backend(torch.device("meta"), dist.ProcessGroup.BackendType.GLOO, gloo)
        self._gloo = gloo
        verify_group(self)


_lone_gloo: Any = None


def lone_gloo() -> Any:
    """A Gloo group of this process alone, made once: it has the properties that DDP's logger reads,
    and never moves a byte."""
    global _lone_gloo
    if _lone_gloo is None:
        gloo: Any = dist.ProcessGroupGloo  # torch's stub lacks its options
        options = gloo._Options()
        options._devices = [gloo.create_device(hostname="127.0.0.1")]
        _lone_gloo = gloo(dist.HashStore(), 0, 1, options)
    return _lone_gloo


skip_in_dynamo(NamedGroup)
