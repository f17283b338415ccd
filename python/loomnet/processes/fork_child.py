"""Imports once what all ranks of a job begin with, then forks each of them and runs their script.

Run by path, ``python fork_child.py SOCKET SCRIPT ARGUMENT…``, by
:class:`loomnet.processes.fork_server.ForkServer`. The process has one thread and opens nothing, or
says so and forks no rank: what a rank inherits is modules, and nothing else of another process's
life. A rank is then what ``python SCRIPT ARGUMENT…`` would have become.
"""

import builtins
import fcntl
import gc
import importlib.machinery
import json
import os
import select
import signal
import socket
import sys
import threading
import types

_MOST_FDS = 64
_MOST_BYTES = 1 << 17  # of a message, which a seqpacket socket keeps whole


def serve() -> None:
    """Serves until the run closes its end of the socket. Returns in ranks alone."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    channel.set_inheritable(False)
    isolation = types.ModuleType("rank_isolation")  # no module that a script could find loaded
    with open(os.path.join(os.path.dirname(__file__), "rank_isolation.py"), "rb") as file:
        exec(compile(file.read(), file.name, "exec"), isolation.__dict__)
    # As the script will find it, and what it imports first looks at these too.
    sys.argv = sys.argv[2:]
    sys.orig_argv = [sys.executable, *sys.argv]
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(sys.argv[0])
    known = _descriptors()
    reason = _imported(json.loads(channel.recv(_MOST_BYTES))) or _unsound(known)
    # Imported modules live as long as the rank, so its collector need not look at them. At a rank's
    # end it would go through them all and copy their pages: up to a second of processor time.
    gc.freeze()
    _send(channel, {"reason": reason})
    said = os.pread(1, os.fstat(1).st_size, 0)  # by the imports: each rank would have said it
    ranks: dict[int, int] = {}  # pid by pidfd
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd in ranks:
                poll.unregister(fd)
                pid, status = os.waitpid(ranks.pop(fd), 0)
                os.close(fd)
                _send(channel, {"pid": pid, "status": os.waitstatus_to_exitcode(status)})
                continue
            message, descriptors, _, _ = socket.recv_fds(channel, _MOST_BYTES, _MOST_FDS)
            if not message:
                os._exit(0)
            order, server = json.loads(message), os.getpid()
            pid = os.fork()
            if pid == 0:
                channel.close()
                for other in ranks:
                    os.close(other)
                _become(order, descriptors, said, server, isolation)
                return
            for descriptor in descriptors:
                os.close(descriptor)
            fd = os.pidfd_open(pid)
            ranks[fd] = pid
            poll.register(fd, select.POLLIN)
            _send(channel, {"forked": pid}, [fd])


def _imported(statements: list[str]) -> str | None:
    """Runs the imports; why that was no use, if so."""
    for statement in statements:
        try:
            exec(compile(statement, sys.argv[0], "exec"), {"__name__": "__main__"})
        except BaseException as error:
            return f"{statement}: {type(error).__name__}: {error}"
    sys.stdout.flush()
    sys.stderr.flush()
    return None


def _descriptors() -> set[str]:
    """Open descriptors, but for the one that lists them."""
    return {fd for fd in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{fd}")}


def _unsound(known: set[str]) -> str | None:
    """What a fork could not give to a rank as its own, if there is such a thing here."""
    if len(os.listdir("/proc/self/task")) != 1:
        return "the imports started threads"
    if opened := _descriptors() - known:
        return f"the imports opened {os.readlink(f'/proc/self/fd/{opened.pop()}')}"
    try:
        os.waitpid(-1, os.WNOHANG)
        return "the imports started processes"
    except ChildProcessError:
        pass
    monitoring = getattr(sys, "monitoring", None)
    if (
        sys.gettrace()
        or sys.getprofile()
        or (monitoring and any(map(monitoring.get_tool, range(6))))
    ):
        return "a debugger, profiler or coverage is attached"
    torch = sys.modules.get("torch")
    return "CUDA is initialised" if torch is not None and torch.cuda.is_initialized() else None


def _become(
    order: dict, descriptors: list[int], said: bytes, server: int, isolation: types.ModuleType
) -> None:
    """In the new process: a session, descriptors, an environment and random numbers of its own."""
    try:
        os.setsid()
        if not isolation.die_with_parent(signal.SIGKILL, server):
            os._exit(2)
        isolation.keep_to_itself()
        numbers = [1, *order["numbers"]]
        free = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, max(numbers) + 1) for fd in descriptors]
        for fd in descriptors:
            os.close(fd)
        for fd, number in zip(free, numbers, strict=True):
            os.dup2(fd, number)
            os.close(fd)
        os.dup2(1, 2)
        os.write(1, said)
        os.environ.update(order["environment"], LOOMNET_RANK_PID=str(os.getpid()))
        # Python's own fork leaves the number of the thread that forked.
        threading.main_thread()._set_native_id()  # pyright: ignore[reportAttributeAccessIssue]
        _reseed()
        if autoload := getattr(sys.modules.get("loomnet.torch"), "autoload", None):
            autoload()  # `import torch` has done it already, outside a run
    except BaseException as error:
        os.write(2, f"loomnet: a forked rank cannot start: {error!r}\n".encode())
        os._exit(2)


def _reseed() -> None:
    """Generators that an import seeded from the system. Python's own does it by itself."""
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.seed()
    if "multiprocessing.process" in sys.modules:
        process = sys.modules["multiprocessing.process"].current_process()
        process.authkey = os.urandom(len(process.authkey))


def run_script() -> None:
    """What the interpreter does with a script: it is `__main__`, and its end is the process's."""
    script = sys.argv[0]
    main = types.ModuleType("__main__")
    main.__file__ = script
    main.__dict__.update(__cached__=None, __builtins__=builtins)
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", script)
    if sys.version_info < (3, 14):
        main.__annotations__ = {}
    sys.modules["__main__"] = main
    try:
        with open(script, "rb") as file:
            code = compile(file.read(), script, "exec", dont_inherit=True)
        exec(code, main.__dict__)
    except (SystemExit, KeyboardInterrupt):
        raise  # the interpreter makes an exit status, or a death by SIGINT, of it
    except BaseException as error:
        trace = error.__traceback__ and error.__traceback__.tb_next  # without this very frame
        error.__traceback__ = trace
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
        sys.__dict__["last_exc"] = error  # Python's own name from 3.12 on
        sys.excepthook(type(error), error, trace)
        sys.exit(1)


def _send(channel: socket.socket, answer: dict, descriptors: list[int] | None = None) -> None:
    try:
        socket.send_fds(channel, [json.dumps(answer).encode()], descriptors or [])
    except BrokenPipeError:
        os._exit(0)  # the run has gone


if __name__ == "__main__":
    serve()
    run_script()
