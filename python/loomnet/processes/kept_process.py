"""Starts a process under a keeper, which ends with it all that it has started; see
rank_isolation.py."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from loomnet.processes.rank_isolation import END_NOW

_EXEC = Path(__file__).with_name("rank_exec.py")
_CLONE_NEWPID = 0x20000000
_ANSWER_S = 20.0  # wall, for a keeper to fork


class KeptProcess:
    """A process that is started as `order` says, as far as a launcher needs one. `keeper` is the
    pid of its keeper: a signal to the keeper reaches the process, and `END_NOW` ends it with all
    that it has started.

    Args:
        order: what rank_exec.py is told, but for what stands here.
        environment: all of it.
        fds: descriptors that the process inherits under the same numbers.
        output: its standard output and error.
    """

    end_now = END_NOW

    def __init__(
        self,
        order: Mapping[str, Any],
        environment: Mapping[str, str],
        fds: Sequence[int],
        output: int,
    ) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.settimeout(_ANSWER_S)
        told, namespaces = theirs.fileno(), list(order["namespaces"])
        try:
            with _signals_blocked() as blocked, _pid_namespace():
                full = {
                    **order,
                    "channel": told,
                    "fds": list(fds),
                    "blocked": [int(number) for number in blocked],
                }
                self._keeper = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(_EXEC), json.dumps(full)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=dict(environment),
                    pass_fds=[*namespaces, *fds, told],
                    start_new_session=True,  # Ctrl-C reaches the run, which then ends its ranks.
                )
        except BaseException:
            self._channel.close()
            raise
        finally:
            theirs.close()
        self.keeper = self._keeper.pid
        self.returncode: int | None = None
        self._pid: int | None = None

    @property
    def pid(self) -> int:
        """The process's own, as soon as there is one; its keeper's where there never was."""
        if self._pid is None:
            self._hear_pid()
        return self._pid or self.keeper

    @property
    def known_pid(self) -> int:
        """The process's own where it is known by now, else its keeper's: it waits for nothing."""
        if self._pid is None:
            told = select.poll()  # a socket with a timeout waits in spite of MSG_DONTWAIT
            told.register(self._channel, select.POLLIN)
            if told.poll(0):
                self._hear_pid()
        return self._pid or self.keeper

    def _hear_pid(self) -> None:
        self._pid = self.keeper
        with contextlib.suppress(OSError):
            _, fds, _, _ = socket.recv_fds(self._channel, 4, 1)
            for fd in fds:
                self._pid = pid_of(fd) or self.keeper
                os.close(fd)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, negative where a signal ended it, once all it has started has ended.
        Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            self._set(self._keeper.wait(timeout))
        assert self.returncode is not None
        return self.returncode

    def poll(self) -> int | None:
        if self.returncode is None and (ended := self._keeper.poll()) is not None:
            self._set(ended)
        return self.returncode

    def _set(self, of_keeper: int) -> None:
        told = b""
        with contextlib.suppress(OSError):
            _ = self.pid  # told before
            told = self._channel.recv(4)
        self._channel.close()
        self.returncode = of_keeper  # a keeper that was killed itself says nothing
        if len(told) == 4:
            self.returncode = os.waitstatus_to_exitcode(int.from_bytes(told, "little"))

    def kill(self) -> None:
        """Ends it and all that it has started."""
        self._keeper.send_signal(END_NOW)


def pid_of(pidfd: int) -> int | None:
    """The number by which this process knows a process, whatever number it has in a PID namespace
    of its own; None for one that has ended."""
    try:
        text = Path(f"/proc/self/fdinfo/{pidfd}").read_text()
        number = int(text.partition("\nPid:")[2].split()[0])
    except (OSError, ValueError, IndexError):
        return None
    return number if number > 0 else None


@contextlib.contextmanager
def _signals_blocked() -> Iterator[set[int | signal.Signals]]:
    """A process started inside begins with all signals blocked, so that it loses none."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield before
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _pid_namespace() -> Iterator[None]:
    """What this thread starts inside is the first process of a PID namespace of its own, where the
    run is root and may make one: it cannot even name a process outside."""
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() != 0:
        yield
        return
    own = os.open("/proc/thread-self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    try:
        made = libc.unshare(_CLONE_NEWPID) == 0
        try:
            yield
        finally:
            if made and libc.setns(own, _CLONE_NEWPID) != 0:
                code = ctypes.get_errno()
                raise OSError(code, f"leave a PID namespace: {os.strerror(code)}")
    finally:
        os.close(own)
