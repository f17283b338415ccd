"""The text that `loomnet` prints without a command."""

from __future__ import annotations


def greeting() -> str:
    """What Loomnet is, and three commands to begin with; several lines."""
    from loomnet.base.version import version

    return f"""\
Loomnet {version()} emulates the networks that AI training runs on, and runs real
PyTorch jobs over them.

Three things to do first:
  loomnet new first          writes a scenario, a test and a notebook there
  loomnet run first/flap.py  runs it: a link dies under an all-reduce (no root)
  loomnet doctor             says what this machine lacks for real packets

All commands: loomnet --help, and loomnet COMMAND --help with examples.
Completion of commands by Tab: loomnet --install-completion"""
