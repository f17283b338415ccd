"""Folders held by descriptor and files within bounds: what a run writes and reads where its user,
or a rank, can move files about meanwhile."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import weakref
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO

from loomnet.base.errors import UsageError
from loomnet.processes.invoking_user import RankUser, rights_of, writer_of

MOST_READ = 64 << 20  # bytes of one file that are read
_NEW = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# A FIFO or a device in a file's place must not make the reader wait.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LOCK = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_PROBE = 64 * 1024  # bytes; a report is a few kilobytes


class Folder:
    """A folder that was opened once. Later files are made and found in that very folder, whatever
    its path means by then, and with the rights of the run's user.

    `path`: where it was when it was opened, for messages and for ranks. `made`: of it and those
    above it what at() has made, the deepest first.
    """

    made: tuple[Path, ...] = ()

    def __init__(self, path: Path, fd: int, user: RankUser) -> None:
        self.path, self.fd, self.user = path, fd, user
        self._close = weakref.finalize(self, os.close, fd)

    @classmethod
    def at(cls, path: Path, *, new: bool = False) -> Folder:
        """Opens a folder, and makes it and those above it where they are missing; `new`: it must
        not have been there. Raises UsageError."""
        user = writer_of(path)
        try:
            with rights_of(user):
                missing = [each for each in (path, *path.parents) if not os.path.lexists(each)]
                try:
                    path.mkdir(parents=True, exist_ok=not new)
                    fd = os.open(path, _FOLDER | (os.O_NOFOLLOW if new else 0))
                except OSError:
                    for each in missing:
                        with contextlib.suppress(OSError):
                            each.rmdir()
                    raise
        except FileExistsError:
            if new:
                raise
            raise UsageError(f"cannot make the folder {path}: it is no folder") from None
        except (OSError, ValueError) as error:
            raise _refused("make the folder", path, error, user) from None
        opened = cls(path, fd, user)
        opened.made = tuple(missing)
        return opened

    def rights(self) -> AbstractContextManager[None]:
        return rights_of(self.user)

    def folder(self, name: str) -> Folder:
        """The folder of this name in here, made if it is missing. Raises UsageError."""
        try:
            with self.rights():
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, dir_fd=self.fd)
                fd = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=self.fd)
        except OSError as error:
            raise _refused("make the folder", self.path / name, error, self.user) from None
        return Folder(self.path / name, fd, self.user)

    def create(self, name: str) -> int:
        """A descriptor of a new file, for writing; a file or link of this name is removed. Raises
        UsageError."""
        try:
            with self.rights():
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=self.fd)
                return os.open(name, _NEW | os.O_WRONLY, 0o666, dir_fd=self.fd)
        except OSError as error:
            raise _refused("write", self.path / name, error, self.user) from None

    def write(self, name: str, data: bytes | str) -> Path:
        """Writes a whole file, or leaves the one before as it was. Raises UsageError."""
        beside = f".{name[:80]}.{secrets.token_hex(4)}"
        try:
            with self.rights():
                try:
                    self._write_new(beside, data.encode() if isinstance(data, str) else data)
                    os.rename(beside, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)
                except BaseException:
                    with contextlib.suppress(OSError):
                        os.unlink(beside, dir_fd=self.fd)
                    raise
        except OSError as error:
            raise _refused("write", self.path / name, error, self.user) from None
        return self.path / name

    def _write_new(self, name: str, data: bytes) -> None:
        with open(os.open(name, _NEW | os.O_WRONLY, 0o666, dir_fd=self.fd), "wb") as file:
            file.write(data)

    def lock(self, name: str) -> IO[bytes]:
        """A plain file to be locked, made if it is missing. Raises OSError; a FIFO in its place
        does not make the caller wait, and a link is not followed."""
        with self.rights():
            fd = os.open(name, _LOCK, 0o666, dir_fd=self.fd)
        file = open(fd, "ab", buffering=0)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            file.close()
            raise OSError(22, "not a plain file")
        return file

    def check_room(self) -> None:
        """Raises UsageError where a report could not be written in here."""
        name = f".room.{secrets.token_hex(4)}"
        try:
            with self.rights():
                try:
                    self._write_new(name, bytes(_PROBE))
                finally:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(name, dir_fd=self.fd)
        except OSError as error:
            raise _refused("write in", self.path, error, self.user) from None

    def names(self) -> list[str]:
        """What lies in here, sorted; nothing where it cannot be listed."""
        with self.rights(), contextlib.suppress(OSError):
            return sorted(os.listdir(self.fd))
        return []

    def read(self, name: str, most: int = MOST_READ) -> bytes:
        """The first `most` bytes of a plain file. Raises OSError."""
        with self.rights():
            return _bounded(os.open(name, _READ, dir_fd=self.fd), most)

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def close(self) -> None:
        """Idempotent."""
        self._close()


def read_bounded(path: Path, most: int = MOST_READ) -> bytes:
    """The first `most` bytes of a plain file that is no link, read with the rights of the run's
    user. Raises OSError."""
    with rights_of(writer_of(path)):
        return _bounded(os.open(path, _READ), most)


def _bounded(fd: int, most: int) -> bytes:
    with open(fd, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(22, "not a plain file")
        pieces, left = [], most
        while left > 0 and (piece := file.read(min(left, 1 << 20))):
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)


class Output:
    """A file that the user named for a command's output: opened before the command does anything,
    with the user's rights, and filled at its end. Until then a file that was there is as it was.

    A device or a pipe is written to and stays what it is. Raises UsageError.
    """

    def __init__(self, path: Path, option: str) -> None:
        self.path, self._option = path, option
        user = writer_of(path)
        flags = (
            os.O_WRONLY
            | os.O_CLOEXEC
            | os.O_NOCTTY
            | (os.O_NOFOLLOW if user.uid is None and RankUser.invoking().uid is not None else 0)
        )
        try:
            with rights_of(user):
                try:
                    fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
                    self._made = os.fstat(fd)
                except FileExistsError:
                    fd, self._made = os.open(path, flags), None
        except (OSError, ValueError) as error:
            raise self._refused(error) from None
        self._user = user
        self.file = open(fd, "wb", buffering=0)
        self._plain = stat.S_ISREG(os.fstat(fd).st_mode)

    def _refused(self, error: OSError | ValueError) -> UsageError:
        reason = getattr(error, "strerror", None) or error
        return UsageError(f"{self._option}: cannot write {self.path}: {reason}")

    def begin(self) -> None:
        """From here on the file holds this command's output alone."""
        if self._plain:
            self.file.truncate(0)

    def write(self, data: bytes) -> None:
        """Raises UsageError."""
        try:
            left = memoryview(data)
            while left:
                left = left[self.file.write(left) :]
        except OSError as error:
            raise self._refused(error) from None

    def close(self) -> None:
        self.file.close()

    def fill(self, data: bytes) -> None:
        """All of the output at once. Raises UsageError."""
        with self.file:
            self.begin()
            self.write(data)
            self._made = None  # it is the user's from here on

    def discard(self) -> None:
        """The command did not take place: closes the file, and removes it if it was made.
        Idempotent, and nothing after fill()."""
        self.file.close()
        if self._made is None:
            return
        with rights_of(self._user), contextlib.suppress(OSError):
            if os.path.samestat(os.lstat(self.path), self._made):
                os.unlink(self.path)

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()


def _refused(verb: str, path: Path, error: OSError | ValueError, user: RankUser) -> UsageError:
    reason = getattr(error, "strerror", None) or str(error)
    whose = ""
    if user.uid is not None and isinstance(error, PermissionError):
        whose = f" for user {user.name or user.uid}, whose run this is under sudo"
    return UsageError(
        f"cannot {verb} {path}: {reason}{whose}; free or change that folder, or run in another one"
    )
