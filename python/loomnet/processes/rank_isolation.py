"""What keeps a rank to itself: processes of its own that end with it, and no way into another's.

Read by path by rank_exec.py and fork_child.py, with the standard library alone.
"""

import contextlib
import ctypes
import os
import select
import signal
import socket
import time

END_NOW = signal.SIGHUP  # told to a keeper: end the rank and all that it started
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 36, 38
_CLONE_NEWNS = 0x20000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_SLAVE = 2, 4, 8, 16384, 1 << 19
_LANDLOCK_CREATE, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT = 444, 445, 446
_LANDLOCK_REFER, _LANDLOCK_SCOPE_SIGNAL = 1 << 13, 1 << 1
_END_S = 5.0  # for processes that were killed to be gone
_LIBC = ctypes.CDLL(None, use_errno=True)


def die_with_parent(number: int, parent: int) -> bool:
    """Has the kernel send this signal when the parent ends; False where it has ended already."""
    if _LIBC.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return os.getppid() == parent


def keep_to_itself() -> bool:
    """From here on this process and its children can neither signal nor trace processes outside,
    nor open their memory and descriptors: a Landlock domain of their own. For good; where the
    kernel has none, nothing changes. True where no signal leaves the domain (Linux 6.12)."""
    version = _LIBC.syscall(_LANDLOCK_CREATE, None, 0, 1)
    if version < 2:  # the first one forbids to move files between folders
        return False
    if os.geteuid() != 0:
        _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if version >= 6:
        rules = (ctypes.c_uint64 * 3)(0, 0, _LANDLOCK_SCOPE_SIGNAL)
    else:  # a domain must forbid something: what it forbids is allowed everywhere again
        rules = (ctypes.c_uint64 * 1)(_LANDLOCK_REFER)
    domain = _LIBC.syscall(_LANDLOCK_CREATE, rules, ctypes.sizeof(rules), 0)
    if domain < 0:
        return False
    if version < 6:
        root = os.open("/", os.O_PATH | os.O_CLOEXEC)
        rule = _LANDLOCK_REFER.to_bytes(8, "little") + root.to_bytes(4, "little")
        _LIBC.syscall(_LANDLOCK_ADD_RULE, domain, 1, rule, 0)
        os.close(root)
    restricted = _LIBC.syscall(_LANDLOCK_RESTRICT, domain, 0) == 0
    os.close(domain)
    return restricted and version >= 6


def own_proc() -> None:
    """As the first process of a PID namespace: mounts a /proc that shows this namespace alone.
    Ranks count on from this process's number outside, so that no two have the same pid, which
    names files."""
    outside = os.readlink("/proc/self")
    nothing = b"none"
    if (
        _LIBC.unshare(_CLONE_NEWNS) != 0
        or _LIBC.mount(nothing, b"/", None, _MS_REC | _MS_SLAVE, None) != 0
        or _LIBC.mount(b"proc", b"/proc", b"proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, None) != 0
    ):
        return
    with contextlib.suppress(OSError), open("/proc/sys/kernel/ns_last_pid", "w") as last:
        last.write(outside)


def keep(channel: int, close: list[int]) -> int:
    """Forks a child, the rank, in which it returns the pid of the keeper, this process. The keeper
    sends the rank's pidfd over the socket `channel` and hands signals on to the rank; when the rank
    ends, the keeper ends all that the rank has left, sends the rank's wait status and ends. It ends
    them all at once for END_NOW, or when its own parent ends. `close`: descriptors of the rank
    alone."""
    signals = signal.valid_signals() - {
        signal.SIGKILL,
        signal.SIGSTOP,
        signal.SIGSEGV,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
    }
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    _LIBC.prctl(_PR_SET_PDEATHSIG, END_NOW, 0, 0, 0)
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    alive = select.poll()
    alive.register(channel, 0)
    if alive.poll(0):  # the run, at the other end, ended before it could be noticed
        os._exit(2)
    keeper = os.getpid()
    # All else in the PID namespace, or in the domain, is the rank's.
    alone = keeper == 1 or _in_domain(os.getppid())
    rank = os.fork()
    if rank == 0:
        os.close(channel)
        return keeper
    for fd in close:
        os.close(fd)
    run = socket.socket(fileno=channel)
    with contextlib.suppress(OSError):
        pidfd = os.pidfd_open(rank)
        socket.send_fds(run, [b"rank"], [pidfd])
        os.close(pidfd)
    ended = None
    while ended is None:
        number = signal.sigwaitinfo(signals).si_signo
        if number == signal.SIGCHLD:
            ended = _reap(rank)
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(rank, signal.SIGKILL if number == END_NOW else number)
    _end_the_rest(alone)
    with contextlib.suppress(OSError):
        run.send(ended.to_bytes(4, "little"))
    os._exit(0)


def _reap(rank: int) -> int | None:
    """The rank's wait status, if it is among the children that have ended."""
    found = None
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == rank:
                found = status
    return found


def _in_domain(parent: int) -> bool:
    """Enters a domain; whether signals stay in it, tried on the parent, which is outside."""
    if not keep_to_itself():
        return False
    try:
        os.kill(parent, 0)
    except PermissionError:
        return os.getppid() == parent
    except ProcessLookupError:
        pass
    return False


def _end_the_rest(alone: bool) -> None:
    """Orphans of the rank are children of the keeper, and so are theirs once they are ended.
    `alone`: the keeper may signal nothing else. One signal to all then ends processes that fork
    faster than they can be listed, too."""
    end = time.monotonic() + _END_S
    while time.monotonic() < end:
        try:
            if os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            return
        for pid in [-1] if alone else _children():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.001)


def _children() -> list[int]:
    own, found = str(os.getpid()), []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat") as file:
                text = file.read()
                if text[text.rindex(")") + 2 :].split()[1] == own:
                    found.append(int(name))
    return found
