"""Interfaces, bridges and BPF pins of runs, and their removal once a run is dead."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from loomnet.live import openvswitch
from loomnet.live.socket_folder import remove_sockets
from loomnet.processes.journal import DeadRun, dead_runs, end_processes, processes_of

_BPF_FS = Path("/sys/fs/bpf")


def clean(directory: Path | None = None) -> list[str]:
    """Removes what dead runs own, and only that. Returns one line per thing removed.

    Processes first (their namespaces, and the veths in them, go with the last one), then bridges,
    interfaces in this namespace, BPF pins, and at last the journal: a clean that is itself killed
    is simply repeated. A bridge in the database of a system Open vSwitch that does not run keeps
    the journal, because it would come back with the daemon; the next clean tries again. Mininet's
    own ``cleanup()`` is never called: it removes other people's bridges.
    """
    removed: list[str] = []
    for run in dead_runs(directory):
        kept: list[str] = []
        removed += [f"run {run.run_id}: {line}" for line in _clean_run(run, kept)]
        if not kept:
            run.path.unlink(missing_ok=True)
            removed.append(f"run {run.run_id}: journal")
    return removed


def _clean_run(run: DeadRun, kept: list[str]) -> Iterator[str]:
    for pid in end_processes(list(processes_of(run))):
        yield f"process {pid}"
    for row in run.rows:
        if row.get("kind") == "bridge":
            yield from _delete_bridge(run, row, kept)
    names = own_interfaces(run.prefix)
    delete_interfaces(names)
    left = own_interfaces(run.prefix)
    yield from (f"interface {name}" for name in names if name not in left)
    yield from (f"sockets {path}" for path in remove_sockets(run.path.parents[1], run.run_id))
    pins = _BPF_FS / f"loomnet-{run.run_id}"
    if pins.is_dir():
        shutil.rmtree(pins, ignore_errors=True)
        yield f"BPF pins {pins}"


def own_interfaces(prefix: str) -> list[str]:
    """Interfaces of the caller's network namespace that begin with a run's prefix."""
    net = Path("/sys/class/net")
    return sorted(path.name for path in net.glob(f"{prefix}*"))


def delete_interfaces(names: Sequence[str]) -> None:
    """Deletes interfaces at once; one gone already (a veth goes with its peer) is fine."""
    if names:
        lines = "".join(f"link del dev {name}\n" for name in names)
        command = ["ip", "-force", "-batch", "-"]
        subprocess.run(command, input=lines.encode(), capture_output=True, process_group=0)


def _delete_bridge(run: DeadRun, row: dict[str, object], kept: list[str]) -> Iterator[str]:
    """Deletes a journalled bridge; one whose database is out of reach is named in `kept`."""
    name, database = str(row.get("name", "")), str(row.get("database", ""))
    if not name.startswith(run.prefix) or not database.startswith("unix:"):
        return
    command = ["ovs-vsctl", f"--db={database}", "--timeout=2", "--no-wait"]
    try:
        exists = subprocess.run([*command, "br-exists", name], capture_output=True).returncode
        if exists == 0:
            exists = subprocess.run([*command, "del-br", name], capture_output=True).returncode
            if exists == 0:
                yield f"bridge {name}"
    except FileNotFoundError:
        return  # Open vSwitch has been removed from the machine, and its bridges with it.
    # 2: no such bridge. Loomnet's own Open vSwitch has a new database whenever it starts.
    lost = row.get("own") and not openvswitch.serves(database)
    if exists not in (0, 2) and not lost:
        kept.append(name)
    # A daemon that lives takes the bridge's device away a moment later.
    deadline = time.monotonic() + 1
    while exists == 0 and Path("/sys/class/net", name).exists() and time.monotonic() < deadline:
        time.sleep(0.01)
