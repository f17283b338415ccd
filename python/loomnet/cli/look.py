"""Commands that show what there is: scenarios, and fabrics."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loomnet.base.errors import EXIT_OK, EXIT_USAGE, LoomnetError, UsageError
from loomnet.cli.arguments import Settings
from loomnet.cli.completion import FABRICS, fabrics
from loomnet.cli.help import first_sentence

if TYPE_CHECKING:
    from loomnet.labs.scenario import Scenario

LONGEST_NAME = 30  # of a scenario beside its sentence; a longer one has a line of its own


def list_(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="PATH",
            help="Files, or folders and the folders in them; by default scenarios/, or "
            "the files here.",
        ),
    ] = None,
) -> int:
    """List scenarios, each with the first sentence that it says of itself."""
    from loomnet.base.reading import MOST_SOURCE, read_bytes
    from loomnet.labs.scenario import scenarios_in

    broken, found = 0, dict[str, str]()
    for file in _files(paths):
        try:
            text = read_bytes(file, MOST_SOURCE)
            if b"@ln.scenario" not in text and b"@scenario" not in text:
                continue
            scenarios = scenarios_in(file)
        except LoomnetError as error:  # the other files' scenarios are listed all the same
            broken += 1
            print(f"loomnet: {error}", file=sys.stderr)
            continue
        found |= {_target(file, each, scenarios): first_sentence(each.doc) for each in scenarios}
    width = max((len(name) for name in found if len(name) <= LONGEST_NAME), default=0)
    for name, sentence in found.items():
        for line in _entry(name, sentence, width):
            print(line)
    if broken:
        return EXIT_USAGE
    if not found:
        where = ", ".join(map(str, paths or [_default()]))
        raise UsageError(
            f"list: no scenario in {where}; `loomnet new` writes a first one, or "
            "decorate a function with @ln.scenario"
        )
    return EXIT_OK


def _default() -> Path:
    return Path("scenarios") if Path("scenarios").is_dir() else Path(".")


def _files(paths: list[Path] | None) -> list[Path]:
    """Python files in order. Folders below a folder are looked into as well, but not below the
    current one, which holds whatever its user keeps there."""
    from loomnet.base.reading import is_file

    files: list[Path] = []
    for root in paths or [_default()]:
        if not os.path.exists(root):
            raise UsageError(f"list: no file or folder {root}")
        if not os.path.isdir(root):
            files.append(root)
            continue
        below = [] if root == Path(".") else sorted(root.glob("[!.]*/*.py"))
        files += [file for file in (*sorted(root.glob("*.py")), *below) if is_file(file)]
    return files


def _target(file: Path, scenario: Scenario, all_of_file: list[Scenario]) -> str:
    """What `loomnet run` is told."""
    return str(file) if len(all_of_file) == 1 else f"{file}::{scenario.name}"


def _entry(name: str, sentence: str, width: int) -> list[str]:
    """The name, and the sentence beside it or below it, folded to the terminal."""
    indent = " " * (width + 2)
    columns = max(shutil.get_terminal_size((80, 24)).columns, width + 30)
    lines = textwrap.wrap(
        sentence,
        columns - 1,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    if len(name) > width or not lines:
        return [name, *lines]
    return [name.ljust(width + 2) + lines[0].lstrip(), *lines[1:]]


def describe(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE[::NAME]|FABRIC",
            autocompletion=fabrics,
            help=f"A Python file with a scenario, or a fabric: {', '.join(FABRICS)}.",
        ),
    ],
    setting: Settings = None,
) -> int:
    """Show a scenario, its parameters and its fabric: counts, bisection, optics, failures."""
    from loomnet.cli.description import built
    from loomnet.fabrics.description import table_text

    fabric = built(target, setting or [])
    if fabric is None:
        from loomnet.labs.first_fabric import fabric_of
        from loomnet.labs.scenario import load

        scenario = load(target)
        print(f"{scenario.name}\n\n{scenario.doc}\n\nparameters:")
        for parameter in scenario.parameters:
            default = "required" if parameter.default is None else f"= {parameter.default}"
            print(f"  {parameter.name}: {parameter.type} {default}")
        fabric = fabric_of(scenario, scenario.settings(setting or []))
        if fabric is None:
            return EXIT_OK
        print()
    text = table_text(fabric)
    print(text)
    if "T0" in text:
        print("T0: a leaf; T1: a spine, or in three tiers an aggregation switch, with T2 above it")
    return EXIT_OK
