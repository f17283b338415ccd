"""Lines for a terminal, of which some come from ranks and from other people's files."""

from __future__ import annotations

import textwrap

from rich.console import Console

from loomnet.base.errors import printable


def print_line(console: Console, line: str) -> None:
    """One line as it is: no markup and no control characters. On a terminal a line that is too long
    goes on, indented, at a word; in a file it stays one line."""
    # A rank's output and another's report are parts of such lines.
    text = printable(line, keep="\n\t")
    if console.is_terminal:
        text = "\n".join(_folded(each, console.width) for each in text.split("\n"))
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _folded(line: str, width: int) -> str:
    if len(line) <= width or line[:1].isspace():  # indented lines are of tables and stacks
        return line
    return "\n".join(
        textwrap.wrap(
            line,
            max(width, 20),
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    )
