"""A switch program in one C file: where the file is, who compiles it, and whether this process may
run it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path

from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean, quoted
from loomnet.base.reading import is_file, other_than_a_file, read_owned, user_path
from loomnet.processes.invoking_user import RankUser, rights_of
from loomnet.programs.compiler import ENGINE, KERNEL, compiled
from loomnet.programs.contract import Broken, Facts, facts_of
from loomnet.programs.object_symbols import refusal_of

MOST_SOURCE = 1 << 20  # bytes of a C file
FUNCTION = "ln_on_packet"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,80}\.c")
_INCLUDE = re.compile(rb'^\s*#\s*include\s*[<"]loomnet/switch_program\.h[>"]', re.MULTILINE)
_COMMENT = re.compile(rb"/\*.*?\*/|//[^\n]*", re.DOTALL)
_END_OF_LOG = "-- END PROG LOAD LOG --"
# Lines of a verifier's log that are no message: instructions, registers, source, counts.
_STATE = re.compile(
    r"\d+: |;|R\d|from \d|processed \d|stack depth|verification time|max_states|"
    r"-- BEGIN|libbpf:|last_idx|regs=|parent|mark_precise"
)
_PACKAGE = str(Path(__file__).parents[1]) + os.sep
# Folders in which a scenario's files are looked for while it runs, beside the folder of the file
# that names one.
_homes: ContextVar[tuple[Path, ...]] = ContextVar("homes", default=())


@dataclass(frozen=True)
class CFile:
    """`name`: as fabrics, plans and the engine call the program: the file's, and the first digits
    of `digest`, the SHA-256 of its text. `path`: absolute; `given`: as the scenario wrote it.
    `user`: who compiles it; `refusal`: why this process does not run its code, or nothing."""

    name: str
    path: Path
    given: str
    digest: str
    source: bytes = field(repr=False)
    user: RankUser
    refusal: str
    facts: Facts
    object: Path | None  # the engine's build, where a cache keeps it


_known: dict[str, CFile] = {}
_for_kernel: set[str] = set()


def known(program: str) -> CFile | None:
    """The C file of a fabric's program; None for one of Loomnet's own."""
    return _known.get(program)


def notes_of(programs: Iterable[str]) -> dict[str, str]:
    """What a report says of the C files among a fabric's programs: the hash of each file's text."""
    return {
        f"switch program {each.name}": f"SHA-256 {each.digest}"
        for each in map(known, sorted(set(programs)))
        if each is not None
    }


@contextlib.contextmanager
def homes(*folders: Path | None) -> Iterator[None]:
    """Inside, files are looked for in these folders too, in their order."""
    token = _homes.set(tuple(filter(None, folders)))
    try:
        yield
    finally:
        _homes.reset(token)


def c_program(where: str, given: str) -> CFile:
    """Compiles a C file, where it has not been, and makes it known to the engine. Raises UsageError
    in one line for a file that is not there, does not compile or does not keep the contract."""
    path = _located(where, given)
    shown = _shown(path)
    if not _NAME.fullmatch(path.name):
        raise UsageError(
            f"{where}: {quoted(path.name)} is no name for a program: letters, digits, "
            "_ . + - and .c at the end"
        )
    source, user, refusal = _read(path, shown)
    digest = hashlib.sha256(source).hexdigest()
    name = f"{path.name}@{digest[:12]}"
    made = _known.get(name)
    if made is None or made.refusal != refusal:
        made = _made(name, path, given, shown, source, digest, user, refusal)
    # The same text may lie in several places: a run's copy goes by the last that was named.
    _known[name] = replace(made, path=path, given=given)
    return _known[name]


def needs_kernel(program: CFile) -> None:
    """Compiles it for the kernel and hands the object to the engine; the kernel's verifier checks
    it when a switch loads it. Raises UsageError, UnavailableError."""
    import loomnet._core as _core

    if program.name in _for_kernel:
        return
    shown = _shown(program.path)
    data, _ = compiled(KERNEL, program.source, shown, program.user)
    if _facts(data, shown) != program.facts:
        raise UsageError(
            f"{shown}: its builds for the engine and for the kernel differ in "
            "counters, options or state; leave #ifdef out of its LN_ macros"
        )
    _core.set_switch_object(program.name, data)
    # Others than root, and builds without the live part, are told of that first.
    if os.geteuid() == 0 and hasattr(_core, "try_switch_program"):
        _try(program.name, shown)
    _for_kernel.add(program.name)


def _try(name: str, shown: str) -> None:
    """Lets the kernel's verifier check a program. Raises UsageError."""
    import loomnet._core as _core

    try:
        log = _core.try_switch_program(name)
    except ValueError as error:
        raise UsageError(f"{shown}: {error}") from None
    if (why := verifier_refusal(log)) is not None:
        raise UsageError(f"{shown}: {why}")


