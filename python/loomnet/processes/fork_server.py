"""Starts the ranks of a job as forks of one process that has imported PyTorch for all of them.

Importing takes seconds in each rank, most of a short run. A rank that is forked is the process that
it would have been otherwise; where that is not certain there is no server, and ranks are started
one by one: see :func:`forkable` and fork_child.py.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from loomnet.base import rank_environment as env
from loomnet.base.errors import UnavailableError
from loomnet.processes import torchrun
from loomnet.processes.kept_process import KeptProcess, pid_of
from loomnet.processes.shared_imports import shared_imports

SERVER = Path(__file__).with_name("fork_child.py")
SWITCH = "LOOMNET_FORK"  # "0": every rank is a process started by itself
# What the launch gives each rank as its own, and no import of PyTorch reads.
_OWN = torchrun.OWN | {
    env.HOST,
    env.HOST_ADDRESS,
    env.RANK_FD,
    env.EVENT_FD,
    env.COMPUTE,
    env.STACK_FD,
    env.READS,
}
# Coverage begins with the interpreter, and PyTorch would not tell us of a run.
_NEVER = ("COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG", "PYTHONINSPECT")
_MOST_BYTES = 1 << 17
_IMPORT_S = 120  # wall; then something hangs that may not hang in a rank
_ANSWER_S = 10.0  # wall; a rank has the same user, so it can stop the server or speak in its name
_LOOK_S = 0.05  # wall; between two looks of the run while it waits for an answer
_END_S = 5.0  # for a server to see that it is no longer wanted; while it imports it cannot

Start = Callable[[Sequence[str], dict[str, str], Sequence[int], int], KeptProcess]


def forkable(
    commands: Sequence[Sequence[str]], environments: Sequence[Mapping[str, str]]
) -> tuple[str, ...]:
    """The imports that ranks with these commands and environments share; none: start them plainly.

    They share a process only up to the end of these imports, so it must be the same interpreter,
    script, arguments and environment, but for what the launch itself gives each.
    """
    if not commands or any(command != commands[0] for command in commands):
        return ()
    if len(commands[0]) < 2 or commands[0][0] != sys.executable:
        return ()
    first = shared_environment(environments[0])
    if any(shared_environment(each) != first for each in environments):
        return ()
    if first.get(SWITCH, "1") == "0" or any(name in first for name in _NEVER):
        return ()
    if not first.get("PYTHONHASHSEED", "").isdigit():
        return ()  # each rank would draw its own
    if first.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") == "0":
        return ()
    script = Path(commands[0][1])
    return shared_imports(script) if script.is_absolute() and script.is_file() else ()


def shared_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What is no rank's own."""
    return {name: value for name, value in environment.items() if name not in _OWN}


class ForkedRank:
    """A rank as far as its launcher needs a process: `pid`, `pidfd`, :meth:`wait`."""

    end_now = signal.SIGKILL  # the server's keeper ends the processes that the server started

    def __init__(self, server: ForkServer, pid: int, pidfd: int) -> None:
        self._server, self._told, self.pidfd = server, pid, pidfd
        # The server may live in a PID namespace and know the rank by another number.
        self.pid = self.known_pid = self.keeper = pid_of(pidfd) or -1

    def wait(self) -> int:
        """Its exit status, negative where a signal ended it, once it has ended."""
        return self._server.status_of(self._told)


