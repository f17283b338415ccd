"""What a call that a group cannot carry out raises."""

from __future__ import annotations


class InvalidCall(RuntimeError, ValueError):
    """Arguments that the operation does not take. Gloo raises RuntimeError for most of them and
    PyTorch's own checks raise ValueError: a script that expects either catches this one."""
