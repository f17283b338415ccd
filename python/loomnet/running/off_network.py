"""Why a PyTorch job whose ranks never used the emulated network is no result, in the words of what
each rank asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loomnet.base.names import in_quotes, joined_ranks
from loomnet.base.transport_names import GLOO
from loomnet.jobs.model import TorchJob

AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"  # PyTorch's: "0" keeps all backends of others out


def asked_for(notes: Sequence[tuple[str, str]], job: TorchJob, *, made: bool) -> str:
    """What a rank did instead, by its own notes. `made`: it has made a group over the network."""
    sizes = [what for kind, what in notes if kind == "made"]
    if made:
        alone = bool(sizes) and all(size == "1" for size in sizes)
        return "made groups of one rank alone" if alone else "made a group and sent nothing"
    if not any(kind == "loaded" for kind, _ in notes):
        if job.env.get(AUTOLOAD) == "0":
            return f"had {AUTOLOAD}=0, by TorchJob.env, which keeps Loomnet's backend out"
        return (
            "never loaded Loomnet's backend: no torch was imported there, or the script had "
            f"set {AUTOLOAD}=0"
        )
    backends = list(dict.fromkeys(what for kind, what in notes if kind == "asked"))
    if not backends:
        return "made no process group"
    asked = f"asked for {' and '.join(map(_backend, backends))}"
    if not job.map_backend and any(GLOO in each for each in backends):
        asked += ", and map_backend=False leaves gloo to PyTorch"
    return asked


def _backend(name: str) -> str:
    return "no backend by name" if name == "undefined" else f"the backend {in_quotes(name)}"


def off_network(asked: Mapping[str, Sequence[int]]) -> str:
    """The error, in one line. `asked`: ranks by what they did instead."""
    told = "; ".join(f"{joined_ranks(ranks)} {what}" for what, ranks in asked.items())
    return (
        f"the emulated network was not used, so there is no result: {told}; "
        "TorchJob(allow_no_network=True) where that is meant"
    )
