"""Loomnet: emulate the fabrics that AI training runs on, and run real PyTorch jobs over them.

Names are loaded when first used, so that importing the package costs almost nothing. No module may
bear the name of a public function (`scenario`, `lab`, `run` …): importing it would hide that."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from loomnet.base import units as _units
    from loomnet.base.errors import LoomnetError as LoomnetError
    from loomnet.base.errors import UsageError as UsageError
    from loomnet.base.explained import explain as explain
    from loomnet.fabrics import clos as clos
    from loomnet.fabrics.clos import dumbbell as dumbbell
    from loomnet.fabrics.clos import star as star
    from loomnet.fabrics.ecn import Ecn as Ecn
    from loomnet.fabrics.htsim_topology import from_htsim_topology as from_htsim_topology
    from loomnet.fabrics.model import Fabric as Fabric
    from loomnet.fabrics.networkx_graph import from_networkx as from_networkx
    from loomnet.fabrics.pfc import Pfc as Pfc
    from loomnet.faults.burst_rows import bursts as bursts
    from loomnet.faults.model import bunch as bunch
    from loomnet.faults.model import degrade as degrade
    from loomnet.faults.model import delay as delay
    from loomnet.faults.model import down as down
    from loomnet.faults.model import duplicate as duplicate
    from loomnet.faults.model import iterations as iterations
    from loomnet.faults.model import jitter as jitter
    from loomnet.faults.model import kill as kill
    from loomnet.faults.model import loss as loss
    from loomnet.faults.model import reorder as reorder
    from loomnet.faults.model import step as step
    from loomnet.jobs.circuit_control import CircuitControl as CircuitControl
    from loomnet.jobs.collectives import AllGather as AllGather
    from loomnet.jobs.collectives import AllReduce as AllReduce
    from loomnet.jobs.collectives import AllToAll as AllToAll
    from loomnet.jobs.collectives import Broadcast as Broadcast
    from loomnet.jobs.collectives import Reduce as Reduce
    from loomnet.jobs.collectives import ReduceScatter as ReduceScatter
    from loomnet.jobs.collectives import SendRecv as SendRecv
    from loomnet.jobs.flows import Flows as Flows
    from loomnet.jobs.flows import Incast as Incast
    from loomnet.jobs.flows import Permutation as Permutation
    from loomnet.jobs.graphs import Trace as Trace
    from loomnet.jobs.model import TorchJob as TorchJob
    from loomnet.jobs.model_job import ModelJob as ModelJob
    from loomnet.jobs.moe_job import MoeJob as MoeJob
    from loomnet.labs.lab import Lab as Lab
    from loomnet.labs.open_lab import OpenLab as OpenLab
    from loomnet.labs.open_lab import lab as lab
    from loomnet.labs.plugin_check import check_plugin as check_plugin
    from loomnet.labs.scenario import load as load
    from loomnet.labs.scenario import scenario as scenario
    from loomnet.labs.single_run import run as run
    from loomnet.plugins import change as change
    from loomnet.plugins import plugin as plugin
    from loomnet.plugins.controllers import controller as controller
    from loomnet.results.baselines import assert_matches as assert_matches
    from loomnet.results.comparison import compare as compare
    from loomnet.results.report import Report as Report
    from loomnet.results.report import report_schema as report_schema
    from loomnet.results.result import Result as Result
    from loomnet.sweeps.sweep import sweep as sweep
    from loomnet.systems import cost as cost
    from loomnet.systems.mixnet.fabric import mixnet as mixnet
    from loomnet.worlds.world import World as World

    # A scenario's parameter `rate: ln.Rate = "400 Gb/s"` is a string to its caller, and a Rate when
    # the function runs. Any lets type checkers take the string and still complete a Rate's names.
    Rate: TypeAlias = _units.Rate | Any
    Time: TypeAlias = _units.Time | Any
    Size: TypeAlias = _units.Size | Any

    __version__: str

_HOMES = {
    "fabrics.clos": ("star", "dumbbell"),
    "base.units": ("Rate", "Time", "Size"),
    "base.errors": ("LoomnetError", "UsageError"),
    "base.explained": ("explain",),
    "fabrics.model": ("Fabric",),
    "fabrics.networkx_graph": ("from_networkx",),
    "fabrics.ecn": ("Ecn",),
    "fabrics.pfc": ("Pfc",),
    "fabrics.htsim_topology": ("from_htsim_topology",),
    "faults.burst_rows": ("bursts",),
    "faults.model": (
        "down",
        "loss",
        "duplicate",
        "reorder",
        "delay",
        "jitter",
        "bunch",
        "degrade",
        "kill",
        "step",
        "iterations",
    ),
    "jobs.collectives": (
        "AllReduce",
        "AllToAll",
        "AllGather",
        "ReduceScatter",
        "Broadcast",
        "Reduce",
        "SendRecv",
    ),
    "jobs.model": ("TorchJob",),
    "jobs.circuit_control": ("CircuitControl",),
    "jobs.model_job": ("ModelJob",),
    "jobs.moe_job": ("MoeJob",),
    "jobs.flows": ("Permutation", "Incast", "Flows"),
    "jobs.graphs": ("Trace",),
    "labs.lab": ("Lab",),
    "labs.open_lab": ("lab", "OpenLab"),
    "labs.plugin_check": ("check_plugin",),
    "labs.scenario": ("scenario", "load"),
    "labs.single_run": ("run",),
    "plugins.controllers": ("controller",),
    "results.result": ("Result",),
    "results.report": ("Report", "report_schema"),
    "results.comparison": ("compare",),
    "results.baselines": ("assert_matches",),
    "sweeps.sweep": ("sweep",),
    "worlds.world": ("World",),
    "systems.mixnet.fabric": ("mixnet",),
}
_EXPORTS = {name: home for home, names in _HOMES.items() for name in names}
# Public modules.
_MODULES = {
    "clos": "fabrics.clos",
    "plugin": "plugins.plugin",
    "change": "plugins.change",
    "cost": "systems.cost",
}

# Type checkers read the imports above.
__all__ = [*_EXPORTS, *_MODULES, "__version__"]  # pyright: ignore[reportUnsupportedDunderAll]

if not TYPE_CHECKING:  # to type checkers a module with __getattr__ has every name

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            from loomnet.base.version import version

            return version()
        if name in _MODULES:
            value = importlib.import_module(f"loomnet.{_MODULES[name]}")
        elif name in _EXPORTS:
            value = getattr(importlib.import_module(f"loomnet.{_EXPORTS[name]}"), name)
        else:
            if name.startswith("_"):  # which Python itself asks for
                raise AttributeError(f"module 'loomnet' has no attribute {name!r}")
            from loomnet.base.errors import UnknownAttributeError
            from loomnet.base.names import did_you_mean

            raise UnknownAttributeError(
                f"module 'loomnet' has no attribute {name!r}{did_you_mean(name, __all__)}"
            )
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
