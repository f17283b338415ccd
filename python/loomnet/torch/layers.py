"""Computing by layer: a layer's time passes after its forward, and before its backward computes the
gradients that then leave.

Hooks on every module do it, none of which touches a tensor's value or graph (a module's own
backward hooks would make its output a view, which in-place layers refuse). Where torch.compile
traces a module, its hooks run once, while it is compiled; there an operation in the compiled graph
lets the time pass.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch.autograd.graph import register_multi_grad_hook
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from loomnet.jobs.compute import STEP
from loomnet.torch.private_names import skip_code

Pass = Callable[[int], None]  # lets so many picoseconds pass

# The attribute of a module that holds its row: (forward, backward) in picoseconds, () for none.
ROW = "_loomnet_compute"
# What holds a module without being a layer: the attribute under which it holds it.
WRAPPERS = {
    "DistributedDataParallel": "module",
    "DataParallel": "module",
    "OptimizedModule": "_orig_mod",  # torch.compile
    "FullyShardedDataParallel": "_fsdp_wrapped_module",
    "ActivationWrapper": "_checkpoint_wrapped_module",
}
_ADVICE = (
    "TorchJob(compute={…}) has to see the model outside of the compiled function once: "
    "call it before, or compile without fullgraph=True"
)


class Layers:
    """The rows of a table, and the modules that have them."""

    def __init__(self, rows: dict[str, list[int]], pass_time: Pass) -> None:
        self._rows, self._pass = rows, pass_time
        self._unmatched = {name for name in rows if name != STEP}
        self._names: list[str] = []
        done = _hook(pass_time)
        register_module_forward_pre_hook(self._enter)
        register_module_forward_hook(done)
        for hook in (Layers._enter, done):  # part of what is compiled, or run as it is
            skip_code(hook.__code__)
        # It is about hooks that fire once more for what torch.compile returns, which has no row.
        warnings.filterwarnings("ignore", r"Using `torch\.compile\(module\)` when there are global")

    def after_step(self) -> None:
        if self._unmatched:
            raise RuntimeError(
                f'TorchJob.compute: no module of this script is called "{min(self._unmatched)}"; '
                f"there are {', '.join(self._names[:12]) or 'none'}"
                + (", …" if len(self._names) > 12 else "")
            )
        self._pass(self._rows.get(STEP, [0])[0])

    def _enter(self, module: torch.nn.Module, args: Any) -> None:
        if torch.compiler.is_compiling():
            if getattr(module, ROW, None) is None:
                torch._dynamo.graph_break(_ADVICE)  # and the hook runs again, outside
            return
        if ROW not in module.__dict__:
            self._give_rows(module)

    def _give_rows(self, root: torch.nn.Module) -> None:
        """Of the outermost module not seen yet: it gives all below their names."""
        for name, each in layers(root):
            # Not by setattr(): wrappers hand that on to what they hold.
            each.__dict__[ROW] = self._row(name) if name else ()
            if name:
                self._names.append(name)

    def _row(self, name: str) -> tuple[int, ...]:
        parts = name.split(".")
        for pattern, row in self._rows.items():
            wanted = pattern.split(".")
            if (
                len(wanted) == len(parts)
                and all(map(fnmatchcase, parts, wanted))
                and pattern != STEP
            ):
                self._unmatched.discard(pattern)
                return tuple(row)
        return ()


def layers(root: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Every module at or below this one with its name, which is "" for the model itself, for what a
    wrapper holds (the wrapper has the name), and for wrappers of the model."""
    names: dict[int, str] = {}
    for path, module in root.named_modules():
        above, _, last = path.rpartition(".")
        holder = root.get_submodule(above) if path else None
        name, held = "", False
        if holder is not None:
            held = last == _holds(holder)
            name = names[id(holder)] if held else f"{names[id(holder)]}.{last}".lstrip(".")
        names[id(module)] = name
        yield ("" if held else name), module


def _holds(module: torch.nn.Module) -> str | None:
    """The attribute under which a wrapper holds a module; None for a layer."""
    return next(
        (
            WRAPPERS[kind.__name__]
            for kind in type(module).__mro__
            if kind.__name__ in WRAPPERS and kind.__module__.startswith("torch.")
        ),
        None,
    )


def _hook(pass_time: Pass) -> Callable[..., Any]:
    """What follows each forward."""
    _define(pass_time)

    def forward_done(module: torch.nn.Module, args: Any, output: Any) -> Any:
        row = (
            getattr(module, ROW, None)
            if torch.compiler.is_compiling()
            else (module.__dict__.get(ROW))
        )
        if not row:
            return None
        if torch.compiler.is_compiling():
            return _traced(output, *row)
        forward, backward = row
        pass_time(forward)
        behind = [
            leaf
            for leaf in tree_leaves(output)
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad
        ]
        if backward and behind:
            register_multi_grad_hook(behind, lambda gradient: pass_time(backward), mode="any")
        return None

    return forward_done


def _traced(output: Any, forward: int, backward: int) -> Any:
    """The output of a compiled layer, behind an operation that takes the time."""
    leaves, tree = tree_flatten(output)
    at = [index for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    if not at:
        return None
    passed = torch.ops.loomnet.compute([leaves[index] for index in at], forward, backward)
    for index, leaf in zip(at, passed, strict=True):
        leaves[index] = leaf
    return tree_unflatten(leaves, tree)


@functools.cache
def _define(pass_time: Pass) -> None:
    """The operation `loomnet::compute`. A compiler neither drops it, since its copies are what goes
    on, nor takes two for one."""

    def compute(tensors: list[torch.Tensor], forward: int, backward: int) -> list[torch.Tensor]:
        pass_time(forward)
        return [each.clone() for each in tensors]

    operation = torch.library.custom_op(
        "loomnet::compute",
        compute,
        mutates_args=(),
        tags=torch.Tag.nondeterministic_seeded,
        schema="(Tensor[] tensors, int forward, int backward) -> Tensor[]",
    )

    @operation.register_fake
    def shapes(tensors: list[torch.Tensor], forward: int, backward: int) -> list[torch.Tensor]:
        return [torch.empty_like(each) for each in tensors]

    def remember(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.backward_ps = inputs[2]

    def backward(ctx: Any, gradients: list[torch.Tensor | None]) -> Any:
        there = [index for index, each in enumerate(gradients) if each is not None]
        passed = torch.ops.loomnet.compute(
            [gradients[index] for index in there], ctx.backward_ps, 0
        )
        found: list[torch.Tensor | None] = [None] * len(gradients)
        for index, gradient in zip(there, passed, strict=True):
            found[index] = gradient
        return found, None, None

    operation.register_autograd(backward, setup_context=remember)