class ForkServer:
    """The process that ranks are forked from. It ends with :meth:`close`, or with its parent.

    Args:
        command: of every rank: interpreter, script, arguments.
        environment: of every rank, see :func:`shared_environment`.
        imports: statements to be run before the first fork.
        start: starts a process with this argv, environment, descriptors and output descriptor.
        look: called every 50 ms while the server imports, which takes as long as the disk and the
            other processes of the machine let it. What `look` raises ends the wait.

    Raises:
        RuntimeError: why it cannot fork ranks; nothing is left behind.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: dict[str, str],
        imports: Sequence[str],
        start: Start,
        look: Callable[[], None] = lambda: None,
    ) -> None:
        self._statuses: dict[int, int] = {}
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # A file, as a rank's own log is one: Python looks at what its streams are when it starts.
        output = os.memfd_create("rank imports")
        try:
            argv = [command[0], str(SERVER), str(theirs.fileno()), *command[1:]]
            self.process = start(argv, environment, [theirs.fileno()], output)
        except BaseException:
            self._channel.close()
            raise
        finally:
            os.close(output)
            theirs.close()
        try:
            self._channel.send(json.dumps(list(imports)).encode())
            answer, _ = self._await(_IMPORT_S, look)
            reason = answer.get("reason", "it answered nonsense")
            self._channel.settimeout(_ANSWER_S)
        except OSError as error:  # it ended, or hangs
            reason = f"{error}"
        except BaseException:
            self.close(0)
            raise
        if reason is not None:
            self.close(0)
            raise RuntimeError(reason)

    def fork(
        self,
        own: Mapping[str, str],
        output: int,
        descriptors: Sequence[int],
        look: Callable[[], None] = lambda: None,
    ) -> ForkedRank:
        """A rank with these variables besides the shared ones, `output` as its standard output and
        error, and `descriptors` under the same numbers as here. `look` is called every 50 ms until
        it has begun.

        Raises:
            UnavailableError: the server does not answer, or names a process that it has not made.
        """
        order = {"environment": dict(own), "numbers": list(descriptors)}
        try:
            socket.send_fds(self._channel, [json.dumps(order).encode()], [output, *descriptors])
            while True:
                answer, fds = self._await(_ANSWER_S, look)
                if "forked" in answer:
                    break
                for fd in fds:
                    os.close(fd)
        except OSError as error:
            raise UnavailableError(f"ranks cannot be forked: {error}") from None
        if len(fds) != 1 or not descends(fds[0], self.process.keeper):
            for fd in fds:
                os.close(fd)
            raise UnavailableError("ranks cannot be forked: not a process of theirs")
        os.set_inheritable(fds[0], False)
        return ForkedRank(self, answer["forked"], fds[0])

    def status_of(self, pid: int) -> int:
        """A rank's exit status; one that the server took along with it was killed. A server that
        does not answer is ended, and all ranks with it."""
        while pid not in self._statuses:
            try:
                self._receive()
            except OSError:
                self.process.kill()
                return -signal.SIGKILL
        return self._statuses[pid]

    def close(self, grace: float = _END_S) -> None:
        """Ends the server, and with it every rank that still runs. Idempotent."""
        self._channel.close()
        try:
            self.process.wait(grace)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _await(self, seconds: float, look: Callable[[], None]) -> tuple[dict[str, Any], list[int]]:
        """The next message, within so much wall time, with a look at the run in between."""
        before, end = self._channel.gettimeout(), time.monotonic() + seconds
        self._channel.settimeout(_LOOK_S)
        try:
            while True:
                look()
                try:
                    return self._receive()
                except TimeoutError:
                    if time.monotonic() > end:
                        raise
        finally:
            self._channel.settimeout(before)

    def _receive(self) -> tuple[dict[str, Any], list[int]]:
        message, fds, _, _ = socket.recv_fds(self._channel, _MOST_BYTES, 4)
        if not message:
            raise ConnectionResetError("the process that imports for all ranks ended")
        try:
            answer = json.loads(message)
            if "status" in answer:
                self._statuses[int(answer["pid"])] = int(answer["status"])
        except (ValueError, TypeError, KeyError, RecursionError):
            for fd in fds:
                os.close(fd)
            raise ConnectionResetError(
                "the process that imports for all ranks gave no valid answer"
            ) from None
        return answer, fds


def descends(pidfd: int, ancestor: int) -> bool:
    """Whether `pidfd` names a process that `ancestor` or a child of it has started, or one that
    has been reaped. Signals go to it with this process's rights, which may be root's."""
    while True:
        try:
            number = pid_of(pidfd)
            if number is None:
                return "\nPid:" in Path(f"/proc/self/fdinfo/{pidfd}").read_text()
            for _ in range(2):  # the server is its keeper's child, and the rank the server's
                status = Path(f"/proc/{number}/stat").read_text()
                number = int(status.rpartition(")")[2].split()[1])
                if number == ancestor:
                    return True
            return False
        except (FileNotFoundError, ProcessLookupError):
            continue  # reaped between two looks: the next says so
