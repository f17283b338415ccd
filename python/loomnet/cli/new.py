"""The command `new`: a first scenario, its test and a notebook, ready to run."""

from __future__ import annotations

import importlib.util
import shlex
from pathlib import Path
from typing import Annotated

import typer

from loomnet.base.errors import EXIT_OK, UsageError

TEMPLATES = Path(__file__).with_name("first")
FILES = ("flap.py", "test_flap.py", "flap.ipynb")


def new(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Where to write; made if it is not there. By default "
                       "here."),
    ] = Path("."),
) -> int:
    """Write a first scenario, its test and a notebook into a folder, ready to run and to change."""
    from loomnet.processes.folder import Folder

    opened = Folder.at(folder)
    taken = [name for name in FILES if name in opened.names()]
    if taken:
        raise UsageError(f"new: {folder / taken[0]} is there already, and nothing is overwritten; "
                         "name another folder: loomnet new DIR")
    for name in FILES:
        opened.write(name, (TEMPLATES / name).read_bytes())
    print("\n".join(_next_steps(folder)))
    return EXIT_OK


def _next_steps(folder: Path) -> list[str]:
    """What was written and what to type now."""
    from loomnet.base.installing import install_line

    go = [f"cd {shlex.quote(str(folder))}"] if folder != Path(".") else []
    commands = [*go, "loomnet run flap.py", "loomnet run flap.py --set planes=8", "pytest",
                "jupyter lab flap.ipynb"]
    written = {FILES[0]: "a scenario: a network, a job, a fault, and what must hold",
               FILES[1]: "the same as a test", FILES[2]: "the same network in a notebook"}
    lines = [f"Written in {folder.resolve()}:",
             *(f"    {name:<13} {what}" for name, what in written.items()),
             "What to type now:", *(f"    {line}" for line in commands)]
    if importlib.util.find_spec("pytest") is None:
        lines.append(f"pytest is missing: {install_line('test')}")
    if importlib.util.find_spec("jupyterlab") is None:
        lines.append(f"jupyter is missing: {install_line('notebook')}")
    return lines
