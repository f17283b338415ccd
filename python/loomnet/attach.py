"""Reaches into a live run from another terminal, by the journals that live runs keep."""

from __future__ import annotations

import json
import os
from pathlib import Path

from loomnet.errors import PrivilegeError, UnavailableError, UsageError
from loomnet.naming import did_you_mean


def live_nodes() -> dict[str, tuple[int, str]]:
    """Name -> (pid that holds its namespaces, run id) for every node of every live run; of two runs
    the later one."""
    from loomnet.live.ownership import process_start, state_directory

    nodes: dict[str, tuple[int, str]] = {}
    journals = sorted(Path(state_directory()).glob("runs/*.jsonl"), key=lambda p: p.stat().st_mtime)
    for journal in journals:
        for line in journal.read_text(errors="replace").splitlines():
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                continue
            if (
                isinstance(row, dict)
                and row.get("kind") == "process"
                and row.get("node")
                and process_start(int(row["pid"])) == row.get("start")
            ):
                nodes[str(row["node"])] = (int(row["pid"]), journal.stem)
    return nodes


def command_in(node: str, command: list[str]) -> list[str]:
    """The command line that runs `command` inside a node of a live run.

    Raises UsageError for an unknown node, PrivilegeError without root, UnavailableError when
    nothing runs live.
    """
    if not command:
        raise UsageError(f"exec {node}: no command; write: loomnet exec {node} -- ip addr")
    if os.geteuid() != 0:
        raise PrivilegeError(f"exec needs root: sudo loomnet exec {node} -- {' '.join(command)}")
    nodes = live_nodes()
    if not nodes:
        raise UnavailableError(
            "exec: nothing runs live; start one with `loomnet run FILE --clock live`"
        )
    if node not in nodes:
        raise UsageError(f'exec: no node "{node}"{did_you_mean(node, nodes)}')
    return ["mnexec", "-a", str(nodes[node][0]), *command]
