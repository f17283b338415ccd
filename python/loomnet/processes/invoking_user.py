"""The user behind sudo, and files with that user's rights and no other."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import pwd
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_GET_PDEATHSIG, _PR_GET_DUMPABLE, _PR_SET_DUMPABLE = 1, 2, 3, 4
_UNCHANGED = -1  # setfsuid and setfsgid change nothing for an id that cannot be, and tell the old
# System call setgroups, which changes this thread alone; the C library's changes all threads.
_SETGROUPS = {"x86_64": 116, "aarch64": 159, "riscv64": 159}


@dataclass(frozen=True)
class RankUser:
    """A user that ranks run as, and that the run's files belong to. `uid` None: as the run itself
    (an unprivileged run, or plain root)."""

    uid: int | None = None
    gid: int | None = None
    home: str | None = None
    name: str | None = None
    groups: tuple[int, ...] = ()

    @classmethod
    def invoking(cls) -> RankUser:
        """The user behind sudo, else the caller."""
        uid = os.environ.get("SUDO_UID", "")
        if os.geteuid() != 0 or not uid.isdecimal() or int(uid) == 0:
            return cls()
        gid = os.environ.get("SUDO_GID", "")
        return cls.of(int(uid), int(gid) if gid.isdecimal() else None)

    @classmethod
    def of(cls, uid: int, gid: int | None = None) -> RankUser:
        """User `uid` with its own groups; also one that the password database does not know."""
        try:
            entry = pwd.getpwuid(uid)
        except (KeyError, OverflowError):
            gid = uid if gid is None else gid
            return cls(uid, gid, "/", str(uid), (gid,))
        gid = entry.pw_gid if gid is None else gid
        groups = tuple(os.getgrouplist(entry.pw_name, gid))
        return cls(uid, gid, entry.pw_dir, entry.pw_name, groups)


@contextlib.contextmanager
def rights_of(user: RankUser) -> Iterator[None]:
    """Inside, this thread finds, opens, makes and removes files with the user's rights, and files
    that it makes belong to the user.

    The kernel checks files against a thread's file system ids alone (setfsuid(2)); the thread stays
    root in everything else, so the user can neither signal nor trace it. A thread started inside
    keeps the user's rights.
    """
    if user.uid is None or user.gid is None:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    # A change of these ids clears the signal for the parent's death, and makes core dumps root's.
    signal_at_end = ctypes.c_int()
    libc.prctl(_PR_GET_PDEATHSIG, ctypes.byref(signal_at_end), 0, 0, 0)
    dumpable = libc.prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0)
    before = os.getgroups()
    uid, gid = libc.setfsuid(_UNCHANGED), libc.setfsgid(_UNCHANGED)
    try:
        _set(libc, user.uid, user.gid, user.groups)
        yield
    finally:
        _set(libc, uid, gid, before)
        libc.prctl(_PR_SET_PDEATHSIG, signal_at_end.value, 0, 0, 0)
        if dumpable == 1:
            libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


def _set(libc: ctypes.CDLL, uid: int, gid: int, groups: tuple[int, ...] | list[int]) -> None:
    """Raises PermissionError where the kernel refused: nothing may go on with other rights."""
    if number := _SETGROUPS.get(platform.machine()):
        listed = (ctypes.c_uint32 * len(groups))(*groups)
        if libc.syscall(number, len(groups), listed) != 0:
            code = ctypes.get_errno()
            raise OSError(code, f"setgroups: {os.strerror(code)}")
    else:
        os.setgroups(groups)
    libc.setfsgid(gid)
    libc.setfsuid(uid)
    if (libc.setfsuid(_UNCHANGED), libc.setfsgid(_UNCHANGED)) != (uid, gid):
        raise PermissionError(f"cannot take the file rights of user {uid}, group {gid}")


def writer_of(path: Path) -> RankUser:
    """The user whose rights a file or folder at this path is made with: the invoking one, or the
    run's own where all folders above are root's alone, so that no other user can redirect it."""
    user = RankUser.invoking()
    return RankUser() if user.uid is not None and _roots_alone(path) else user


def _roots_alone(path: Path) -> bool:
    """Whether only root can change what this path means, and what lies in its last folder."""
    if ".." in path.parts:
        return False
    absolute = Path(os.path.abspath(path))
    last: os.stat_result | None = None
    for folder in [*reversed(absolute.parents), absolute]:
        # Of a folder that all may write in (/tmp), others cannot rename root's entries.
        if last is not None and last.st_mode & 0o022 and not last.st_mode & stat.S_ISVTX:
            return False
        try:
            found = folder.lstat()
        except FileNotFoundError:
            break
        except OSError:
            return False
        if found.st_uid != 0 or stat.S_ISLNK(found.st_mode):
            return False
        if not stat.S_ISDIR(found.st_mode):
            break
        last = found
    return last is not None and not last.st_mode & 0o022
