"""An unprivileged user for tests that must not be root, and an interpreter that may be theirs."""

import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import pytest

import loomnet

NOBODY = 65534


def python_for_nobody() -> tuple[str, dict[str, str]]:
    """An interpreter that user 65534 may run and that finds this Loomnet, with the environment it
    needs; skips the test where the machine keeps all of that to root."""
    packages = [str(Path(loomnet.__file__).parents[1]), sysconfig.get_path("purelib")]
    environment = {"PYTHONPATH": os.pathsep.join(dict.fromkeys(packages))}
    for python in (sys.executable, "/usr/bin/python3"):
        command = [python, "-c", "import loomnet._core, loomnet.cli.commands, rich.console"]
        try:
            subprocess.run(
                command,
                cwd="/",
                env={**os.environ, **environment},
                check=True,
                capture_output=True,
                user=NOBODY,
                group=NOBODY,
                extra_groups=[],
            )
            return python, environment
        except (OSError, subprocess.CalledProcessError) as refusal:
            error = refusal
    pytest.skip(f"user {NOBODY} may run no Python with Loomnet here: {error}")


def open_directory() -> Path:
    """A new directory that everybody may enter; pytest's own is its user's alone."""
    path = Path(tempfile.mkdtemp(prefix="loomnet-test-"))
    path.chmod(0o755)
    return path
