"""What all ranks of a job may import together before they fork: the imports that their script
begins with, in its order, as far as nothing else of it would have run before them."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from loomnet.processes.inputs import unheard

# Importing these starts no thread, opens nothing and asks for nothing that is a rank's own.
KNOWN = frozenset({"numpy", "scipy", "sklearn", "torch"})
OURS = "loomnet"  # each rank imports it by itself, and that changes nothing that others look at
# What the first optimizer of a process imports, and DistributedDataParallel, longer than torch
# itself. By then a script may have set what this reads from the environment, so only where none
# does.
LATE = "import torch._dynamo"
_READS = ("get", "keys", "items", "values", "copy")


def shared_imports(script: Path) -> tuple[str, ...]:
    """Import statements, to be run in this order before the fork; none where nothing is gained or
    the script cannot be judged."""
    try:
        with unheard():
            names = {
                entry.stem
                for entry in script.parent.iterdir()
                if entry.suffix == ".py" or entry.is_dir()
            }
        if names & (KNOWN | {OURS} | sys.stdlib_module_names):
            return ()  # there `import random` may mean another module than here
        reader = _Reader(script.parent)
        reader.read(script)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ()
    found = reader.statements
    if not any(_packages(each) == {"torch"} for each in map(_parsed, found)):
        return ()
    if reader.open and reader.plain and reader.trains:
        found = [*found, LATE]
    return tuple(found)


class _Reader:
    """Reads a script and the modules beside it that it begins with.

    Attributes:
        statements: imports of packages in KNOWN, in the order in which they would run.
        open: nothing has come yet after which imports would run in another world.
        plain: nothing that was read imports unknown packages or changes the environment.
        trains: an optimizer or a DistributedDataParallel will be made, as far as words tell.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: set[Path] = set()
        self.statements: list[str] = []
        self.open = self.plain = True
        self.trains = False

    def read(self, path: Path, *, beside: bool = False) -> None:
        if path in self._seen:
            return
        self._seen.add(path)
        source = path.read_bytes()
        tree = ast.parse(source)
        self.trains |= b"optim" in source or b"DistributedDataParallel" in source
        changes = _changes_environment(tree)
        self.plain &= not changes
        body = list(tree.body)
        if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            del body[0]
        while body and isinstance(first := body[0], (ast.Import, ast.ImportFrom)):
            self._imports(first)
            del body[0]
        # What a module beside the script does besides runs before the script's next import.
        if beside:
            self.open &= not changes and all(map(_only_defines, body))
        for node in ast.walk(ast.Module(body, [])):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self.plain &= not self._unknown(node)

    def _imports(self, node: ast.Import | ast.ImportFrom) -> None:
        if isinstance(node, ast.ImportFrom):
            singles: list[ast.Import | ast.ImportFrom] = [node]
        else:
            singles = [ast.Import([alias]) for alias in node.names]
        for single in singles:
            (package,) = _packages(single)
            if (self._folder / f"{package}.py").is_file() and "." not in _module(single):
                self.read(self._folder / f"{package}.py", beside=True)
            elif self._unknown(single):
                self.open = self.plain = False
            elif package in KNOWN and self.open:
                self.statements.append(ast.unparse(single))

    def _unknown(self, node: ast.Import | ast.ImportFrom) -> bool:
        if isinstance(node, ast.ImportFrom) and node.level:
            return True
        return not _packages(node) <= KNOWN | {OURS} | sys.stdlib_module_names


def _parsed(statement: str) -> ast.Import | ast.ImportFrom:
    node = ast.parse(statement).body[0]
    assert isinstance(node, (ast.Import, ast.ImportFrom))
    return node


def _module(node: ast.Import | ast.ImportFrom) -> str:
    return (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name


def _packages(node: ast.Import | ast.ImportFrom) -> set[str]:
    """First parts of the names that a statement imports."""
    names = [_module(node)] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
    return {name.partition(".")[0] for name in names}


def _only_defines(node: ast.stmt) -> bool:
    """A function, a class, a constant, or what only a script's own run reaches."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return True
    if isinstance(node, ast.Assign):
        return all(isinstance(target, ast.Name) for target in node.targets) and not any(
            isinstance(each, ast.Call) for each in ast.walk(node.value)
        )
    return isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"


def _changes_environment(tree: ast.Module) -> bool:
    """True where the process's environment is used otherwise than to read from it."""
    reads = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            reads.add(node.value)
        elif isinstance(node, ast.Attribute) and node.attr in _READS:
            reads.add(node.value)
        elif isinstance(node, ast.Compare):
            reads.update(node.comparators)
    for node in ast.walk(tree):
        name = (
            node.attr
            if isinstance(node, ast.Attribute)
            else node.id
            if isinstance(node, ast.Name)
            else node.name.rpartition(".")[2]
            if isinstance(node, ast.alias)
            else ""
        )
        if name in ("putenv", "unsetenv", "environb", "load_dotenv"):
            return True
        if name == "environ" and not isinstance(node, ast.alias) and node not in reads:
            return True
    return False
