"""What a rank waits for is named where it is a program that it has started."""

import os
import signal
import subprocess
import sys
import time

from loomnet.processes.rank_watch import program_below


def test_the_deepest_program_is_named_and_none_where_there_is_none():
    with subprocess.Popen(["sh", "-c", "sleep 30; true"], process_group=0) as shell:
        deadline = time.monotonic() + 10
        while (name := program_below(shell.pid)) != "sleep" and time.monotonic() < deadline:
            time.sleep(0.02)
        assert name == "sleep"
        os.killpg(shell.pid, signal.SIGKILL)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)"]) as alone:
        assert program_below(alone.pid) is None
        alone.kill()
    assert program_below(alone.pid) is None  # which has ended
