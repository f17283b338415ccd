"""What a run reads, so that a kept result can later be held against its inputs: the files that it
opens, the folders that it lists, the modules that it has loaded.

Python tells audit hooks (PEP 578) of every file that is opened through it, by whichever module.
Files that compiled code opens by itself, as polars does, are not seen.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import sys
import sysconfig
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from loomnet.base.rank_reads import LISTED, OPENED, WRITTEN
from loomnet.processes.invoking_user import rights_of, writer_of

MOST = 100_000  # files of one run; a run that reads more is not followed
ABSENT = "absent"  # was looked for and not there
LARGE = 256 << 20  # bytes; of a larger file size and time of change stand for its content
UNKNOWN = "unknown"  # changed while the run read it, or cannot be read: equal to nothing
SCENARIO, CWD = "<scenario>/", "<cwd>/"  # how the names of files begin that lie in these folders

# Raised by loomnet.base.reading.is_file: whether a file is there may decide what is read.
LOOKED = "loomnet.looked"
_EVENTS = frozenset({"open", "os.listdir", "os.scandir", LOOKED})
_WRITING = os.O_WRONLY | os.O_RDWR
_PIECE = 1 << 20
_PACKAGE = Path(__file__).parents[1]
# Its files are named from a folder's descriptor, which an audit event does not tell.
_FOLDER_FILE = str(Path(__file__).with_name("folder.py"))
_SYSTEM = (
    "/proc",
    "/sys",
    "/dev",
    "/etc",
    "/usr/lib",
    "/usr/lib64",
    "/usr/share",
    "/usr/bin",
    "/lib",
    "/lib64",
    "/bin",
    "/sbin",
    "/run",
)
_STARTED = time.time()

Stamp = tuple[int, int, int]  # inode, size, time of change


class Inputs:
    """Notes, while it is entered, what this thread reads, and what threads read that start
    meanwhile.

    Args:
        scenario: the folder of the scenario's file, which inputs are named from.
    """

    def __init__(self, scenario: Path | None = None) -> None:
        self.scenario, self._cwd = scenario, _cwd()
        self._own: tuple[str, ...] = ()
        self._seen: dict[str, Stamp | None] = {}  # path as opened first; None: nothing was there
        self._listed: dict[str, str] = {}
        self._written: set[str] = set()
        self._missed: set[str] = set()
        self._digests: dict[str, str] = {}  # known already
        self._others: set[threading.Thread] = set()

    def __enter__(self) -> Inputs:
        _listen()
        self._others = set(threading.enumerate()) - {threading.current_thread()}
        _listeners.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _listeners.remove(self)

    def know(self, digests: Mapping[str, str]) -> None:
        """Takes digests of module files by path, as the files were when they were loaded."""
        self._digests.update(digests)

    def also(self, earlier: Inputs) -> None:
        """Counts what `earlier` has noted as read by this run too: the files that were read while
        the scenario was loaded."""
        self._seen = {**earlier._seen, **self._seen}
        self._listed = {**earlier._listed, **self._listed}

    def told(self, kind: str, path: str, stamp: Stamp | None) -> None:
        """Takes in what another process has done with a file: rank_reads has the kinds. `stamp`:
        as the file was before; None: it was not there."""
        if not os.path.isabs(path) or not self._counts(path):
            return
        if kind == LISTED:
            self._listed.setdefault(path, _listing(path))
        elif kind == WRITTEN and path not in self._seen:
            self._written.add(path)
        elif kind == OPENED and path not in self._written:
            self._seen.setdefault(path, stamp)

    def miss(self, what: str) -> None:
        """Notes that `what`, such as "rank 1", may have read files that could not be noted. A kept
        result with such a note is never taken for up to date."""
        self._missed.add(what)

    def changed(self) -> bool:
        """Whether a file that was read is not as it was then."""
        return any(
            stamp_of(path) != stamp
            for path, stamp in self._seen.items()
            if path not in self._written
        )

    def found(self, own: Iterable[Path] = ()) -> dict[str, str]:
        """The digest of each input by its name; files that the run has written, and those in
        folders of its `own`, are none."""
        self._own += tuple(_under(each) for each in own)
        found: dict[str, str] = {}
        for path, listing in self._listed.items():
            found[path] = listing
        for path, stamp in self._seen.items():
            if path not in self._written and path not in found:
                found[path] = _digest_if(path, stamp)
        found = {path: digest for path, digest in found.items() if self._counts(path)}
        found = {
            **{path: _module_digest(path) for path in _loaded_files() if self._counts(path)},
            **found,
        }
        found |= {path: digest for path, digest in self._digests.items() if self._counts(path)}
        if len(found) > MOST:
            return {f"more than {MOST:,} files": UNKNOWN}
        return {
            **dict.fromkeys(sorted(self._missed), UNKNOWN),
            **{self._name(path): found[path] for path in sorted(found)},
        }

    # --- events -----------------------------------------------------------------------------------
    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Takes in an audit event of this process."""
        if len(self._seen) > MOST or threading.current_thread() in self._others:
            return
        path = arguments[0]
        if path is None and event in ("os.listdir", "os.scandir"):
            path = "."
        if not isinstance(path, (str, bytes, os.PathLike)):
            return  # a descriptor
        text = os.path.abspath(os.fsdecode(path))
        if not self._counts(text):
            return
        if event == "open":
            flags = arguments[2]
            if isinstance(flags, int) and flags & _WRITING:
                if text not in self._seen:
                    self._written.add(text)
            elif text not in self._seen and text not in self._written:
                self._seen[text] = stamp_of(text)
        elif event == LOOKED:
            if text not in self._seen and text not in self._written and not os.path.lexists(text):
                self._seen[text] = None
        elif text not in self._listed:
            self._listed[text] = _listing(text)

    def _counts(self, path: str) -> bool:
        """Whether the path may be an input: neither Python's or Loomnet's own nor of the run."""
        if path.endswith((".pyc", "/__pycache__")):
            return False
        path = f"{path}/"  # a folder of the system's is one too
        if path.startswith(self._own):
            return False
        home = "" if self.scenario is None else _under(self.scenario)
        for root in _system_roots():
            if path.startswith(root) and not (home.startswith(root) and path.startswith(home)):
                return False
        return True

    def _name(self, path: str) -> str:
        for mark, folder in ((SCENARIO, self.scenario), (CWD, self._cwd)):
            if folder is not None and path.startswith(_under(folder)):
                return mark + path[len(_under(folder)) :]
        return path


