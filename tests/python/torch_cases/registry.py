"""The register of cases: a case is a function that every rank of a job runs and that returns what
this rank computed. Families of cases are modules; one job runs many cases of a family."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

# Modules of cases, in the order in which the table lists them.
FAMILIES = (
    "data_parallel",
    "sharded",
    "tensor_parallel",
    "pipelines",
    "collectives",
    "subgroups",
    "around",
    "waiting",
    "kinds",
)

# Kinds of distributed training that have no case, each with the reason.
LEFT_OUT = {
    "SyncBatchNorm": "PyTorch accepts it on accelerators alone",
    "overlapped ZeroRedundancyOptimizer": "its hook asserts a CUDA device",
    "DDP's quantization hooks": "they index the future's list as a tensor and fail over Gloo too",
    "batched_powerSGD_hook": "it hands a matrix to a function that wants a batch of them",
    "DTensor's random operators": "PyTorch has no tracker of their seeds for a mesh of CPUs",
    "DDP mixed_precision=": "its copies run on CUDA streams alone",
    "symmetric memory, async tensor parallel": "they need memory shared between accelerators",
    "context parallel": "ring attention has kernels for accelerators alone",
    "FSDP1 CPU offload": "parameters are on the CPU already; PyTorch refuses offload of them",
    "RPC over CUDA, DeviceMesh on accelerators": "no accelerator in a build for the CPU",
}


@dataclass(frozen=True)
class Rank:
    """What a case is given: this rank's number and world, and where all ranks may meet or write."""

    rank: int
    world: int
    folder: str  # of this case, shared by all ranks of the machine
    kept: str  # a folder that later jobs of the same test find as this one leaves it

    @property
    def everyone(self) -> list[int]:
        return list(range(self.world))

    @property
    def right(self) -> int:
        return (self.rank + 1) % self.world

    @property
    def left(self) -> int:
        return (self.rank - 1) % self.world


@dataclass(frozen=True)
class Case:
    """One case.

    Attributes:
        name: unique among all families.
        run: called in every rank, in a default group of all ranks where `group` is true.
        family: the module that defines the case.
        spread: how far floats may be from Gloo's, in units of their type's epsilon times the
            tensor's largest value. Another order of additions is all that Loomnet may change, so a
            case that only moves values has spread 0.
        group: the runner makes the default group before the case and destroys it afterwards.
    """

    name: str
    run: Callable[[Rank], dict[str, Any]] = field(repr=False)
    family: str
    spread: float
    group: bool
    live: bool


CASES: dict[str, Case] = {}


def case(
    spread: float = 16, *, group: bool = True, live: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function as a case; see :class:`Case`. `live`: of the six that run live in every
    test run."""

    def register(function: Callable[[Rank], dict[str, Any]]) -> Callable[[Rank], dict[str, Any]]:
        name = function.__name__
        assert name not in CASES, f"two cases are called {name}"
        CASES[name] = Case(name, function, function.__module__, spread, group, live)
        return function

    return register


def cases_of(*families: str) -> dict[str, Case]:
    """The cases of these families, in the order of their definition."""
    for family in families:
        importlib.import_module(family)
    return {name: each for name, each in CASES.items() if each.family in families}
