"""Reaches into a live run from another terminal, by the journals that live runs keep."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loomnet.base.errors import PrivilegeError, UnavailableError, UsageError
from loomnet.base.names import did_you_mean


def _journals() -> list[tuple[str, list[dict[str, Any]]]]:
    """(run id, rows) of every journal there is, the oldest run first."""
    from loomnet.processes.journal import journal_rows, state_directory

    found: list[tuple[float, str, list[dict[str, Any]]]] = []
    for journal in Path(state_directory()).glob("runs/*.jsonl"):
        try:
            fd = os.open(journal, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            continue  # its run has ended meanwhile
        try:
            found.append((os.fstat(fd).st_mtime, journal.stem, journal_rows(fd)))
        finally:
            os.close(fd)
    return [(run_id, rows) for _, run_id, rows in sorted(found, key=lambda each: each[0])]


def live_nodes() -> dict[str, tuple[int, str]]:
    """Name -> (pid that holds its namespaces, run id) for every node of every live run; of two runs
    the later one."""
    from loomnet.processes.journal import process_start

    nodes: dict[str, tuple[int, str]] = {}
    for run_id, rows in _journals():
        for row in rows:
            pid, name = row.get("pid"), row.get("node")
            if row.get("kind") != "process" or not isinstance(pid, int):
                continue
            if isinstance(name, str) and process_start(pid) == row.get("start"):
                nodes[name] = (pid, run_id)
    return nodes


def command_in(node: str, command: list[str], *, verb: str = "exec") -> list[str]:
    """The command line that runs `command` inside a node of a live run, asked for by `verb`.

    Raises UsageError for an unknown node, PrivilegeError without root, UnavailableError when
    nothing runs live.
    """
    if not command:
        raise UsageError(f"exec {node}: no command; write: loomnet exec {node} -- ip addr")
    if os.geteuid() != 0:
        typed = f"exec {node} -- {' '.join(command)}" if verb == "exec" else f"{verb} {node}"
        raise PrivilegeError(f"{verb} needs root: sudo loomnet {typed}")
    nodes = live_nodes()
    if not nodes:
        raise UnavailableError(
            f"{verb}: nothing runs live; start one with `loomnet run FILE --clock live`"
        )
    if node not in nodes:
        raise UsageError(f'{verb}: no node "{node}"{did_you_mean(node, nodes)}')
    return ["mnexec", "-a", str(nodes[node][0]), *command]


def capture_of(port: str) -> Iterator[bytes]:
    """pcapng bytes of what passes `NODE:PORT` of a live run, until the run ends.

    Raises UsageError for an unknown node or port, PrivilegeError without root, UnavailableError
    when nothing runs live.
    """
    from loomnet.live.capture import stream

    node, sign, _ = port.rpartition(":")
    if not sign or not node:
        raise UsageError(f"capture {port}: write NODE:PORT, for example h0:0")
    if os.geteuid() != 0:
        raise PrivilegeError(f"capture needs root: sudo loomnet capture {port}")
    command_in(node, ["true"], verb="capture")
    run_id = live_nodes()[node][1]
    for row in dict(_journals()).get(run_id, []):
        if row.get("kind") == "captures" and isinstance(name := row.get("socket"), str):
            return stream(name, port)
    raise UnavailableError(f"capture: run {run_id} is not up yet, or ends")


def shell_in(node: str) -> list[str]:
    """The command line of an interactive shell inside a node of a live run: the user's own shell
    where it is a program, else /bin/sh. Raises as command_in."""
    shell = os.environ.get("SHELL", "")
    if not (os.path.isabs(shell) and os.access(shell, os.X_OK)):
        shell = "/bin/sh"
    return command_in(node, [shell, "-i"], verb="shell")
