"""Loomnet: emulate the fabrics that AI training runs on, and run real PyTorch jobs over them.

Names are loaded when first used, so that importing the package costs almost nothing. No module may
bear the name of a public function (`scenario`, `lab`, `run` …): importing it would hide that."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loomnet import clos as clos
    from loomnet.baselines import assert_matches as assert_matches
    from loomnet.clos import dumbbell as dumbbell
    from loomnet.clos import star as star
    from loomnet.comparison import compare as compare
    from loomnet.errors import LoomnetError as LoomnetError
    from loomnet.errors import UsageError as UsageError
    from loomnet.fabric import Fabric as Fabric
    from loomnet.fabric import from_networkx as from_networkx
    from loomnet.faults import degrade as degrade
    from loomnet.faults import delay as delay
    from loomnet.faults import down as down
    from loomnet.faults import iterations as iterations
    from loomnet.faults import kill as kill
    from loomnet.faults import loss as loss
    from loomnet.faults import step as step
    from loomnet.flowjobs import Flows as Flows
    from loomnet.flowjobs import Incast as Incast
    from loomnet.flowjobs import Permutation as Permutation
    from loomnet.graphjobs import Trace as Trace
    from loomnet.htsim import from_htsim_topology as from_htsim_topology
    from loomnet.jobs import AllGather as AllGather
    from loomnet.jobs import AllReduce as AllReduce
    from loomnet.jobs import AllToAll as AllToAll
    from loomnet.jobs import Broadcast as Broadcast
    from loomnet.jobs import Reduce as Reduce
    from loomnet.jobs import ReduceScatter as ReduceScatter
    from loomnet.jobs import SendRecv as SendRecv
    from loomnet.jobs import TorchJob as TorchJob
    from loomnet.laboratory import Lab as Lab
    from loomnet.laboratory import run as run
    from loomnet.openlab import OpenLab as OpenLab
    from loomnet.openlab import lab as lab
    from loomnet.pfc import Pfc as Pfc
    from loomnet.report import Report as Report
    from loomnet.report import report_schema as report_schema
    from loomnet.result import Result as Result
    from loomnet.scenarios import load as load
    from loomnet.scenarios import scenario as scenario
    from loomnet.sweeping import sweep as sweep
    from loomnet.units import Rate as Rate
    from loomnet.units import Size as Size
    from loomnet.units import Time as Time

_HOMES = {
    "clos": ("clos",),
    "units": ("Rate", "Time", "Size"),
    "fabric": ("Fabric", "from_networkx"),
    "pfc": ("Pfc",),
    "faults": ("down", "loss", "delay", "degrade", "kill", "step", "iterations"),
    "jobs": (
        "TorchJob",
        "AllReduce",
        "AllToAll",
        "AllGather",
        "ReduceScatter",
        "Broadcast",
        "Reduce",
        "SendRecv",
    ),
    "flowjobs": ("Permutation", "Incast", "Flows"),
    "graphjobs": ("Trace",),
    "laboratory": ("Lab", "run"),
    "openlab": ("lab", "OpenLab"),
    "result": ("Result",),
    "comparison": ("compare",),
    "sweeping": ("sweep",),
    "baselines": ("assert_matches",),
    "report": ("Report", "report_schema"),
    "scenarios": ("scenario", "load"),
    "htsim": ("from_htsim_topology",),
    "errors": ("LoomnetError", "UsageError"),
}
_EXPORTS = {name: home for home, names in _HOMES.items() for name in names}
_EXPORTS |= {"star": "clos", "dumbbell": "clos"}

__all__ = [*_EXPORTS, "__version__"]


def version() -> str:
    """The installed package's version; "0+source" from a source tree that is not installed."""
    from importlib import metadata

    try:
        return metadata.version("loomnet")
    except metadata.PackageNotFoundError:
        return "0+source"


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return version()
    home = _EXPORTS.get(name)
    if home is None:
        raise AttributeError(f"module 'loomnet' has no attribute {name!r}")
    module = importlib.import_module(f"loomnet.{home}")
    value = module if name == home == "clos" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
