"""README.md keeps its word on the live clock too: every command for it, as it stands there."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from loomnet.live import doctor

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))
import readme

_REASON = doctor.why_not_live()
pytestmark = pytest.mark.skipif(_REASON is not None, reason=str(_REASON))
LIVE = [command for command in readme.commands() if readme.is_live(command)]
TRIES = 2  # a run that fell behind is no result: one more try, then it is an error


@pytest.fixture
def clone(loomnet):
    shutil.copytree(readme.ROOT / "scenarios", loomnet.directory / "scenarios")
    return loomnet


@pytest.mark.parametrize("command", [each for each in LIVE if "capture " not in each])
def test_a_live_command_does_what_it_says(clone, command):
    for _ in range(TRIES):
        run = clone.start(*readme.words(command)[3:])
        status = run.wait(60)  # the README promises some 20 s
        if status != 3:
            break
    assert status == 0, run.output
    assert "kept up" in run.output and "FAIL" not in run.output
    assert not re.search(r" NO$", run.output, re.M)


def test_a_capture_while_a_live_run_lasts(clone):
    (live,) = [command for command in LIVE if "--clock live" in command]
    (capture,) = [command for command in LIVE if "capture " in command]
    command, sign, reader = capture.partition(" | ")
    assert sign and reader.startswith("wireshark -k -i -")
    run = clone.start(*readme.words(live)[3:])
    run.until(r"^flap  .* s  ")
    with subprocess.Popen(readme.words(command), stdout=subprocess.PIPE) as tapped:
        head = tapped.stdout.read(100_000)
        tapped.stdout.close()
        tapped.wait(20)
    assert head[:4] == b"\x0a\x0d\x0d\x0a" and len(head) == 100_000
    assert run.wait(60) in (0, 3), run.output
