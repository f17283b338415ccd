"""The folder with the sockets of a live run's panels, made and removed without following anything
that another user could have put there."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from pathlib import Path

from loomnet.ocs.sockets import FOLDER
from loomnet.processes.invoking_user import RankUser, rights_of

_PATH_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class SocketFolder:
    """`ocs/<run>` in the state directory. Root alone may write in it, and until show() root alone
    may enter it, so that a socket has its owner and mode before another user can reach it."""

    def __init__(self, directory: Path, run_id: str) -> None:
        self._user = RankUser.invoking()
        self._run_id, self._names = run_id, list[str]()
        with contextlib.suppress(FileExistsError):
            os.mkdir(directory / FOLDER, 0o755)
        self._above = os.open(directory / FOLDER, _PATH_FLAGS)
        self._fd = -1
        try:
            found = os.fstat(self._above)
            if found.st_uid != os.geteuid() or found.st_mode & 0o022:
                raise OSError(1, f"{directory / FOLDER} can be written by other users")
            os.fchmod(self._above, 0o755)  # whatever the umask
            os.mkdir(run_id, 0o700, dir_fd=self._above)
            self._fd = os.open(run_id, _PATH_FLAGS, dir_fd=self._above)
        except BaseException:
            self.close()
            raise

    def listen(self, name: str) -> socket.socket:
        """A socket that listens; it is the run's user's, and no other user may connect."""
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._names.append(name)
            self._bind(made, name)
            made.listen(64)
        except BaseException:
            made.close()
            raise
        return made

    def _bind(self, made: socket.socket, name: str) -> None:
        """The socket is made as the user, whose folder this is for that moment: so it belongs to
        the user, and nothing is given away by its path."""
        mask = os.umask(0o177)
        try:
            if self._user.uid is not None and self._user.gid is not None:
                os.fchown(self._fd, self._user.uid, self._user.gid)
            with rights_of(self._user):
                # By the descriptor: a path of any length, and no folder of it can be another.
                made.bind(f"/proc/self/fd/{self._fd}/{name}")
        finally:
            os.umask(mask)
            if self._user.uid is not None:
                os.fchown(self._fd, os.geteuid(), os.getegid())

    def show(self) -> None:
        os.fchmod(self._fd, 0o755)

    def close(self) -> None:
        """Removes it with its sockets. Idempotent."""
        if self._fd >= 0:
            for name in self._names:
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=self._fd)
            os.close(self._fd)
            self._fd = -1
        if self._above >= 0:
            with contextlib.suppress(OSError):
                os.rmdir(self._run_id, dir_fd=self._above)
            os.close(self._above)
            self._above = -1

    def __enter__(self) -> SocketFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def remove_sockets(directory: Path, run_id: str) -> list[str]:
    """What a dead run has left of them; the paths that are gone."""
    try:
        above = os.open(directory / FOLDER, _PATH_FLAGS)
    except OSError:
        return []
    try:
        fd = os.open(run_id, _PATH_FLAGS, dir_fd=above)
        try:
            for name in os.listdir(fd):
                if stat.S_ISSOCK(os.lstat(name, dir_fd=fd).st_mode):
                    os.unlink(name, dir_fd=fd)
        finally:
            os.close(fd)
        os.rmdir(run_id, dir_fd=above)
    except OSError:
        return []
    finally:
        os.close(above)
    return [str(directory / FOLDER / run_id)]
