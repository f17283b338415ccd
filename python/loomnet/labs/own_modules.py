"""Modules that lie beside a scenario's file, which the scenario may import as a script may: for the
scenario alone, afresh for each load of the file, and while its own code runs."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.machinery
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from loomnet.processes.inputs import Inputs, unheard

# In the globals of a scenario's module: its OwnModules.
HELD_AS = "__loomnet_modules__"
_lock = threading.RLock()
_active: list[OwnModules] = []  # the last is in force


class OwnModules(MetaPathFinder):
    """The modules in the folder of one scenario's file. Names of the standard library are never
    theirs; other names are theirs before an installed package's, as for a script.

    While importable() lasts they are found and in sys.modules. Outside they are not, so that two
    scenarios of different folders may each have a `helper`.
    """

    def __init__(self, file: Path) -> None:
        self.file, self.folder = file, file.parent
        # Their files and the scenario's own by path, as they were when they were loaded: a file
        # may be edited while the run lasts.
        self.texts: dict[str, bytes] = {}
        self.loading = Inputs(self.folder)  # what was read while the scenario's file was loaded
        self._names: set[str] = set()  # first parts of the names of modules that were found here
        self._kept: dict[str, ModuleType] = {}  # while not importable
        self._hidden: dict[str, ModuleType] = {}  # others of the same names, while importable
        self._entered = 0

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        top = fullname.partition(".")[0]
        if path is None:
            if top in sys.stdlib_module_names or top == "loomnet":
                return None
            path = [str(self.folder)]
        elif top not in self._names:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is None:
            return None
        if (
            spec.origin is None
            and path == [str(self.folder)]
            and (importlib.machinery.PathFinder.find_spec(fullname) is not None)
        ):
            return None  # a folder without modules must not stand before a package of its name
        if isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = FreshLoader(spec.loader.name, spec.loader.path, self.texts)
            spec.cached = None
        elif spec.origin is not None and os.path.isfile(spec.origin):
            self.texts[spec.origin] = Path(spec.origin).read_bytes()
        self._names.add(top)
        return spec

    @contextlib.contextmanager
    def importable(self) -> Iterator[None]:
        """Around the loading and the running of the scenario's own code."""
        with _lock:
            self._entered += 1
            if self._entered == 1:
                if _active:
                    _active[-1]._leave()
                _active.append(self)
                self._enter()
        try:
            yield
        finally:
            with _lock:
                self._entered -= 1
                if self._entered == 0:
                    in_force = _active[-1] is self
                    if in_force:
                        self._leave()
                    _active.remove(self)
                    if in_force and _active:
                        _active[-1]._enter()

    def _enter(self) -> None:
        # A test's own `helper`, say, is another module than the scenario's.
        beside = self._names | _importable_names(self.folder)
        self._hidden = _taken(beside)
        sys.modules.update(self._kept)
        self._kept = {}
        sys.meta_path.insert(0, self)

    def _leave(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        self._kept = _taken(self._names)
        sys.modules.update(self._hidden)
        self._hidden = {}

    # --- their files ------------------------------------------------------------------------------
    def changed(self) -> bool:
        """Whether the scenario should be loaded again: a module's file, or one that was read in
        loading, is not as it was then."""
        if self.loading.changed():
            return True
        for path, text in self.texts.items():
            try:
                if Path(path).read_bytes() != text:
                    return True
            except OSError:
                return True
        return False

    def sources(self) -> dict[str, bytes]:
        """The modules' files as they were loaded, by their paths from the folder."""
        found = {}
        for path, text in self.texts.items():
            if path != str(self.file):
                with contextlib.suppress(ValueError):
                    found[str(Path(path).relative_to(self.folder))] = text
        return found

    def digests(self) -> dict[str, str]:
        """Of the files as they were loaded, the scenario's own among them, by path; as
        processes.inputs has them."""
        return {path: hashlib.sha256(text).hexdigest() for path, text in self.texts.items()}


class FreshLoader(importlib.machinery.SourceFileLoader):
    """Compiles the source each time. A compiled file of Python's is taken for current by the
    second and the size of its source, which an edit may leave as they were."""

    def __init__(self, fullname: str, path: str, texts: dict[str, bytes]) -> None:
        super().__init__(fullname, path)
        self._texts = texts

    def get_code(self, fullname: str) -> Any:
        source = self.get_data(self.path)
        self._texts[self.path] = source
        return self.source_to_code(source, self.path)


def _importable_names(folder: Path) -> set[str]:
    """What could be imported from the folder, but for names of the standard library."""
    try:
        with unheard(), os.scandir(folder) as listed:
            entries = [each for each in listed if not each.name.startswith(".")]
    except OSError:
        return set()
    found = {each.name.partition(".")[0] for each in entries if each.name.endswith((".py", ".so"))}
    found |= {each.name for each in entries if os.path.isfile(f"{each.path}/__init__.py")}
    return {name for name in found if name.isidentifier()} - sys.stdlib_module_names - {"loomnet"}


def _taken(names: set[str]) -> dict[str, ModuleType]:
    """Takes the modules of these names, and those inside them, out of sys.modules."""
    found = [name for name in sys.modules if name.partition(".")[0] in names]
    return {name: sys.modules.pop(name) for name in found}


def own_modules_of(namespace: dict[str, Any]) -> OwnModules | None:
    """Of a scenario's function, by its globals; None for one that no file was loaded for."""
    found = namespace.get(HELD_AS)
    return found if isinstance(found, OwnModules) else None


def modules_beside(namespace: dict[str, Any]) -> contextlib.AbstractContextManager[None]:
    """Around a call of a function of a loaded file, by its globals: importable() of its modules."""
    found = own_modules_of(namespace)
    return contextlib.nullcontext() if found is None else found.importable()
