"""Transports and backends by the names that users type, for defaults and for editors.
systems.registry knows which there are."""

from __future__ import annotations

from typing import Final, Literal

# A transport of a plug-in has a name of its own; editors offer those of Loomnet.
TransportName = Literal["mrc", "roce", "tcp", "gloo"] | str
USUAL: Final = ("mrc", "roce", "tcp", "gloo")
TRANSPORT: Final = "mrc"  # of a job that does not say
ONE_PATH: Final = "roce"  # of a job whose queue pairs need one path each
GLOO: Final = "gloo"  # PyTorch's backend on CPUs
LIVE_MTU: Final = 3400  # of the kernel's TCP: what one frame of a live link holds
