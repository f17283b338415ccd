"""Both clocks agree: the same scenarios, live against virtual, through the command a user types."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from loomnet.base.errors import EXIT_FIDELITY, EXIT_OK, EXIT_USAGE
from loomnet.live import doctor

_REASON = doctor.why_not_live()
pytestmark = pytest.mark.skipif(_REASON is not None, reason=str(_REASON))
SCENARIOS = Path(__file__).parents[2] / "scenarios"
# A run that fell behind, or whose load the machine was measured not to carry, is no result. It is
# tried again, and then as its own line advises: at half the speed, which a machine carries that
# others have half of.
DILATIONS = (1, 1, 2)


def crosscheck(directory, scenario, *settings, seconds):
    """The command's output, and its table as figure -> (live, virtual)."""
    words = [word for each in settings for word in ("--set", each)]
    for dilation in DILATIONS:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "loomnet",
                "crosscheck",
                str(SCENARIOS / scenario),
                *words,
                "--set",
                f"dilation={dilation}",
            ],
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        over = done.returncode == EXIT_USAGE and "offered load of" in done.stderr
        if done.returncode != EXIT_FIDELITY and not over:
            break
    assert done.returncode == EXIT_OK, done.stdout + done.stderr
    print(done.stdout)  # pytest -s
    rows = [re.split(r"  +", line) for line in done.stdout.splitlines()]
    agreed = {row[0]: (row[1], row[2]) for row in rows if len(row) == 6 and row[-1] == "ok"}
    assert "kept up" in done.stdout
    return agreed


@pytest.mark.parametrize("scenario", ["flow", "incast", "permutation", "allreduce"])
def test_live_and_virtual_agree(scenario, tmp_path):
    agreed = crosscheck(tmp_path, f"crosscheck_{scenario}.py", seconds=120)
    assert len(agreed) >= (9 if scenario == "allreduce" else 3), agreed


@pytest.mark.timeout(400)
def test_the_main_job_agrees(uses_machine, tmp_path):
    """Real PyTorch under four faults, 40 s of training: ten iterations per fault. The command's own
    rules (loomnet.crosscheck) are the test's; nothing of a fault may be missing on either clock."""
    pytest.importorskip("torch")
    agreed = crosscheck(
        tmp_path, "mrc_ddp_link_failure.py", "transport=mrc", "fault=5 s", seconds=380
    )
    for phase in ("nic_link_down", "leaf_spine_down", "silent_loss", "spine_down"):
        for figure in ("goodput", "goodput_ratio", "iteration_s", "blip_s"):
            assert "–" not in agreed[f"mrc.{phase}.{figure}"], agreed
    assert "–" not in agreed["mrc.completion_s"]
