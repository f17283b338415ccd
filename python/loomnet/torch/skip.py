"""Keeps torch.compile out of Python methods that it would otherwise trace into, and fail."""

from __future__ import annotations

from types import FunctionType


def skip_in_dynamo(cls: type) -> None:
    """Marks every method of `cls` to be run, not traced; a no-op where torch lacks the switch."""
    try:
        # What torch._dynamo.disable uses, without the seconds that importing torch._dynamo costs.
        from torch._C._dynamo.eval_frame import (
            _FrameAction,
            _FrameExecStrategy,
            set_code_exec_strategy,
        )
    except ImportError:
        return
    strategy = _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP)
    for member in vars(cls).values():
        if isinstance(member, FunctionType):
            set_code_exec_strategy(member.__code__, strategy)
