"""The ``torch.distributed`` backend ``loomnet``: real PyTorch over the emulated network.

PyTorch calls :func:`autoload` at the end of ``import torch`` (entry point ``torch.backends``), so a
training script holds nothing of Loomnet. Inside a run the launcher's environment decides, by the
variables of :mod:`loomnet.base.rank_environment`.

Outside a run only the name ``loomnet`` is registered; making a group of it says what to do.

A script needs nothing of this package. One that has more to say of its traffic may use
:func:`attributes` and :mod:`loomnet.torch.hooks`; one that has no optimizer marks its steps by
:func:`step`; :func:`now` is the emulated time.
"""

from __future__ import annotations

import os
import sys

from loomnet.base import rank_environment as env
from loomnet.torch.script_calls import now, step
from loomnet.torch.work_attributes import attributes

__all__ = ["attributes", "autoload", "now", "step"]


def __getattr__(name: str) -> object:
    # Only when asked for: torch imports this package, and torch.distributed takes time.
    if name == "hooks":
        import importlib

        return importlib.import_module("loomnet.torch.hooks")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def autoload() -> None:
    """Registers the backend and, inside a run, the step hook and the mapping of ``gloo``.

    Outside a run it never raises: an exception here would break ``import torch`` for everyone.

    Raises:
        SystemExit: inside a run, with what kept the backend from being installed. The script would
            run without it, and the run would have figures of nothing. PyTorch would take an
            Exception for a reason to advise that backends are no longer loaded.
    """
    try:
        _install()
    except Exception as error:
        if env.RANK_FD in os.environ:
            raise SystemExit(f"loomnet: torch backend not installed: {error!r}") from error
        print(f"loomnet: torch backend not installed: {error!r}", file=sys.stderr)


def _install() -> None:
    import torch.distributed as dist

    if not dist.is_available():
        return
    from loomnet.torch import children, mapping, steps

    mapping.register(dist)
    if children.is_child():
        children.install(dist)
    elif env.RANK_FD in os.environ:
        from loomnet.base import rank_reads
        from loomnet.torch import (
            builtin_hooks,
            cuda_on_cpu,
            private_names,
            rank_notes,
            rendezvous,
            rpc,
            script_time,
        )

        rank_notes.open_file()
        rank_notes.watch(dist)
        rank_reads.install()
        mapping.install(dist)
        rendezvous.install()
        rpc.install()
        builtin_hooks.install()
        if os.environ.get(env.CLOCK) == "virtual":
            from loomnet.torch import threads, waits

            waits.install()
            threads.install()
        script_time.install()
        cuda_on_cpu.install(dist)
        hook = steps.install()
        if folder := os.environ.get(env.PROFILES):
            from loomnet.torch import profiles

            hook.computing.pauses = []
            profiles.install(folder, hook.computing.pauses)
        private_names.verify()
