"""What the tests of the glue share: two bare hosts of a run, commands in them, and what is left."""

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from loomnet.live import doctor, kernel_objects, openvswitch
from loomnet.live.nodes import LiveFabric
from loomnet.processes import journal as ownership
from loomnet.processes.ranks import RankUser

# The compiled engine is not needed here.
_REASON = doctor.why_not_live(c for c in doctor.checks() if "_core" not in c.name)
needs_kernel = pytest.mark.skipif(_REASON is not None, reason=str(_REASON))

NOBODY = RankUser.of(65534)


def left_of(run_id: str) -> list[str]:
    """All that a run still has on this machine; empty is what every test here ends with."""
    found = [f"process {pid}" for pid, _ in ownership.marked(run_id)]
    found += kernel_objects.own_interfaces(f"ln{run_id}")
    ovs = openvswitch.running()
    assert ovs is not None
    return found + [b for b in ovs.vsctl("list-br").split() if b.startswith(f"ln{run_id}")]


def wait_for(condition, seconds: float = 3.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def run_in(fabric: LiveFabric, node: str, command: str) -> str:
    with fabric.popen(node, command.split(), stdout=subprocess.PIPE, text=True) as process:
        output = process.communicate(timeout=20)[0]
    assert process.returncode == 0, f"{node}: {command}: {output}"
    return output


def python() -> str:
    """An interpreter that any user may run."""
    return "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable


def script(directory: Path, text: str) -> Path:
    path = directory / "rank.py"
    path.write_text(textwrap.dedent(text))
    path.chmod(0o644)
    return path
