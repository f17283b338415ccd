"""Whether the ranks of a job move, and where each of them is: CPU time of their processes, and
stacks that the ranks write themselves."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from loomnet.processes.inputs import unheard

CPU_EVERY_S = 1.0  # between two readings of what processes used
BUSY_SHARE = 0.5  # of a processor: a rank that uses more is said to compute
QUEUED_SHARE = 0.8  # of the time: a rank that waits more for a processor is kept from moving
QUEUED_LOOKS = 5  # in a row in which a rank wanted a processor and had none at all
IDLE_SHARE = 0.1  # a rank that sleeps uses less: its session looks at its threads now and then
SILENCE_S = 5.0  # wall time without movement, from which on the progress line says why
_ANSWER_S = 0.5  # for a rank to write its stacks
_MOST_BYTES = 1 << 16
_MOST_PROCESSES = 16384
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_THREAD = re.compile(r"(?:Current thread|Thread) 0x[0-9a-f]+ .*\(most recent call first\):$")
_FRAME = re.compile(r'  File "(?P<file>[^"]*)", line (?P<line>\d+) in (?P<name>.*)$')
_MOST_FRAMES = 6
NOTES = ("loaded", "asked", "made")  # kinds of notes of a rank
_MOST_NOTES = 64


def cpu_seconds(pids: Iterable[int]) -> dict[int, float]:
    """CPU time that each of these processes and its living descendants have used."""
    used: dict[int, float] = {}
    parents: dict[int, int] = {}
    with unheard():
        for name in itertools.islice(filter(str.isdigit, os.listdir("/proc")), _MOST_PROCESSES):
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = _read(f"/proc/{name}/stat").rpartition(b")")[2].split()
                parents[int(name)] = int(fields[1])
                used[int(name)] = (int(fields[11]) + int(fields[12])) * _TICK_S
    totals = dict.fromkeys(pids, 0.0)
    for pid, seconds in used.items():
        at = pid
        for _ in range(len(parents)):  # up to the rank that it descends from
            if at in totals or at not in parents:
                break
            at = parents[at]
        if at in totals:
            totals[at] += seconds
    return totals


def queued_seconds(pid: int) -> tuple[bool, float]:
    """Whether a process's first thread runs or waits for a processor, and for how long it has so
    far waited for one (the second number of schedstat; a wait counts once it has ended)."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        state = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[0]
        waited = int(_read(f"/proc/{pid}/schedstat").split()[1]) / 1e9
        return state == b"R", waited
    return False, 0.0


def load_text() -> str:
    """The machine's load where it is more than its processors: then a rank may have had no turn."""
    load, processors = os.getloadavg()[0], os.cpu_count() or 1
    if load <= processors:
        return ""
    return (
        f"; the machine's load is {load:.0f} on {processors} processors, so its programs wait "
        "for one another: end some, or give a longer stall_wall="
    )


def _read(path: str) -> bytes:
    """A short file of /proc, by three calls of the system: open() makes eight."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 4096)
    finally:
        os.close(fd)


class StackFile:
    """What one rank writes its threads' stacks to: memory that the run can read."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("loomnet-stacks", os.MFD_CLOEXEC)
        self._told: str | None = None  # by ask_all, until ask() has returned it

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1

    def ask(self, pid: int, pidfd: int) -> str:
        """The stacks of the rank's threads, as faulthandler writes them; empty if none came."""
        if self._told is None:
            ask_all([(self, pid, pidfd)])
        told, self._told = self._told, None
        return told or ""

    def tell(self, text: str) -> None:
        self._told = text

    def notes(self) -> list[tuple[str, str]]:
        """What the rank has asked of PyTorch, in order: see loomnet.torch.rank_notes. The rank may
        have written anything."""
        if self.fd < 0:
            return []
        lines = os.pread(self.fd, _MOST_BYTES, 0).decode(errors="replace").splitlines()
        return [
            (kind, what)
            for kind, _, what in (line.partition(" ") for line in lines)
            if kind in NOTES
        ][:_MOST_NOTES]


def ask_all(ranks: Iterable[tuple[StackFile, int, int]]) -> None:
    """Asks ranks, each a file, a pid and a pidfd, for their stacks; the next ask() of each file
    returns what came. All ranks together have the time that one has: ranks that cannot answer do
    not hold up the end of a run one after another."""
    waiting: list[tuple[StackFile, int, int]] = []  # the file, its size before, its size now
    for file, pid, pidfd in ranks:
        file.tell("")
        if file.fd < 0 or pidfd < 0 or not _catches(pid, signal.SIGRTMAX):
            continue
        before = os.fstat(file.fd).st_size
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(pidfd, signal.SIGRTMAX)
            waiting.append((file, before, before))
    end = time.monotonic() + _ANSWER_S
    while waiting:
        time.sleep(0.01)
        over, left = time.monotonic() > end, []
        for file, before, last in waiting:
            size = os.fstat(file.fd).st_size
            if over or (size > before and size == last):  # it has stopped growing
                file.tell(os.pread(file.fd, _MOST_BYTES, before).decode(errors="replace"))
            else:
                left.append((file, before, size))
        waiting = left


