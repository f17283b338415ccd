"""The Python file of a scenario: imported as a module of its own, with the modules beside it."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType

from loomnet.base.errors import LoomnetError, UsageError
from loomnet.base.names import did_you_mean
from loomnet.base.reading import MOST_SOURCE, is_file, other_than_a_file, read_bytes
from loomnet.base.wall_time import WallTimeOver, importing
from loomnet.labs.own_modules import HELD_AS, FreshLoader, OwnModules


def check_file(path: Path, where: str = "") -> None:
    """Raises UsageError where there is no such file, with the nearest Python files, and where a
    folder, a pipe or a socket has its name."""
    if (other := other_than_a_file(path)) is not None:
        raise UsageError(f"{where}{path} is {other}")
    if not is_file(path):
        near = []
        if os.path.isdir(path.parent):
            near = [str(file) for file in path.parent.glob("*.py") if is_file(file)]
        raise UsageError(f'{where}no file "{path}"{did_you_mean(str(path), near)}')


def import_file(path: Path) -> ModuleType:
    """A Python file as a module of its own name, which may import modules of its folder. Raises
    UsageError, one line that names the line at fault, for a file that does not parse or whose code
    raises while it is loaded."""
    read_bytes(path, MOST_SOURCE)
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:8]
    name = f"loomnet_scenario_{path.stem}_{digest}"
    beside = OwnModules(path)
    loader = FreshLoader(name, str(path), beside.digests)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    module.__dict__[HELD_AS] = beside
    sys.modules[name] = module
    try:
        with beside.loading, beside.importable(), importing():
            spec.loader.exec_module(module)
    except (LoomnetError, KeyboardInterrupt, WallTimeOver):
        del sys.modules[name]
        raise
    except BaseException as error:  # sys.exit() too: the file's code, not a command of the user's
        del sys.modules[name]
        raise UsageError(f"{_place(path, error)}{error_text(error)}") from error
    return module


def _place(path: Path, error: BaseException) -> str:
    """Where a file that is being loaded raised: its own line, and the line of another file."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f"{path}:{error.lineno}: "
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == str(path)]
    if not own:
        return f"{path}: "
    last = frames[-1]
    below = "" if last is own[-1] else f" (in {Path(last.filename).name}:{last.lineno})"
    return f"{path}:{own[-1].lineno}{below}: "


def error_text(error: BaseException) -> str:
    """`NameError: name 'x' is not defined`; of a SyntaxError its message alone."""
    if isinstance(error, SyntaxError) and error.msg:
        return error.msg
    try:
        text = str(error)
    except Exception:  # an exception of the user's own class
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
