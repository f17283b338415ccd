"""How commands show their help: sentences whole, commands in groups, names of arguments as they are
typed, examples below."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    _Shown = TyperCommand
else:
    _Shown = object

EXAMPLES = "Examples:"
# Groups of the overview, in this order; a command names its own by `rich_help_panel`.
BEGIN, RUN, RESULTS, LIVE, OTHER = "Begin", "Run", "Results", "Live runs", "Commands"


def examples(*lines: str) -> str:
    """An epilog of command lines, each of which is shown on a line of its own."""
    return "\n".join((EXAMPLES, *(f"  {line}" for line in lines)))


def first_sentence(text: str) -> str:
    """Of the first paragraph, in one line."""
    paragraph = " ".join(text.partition("\n\n")[0].split())
    found = re.match(r".*?[.!?](?=\s+[A-Z`]|$)", paragraph)
    return found[0] if found else paragraph


class _WholeHelp(_Shown):
    """What commands and groups share."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """`NAME` in place of `{NAME}`."""
        return [
            re.sub(r"^\{(.*)\}(\.*)$", r"\1\2", piece)
            for piece in super().collect_usage_pieces(ctx)
        ]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Without the Python type behind a name: `NAME <str>`."""
        write = formatter.write_dl

        def without_types(rows: Any, *more: Any, **options: Any) -> None:
            write([(re.sub(r" <[^>]*>$", "", name), text) for name, text in rows], *more, **options)

        formatter.write_dl = without_types
        try:
            super().format_options(ctx, formatter)
        finally:
            del formatter.write_dl

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Lines of examples as they are, any other text folded."""
        if not (self.epilog or "").startswith(EXAMPLES):
            super().format_epilog(ctx, formatter)
            return
        formatter.write_paragraph()
        for line in (self.epilog or "").splitlines():
            formatter.write(f"{line}\n")


class Command(_WholeHelp, TyperCommand):
    """A command."""


class Group(_WholeHelp, TyperGroup):
    """A command that has commands; lists them in their groups, each with its first sentence."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is None or command.hidden:
                continue
            panel = getattr(command, "rich_help_panel", None)
            title = panel if isinstance(panel, str) else OTHER
            row = (name, first_sentence(command.short_help or command.help or ""))
            groups.setdefault(title, []).append(row)
        order = (BEGIN, RUN, RESULTS, LIVE)
        for title in sorted(groups, key=lambda each: order.index(each) if each in order else 9):
            with formatter.section(title):
                formatter.write_dl(groups[title])


class App(typer.Typer):
    """A group whose commands show their help as Command does."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            **{"cls": Group, "no_args_is_help": True, "rich_markup_mode": None, **options}
        )

    def only(self, words: Sequence[str]) -> App:
        """The group with the one command that is asked for; whole where it is none of its own. To
        make the parameters of all others takes longer than a short run."""
        found = [
            each
            for each in self.registered_commands
            if words and words[0] == (each.name or getattr(each.callback, "__name__", None))
        ]
        if not found:
            return self
        alone = copy.copy(self)
        alone.registered_commands, alone.registered_groups = found, []
        return alone

    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:
        return super().command(name, **{"cls": Command, **options})
