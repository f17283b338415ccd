"""The short forms of a group's methods: ``group.allreduce(tensor, ReduceOp.MAX, timeout)`` for
``group.allreduce([tensor], options)``. torch.distributed uses the long ones, its users both."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
from torch.distributed import ReduceOp

_REDUCE_OPS = (ReduceOp, ReduceOp.RedOpType)


class Given:
    """Options of one call, put together from the arguments of a short form."""

    __slots__ = ("reduceOp", "rootRank", "timeout")

    def __init__(self, reduce: Any = None, root: int = 0, timeout: timedelta | None = None) -> None:
        self.reduceOp = ReduceOp(ReduceOp.SUM) if reduce is None else reduce
        self.rootRank = root
        self.timeout = timeout


def listed(tensors: Any) -> list[Any]:
    """The list of tensors that a lone tensor stands for."""
    return [tensors] if isinstance(tensors, torch.Tensor) else tensors


def rows_of(lone: Any, rows: Any) -> tuple[list[Any], list[list[Any]]]:
    """A list of tensors, and for each of them a list of one tensor per rank; from a lone tensor and
    its one list, or from both as they are."""
    if isinstance(lone, torch.Tensor):
        return [lone], [rows]
    return lone, rows


def reducing(opts: Any, timeout: timedelta | None, op: Any = None) -> Any:
    """Options of a reduction whose operator may stand in their place."""
    if op is not None:
        return Given(op, timeout=timeout)
    if opts is None or isinstance(opts, _REDUCE_OPS):
        return Given(opts, timeout=timeout)
    return opts


def rooted(opts: Any, timeout: timedelta | None, root: int | None = None, op: Any = None) -> Any:
    """Options of an operation with a root, whose rank may stand in their place."""
    if root is not None:
        return Given(opts if op is None else op, root, timeout)
    if opts is None or isinstance(opts, int):
        return Given(op, opts or 0, timeout)
    return opts


def timed(opts: Any, timeout: timedelta | None = None) -> Any:
    """Options of an operation whose timeout may stand in their place."""
    if timeout is not None or isinstance(opts, timedelta):
        return Given(timeout=opts if timeout is None else timeout)
    return opts