def verifier_refusal(log: str) -> str | None:
    """Why the kernel's verifier refuses a program, as a line; None where the text holds no such
    log."""
    if _END_OF_LOG not in log:
        return None
    return (
        f"the kernel's verifier refuses it: {_verifier_said(log)}; docs/switch-programs.md "
        "lists its rules"
    )


def _verifier_said(log: str) -> str:
    """What a verifier's log ends with: why it goes no further, and the source line it was at."""
    lines = [line.strip() for line in log.partition(_END_OF_LOG)[0].splitlines()]
    said = [line for line in lines if line and not _STATE.match(line)]
    at = [line.lstrip("; @") for line in lines if line.startswith(";")]
    # Rather the line of the file that calls a function of a header than that function's.
    at = [line for line in at if re.search(r"@ [^/]*\.c:\d+$", line)] or at
    return " at ".join([*said[-1:], *at[-1:]]) or "it says nothing"


def needs_engine(program: CFile) -> None:
    """Raises UsageError where this process does not run the program's code itself."""
    if program.refusal:
        raise UsageError(program.refusal)


def fault_text(said: str) -> str:
    """The message of _core.ProgramFault, with the line of the C file where a tool knows it."""
    text, sign, place = said.rpartition(" [")
    name, _, offset = place.removesuffix("]").rpartition("+")
    program = _known.get(name) if sign else None
    if program is None:
        return said
    tool = shutil.which("addr2line")
    if tool is not None and program.object is not None:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run(
                [tool, "-i", "-e", program.object, offset],
                capture_output=True,
                text=True,
                timeout=10,
                check=True,
            )
            # Where the code is the header's, inlined, the line of the file's that calls it.
            for row in done.stdout.splitlines():
                file, _, line = row.split(" ")[0].strip().rpartition(":")
                if os.path.basename(file) == program.path.name and line.isdecimal():
                    shown = text.partition(": ")[0]
                    return f"{shown}:{line}{text.removeprefix(shown)}"
    return text


# --- the file ------------------------------------------------------------------------------------
def _located(where: str, given: str) -> Path:
    path = user_path(where, given)
    folders = (
        [Path("/")]
        if path.is_absolute()
        else list(dict.fromkeys([*_callers_folder(), *_homes.get(), Path.cwd()]))
    )
    with rights_of(RankUser.invoking()):
        for folder in folders:
            if (other := other_than_a_file(folder / path)) is not None:
                raise UsageError(f"{where}: {folder / path} is {other}")
            if is_file(folder / path):
                return Path(os.path.abspath(folder / path))
            if os.path.islink(folder / path):
                raise UsageError(
                    f"{where}: {folder / path} is a link to "
                    f"{quoted(os.readlink(folder / path))}, and no file is there"
                )
        near = (
            [str(each.name) for folder in folders for each in folder.glob("*.c")]
            if not path.is_absolute()
            else []
        )
    tried = "" if path.is_absolute() else f" in {' or '.join(map(str, folders))}"
    raise UsageError(f"{where}: no file {given}{tried}{did_you_mean(path.name, near)}")


