"""`loomnet explain`: a name of a report, in plain words."""

from __future__ import annotations

import shutil
import sys
import textwrap
from typing import Annotated

import typer

from loomnet.cli.completion import explained

PIPED_WIDTH = 80


def explain(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            autocompletion=explained,
            help="A number of a report, counter, drop reason, event or word of the field; without "
            "it, names.",
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All names with their texts.")] = False,
) -> int:
    """Say what a name in a report means: loomnet explain blip_s."""
    from loomnet.base.errors import EXIT_OK
    from loomnet.base.glossary import entries
    from loomnet.base.glossary import explain as look_up

    name = " ".join(names) if names else None
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPED_WIDTH
    section = ""
    if name is None and not everything:
        sections: dict[str, list[str]] = {}
        for entry in entries():
            sections.setdefault(entry.section, []).append(entry.name)
        for section, listed in sections.items():
            print(section)
            print(
                textwrap.fill(
                    ", ".join(listed),
                    width=min(columns, 100),
                    initial_indent="  ",
                    subsequent_indent="  ",
                    break_on_hyphens=False,
                )
            )
        print("loomnet explain NAME says what one means, loomnet explain --all all of them.")
        return EXIT_OK
    for entry in entries() if name is None else look_up(name):
        if entry.section != section:
            if name is None:
                print(f"\n{entry.section}\n" if section else f"{entry.section}\n")
            section = entry.section
        title = entry.name if name is None else f"{entry.name}  ({entry.section.lower()})"
        print(title)
        print(
            textwrap.fill(
                entry.plain,
                width=min(columns, 100),
                initial_indent="  ",
                subsequent_indent="  ",
                break_on_hyphens=False,
            )
        )
    return EXIT_OK