class Unchanged:
    """Says of inputs that were found earlier what is not as it was. Reads each file once.

    Args:
        scenario: the folder of the scenario's file now.
    """

    def __init__(self, scenario: Path | None = None) -> None:
        self._folders = ((SCENARIO, scenario), (CWD, _cwd()))
        self._now: dict[tuple[str, bool], str] = {}

    def changed(self, inputs: Mapping[str, str]) -> list[str]:
        """Names of inputs that differ, are gone, or were not there before."""
        return [
            name
            for name, before in inputs.items()
            if before == UNKNOWN or self._digest(name, before.startswith("list:")) != before
        ]

    def _digest(self, name: str, listed: bool) -> str:
        if (name, listed) not in self._now:
            path = name
            for mark, folder in self._folders:
                if name.startswith(mark) and folder is not None:
                    path = os.path.join(folder, name[len(mark) :])
            self._now[name, listed] = _listing(path) if listed else digest(path)
        return self._now[name, listed]


# --- the audit hook: one for the process, since Python cannot remove it ---------------------------
_listeners: list[Inputs] = []
_hooked = False
_here = threading.local()


def listening() -> tuple[Inputs, ...]:
    """The Inputs objects that are entered now."""
    return tuple(_listeners)


@contextlib.contextmanager
def unheard() -> Iterator[None]:
    """Files that this thread reads inside are not noted as inputs."""
    _here.unheard = True
    try:
        yield
    finally:
        _here.unheard = False


def _listen() -> None:
    global _hooked
    if not _hooked:
        _hooked = True
        sys.addaudithook(_hear)


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in _EVENTS or not _listeners:
        return
    if getattr(_here, "unheard", False):
        return
    caller = sys._getframe(1).f_code.co_filename
    # Python's import lists folders to find modules. The loaded modules tell which files it read.
    if caller in (_FOLDER_FILE, __file__) or caller.startswith("<frozen importlib"):
        return
    try:
        for each in list(_listeners):
            each.hear(event, arguments)
    except (OSError, ValueError):
        pass  # no file can have such a name, and the call that opens it fails by itself


# --- digests --------------------------------------------------------------------------------------
_digests: dict[tuple[str, Stamp], str] = {}
_modules: dict[str, str] = {}  # of files of modules, as this process first saw them


