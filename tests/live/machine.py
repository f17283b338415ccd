"""What a live run could leave on a machine, by name: namespaces, links, BPF objects, bridges,
memory, processes, journals. Looked at before and after. What another run on the machine has made
is left out: `owners.py` tells it."""

import contextlib
import fcntl
import json
import os
import subprocess
import time
from pathlib import Path

from owners import OTHER, Owners, run_of

from loomnet.live import openvswitch
from loomnet.processes import journal as ownership

# A dying namespace and a BPF program without users are taken away by the kernel's own workers.
SETTLE_S = 8.0
_FOREIGN_LINKS = {"ovs-netdev"}  # of the Open vSwitch, which outlives runs on purpose


def look() -> set[str]:
    """One line for each object that a run of this test may have made, or that was there before it.
    What a run that lives holds is left out, and so is what another process tree holds."""
    found = {f"link {path.name}" for path in Path("/sys/class/net").iterdir()}
    found -= {f"link {name}" for name in _FOREIGN_LINKS}
    found |= {f"namespace {path}" for path in Path("/run/netns").glob("*")}
    found |= {
        f"shared memory {path}"
        for path in Path("/dev/shm").iterdir()
        if not path.name.startswith("sem.mp-")
    }  # another Python's locks
    found |= {f"journal {path.stem}" for path in _journals()}
    found |= {f"BPF pin {path}" for path in Path("/sys/fs/bpf").glob("loomnet*")}
    for kind in ("prog", "link"):
        listed = subprocess.run(["bpftool", kind, "list", "-j"], capture_output=True, text=True)
        found |= {f"BPF {kind} {row['id']}" for row in json.loads(listed.stdout or "[]")}
    if (ovs := openvswitch.running()) is not None:
        with contextlib.suppress(openvswitch.OpenVSwitchError):
            found |= {f"bridge {name}" for name in ovs.vsctl("list-br", timeout=3).split()}
    alive = runs_alive()
    owners, held, others = Owners(alive), set(), set()
    shared = {line for line in found if line.startswith("shared memory ")}
    for process in Path("/proc").glob("[0-9]*"):
        if owners.of_process(int(process.name)) == OTHER:
            others |= _of_process(process) | _mapped(process, shared)
        else:
            held |= _of_process(process)
    for run_id, pid in alive.items():
        pids = [pid, *(p for p, _ in ownership.marked(run_id))]
        theirs = set().union(*(_of_process(Path(f"/proc/{p}")) for p in pids))
        others, held = others | theirs, held - theirs
    for run_id in {*alive, *owners.other_runs}:
        prefixes = tuple(f"{kind} ln{run_id}" for kind in ("link", "bridge"))
        others |= {f"journal {run_id}", *(line for line in found if line.startswith(prefixes))}
    found = (found - others) | held
    return found - {f"namespace {os.readlink('/proc/self/ns/net')}"}


def _journals() -> list[Path]:
    return list((ownership.state_directory() / "runs").glob("*.jsonl"))


def _of_process(process: Path) -> set[str]:
    """Its namespace, what it holds open of namespaces, BPF objects and shared memory, and itself if
    a run marked it."""
    found = set()
    with contextlib.suppress(OSError):  # gone meanwhile
        found.add(f"namespace {os.readlink(process / 'ns/net')}")
    with contextlib.suppress(OSError):
        if run_of(int(process.name)) is not None:
            found.add(f"process {process.name} {(process / 'comm').read_text().strip()}")
    with contextlib.suppress(OSError):
        for fd in (process / "fd").iterdir():
            with contextlib.suppress(OSError):  # this one is closed meanwhile
                found |= _of_descriptor(process, fd)
    return found


def _of_descriptor(process: Path, fd: Path) -> set[str]:
    target = os.readlink(fd)
    if target.startswith("net:["):
        return {f"namespace {target}"}
    if target.startswith("/memfd:loomnet"):
        return {f"shared memory {target} of {process.name}"}
    if "bpf" not in target:
        return set()
    return {
        f"BPF {line[:4]} {line.split()[1]}"
        for line in (process / "fdinfo" / fd.name).read_text().splitlines()
        if line.startswith(("prog_id:", "link_id:"))
    }


def _mapped(process: Path, shared: set[str]) -> set[str]:
    """Those of these lines of shared memory whose file a process has in its memory."""
    if not shared:
        return set()
    try:
        maps = (process / "maps").read_text(errors="replace")
    except OSError:
        return set()
    files = {line.split(maxsplit=5)[-1] for line in maps.splitlines()}
    return {line for line in shared if line.removeprefix("shared memory ") in files}


def runs_alive() -> dict[str, int]:
    """Run id -> pid of live runs that hold their journal: of this machine, whoever's they are."""
    alive = {}
    for path in _journals():
        with contextlib.suppress(FileNotFoundError, ValueError), open(path) as journal:
            try:
                fcntl.flock(journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                alive[path.stem] = json.loads(journal.readline())["pid"]
    return alive


def left_since(before: set[str]) -> list[str]:
    """Names of objects that are there and were not before, after the kernel has had time to put
    things away. An object that is missing from one look has gone, and what comes later is another
    run's."""
    deadline = time.monotonic() + SETTLE_S
    left = look() - before
    while left and time.monotonic() < deadline:
        time.sleep(0.1)
        left &= look()
    return sorted(left)
