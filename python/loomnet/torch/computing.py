"""Computing on the virtual clock: the process stands still while the time passes that its computing
is declared to take."""

from __future__ import annotations

import json
import time
import weakref
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch.autograd.graph import register_multi_grad_hook
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._pytree import tree_leaves

import loomnet.torch.connection as _connection
from loomnet.jobs.compute import STEP

Pass = Callable[[int], None]  # lets so many picoseconds pass


class Computing:
    """What the step hook calls after every optimizer step, numbered from 1.

    Args:
        text: what the variable COMPUTE of rank_environment holds: picoseconds per step joined by
            commas, the last one for all that follow; "measured FACTOR"; or a table by layer as
            JSON. None where time passes by itself (the live clock).
    """

    def __init__(self, text: str | None) -> None:
        # Monotonic ns in which this process stood still; kept for a run that is traced.
        self.pauses: list[tuple[int, int]] | None = None
        self._each: list[int] = []
        self._factor: float | None = None
        self._layers: _Layers | None = None
        if text is None:
            return
        if text.startswith("measured"):
            self._factor = float(text.removeprefix("measured"))
            self._began: float | None = None  # imports and the first step are no iteration
        elif text.startswith("{"):
            self._layers = _Layers(json.loads(text), self._pass)
        else:
            self._each = [int(each) for each in text.split(",")]

    def after_step(self, number: int) -> None:
        if self._each:
            self._pass(self._each[min(number, len(self._each)) - 1])
        elif self._factor is not None:
            if self._began is not None:
                took = time.process_time() - self._began
                self._pass(max(round(took * self._factor * 1e12), 1))
            self._began = time.process_time()
        elif self._layers is not None:
            self._layers.after_step()

    def _pass(self, picoseconds: int) -> None:
        link = _connection.existing()
        if link is None or not picoseconds:
            return
        began = time.monotonic_ns()
        link.session.compute(picoseconds)
        if self.pauses is not None:
            self.pauses.append((began, time.monotonic_ns()))


class _Layers:
    """Lets a layer's time pass after its forward, and before its backward computes the gradients
    that then leave: hooks on every module, none of which touches a tensor's value or graph (a
    module's own backward hooks would make its output a view, which in-place layers refuse)."""

    def __init__(self, rows: dict[str, list[int]], pass_time: Pass) -> None:
        self._rows, self._pass = rows, pass_time
        self._unmatched = {name for name in rows if name != STEP}
        self._names: list[str] = []
        self._known: weakref.WeakKeyDictionary[torch.nn.Module, list[int] | None]
        self._known = weakref.WeakKeyDictionary()
        register_module_forward_pre_hook(self._enter)
        register_module_forward_hook(self._forward)

    def after_step(self) -> None:
        if self._unmatched:
            raise RuntimeError(
                f'TorchJob.compute: no module of this script is called "{min(self._unmatched)}"; '
                f"there are {', '.join(self._names[:12]) or 'none'}"
                + (", …" if len(self._names) > 12 else ""))
        self._pass(self._rows.get(STEP, [0])[0])

    def _enter(self, module: torch.nn.Module, args: Any) -> None:
        if module in self._known:
            return
        # The outermost of those not seen yet: it gives all below their names.
        for name, each in module.named_modules():
            name = name.removeprefix("module.")  # what DistributedDataParallel puts before
            self._known[each] = self._row(name)
            if name not in ("", "module"):
                self._names.append(name)

    def _row(self, name: str) -> list[int] | None:
        parts = name.split(".")
        for pattern, row in self._rows.items():
            wanted = pattern.split(".")
            if (name and len(wanted) == len(parts)
                    and all(map(fnmatchcase, parts, wanted)) and pattern != STEP):
                self._unmatched.discard(pattern)
                return row
        return None

    def _forward(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        row = self._known.get(module)
        if row is None:
            return
        forward, backward = row
        self._pass(forward)
        behind = [leaf for leaf in tree_leaves(output)
                  if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        if backward and behind:
            register_multi_grad_hook(behind, lambda gradient: self._pass(backward), mode="any")
