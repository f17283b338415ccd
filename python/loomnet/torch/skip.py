"""Keeps torch.compile out of Python methods that it would otherwise trace into, and fail."""

from __future__ import annotations

from types import FunctionType

from loomnet.torch.private_names import skip_code


def skip_in_dynamo(cls: type) -> None:
    """Marks every method of `cls` to be run, not traced."""
    for member in vars(cls).values():
        if isinstance(member, FunctionType):
            skip_code(member.__code__)