def _catches(pid: int, number: int) -> bool:
    """Whether a process handles a signal; it would die of it otherwise."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        with open(f"/proc/{pid}/status") as file:
            caught = next(line for line in file if line.startswith("SigCgt:"))
        return bool(int(caught.split()[1], 16) >> (number - 1) & 1)
    return False


def in_kernel(pid: int) -> str:
    """Where a process that sleeps is in the kernel, as ", asleep in hrtimer_nanosleep"; nothing of
    one that does not sleep or that the machine does not tell of."""
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/wchan") as file:
            where = file.read(64)
        if where.isidentifier():
            return f", asleep in {where}"
    return ""


def program_below(pid: int) -> str | None:
    """The name of a program that the process has started and that still runs, the deepest of the
    first; None where it has started none, or the machine does not tell."""
    name = None
    for _ in range(8):  # a compiler's driver starts the compiler
        try:
            children: list[str] = []
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/children") as file:
                    children += file.read().split()
            if not children:
                return name
            pid = int(children[0])
            with open(f"/proc/{pid}/comm") as file:
                name = file.read(64).strip()
        except (OSError, ValueError):
            return name
    return name


def stacks(text: str) -> list[list[str]]:
    """Per thread, innermost first, "FILE:LINE in FUNCTION"; threads of the backend itself left out,
    the main thread first."""
    threads: list[list[str]] = []
    for line in text.splitlines():
        if _THREAD.match(line):
            threads.append([])
        elif threads and (frame := _FRAME.match(line)):
            threads[-1].append(f"{frame['file']}:{frame['line']} in {frame['name']}")
    threads.reverse()  # faulthandler lists the main thread last
    return [thread for thread in threads if thread and not _callbacks(thread)]


def _callbacks(thread: list[str]) -> bool:
    """Whether it is a thread of the backend that waits for works to finish."""
    return thread[0].endswith(" in _callbacks") and "/loomnet/torch/" in thread[0]


def in_backend(thread: list[str]) -> bool:
    """Whether a thread is in a call that ends when the network, or a future of it, does; or waits
    for another thread."""
    # Each thread that a script starts has a frame of threads.py below the script's own.
    return any(
        "/loomnet/torch/" in frame and "/torch/threads.py:" not in frame for frame in thread
    ) or any(frame.endswith((" in _wait_for_tstate_lock", " in join")) for frame in thread[:2])


def shown(text: str) -> list[str]:
    """The lines of a message that show where a rank is: PyTorch's and Loomnet's own frames are left
    out where frames of the script remain."""
    lines = []
    for thread in stacks(text):
        own = [frame for frame in thread if not _inside(frame)]
        lines += [f"    {frame}" for frame in (own or thread)[:_MOST_FRAMES]]
    return lines


def _inside(frame: str) -> bool:
    path = frame.partition(":")[0]
    return (
        "/site-packages/torch/" in path
        or "/loomnet/torch/" in path
        or path.endswith("/loomnet/processes/fork_child.py")
        or path.endswith("/threading.py")
    )


@dataclass
class Movement:
    """How long nothing has moved: wall time since emulated time, an operation or a rank's CPU time
    did. `pids`: of the ranks that run, by rank. `idle_share`: a process that uses less does
    nothing, unless it waits for a processor: on a machine with far more to do than it can, a rank
    that wants one and gets none does not stand still by itself."""

    idle_share: float = IDLE_SHARE
    moved: float = field(default_factory=time.monotonic)
    _seen: object = None
    _cpu: dict[int, float] = field(default_factory=dict)
    _shares: dict[int, float] = field(default_factory=dict)
    _looked: float = field(default_factory=time.monotonic)
    worked: float = field(default_factory=time.monotonic)  # when a process last used CPU time
    _queued: dict[int, float] = field(default_factory=dict)  # seconds so far
    _wanting: dict[int, int] = field(default_factory=dict)  # looks in a row

    def look(self, seen: object, pids: dict[int, int]) -> None:
        """Takes in the state of the run: `seen` differs whenever the job itself has moved."""
        now = time.monotonic()
        if seen != self._seen:
            self._seen, self.moved, self.worked = seen, now, now
            self._cpu.clear()
            self._shares.clear()
            self._queued.clear()
            self._wanting.clear()
            self._looked = now
            return
        if now - self._looked < CPU_EVERY_S:
            return
        by_pid = cpu_seconds(pids.values())
        cpu = {rank: by_pid[pid] for rank, pid in pids.items()}
        if self._cpu:
            self._shares = {
                rank: (used - self._cpu.get(rank, used)) / (now - self._looked)
                for rank, used in cpu.items()
            }
            if any(share > self.idle_share for share in self._shares.values()):
                self.worked = now
        if any(
            [
                self._kept_waiting(rank, pid, now - self._looked, cpu[rank])
                for rank, pid in pids.items()
            ]
        ):
            self.worked = now
        self._cpu, self._looked = cpu, now

    def _kept_waiting(self, rank: int, pid: int, passed: float, cpu: float) -> bool:
        """Whether a rank's process has waited for a processor since the last look."""
        wants, queued = queued_seconds(pid)
        before, self._queued[rank] = self._queued.get(rank, queued), queued
        none = wants and cpu == self._cpu.get(rank)
        self._wanting[rank] = self._wanting.get(rank, 0) + 1 if none else 0
        return queued - before > QUEUED_SHARE * passed or self._wanting[rank] >= QUEUED_LOOKS

    def silent_s(self) -> float:
        """Wall seconds since the job last moved."""
        return time.monotonic() - self.moved

    def dead_s(self) -> float:
        """Wall seconds since the job moved or a process of a rank used CPU time."""
        return time.monotonic() - max(self.moved, self.worked)

    def busy(self) -> Iterator[tuple[int, float]]:
        """Ranks that burn CPU time while nothing moves, with their share of a processor."""
        return ((rank, share) for rank, share in self._shares.items() if share >= BUSY_SHARE)
