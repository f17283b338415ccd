"""What the shell offers at Tab. Nothing here runs a user's file: a scenario's parameters are read
from its text."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import typer

from loomnet.base.errors import LoomnetError
from loomnet.base.reading import MOST_SOURCE, read_text

FABRICS = ("two_tier", "three_tier", "fat_tree", "star", "dumbbell")
COLLECTIVES = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "alltoall",
    "sendrecv",
)
TRANSPORTS = ("mrc", "roce", "tcp")
PRICED = ("fattree", "rail", "fattree31", "mixnet", "topoopt", "railonly")


def clocks(incomplete: str) -> list[str]:
    """Values of --clock."""
    return _beginning(incomplete, ("virtual", "live"))


def bench_transports(incomplete: str) -> list[str]:
    """Transports that `loomnet bench` measures."""
    return _beginning(incomplete, TRANSPORTS)


def collectives(incomplete: str) -> list[str]:
    """Collectives that `loomnet bench` measures, by their names in nccl-tests."""
    return _beginning(incomplete, COLLECTIVES)


def fabrics(incomplete: str) -> list[str]:
    """Names of builders; where none begins so, the shell offers files."""
    return _beginning(incomplete, FABRICS)


def priced(incomplete: str) -> list[str]:
    """Fabrics whose parts `loomnet cost` counts."""
    return _beginning(incomplete, PRICED)


def explained(incomplete: str) -> list[str]:
    """Names that `loomnet explain` knows; those of several words would need quotes and are left
    out."""
    from loomnet.base.glossary import entries

    names = list(dict.fromkeys(each.name for each in entries() if " " not in each.name))
    return _beginning(incomplete, names)


def runs(incomplete: str) -> list[str]:
    """Directories of runs below runs/, the latest first."""
    try:
        found = sorted(
            (each for each in Path("runs").iterdir() if each.is_dir()),
            key=lambda each: each.stat().st_mtime,
            reverse=True,
        )
    except OSError:
        return []
    return _beginning(incomplete, [str(each) for each in found])


def settings(ctx: typer.Context, incomplete: str) -> list[str]:
    """`name=` of every parameter of the scenario or training that was typed before."""
    # An option without its value is not parsed, and leaves what stands before it in ctx.args.
    words = [str(ctx.params.get("target") or ""), *ctx.args]
    target = next((word for word in words if word.partition("::")[0].endswith(".py")), "")
    return _beginning(incomplete, [f"{name}=" for name in parameters(target)])


def parameters(target: str) -> list[str]:
    """Of the function in `FILE` or `FILE::NAME`, by its text; none where that cannot be read."""
    file, _, name = target.partition("::")
    try:
        tree = ast.parse(read_text(Path(file), MOST_SOURCE))
    except (LoomnetError, OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    found: list[str] = []
    for function in _declared(tree):
        if name in ("", function.name):
            first = 1 if "scenario" in _marks(function) else 0
            given = function.args.args[first:] + function.args.kwonlyargs
            found += [each.arg for each in given if each.arg not in found]
    return found


def _declared(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """Scenarios and trainings."""
    for each in tree.body:
        if isinstance(each, ast.FunctionDef) and _marks(each) & {"scenario", "curriculum"}:
            yield each


def _marks(function: ast.FunctionDef) -> set[str]:
    return {ast.unparse(mark).rpartition(".")[2] for mark in function.decorator_list}


def _beginning(incomplete: str, words: list[str] | tuple[str, ...]) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]
