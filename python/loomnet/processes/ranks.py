"""Launches ranks inside hosts, watches them, and says which failed first and why.

A rank is an ordinary process: torchrun's environment, its host's network, the invoking user's
rights (SUDO_UID where there is one), nice 5 and one compute thread, so that the engine is never
late for it (ranks that compute at the engine's priority cost milliseconds of lateness).
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from loomnet.base import rank_environment as env
from loomnet.processes.folder import Folder
from loomnet.processes.fork_server import ForkedRank, ForkServer, forkable, shared_environment
from loomnet.processes.invoking_user import RankUser
from loomnet.processes.journal import RunLock, process_start
from loomnet.processes.kept_process import KeptProcess
from loomnet.processes.rank_inputs import RankReads
from loomnet.processes.rank_logs import RankLog
from loomnet.processes.torchrun import environments as torchrun_environments

_ONE_THREAD = ("OMP", "MKL", "OPENBLAS", "NUMEXPR", "VECLIB_MAXIMUM")
# What ranks have of the caller's environment. A training script needs to find itself, its libraries
# and its caches, and to be tuned; tokens, agents' sockets and what sudo adds are not its business.
# More of it is TorchJob(env=).
_ALWAYS = frozenset({"PATH", "LANG", "LC_ALL"})
_PASSED = re.compile(
    "HOME|USER|LOGNAME|SHELL|TERM|COLUMNS|NO_COLOR|TZ|TMPDIR|LANGUAGE|LC_.*|XDG_CACHE_HOME|"
    "PYTHON.*|VIRTUAL_ENV|CONDA_PREFIX|LD_LIBRARY_PATH|LD_PRELOAD|CC|CXX|SSL_CERT_(FILE|DIR)|"
    "(OMP|GOMP|KMP|MKL|OPENBLAS|NUMEXPR|VECLIB|BLIS|MALLOC|ATEN|CUDA|NVIDIA|TRITON|PYTORCH|GLOO|"
    "NCCL|COVERAGE|ASAN|UBSAN|TSAN|LSAN|LOOMNET)_.*|TORCH.*_.*|MPLBACKEND|MPLCONFIGDIR|"
    "GLIBC_TUNABLES"
)
# PyTorch's own switch, which would keep Loomnet's backend out of the ranks: of a shell that has it
# for other work, ranks do not have it. TorchJob(env=) can.
_NEVER_PASSED = frozenset({"TORCH_DEVICE_BACKEND_AUTOLOAD"})
# Below what a user does at the machine meanwhile, and above other work that is niced (10 is nice's
# own default): beside such a process, ranks of its priority had half a core, and an iteration of a
# few seconds took so much longer that goodput ratios left their tolerance.
NICE = 5
# Gradients and activations stay in the heap: giving them back to the kernel and faulting them in
# again every step is time in the kernel, in which a rank cannot be preempted (measured: p99
# lateness 1.0 ms with glibc's defaults, 0.65 ms so).
_MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}


class HostNode(Protocol):
    """A host whose namespaces a rank enters."""

    @property
    def address(self) -> str: ...
    @property
    def management(self) -> str: ...
    def open_namespaces(self) -> list[int]: ...


class HostFabric(Protocol):
    """Where ranks run: the hosts by name, and the journal of the run."""

    @property
    def hosts(self) -> Mapping[str, HostNode]: ...
    @property
    def lock(self) -> RunLock: ...


@dataclass(frozen=True)
class RankSpec:
    """One rank to launch.

    Attributes:
        rank: its number, 0…world_size-1.
        host: the host's name in the fabric, for example ``h0``.
        argv: command and arguments; a training script is ``[sys.executable, "train.py", …]``.
        environment: added last, over everything that the launch sets.
        pass_fds: descriptors the rank inherits under the same numbers (its NIC's shared memory and
            eventfds); they must be open in the caller.
    """

    rank: int
    host: str
    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    pass_fds: Sequence[int] = ()


@dataclass
class Rank:
    """A launched rank. `status` is None while it runs, then its exit status (negative: signal)."""

    spec: RankSpec
    process: KeptProcess | ForkedRank = field(repr=False)
    log: RankLog = field(repr=False)
    status: int | None = None
    pidfd: int = field(default=-1, repr=False)

    @property
    def failed(self) -> bool:
        return self.status not in (None, 0)

    def error(self) -> str:
        """Why it failed: the last traceback in its log, else its last line."""
        rank = self.spec.rank
        if self.status is None or self.status == 0:
            return ""
        if self.status < 0:
            head = f"rank {rank} was killed by {signal.Signals(-self.status).name}"
        else:
            head = f"rank {rank} ended with exit status {self.status}"
        text = self.log.error()
        return f"{head} ({self.log.path})" + (f"\n{text}" if text else "")


class RankGroup:
    """All ranks of one job. Build it, then :meth:`wait`; always :meth:`stop` in the end.

    The ranks die with the *thread* that builds the group (PR_SET_PDEATHSIG works by thread), so
    build it in the main thread, or in one that lives as long as the job.

    Args:
        fabric: where the hosts are; its journal records every rank.
        specs: one per rank, in any order; together they make world 0…len-1.
        log_directory: gets ``<rank>.log``, owned by the rank's user; a folder may be open already.
        cwd: the ranks' working directory.
        user: whom they run as; default the invoking user.
        master_port: rendezvous port on rank 0's management address.
        run_id: the ranks' TORCHELASTIC_RUN_ID.
        nice: how far the ranks step back: far on the live clock, whose engine must not wait.
        inherit: take over the caller's environment as far as a rank may have it (True), or PATH
            and LANG alone.
        fork: let the ranks share one import of PyTorch where nothing else changes by it, and no
            rank lives in namespaces of its own; see fork_server.py. Attribute `forked` says whether
            they did, `not_forked` why not, as far as that was found out by trying.
        look: called before each start and every 50 ms of a wait for one. What `look` raises ends
            the launch, with all ranks that have started.

    Raises:
        ValueError: ranks are not 0…n-1, or a host is unknown.
    """

    def __init__(
        self,
        fabric: HostFabric,
        specs: Sequence[RankSpec],
        log_directory: Path | Folder,
        *,
        cwd: Path | None = None,
        user: RankUser | None = None,
        master_port: int = 29500,
        run_id: str = "loomnet",
        nice: int = NICE,
        inherit: bool = True,
        fork: bool = False,
        look: Callable[[], None] = lambda: None,
    ) -> None:
        specs = sorted(specs, key=lambda s: s.rank)
        if [s.rank for s in specs] != list(range(len(specs))):
            raise ValueError(f"ranks must be 0…{len(specs) - 1}, not {[s.rank for s in specs]}")
        for spec in specs:
            if spec.host not in fabric.hosts:
                raise ValueError(f"rank {spec.rank}: no host {spec.host!r} in this fabric")
        self.ranks: list[Rank] = []
        self.first_failure: Rank | None = None
        self._nice = nice
        self._poll = select.poll()
        self._by_fd: dict[int, Rank] = {}
        self._fabric, self._user = fabric, user or RankUser.invoking()
        self._cwd = cwd or Path.cwd()
        self._server: ForkServer | None = None
        self.not_forked: str | None = None
        logs = log_directory if isinstance(log_directory, Folder) else Folder.at(log_directory)
        self._reads = RankReads(logs)
        master = fabric.hosts[specs[0].host].management if specs else ""
        launched = torchrun_environments(
            [spec.host for spec in specs], address=master, port=master_port, run_id=run_id
        )
        environments = [
            _environment(inherit, self._user)
            | fabric.lock.environment()
            | of_torchrun
            | {
                env.MASTER: master,
                env.HOST: spec.host,
                env.HOST_ADDRESS: fabric.hosts[spec.host].address,
                **self._reads.of(spec.rank, spec.argv, self._cwd),
                **spec.environment,
            }
            for spec, of_torchrun in zip(specs, launched, strict=True)
        ]
        try:
            if fork:
                self._serve(specs, environments, look)
            for spec, environment in zip(specs, environments, strict=True):
                look()
                self._launch(spec, environment, RankLog(logs, f"{spec.rank}.log"), look)
        except BaseException:
            self.stop(grace=0)
            raise

    @property
    def forked(self) -> bool:
        return self._server is not None

    def _serve(
        self,
        specs: Sequence[RankSpec],
        environments: Sequence[dict[str, str]],
        look: Callable[[], None],
    ) -> None:
        """Starts what the ranks are forked from, if they can be."""
        commands = [[str(word) for word in spec.argv] for spec in specs]
        imports = forkable(commands, environments)
        if not imports:
            return
        shared = shared_environment(environments[0])
        try:
            self._server = ForkServer(commands[0], shared, imports, self._start, look)
        except RuntimeError as error:
            self.not_forked = str(error)
            return
        pid = self._server.process.keeper
        self._fabric.lock.record("process", pid=pid, start=process_start(pid))

    def _start(
        self,
        argv: Sequence[str],
        environment: dict[str, str],
        fds: Sequence[int],
        output: int,
        namespaces: Sequence[int] = (),
    ) -> KeptProcess:
        """A process as the ranks' user, in these namespaces, that dies with this thread."""
        order = {
            "namespaces": list(namespaces),
            "nice": self._nice,
            "uid": self._user.uid,
            "gid": self._user.gid,
            "groups": list(self._user.groups),
            "cwd": str(self._cwd),
            "argv": [str(a) for a in argv],
        }
        return KeptProcess(order, environment, fds, output)

    def _launch(
        self, spec: RankSpec, environment: dict[str, str], log: RankLog, look: Callable[[], None]
    ) -> None:
        process: KeptProcess | ForkedRank
        with open(log.writer(), "wb") as output, contextlib.ExitStack() as stack:
            uid, gid = self._user.uid, self._user.gid
            if uid is not None and os.fstat(output.fileno()).st_uid != uid:
                # Made just now, in a folder of root's: a rank opens /dev/stdout by that name.
                os.fchown(output.fileno(), uid, -1 if gid is None else gid)
            if self._server is not None:
                shared = shared_environment(environment)
                own = {name: environment[name] for name in environment.keys() - shared.keys()}
                process = self._server.fork(own, output.fileno(), spec.pass_fds, look)
                pidfd = process.pidfd
            else:
                namespaces = self._fabric.hosts[spec.host].open_namespaces()
                for fd in namespaces:
                    stack.callback(os.close, fd)
                process = self._start(
                    spec.argv, environment, spec.pass_fds, output.fileno(), namespaces
                )
                pidfd = os.pidfd_open(process.keeper)
        pid = process.keeper
        self._fabric.lock.record("process", pid=pid, start=process_start(pid))
        rank = Rank(spec, process, log, pidfd=pidfd)
        self.ranks.append(rank)
        self._by_fd[rank.pidfd] = rank
        self._poll.register(rank.pidfd, select.POLLIN)

    @property
    def running(self) -> list[Rank]:
        return [rank for rank in self.ranks if rank.status is None]

    def poll(self, timeout: float = 0) -> list[Rank]:
        """Waits up to `timeout` s for exits and returns the ranks that ended."""
        ended = []
        for fd, _ in self._poll.poll(timeout * 1000):
            rank = self._by_fd.pop(fd)
            self._poll.unregister(fd)
            os.close(fd)
            rank.status = rank.process.wait()
            ended.append(rank)
        # Peers of a dead rank fail a moment later: of those that ended together, a signal is the
        # cause and an exit status more likely the effect.
        ended.sort(key=lambda rank: (rank.status or 0) > 0)
        if self.first_failure is None:
            self.first_failure = next((rank for rank in ended if rank.failed), None)
        return ended

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until all ranks ended well (True), or one failed or `timeout` s passed (False)."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.running and self.first_failure is None:
            left = 1.0 if deadline is None else min(1.0, deadline - time.monotonic())
            if left <= 0:
                return False
            self.poll(left)
        return self.first_failure is None

    def stop(self, grace: float = 1.0) -> None:
        """Ends what still runs: SIGTERM, after `grace` s SIGKILL. Idempotent.

        All that a rank has started goes with it; what forked ranks have started, with the last.
        """
        first = self.first_failure
        for number, pause in ((signal.SIGTERM, grace), (None, 4.0), (signal.SIGKILL, 2.0)):
            if pause <= 0:
                continue
            for rank in self.running:
                signal.pidfd_send_signal(rank.pidfd, number or rank.process.end_now)
            deadline = time.monotonic() + pause
            while self.running and (left := deadline - time.monotonic()) > 0:
                self.poll(left)
        if self._server is not None:
            self._server.close()
        self._reads.gather()
        self.first_failure = first  # What was ended here did not fail.


def _environment(inherit: bool, user: RankUser) -> dict[str, str]:
    result = {
        name: value
        for name, value in os.environ.items()
        if name in _ALWAYS or (inherit and _PASSED.fullmatch(name) and name not in _NEVER_PASSED)
    }
    if user.uid is not None:
        result |= {"HOME": user.home or "/", "USER": user.name or "", "LOGNAME": user.name or ""}
    result |= {f"{name}_NUM_THREADS": "1" for name in _ONE_THREAD}
    return {**_MALLOC, **result, "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}
