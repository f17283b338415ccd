"""Who owns what: each live run holds a locked journal of the kernel objects it made.

The lock is an ``flock``, so the kernel drops it with the process, however that dies. What a dead
run left behind is found three ways: by its journal, by its name prefix (every interface and bridge
of run ``k3f9`` begins with ``lnk3f9``) and by ``LOOMNET_RUN=k3f9`` in a process's environment.
Nothing else is ever touched.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import signal
import stat
import time
from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loomnet.base.errors import UnavailableError
from loomnet.base.rank_environment import RUN

_ALPHABET = "0123456789abcdefghijkmnpqrstuvwxyz"  # without l and o, which read as 1 and 0
_ID_LENGTH = 4
_ID = re.compile(f"[{_ALPHABET}]{{{_ID_LENGTH}}}")
_IFNAMSIZ = 15
_MOST_JOURNAL = 64 << 20  # bytes; a row of a run's journal has about a hundred


def state_directory() -> Path:
    """The directory of run journals: ``/run/loomnet`` for root, else the first that is the user's
    own and can be written: in the runtime directory (which after `su` is another user's), in
    ``/tmp`` (where another user may have taken the name), in the home directory.

    Raises:
        UnavailableError: there is none.
    """
    if os.geteuid() == 0:
        candidates = [Path("/run/loomnet")]
    else:
        runtime, home = os.environ.get("XDG_RUNTIME_DIR"), os.path.expanduser("~")
        candidates = [Path(runtime) / "loomnet"] if runtime else []
        candidates.append(Path(f"/tmp/loomnet-{os.geteuid()}"))
        if os.path.isabs(home):
            candidates.append(
                Path(os.environ.get("XDG_STATE_HOME") or f"{home}/.local/state") / "loomnet"
            )
    refusals = []
    for base in candidates:
        try:
            base.mkdir(mode=0o755 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
            status = base.lstat()
            if status.st_uid == os.geteuid() and stat.S_ISDIR(status.st_mode):
                if os.access(base, os.W_OK | os.X_OK):
                    return base
                refusals.append(f"{base}: cannot be written")
            else:
                refusals.append(f"{base}: is not a folder of user {os.geteuid()}")
        except (OSError, ValueError) as error:
            refusals.append(f"{base}: {getattr(error, 'strerror', None) or error}")
    mend = "" if os.geteuid() == 0 else "; set XDG_RUNTIME_DIR to a folder of your own"
    raise UnavailableError(f"no folder for the journals of runs: {'; '.join(refusals)}{mend}")


def process_start(pid: int) -> int | None:
    """Clock ticks after boot at which `pid` started, or None if there is no such process.

    With the pid it names a process for good: pids are used again, the pair is not.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else int(fields[19])


class RunLock:
    """A run's identity and its journal. Use as a context manager, or call :meth:`release`.

    Attributes:
        run_id: four characters, unique among the journals of this machine's user.
        prefix: ``ln`` + run id: how every interface and bridge of the run begins.
        path: the journal, one JSON object per line; open and flocked as long as the run lives.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self.directory, self._kept = directory or state_directory(), False
        runs = self.directory / "runs"
        try:
            self._begin(runs)
        except OSError as error:
            raise UnavailableError(
                f"cannot keep a run's journal in {runs}: {error.strerror}; mend that folder"
            ) from None

    def _begin(self, runs: Path) -> None:
        runs.mkdir(mode=0o755, exist_ok=True)
        while True:
            self.run_id = "".join(secrets.choice(_ALPHABET) for _ in range(_ID_LENGTH))
            self.path = runs / f"{self.run_id}.jsonl"
            # Non-inheritable (the default): a child that kept it would keep a dead run alive.
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
            try:
                # Another user that could open it could lock it, too.
                self._fd = os.open(self.path, flags, 0o600)
            except FileExistsError:
                continue
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _same_file(self._fd, self.path):
                    break
            except BlockingIOError:
                pass  # A cleaner looked between open and lock; it removes the empty journal.
            os.close(self._fd)
        self.prefix = f"ln{self.run_id}"
        pid = os.getpid()
        self.record("run", pid=pid, start=process_start(pid), wall=time.time())

    def name(self, suffix: str) -> str:
        """An interface or bridge name of this run: at most 15 characters, else ValueError."""
        name = self.prefix + suffix
        if len(name) > _IFNAMSIZ:
            raise ValueError(f"{name!r} is longer than the {_IFNAMSIZ} characters Linux allows")
        return name

    def record(self, kind: str, **values: object) -> None:
        """Append one row, before the thing it names is made, so that no crash can hide it."""
        os.write(self._fd, (json.dumps({"kind": kind, **values}) + "\n").encode())

    def environment(self) -> dict[str, str]:
        """The mark every process of the run carries."""
        return {RUN: self.run_id}

    def keep(self) -> None:
        """The run could not put everything away: its journal stays, and it counts as dead."""
        self._kept = True

    def release(self) -> None:
        """The run has put everything away: remove the journal. Idempotent."""
        if self._fd >= 0:
            if not self._kept:
                self.path.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> RunLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


@dataclass
class DeadRun:
    """A run whose process is gone: its journal's rows, and the lock that this cleaner now holds."""

    run_id: str
    path: Path
    rows: list[dict[str, object]]
    fd: int = field(repr=False)

    @property
    def prefix(self) -> str:
        return f"ln{self.run_id}"


def dead_runs(directory: Path | None = None) -> Iterator[DeadRun]:
    """Yields each dead run with its lock held; runs that live are skipped, and files that are no
    run's journal."""
    for path in sorted((directory or state_directory()).glob("runs/*.jsonl")):
        if not _ID.fullmatch(path.stem):
            continue
        try:
            fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            continue  # gone meanwhile, or no journal: a folder, a link
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _same_file(fd, path):
                continue
            rows = journal_rows(fd)
            if not _is_journal(fd, rows):
                continue
            yield DeadRun(path.stem, path, rows, fd)
        except BlockingIOError:
            continue
        finally:
            os.close(fd)


def _is_journal(fd: int, rows: list[dict[str, Any]]) -> bool:
    """Whether a run has written it: its first row says so, and a run that died at once has left an
    empty file."""
    found = os.fstat(fd)
    return stat.S_ISREG(found.st_mode) and (
        rows[0].get("kind") == "run" if rows else found.st_size == 0
    )


def journal_rows(fd: int) -> list[dict[str, Any]]:
    """The rows of a journal; nothing of a file that is none."""
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        return []
    rows = []
    for line in os.pread(fd, _MOST_JOURNAL, 0).decode(errors="replace").splitlines():
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue  # The last line of a run that died while it wrote.
        if isinstance(row, dict):
            rows.append(row)
    return rows


def processes_of(run: DeadRun) -> Iterator[tuple[int, int]]:
    """(pid, start) of every process of a dead run, journalled or marked in its environment."""
    seen = set()
    for row in run.rows:
        pid, start = row.get("pid"), row.get("start")
        if row.get("kind") == "process" and isinstance(pid, int) and isinstance(start, int):
            if process_start(pid) == start:
                seen.add(pid)
                yield pid, start
    yield from ((pid, start) for pid, start in marked(run.run_id) if pid not in seen)


def marked(run_id: str) -> list[tuple[int, int]]:
    """(pid, start) of each process that carries a run's mark; the caller itself is left out."""
    mark = f"{RUN}={run_id}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            here = mark in (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # Gone meanwhile, or another user's.
        if here and (start := process_start(int(entry.name))) is not None:
            found.append((int(entry.name), start))
    return found


def kill_marked(run_id: str, *, keep: Set[int] = frozenset()) -> list[int]:
    """SIGKILLs what carries a run's mark, except `keep`; waits until it is gone. Returns pids."""
    return end_processes([(pid, start) for pid, start in marked(run_id) if pid not in keep])


def end_processes(processes: list[tuple[int, int]]) -> list[int]:
    """SIGKILLs processes by pidfd, so that a pid used again is never hit; waits up to 2 s."""
    fds = []
    for pid, start in processes:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        if process_start(pid) == start:
            try:
                signal.pidfd_send_signal(fd, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
        fds.append((pid, start, fd))
    deadline = time.monotonic() + 2
    while any(process_start(p) == s for p, s, _ in fds) and time.monotonic() < deadline:
        time.sleep(0.005)
    for _, _, fd in fds:
        os.close(fd)
    return [pid for pid, start, _ in fds if process_start(pid) != start]


def _same_file(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False
