"""How many frames a second this machine carries live: measured once a boot, kept in root's own
folder, and taken again where a run has shown that it does not hold."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import loomnet._core as _core
from loomnet.base.errors import UnavailableError
from loomnet.base.version import version
from loomnet.live import doctor
from loomnet.live.network import raise_open_files, require_live
from loomnet.processes.journal import state_directory
from loomnet.processes.ranks import NICE

FILE = Path("/run/loomnet/budget.json")
# A p99 lateness that leaves room below the least bound of a run.
BOUND_PS = 333 * 10**6
BUSY = 0.25  # of the processors' time: where others took more, the next run measures again
_IMITATED_RANKS = 4
# Steps back as ranks do, ends with the process that measures, and streams through memory for ever,
# in pieces larger than a core's cache, as an optimizer's step does.
_RANK = f"""
import ctypes, os, signal
os.nice({NICE})
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
a, b = bytearray(8 << 20), bytes(8 << 20)
while True:
    a[:] = b
"""
_LOOK_S = 0.25


@dataclass(frozen=True)
class MachineBudget:
    """What a measure found.

    Attributes:
        frames_per_s: frames a second through XDP switches up to which packets were in time, their
            p99 lateness below BOUND_PS, beside processes that stream through memory.
        p99_ps: that lateness, at that rate.
        busy: share of the processors' time that other processes took just before.
        taken: when, seconds since the epoch. `boot`, `build`: the kernel's boot and the version of
            Loomnet it holds for.
        contradicted: what a run has shown against it; None: nothing.
    """

    frames_per_s: int
    p99_ps: int
    busy: float
    taken: float
    boot: str
    build: str
    contradicted: str | None = None

    @property
    def stale(self) -> str | None:
        """Why it is to be taken again; None: it holds."""
        if self.boot != _boot() or self.build != version():
            return "of another boot or another version"
        if self.contradicted is not None:
            return self.contradicted
        if self.busy > BUSY:
            return f"others took {self.busy:.0%} of the processors while it was measured"
        return None

    def __str__(self) -> str:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(self.taken))
        return (
            f"{self.frames_per_s / 1000:.0f} k frames/s through XDP switches at a p99 lateness "
            f"of {self.p99_ps / 1e6:.0f} us, measured {when} with others at {self.busy:.0%}"
        )


@functools.cache
def budget() -> MachineBudget:
    """The measure that is kept, or a new one where none holds; the same as long as this process
    lives. Root's alone; up to 3 s once a boot. Raises UnavailableError where the kernel refuses."""
    found = kept()
    return measure() if found is None or found.stale is not None else found


def kept() -> MachineBudget | None:
    """The measure in root's folder, for every user to read; None where there is none."""
    try:
        row = json.loads(FILE.read_text(encoding="utf-8"))
        found = MachineBudget(
            frames_per_s=int(row["frames_per_s"]),
            p99_ps=int(row["p99_ps"]),
            busy=float(row["busy"]),
            taken=float(row["taken"]),
            boot=str(row["boot"]),
            build=str(row["build"]),
            contradicted=None if row["contradicted"] is None else str(row["contradicted"]),
        )
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
    return found if found.frames_per_s > 0 else None


def measure() -> MachineBudget:
    """Measures and keeps it. Raises UnavailableError where the kernel refuses."""
    raise_open_files()
    busy = _busy()
    try:
        with _imitated_ranks():
            steps = _core.probe_budget(bound_ps=BOUND_PS)
    except (OSError, RuntimeError) as error:
        raise UnavailableError(doctor.cannot_start(error)) from error
    in_time = [step for step in steps if step[3] <= BOUND_PS]
    # A machine too slow for the first step has what it carried there as its budget.
    _, carried, _, p99 = in_time[-1] if in_time else steps[0]
    found = MachineBudget(
        max(round(carried), 1), p99, round(busy, 3), time.time(), _boot(), version()
    )
    _keep(found)
    return found


def contradict(reason: str) -> None:
    """The measure that is kept does not hold: the next run takes another."""
    found = kept()
    if found is not None and found.contradicted is None:
        _keep(replace(found, contradicted=reason))


def _keep(found: MachineBudget) -> None:
    """Written beside and moved, so that no reader sees half of it. A folder that cannot be written
    costs the next run another measure, nothing else."""
    with contextlib.suppress(OSError, UnavailableError):
        state_directory()  # makes root's folder, and refuses one of another user's
        beside = FILE.with_name(f".{FILE.name}.{os.getpid()}")
        beside.write_text(json.dumps(asdict(found)) + "\n", encoding="utf-8")
        beside.replace(FILE)


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _busy() -> float:
    """Share of the processors' time that was not idle, in a quarter of a second."""
    before = _times()
    time.sleep(_LOOK_S)
    after = _times()
    spent = [late - early for early, late in zip(before, after, strict=False)]
    idle = sum(spent[3:5])  # idle, and waiting for a disk
    return 0.0 if sum(spent) <= 0 else 1 - idle / sum(spent)


def _times() -> list[int]:
    try:
        with open("/proc/stat", encoding="ascii") as file:
            return [int(word) for word in file.readline().split()[1:9]]
    except (OSError, ValueError):
        return [0] * 8


@contextlib.contextmanager
def _imitated_ranks() -> Iterator[None]:
    """While it lasts, processes compute as ranks do."""
    started: list[subprocess.Popen[Any]] = []
    try:
        for _ in range(_IMITATED_RANKS):
            started.append(
                subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", _RANK],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )
        yield
    finally:
        for process in started:
            process.send_signal(signal.SIGKILL)
        for process in started:
            process.wait()


def line(*, anew: bool) -> str:
    """What `loomnet doctor` says of the measure that is kept, or of a new one. Raises
    PrivilegeError, UnavailableError where a new one is asked for and cannot be taken."""
    if anew:
        require_live()
        return f"live budget: {measure()}"
    found = kept()
    if found is None:
        return (
            "live budget: not measured yet; the first live run measures it, or: "
            "sudo loomnet doctor --measure"
        )
    again = "" if found.stale is None else f"; the next live run measures again: {found.stale}"
    return f"live budget: {found}{again}"
