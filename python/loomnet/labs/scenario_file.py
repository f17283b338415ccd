"""The Python file of a scenario: imported as a module of its own, with the modules beside it."""

from __future__ import annotations

import ast
import codecs
import hashlib
import importlib.machinery
import importlib.util
import os
import sys
import traceback
import warnings
from pathlib import Path
from types import ModuleType

from loomnet.base.errors import LoomnetError, UsageError
from loomnet.base.names import did_you_mean
from loomnet.base.reading import MOST_SOURCE, is_file, other_than_a_file, read_bytes
from loomnet.base.wall_time import WallTimeOver, importing
from loomnet.labs.own_modules import HELD_AS, FreshLoader, OwnModules
from loomnet.processes.inputs import unheard

# By which a text begins; that of UTF-16 begins that of UTF-32.
_MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)


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


def check_text(path: Path) -> None:
    """Raises UsageError for a file that holds no scenario because it is no Python: in another
    encoding, or with an error of syntax."""
    text = read_bytes(path, MOST_SOURCE)
    for mark, name in _MARKS:
        if text.startswith(mark):
            raise UsageError(f"{path}: its text is {name}; save it as UTF-8")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except SyntaxError as error:
        at = "" if error.lineno is None else f":{error.lineno}"
        raise UsageError(f"{path}{at}: {error_text(error)}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"{path}: {error_text(error)}") from None


def import_file(path: Path) -> ModuleType:
    """A Python file as a module of its own name, which may import modules of its folder. Raises
    UsageError, one line that names the line at fault, for a file that does not parse or whose code
    raises while it is loaded."""
    read_bytes(path, MOST_SOURCE)
    _check_beside(path.parent)
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:8]
    name = f"loomnet_scenario_{path.stem}_{digest}"
    beside = OwnModules(path)
    loader = FreshLoader(name, str(path), beside.texts)
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


def _check_beside(folder: Path) -> None:
    """Raises UsageError for a file of the folder that Python would take for a module of its own
    library, as json.py. It does so where it looks into the folder first: in a notebook there, in a
    test, as `python -m` does."""
    with unheard():
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            return
    for each in names:
        name = each.removesuffix(".py")
        if name == each or name not in sys.stdlib_module_names:
            continue
        loaded = sys.modules.get(name)
        found = (
            importlib.machinery.PathFinder.find_spec(name)
            if loaded is None
            else getattr(loaded, "__spec__", None)
        )
        origin = None if found is None else found.origin
        if origin is not None and Path(origin).resolve().parent == folder.resolve():
            raise UsageError(
                f"{folder / each} hides Python's module {name}, which Loomnet and the "
                "scenario need; rename it"
            )


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
