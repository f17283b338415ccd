"""Compilers of the system, run as the user whose file is compiled, on text that Loomnet has read:
the compiler itself opens no file of a user's."""

from __future__ import annotations

import codecs
import contextlib
import hashlib
import os
import platform
import re
import shutil
import signal
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from loomnet.base.errors import UnavailableError, UsageError
from loomnet.base.reading import read_bytes
from loomnet.processes.folder import Folder
from loomnet.processes.inputs import unheard
from loomnet.processes.invoking_user import RankUser, rights_of
from loomnet.programs.contract import CONTRACT

MOST_OBJECT = 16 << 20  # bytes of a compiled object
MOST_KEPT = 256  # objects in the cache
MOST_SECONDS = 60  # of one compilation
MOST_MEMORY = 2 << 30  # bytes of addresses of each of the compiler's processes
SHOWN_LINES = 3  # of what a compiler says
_ERRORS = (
    "implicit-function-declaration",
    "incompatible-pointer-types",
    "int-conversion",
    "return-type",
)
_COMMON = (
    "-x",
    "c",
    "-std=gnu11",
    "-O2",
    "-g",
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",
    "-Wno-unused-function",
    *(f"-Werror={each}" for each in _ERRORS),
    "-fdiagnostics-color=never",
)
# The same text must mean the same in both builds, whatever a newcomer casts to what.
_ENGINE = ("-fPIC", "-shared", "-fvisibility=hidden", "-fno-strict-aliasing", "-fwrapv")
_KERNEL = ("-target", "bpf", "-fno-strict-aliasing", "-fwrapv", "-c")


@dataclass(frozen=True)
class Build:
    """How one of the two builds is made. `compilers`: of which the first that is there is taken."""

    name: str
    compilers: tuple[str, ...]
    flags: tuple[str, ...]
    suffix: str
    link: tuple[str, ...] = ()
    missing: str = ""


ENGINE = Build(
    "engine",
    ("cc", "gcc", "clang"),
    _ENGINE,
    ".so",
    ("-Wl,-z,defs",),
    "there is no C compiler (cc, gcc or clang); on Debian and Ubuntu: apt install gcc libc6-dev",
)
KERNEL = Build(
    "kernel",
    ("clang", *(f"clang-{n}" for n in range(21, 13, -1))),
    _KERNEL,
    ".bpf.o",
    missing="there is no clang, which compiles for switches in the kernel; apt install "
    'clang libbpf-dev, or run the switches in memory: fabric.place("*", "engine")',
)


@cache
def headers() -> Path:
    """The folder that holds loomnet/switch_program.h."""
    import loomnet._core as _core

    return Path(_core.__file__).with_name("include")


def compiled(build: Build, source: bytes, shown: str, user: RankUser) -> tuple[bytes, Path | None]:
    """The object of a C source as bytes, and where the user's cache keeps it, None: nowhere.
    `shown`: the file, for messages. Raises UsageError with the compiler's first lines,
    UnavailableError."""
    compiler = next(filter(None, map(shutil.which, build.compilers)), None)
    if compiler is None:
        raise UnavailableError(f"{shown}: {build.missing}")
    with unheard():
        return _kept_or_made(build, compiler, source, shown, user)


def _kept_or_made(
    build: Build, compiler: str, source: bytes, shown: str, user: RankUser
) -> tuple[bytes, Path | None]:
    command = [*_COMMON, *build.flags]
    name = _digest(source, compiler, command) + build.suffix
    kept = _kept(user)
    if kept is not None:
        with contextlib.suppress(OSError):
            # What others may write is not loaded into this process.
            there = os.lstat(name, dir_fd=kept.fd)
            others = stat.S_IWGRP | stat.S_IWOTH
            ours = there.st_uid == os.geteuid() and not there.st_mode & others
            found = kept.read(name, MOST_OBJECT + 1) if ours else b""
            # A hash of its own at the end tells a file that was cut short.
            if found[-32:] == hashlib.sha256(found[:-32]).digest():
                return found[:-32], kept / name
    data = _run(compiler, command, build, source, shown, user)
    if kept is None:
        return data, None
    before = os.umask(0o077)
    try:
        kept.write(name, data + hashlib.sha256(data).digest())
        _prune(kept)
    except UsageError:
        return data, None
    finally:
        os.umask(before)
    return data, kept / name


def _includes(build: Build, folder: Path, user: RankUser) -> list[str]:
    """Where the compiler finds headers; another user may not read those of root's Python."""
    found = ["-I", str(headers())]
    if user.uid is not None:
        with rights_of(user):
            (folder / "include" / "loomnet").mkdir(parents=True)
        for header in _all_headers():
            text = header.read_bytes()
            with rights_of(user):
                (folder / "include" / "loomnet" / header.name).write_bytes(text)
        found = ["-I", str(folder / "include")]
    if build is KERNEL:
        # Where <asm/types.h> is that <linux/types.h> includes, which clang does not search for BPF.
        types = f"/usr/include/{platform.machine()}-linux-gnu"
        found += ["-idirafter", types] if os.path.isdir(types) else []
    return found


