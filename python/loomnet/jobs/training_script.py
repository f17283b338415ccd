"""Whether a file can be a rank's script, as far as its text tells: asked before ranks start."""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

from loomnet.base.errors import UsageError
from loomnet.base.reading import read_bytes

INSTALL_TORCH = "pip install torch --index-url https://download.pytorch.org/whl/cpu"


def check_training_script(path: Path, environment: Mapping[str, str]) -> None:
    """Raises UsageError for a file that no rank could run. `environment`: what the job adds to the
    ranks' own."""
    where = f"TorchJob.script: {path}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of strings such as "\\d": the ranks' logs show them
            tree = ast.parse(read_bytes(path))
    except SyntaxError as error:
        line = f" line {error.lineno}" if error.lineno else ""
        raise UsageError(f"{where}{line} is no Python: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"{where} is no Python: {error or 'too deeply nested'}") from None
    imported = {name for node in ast.walk(tree) for name in _packages(node)}
    if "torch" not in imported and "loomnet" in imported and any(_scenarios(tree)):
        raise UsageError(
            f"{where} holds a scenario (@ln.scenario) and no training; "
            f"run it with `loomnet run {path.name}`"
        )
    needed = {name for node in tree.body for name in _packages(node)}
    if "torch" in needed and not _has_torch(path, environment):
        raise UsageError(
            f"{where} imports torch, which {sys.executable} does not have; {INSTALL_TORCH}"
        )


def steps_by_text(path: Path) -> bool | None:
    """Whether a rank's script will end training steps, by an optimizer or loomnet.torch.step(), as
    far as its text tells: False where it speaks of none and imports nothing but PyTorch, NumPy and
    Python's own library; None where what it imports may step."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(read_bytes(path))
    except (UsageError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    nodes = list(ast.walk(tree))
    if any("optim" in name.lower() for node in nodes for name in _names(node)) or any(
        isinstance(node, ast.Call)
        and getattr(node.func, "attr", getattr(node.func, "id", "")) == "step"
        for node in nodes
    ):
        return True
    known = sys.stdlib_module_names - _RUNNERS | {"torch", "numpy", "loomnet"}
    foreign = any(isinstance(node, ast.ImportFrom) and node.level for node in nodes)
    return (
        None
        if foreign or not {name for node in nodes for name in _packages(node)} <= known
        else False
    )


_RUNNERS = frozenset({"importlib", "runpy"})  # of Python's library: what runs other files


def _names(node: ast.AST) -> Iterator[str]:
    """Names that a node of a script uses or gives."""
    for field in ("id", "attr", "name", "asname", "arg", "module"):
        if isinstance(name := getattr(node, field, None), str):
            yield name


def _packages(node: ast.AST) -> set[str]:
    """Packages that an import statement names."""
    if isinstance(node, ast.Import):
        return {alias.name.partition(".")[0] for alias in node.names}
    if isinstance(node, ast.ImportFrom) and not node.level:
        return {(node.module or "").partition(".")[0]}
    return set()


def _scenarios(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                name = decorator.func if isinstance(decorator, ast.Call) else decorator
                if "scenario" in (getattr(name, "attr", ""), getattr(name, "id", "")):
                    yield node.name


def _has_torch(path: Path, environment: Mapping[str, str]) -> bool:
    """Whether the ranks' interpreter, which is this one, finds torch: where the script's folder and
    PYTHONPATH lead is the ranks' own matter."""
    if any(name in environment for name in ("PYTHONPATH", "PYTHONHOME")):
        return True
    if any(os.path.exists(path.parent / name) for name in ("torch", "torch.py")):
        return True
    try:
        return importlib.util.find_spec("torch") is not None
    except (ImportError, ValueError):
        return False
