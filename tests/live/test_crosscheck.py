"""Both clocks agree: the same scenarios, live against virtual, through the command a user types."""

import subprocess
import sys
from pathlib import Path

import pytest

from loomnet.errors import EXIT_FIDELITY, EXIT_OK
from loomnet.live import doctor

_REASON = doctor.why_not_live()
pytestmark = pytest.mark.skipif(_REASON is not None, reason=str(_REASON))
SCENARIOS = Path(__file__).parents[2] / "scenarios"
TRIES = 2  # a run that fell behind is no result: one more try, then it is an error


@pytest.mark.parametrize("scenario", ["flow", "incast", "permutation", "allreduce"])
def test_live_and_virtual_agree(scenario, tmp_path):
    for _ in range(TRIES):
        done = subprocess.run(
            [sys.executable, "-m", "loomnet", "crosscheck",
             str(SCENARIOS / f"crosscheck_{scenario}.py")],
            cwd=tmp_path, capture_output=True, text=True, timeout=120,
        )
        if done.returncode != EXIT_FIDELITY:
            break
    assert done.returncode == EXIT_OK, done.stdout + done.stderr
    table = [line.split() for line in done.stdout.splitlines()]
    agreed = [line for line in table if line and line[-1] == "True" and len(line) == 6]
    assert len(agreed) >= (9 if scenario == "allreduce" else 3), done.stdout
    assert "kept up" in done.stdout