def digest(path: str) -> str:
    """Of a file's content, read with the rights of the run's user. ABSENT, or UNKNOWN for what is
    no plain file."""
    stamp = stamp_of(path)
    if stamp is None:
        return ABSENT
    if (path, stamp) not in _digests:
        _digests[path, stamp] = (
            _read(path) if stamp[1] <= LARGE else f"{stamp[1]} bytes of {stamp[2]} ns"
        )
    return _digests[path, stamp]


def _read(path: str) -> str:
    made = hashlib.sha256()
    try:
        with rights_of(writer_of(Path(path))):
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return UNKNOWN
            while piece := file.read(_PIECE):
                made.update(piece)
    except OSError:
        return UNKNOWN
    return made.hexdigest()


def _digest_if(path: str, stamp: Stamp | None) -> str:
    """The digest of a file that has not changed since it was seen with this stamp."""
    if stamp_of(path) != stamp:
        return UNKNOWN
    return ABSENT if stamp is None else digest(path)


def _module_digest(path: str) -> str:
    """Of a module's file, as it was when the module was loaded, as far as that can be told."""
    if path not in _modules:
        with_time = stamp_of(path)
        newer = with_time is not None and with_time[2] > _STARTED * 1e9
        _modules[path] = UNKNOWN if newer else digest(path)
    return _modules[path]


def _listing(path: str) -> str:
    """Of the names in a folder; those that begin with a dot are left out."""
    try:
        names = sorted(
            each for each in os.listdir(path) if not each.startswith(".") and each != "__pycache__"
        )
    except OSError:
        return ABSENT
    text = "\0".join(names).encode(errors="surrogateescape")
    return f"list:{hashlib.sha256(text).hexdigest()}"


def stamp_of(path: str) -> Stamp | None:
    """Of a file as it is now; None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _loaded_files() -> set[str]:
    """Files of the modules of this process, but for the program that started it, and scenarios,
    which are read by another way."""
    found = set()
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        program = name in ("__main__", "__mp_main__") or name.startswith("loomnet_scenario_")
        if not program and isinstance(file, str) and os.path.isabs(file):
            found.add(os.path.abspath(file))
    return found


_roots: tuple[str, ...] = ()


def _system_roots() -> tuple[str, ...]:
    """Folders of Python, of what is installed in it, of Loomnet, and of the machine."""
    global _roots
    if not _roots:
        paths = [
            sys.prefix,
            sys.base_prefix,
            *(sysconfig.get_path(each) for each in ("stdlib", "platstdlib", "purelib", "platlib")),
        ]
        paths += [os.path.realpath(each) for each in paths]
        kept = {
            each
            for each in (*map(os.path.abspath, paths), *_SYSTEM, str(_PACKAGE))
            if each not in ("/", "/usr")
        }
        _roots = tuple(map(_under, sorted(kept)))
    return _roots


def _under(folder: str | Path) -> str:
    return f"{os.path.abspath(folder).rstrip('/')}/"


def _cwd() -> Path | None:
    try:
        return Path.cwd()
    except OSError:  # it has been removed
        return None


# --- Loomnet itself -------------------------------------------------------------------------------
_build: str | None = None


def build() -> str:
    """A digest of all of the package's own files, its compiled part included: two builds of one
    version differ in it."""
    global _build
    if _build is None:
        from importlib.util import find_spec

        made = hashlib.sha256()
        # Plain calls: this is most of what a short run spends on its environment.json.
        for folder, folders, files in os.walk(_PACKAGE):
            folders[:] = sorted(each for each in folders if each != "__pycache__")
            for name in sorted(each for each in files if not each.endswith(".so")):
                path = os.path.join(folder, name)
                try:
                    with open(path, "rb", buffering=0) as file:
                        content = file.read()
                except OSError:  # an editor's lock, or gone meanwhile
                    content = UNKNOWN.encode()
                made.update(f"{path[len(str(_PACKAGE)) :]}\0{len(content)}\n".encode())
                made.update(content)
        compiled = find_spec("loomnet._core")
        if compiled is not None and compiled.origin is not None:
            made.update(_build_id(Path(compiled.origin)))
        _build = made.hexdigest()[:16]
    return _build


# A note of the linker's (ELF): sizes of name and text, the type of a build id, the name.
_NOTE = re.compile(rb"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0(.{20})", re.DOTALL)


def _build_id(library: Path) -> bytes:
    """What the linker made of all of a library's content; a digest of it where there is no such."""
    with library.open("rb") as file:
        found = _NOTE.search(file.read(4096))
    return found[1] if found is not None else _read(str(library)).encode()