def _callers_folder() -> list[Path]:
    """The folder of the user's file that names the program; none in a notebook."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    file = None if frame is None else frame.f_globals.get("__file__")
    return [Path(file).absolute().parent] if isinstance(file, str) else []


def _shown(path: Path) -> str:
    """The path as messages name it: from the working folder, where it is below."""
    with contextlib.suppress(ValueError, OSError):
        return str(path.relative_to(Path.cwd()))
    return str(path)


def _read(path: Path, shown: str) -> tuple[bytes, RankUser, str]:
    """The file's text, who compiles it, and why root does not run its code, or nothing. It is
    opened with the rights of the user behind sudo: root follows no path for another user."""
    invoking = RankUser.invoking()
    with rights_of(invoking):
        source, owner = read_owned(path, MOST_SOURCE)
    user, whose = invoking, invoking.name or invoking.uid
    if os.geteuid() == 0 and invoking.uid is None:
        if owner.st_uid != 0:
            user = RankUser.of(owner.st_uid)
            whose = user.name or user.uid
        elif owner.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            whose = "others, who may write it"
    refusal = (
        ""
        if whose is None
        else (
            f"{shown}: root does not run the code of "
            f"{'user ' if user.uid is not None else ''}{whose} in a process of its own, as the "
            "virtual clock and switches placed in the engine would; "
            "run it on the virtual clock without sudo, or live with its switches in the kernel"
        )
    )
    return source, user, refusal


# --- the program ---------------------------------------------------------------------------------
def _made(
    name: str,
    path: Path,
    given: str,
    shown: str,
    source: bytes,
    digest: str,
    user: RankUser,
    refusal: str,
) -> CFile:
    import loomnet._core as _core

    code = _COMMENT.sub(b" ", source)
    if not _INCLUDE.search(code):
        raise UsageError(
            f"{shown}: it does not say #include <loomnet/switch_program.h>, which "
            "must stand behind its #define lines"
        )
    if not re.search(rb"\b%b\s*\(" % FUNCTION.encode(), code):
        raise UsageError(
            f"{shown}: it has no function {FUNCTION}, which decides about a packet; "
            "`loomnet new --switch NAME` writes a program that has one"
        )
    data, kept = compiled(ENGINE, source, shown, user)
    facts = _facts(data, shown)
    if refused := refusal_of(data, source):
        raise UsageError(f"{shown}{refused}")
    with contextlib.ExitStack() as stack:
        loaded = None if refusal else str(kept or _temporary(stack, data))
        try:
            _core.load_switch_program(
                name,
                file=shown,
                summary=facts.summary,
                counters=list(facts.counters),
                options=[
                    (each.name, each.unit, each.fallback, each.least, each.most)
                    for each in facts.options
                ],
                fields=[(each.name, each.offset, each.bytes, each.number) for each in facts.fields],
                rows=facts.rows,
                row_bytes=facts.row_bytes,
                payload_at=facts.payload_at,
                payload_bytes=facts.payload_bytes,
                object=loaded,
                refusal=refusal,
            )
        except ValueError as error:
            raise UsageError(str(error)) from None
    return CFile(name, path, given, digest, source, user, refusal, facts, kept)


def _facts(data: bytes, shown: str) -> Facts:
    try:
        return facts_of(data)
    except Broken as error:
        raise UsageError(
            f"{shown} {error}"
            if str(error).startswith(("is ", "says ", "includes "))
            else f"{shown}: {error}"
        ) from None


def _temporary(stack: contextlib.ExitStack, data: bytes) -> str:
    """A file to load from, where no cache keeps the object."""
    import tempfile

    file = stack.enter_context(tempfile.NamedTemporaryFile(prefix="loomnet-program-", suffix=".so"))
    file.write(data)
    file.flush()
    return file.name
