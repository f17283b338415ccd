"""The ``torch.distributed`` backend ``loomnet``: real PyTorch over the emulated network.

PyTorch calls :func:`autoload` at the end of ``import torch`` (entry point ``torch.backends``), so a
training script holds nothing of Loomnet. Inside a run the launcher's environment decides:

* ``LOOMNET_RANK_FD``, ``LOOMNET_EVENT_FD``: inherited descriptors of this rank's NIC;
* ``LOOMNET_TRANSPORT``: the transport's name, to be shown;
* ``LOOMNET_STOCK_GLOO=1``: stock Gloo carries the bytes and is only measured;
* ``LOOMNET_AWAIT_SENDS=0``: a send is over once the transport has taken its bytes;
* ``LOOMNET_MAP_BACKEND=1``: a script that asks for ``gloo`` (or for nothing) gets Loomnet's;
* ``LOOMNET_CLOCK``: ``virtual`` where emulated time is the engine's; ``LOOMNET_DILATION`` live;
* ``LOOMNET_STACK_FD``: where the rank writes its threads' stacks when the run asks;
* ``LOOMNET_HASH_EVERY``: every so many steps each rank reports a hash of its parameters;
* ``LOOMNET_PROFILES``: a folder for copies of what torch.profiler exports, if the run is traced.

Outside a run only the name ``loomnet`` is registered; making a group of it says what to do.
"""

from __future__ import annotations

import os
import sys

__all__ = ["autoload"]


def autoload() -> None:
    """Registers the backend and, inside a run, the step hook and the mapping of ``gloo``.

    Never raises: an exception here would break ``import torch`` for everyone.
    """
    try:
        _install()
    except Exception as error:
        print(f"loomnet: torch backend not installed: {error!r}", file=sys.stderr)


def _install() -> None:
    import torch.distributed as dist

    if not dist.is_available():
        return
    from loomnet.torch import mapping, steps

    mapping.register(dist)
    if "LOOMNET_RANK_FD" in os.environ:
        from loomnet.torch import rendezvous, rpc

        mapping.install(dist)
        rendezvous.install()
        rpc.install()
        if os.environ.get("LOOMNET_CLOCK") == "virtual":
            from loomnet.torch import waits

            waits.install()
        hook = steps.install()
        if folder := os.environ.get("LOOMNET_PROFILES"):
            from loomnet.torch import profiles

            hook.computing.pauses = []
            profiles.install(folder, hook.computing.pauses)
