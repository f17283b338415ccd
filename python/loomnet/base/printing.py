"""Lines for a terminal, of which some come from ranks and from other people's files."""

from __future__ import annotations

from rich.console import Console

from loomnet.base.errors import printable


def print_line(console: Console, line: str) -> None:
    """One line as it is: no markup, no folding, and no control characters."""
    # A rank's output and another's report are parts of such lines.
    console.print(printable(line, keep="\n\t"), markup=False, highlight=False, soft_wrap=True)