def _all_headers() -> list[Path]:
    return sorted((headers() / "loomnet").glob("*.h"))


def _digest(source: bytes, compiler: str, command: list[str]) -> str:
    """Of all that an object is made from."""
    made = hashlib.sha256(repr((CONTRACT, command, platform.machine())).encode())
    there = os.stat(compiler)
    made.update(repr((os.path.realpath(compiler), there.st_size, there.st_mtime_ns)).encode())
    for header in _all_headers():
        made.update(hashlib.sha256(header.read_bytes()).digest())
    made.update(source)
    return made.hexdigest()


def _kept(user: RankUser) -> Folder | None:
    """The cache of compiled programs of the user whose process this is; None where there can be
    none. Root keeps nothing for another user: that folder would be under the other's control."""
    if user.uid is not None:
        return None
    given, home = os.environ.get("XDG_CACHE_HOME"), os.environ.get("HOME")
    if given or home:
        with contextlib.suppress(UsageError):
            path = (Path(given) if given else Path(home or "/") / ".cache") / "loomnet" / "programs"
            return Folder.at(path)
    return None


def _prune(kept: Folder) -> None:
    """Leaves the newest."""
    with kept.rights(), contextlib.suppress(OSError):
        found = sorted(
            (os.lstat(name, dir_fd=kept.fd).st_mtime_ns, name) for name in os.listdir(kept.fd)
        )
        for _, name in found[:-MOST_KEPT]:
            os.unlink(name, dir_fd=kept.fd)


def _run(
    compiler: str, command: list[str], build: Build, source: bytes, shown: str, user: RankUser
) -> bytes:
    with rights_of(user):
        folder = Path(tempfile.mkdtemp(prefix="loomnet-program-"))
    try:
        # The compiler reads the text from its input, and calls it by the user's name for it.
        name = shown.replace("\\", "\\\\").replace('"', '\\"')
        # Some editors put a byte order mark first, which is no C.
        text = f'#line 1 "{name}"\n'.encode() + source.removeprefix(codecs.BOM_UTF8)
        out = folder / ("object" + build.suffix)
        # No name of the folder in the object: the same text gives the same bytes.
        status, said = _answer(
            [
                compiler,
                *command,
                f"-fdebug-prefix-map={folder}=.",
                *_includes(build, folder, user),
                "-o",
                str(out),
                "-",
                *build.link,
            ],
            text,
            folder,
            user,
            shown,
        )
        if status != 0:
            raise UsageError(
                f"{shown}: the C compiler refuses it: {_first_lines(said, folder)}"
                f"{_why_missing(said)}"
            )
        with rights_of(user):
            return read_bytes(out, MOST_OBJECT)
    except OSError as error:
        raise UsageError(f"{shown}: cannot run {compiler}: {error}") from None
    finally:
        with rights_of(user):
            shutil.rmtree(folder, ignore_errors=True)


def _answer(
    command: list[str], text: bytes, folder: Path, user: RankUser, shown: str
) -> tuple[int, str]:
    """Exit status and messages of a compiler that runs as the user, in a folder of its own."""
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "LC_ALL": "C",
        "HOME": user.home or os.environ.get("HOME", "/"),
        "TMPDIR": str(folder),
    }
    # What a file includes may have no end, as a device has none.
    bounded = ["/bin/sh", "-c", f'ulimit -v {MOST_MEMORY >> 10} && exec "$@"', "sh", *command]
    process = subprocess.Popen(
        bounded,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=folder,
        env=environment,
        start_new_session=True,
        user=user.uid,
        group=user.gid,
        extra_groups=None if user.uid is None else user.groups,
    )
    try:
        _, said = process.communicate(text, timeout=MOST_SECONDS)
    except subprocess.TimeoutExpired:
        raise UsageError(f"{shown}: the C compiler has not ended after {MOST_SECONDS} s") from None
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return process.returncode, said.decode(errors="replace")


def _why_missing(said: str) -> str:
    """Of a header that the compiler does not find, though it may lie beside the file."""
    found = re.search(r"fatal error: '?([^':\n]+)'?(?: file not found|: No such file)", said)
    return (
        ""
        if found is None
        else (
            "; a switch program is one file, which is compiled by its text alone: put what it "
            f"needs of {found[1]} into it"
        )
    )


def _first_lines(said: str, folder: Path) -> str:
    """The compiler's first errors, as a line."""
    lines = [line.strip() for line in said.replace(f"{folder}/", "").splitlines()]
    errors = []
    inlined = ""  # where the file calls what is wrong in a function of the header
    for line in lines:
        if line.startswith("inlined from") and " at " in line:
            inlined = inlined or line.rpartition(" at ")[2].rstrip(":,")
        elif "error:" in line or "undefined reference" in line:
            errors.append(
                f"{inlined}: {line[line.index('error:') :]}"
                if inlined and "error:" in line
                else line
            )
            inlined = ""
    found = (errors or [line for line in lines if line])[:SHOWN_LINES]
    return "; ".join(found) or "it says nothing"
