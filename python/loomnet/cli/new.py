"""The command `new`: a first scenario, its test and a notebook, or a switch program with its
scenario and test, ready to run."""

from __future__ import annotations

import builtins
import importlib.machinery
import importlib.util
import keyword
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from loomnet.base.errors import EXIT_OK, UsageError
from loomnet.base.names import in_quotes

TEMPLATES = Path(__file__).with_name("first")
FILES = ("flap.py", "test_flap.py", "flap.ipynb")
SWITCH_TEMPLATES = Path(__file__).with_name("first_switch")
SWITCH_FILES = ("heavy.c", "heavy.py", "test_heavy.py")
_NAME = re.compile("[a-z][a-z0-9_]*")
_LONGEST = 31  # characters of a program's name
_TAKEN = {"ln": "Loomnet in the scenario's file", "conftest": "pytest's own file"}


def new(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="Where to write; made if it is not there. By default here."
        ),
    ] = Path("."),
    switch: Annotated[
        str | None,
        typer.Option(
            "--switch",
            metavar="NAME",
            help="Write a switch program NAME.c with its scenario and test instead.",
        ),
    ] = None,
) -> int:
    """Write a first scenario, its test and a notebook into a folder, ready to run and to change."""
    from loomnet.cli.all_or_none import all_or_none
    from loomnet.processes.folder import Folder

    if switch is not None and (why := _no_name(switch)) is not None:
        raise UsageError(
            f"new: --switch: {in_quotes(switch)} is no name for a program and its scenario: {why}"
        )
    texts = (
        _switch_files(switch)
        if switch is not None
        else {name: (TEMPLATES / name).read_bytes() for name in FILES}
    )
    opened = Folder.at(folder)
    taken = [name for name in texts if name in opened.names()]
    if taken:
        raise UsageError(
            f"new: {folder / taken[0]} is there already, and nothing is overwritten; "
            "name another folder: loomnet new DIR"
        )
    with all_or_none(opened, map(Path, texts)):
        for name, text in texts.items():
            opened.write(name, text)
    print("\n".join(_next_steps(folder, switch)))
    return EXIT_OK


def _switch_files(name: str) -> dict[str, bytes]:
    """The files of a switch program of this name."""
    return {
        file.replace("heavy", name): re.sub(
            rb"\bheavy\b", name.encode(), (SWITCH_TEMPLATES / file).read_bytes()
        )
        for file in SWITCH_FILES
    }


def _no_name(name: str) -> str | None:
    """Why a program and its scenario cannot have this name; None where they can."""
    if not name:
        return "it is empty; write --switch heavy"
    if len(name) > _LONGEST:
        return f"it has {len(name)} characters, {_LONGEST} at most"
    if not _NAME.fullmatch(name):
        return "a lower-case letter, then letters, digits and _"
    if keyword.iskeyword(name):
        return "it is a keyword of Python"
    if name in dir(builtins):
        return "it is a name of Python's own, which the scenario's function would hide"
    if name in _TAKEN:
        return f"{_TAKEN[name]} has that name"
    here = {"", ".", os.getcwd()}
    elsewhere = [each for each in sys.path if each not in here]
    found = importlib.machinery.PathFinder.find_spec(name, elsewhere)
    # A folder without modules is found too, and has no origin.
    if name in sys.stdlib_module_names or (found is not None and found.origin is not None):
        return f"{name}.py would hide the Python module {name}"
    return None


def _next_steps(folder: Path, switch: str | None) -> list[str]:
    """What was written and what to type now."""
    from loomnet.base.installing import install_line

    go = [f"cd {shlex.quote(str(folder))}"] if folder != Path(".") else []
    commands = [
        *go,
        "loomnet run flap.py",
        "loomnet run flap.py --set planes=8",
        "pytest",
        "jupyter lab flap.ipynb",
    ]
    written = {
        FILES[0]: "a scenario: a network, a job, a fault, and what must hold",
        FILES[1]: "the same as a test",
        FILES[2]: "the same network in a notebook",
    }
    if switch:
        commands = [*go, f"loomnet run {switch}.py", "pytest"]
        written = {
            f"{switch}.c": "the switch program: docs/switch-programs.md explains it",
            f"{switch}.py": "a scenario whose switches run it",
            f"test_{switch}.py": "the same as a test",
        }
    width = max(map(len, written)) + 2
    lines = [
        f"Written in {folder.resolve()}:",
        *(f"    {name:<{width}}{what}" for name, what in written.items()),
        "What to type now:",
        *(f"    {line}" for line in commands),
    ]
    if importlib.util.find_spec("pytest") is None:
        lines.append(f"pytest is missing: {install_line('test')}")
    if not switch and importlib.util.find_spec("jupyterlab") is None:
        lines.append(f"jupyter is missing: {install_line('notebook')}")
    return lines
