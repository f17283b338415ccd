"""What a live run could leave on a machine, by name: namespaces, links, BPF objects, bridges,
memory, processes, journals. Looked at before and after."""

import contextlib
import fcntl
import json
import os
import subprocess
import time
from pathlib import Path

from loomnet.base.rank_environment import RUN
from loomnet.live import openvswitch
from loomnet.processes import journal as ownership

# A dying namespace and a BPF program without users are taken away by the kernel's own workers.
SETTLE_S = 8.0
_FOREIGN_LINKS = {"ovs-netdev"}  # of the Open vSwitch, which outlives runs on purpose


def look() -> set[str]:
    """All there is, one line per object, but what belongs to runs that live."""
    found = {f"link {path.name}" for path in Path("/sys/class/net").iterdir()}
    found -= {f"link {name}" for name in _FOREIGN_LINKS}
    found |= {f"namespace {path}" for path in Path("/run/netns").glob("*")}
    found |= {f"shared memory {path}" for path in Path("/dev/shm").iterdir()
              if not path.name.startswith("sem.mp-")}  # another Python's locks
    found |= {f"journal {path.stem}" for path in _journals()}
    found |= {f"BPF pin {path}" for path in Path("/sys/fs/bpf").glob("loomnet*")}
    for kind in ("prog", "link"):
        listed = subprocess.run(["bpftool", kind, "list", "-j"], capture_output=True, text=True)
        found |= {f"BPF {kind} {row['id']}" for row in json.loads(listed.stdout or "[]")}
    if (ovs := openvswitch.running()) is not None:
        with contextlib.suppress(openvswitch.OpenVSwitchError):
            found |= {f"bridge {name}" for name in ovs.vsctl("list-br", timeout=3).split()}
    for process in Path("/proc").glob("[0-9]*"):
        found |= _of_process(process)
    for run_id, pid in runs_alive().items():
        pids = [pid, *(p for p, _ in ownership.marked(run_id))]
        theirs = set().union(*(_of_process(Path(f"/proc/{p}")) for p in pids))
        prefixes = tuple(f"{kind} ln{run_id}" for kind in ("link", "bridge"))
        theirs |= {f"journal {run_id}", *(line for line in found if line.startswith(prefixes))}
        found -= theirs
    return found - {f"namespace {os.readlink('/proc/self/ns/net')}"}


def _journals() -> list[Path]:
    return list((ownership.state_directory() / "runs").glob("*.jsonl"))


def _of_process(process: Path) -> set[str]:
    """Its namespace, what it holds open of namespaces, BPF objects and shared memory, and itself if
    a run marked it."""
    found = set()
    with contextlib.suppress(OSError):  # gone meanwhile
        found.add(f"namespace {os.readlink(process / 'ns/net')}")
        if f"{RUN}=".encode() in (process / "environ").read_bytes():
            found.add(f"process {process.name} {(process / 'comm').read_text().strip()}")
        for fd in (process / "fd").iterdir():
            target = os.readlink(fd)
            if target.startswith("net:["):
                found.add(f"namespace {target}")
            elif target.startswith("/memfd:loomnet"):
                found.add(f"shared memory {target} of {process.name}")
            elif "bpf" in target:
                for line in (process / "fdinfo" / fd.name).read_text().splitlines():
                    if line.startswith(("prog_id:", "link_id:")):
                        found.add(f"BPF {line[:4]} {line.split()[1]}")
    return found


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
    """What is there and was not, after the kernel has had time to put things away."""
    deadline = time.monotonic() + SETTLE_S
    while (new := look() - before) and time.monotonic() < deadline:
        time.sleep(0.1)
    return sorted(new)
