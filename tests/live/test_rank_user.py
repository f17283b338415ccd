"""Under sudo, ranks run as the user who typed it, and what the run writes is that user's."""

import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest
from command_line import TRAFFIC
from unprivileged import NOBODY, open_directory, python_for_nobody

WAITS = Path(__file__).parent / "rank_scripts" / "waits.py"


@pytest.fixture
def as_sudo(loomnet):
    """A live run of two ranks, started as sudo would for user 65534, once its ranks wait."""
    python, environment = python_for_nobody()
    loomnet.directory = open_directory()
    os.chown(loomnet.directory, NOBODY, NOBODY)
    script = loomnet.directory / "waits.py"
    shutil.copyfile(WAITS, script)
    script.chmod(0o644)
    sudo = {
        "SUDO_UID": str(NOBODY),
        "SUDO_GID": str(NOBODY),
        "SUDO_USER": "nobody",
        "SUDO_COMMAND": "loomnet run",
    }
    try:
        run = loomnet.live(
            "ranks", f"script={script}", python=python, environment=environment | sudo
        )
        run.until(TRAFFIC)
        (folder,) = (loomnet.directory / "runs").iterdir()
        deadline = time.monotonic() + 20
        logs = [folder / "ranks" / f"{rank}.log" for rank in (0, 1)]
        while not all(log.exists() and log.read_text() for log in logs):
            assert time.monotonic() < deadline, run.output
            time.sleep(0.05)
        yield loomnet, run, [json.loads(log.read_text()) for log in logs]
    finally:
        loomnet.end()
        shutil.rmtree(loomnet.directory)


def not_theirs(directory: Path) -> list[Path]:
    return [
        path
        for path in (directory, *directory.rglob("*"))
        if (path.stat().st_uid, path.stat().st_gid) != (NOBODY, NOBODY)
    ]


def test_ranks_are_the_users_without_any_right_of_roots(as_sudo):
    loomnet, run, ranks = as_sudo
    for status in ranks:
        assert status["Uid"] == status["Gid"] == [str(NOBODY)] * 4
        assert int(status["CapEff"][0], 16) == 0 and status["NoNewPrivs"] == ["1"]
        assert "0" not in status["Groups"]
        assert status["cwd"] == str(loomnet.directory)
    assert os.stat(f"/proc/{run.process.pid}").st_uid == 0
    assert not_theirs(loomnet.directory / "runs") == []  # while it runs
    run.interrupt()
    assert run.wait(30) == 130, run.output
    assert (next((loomnet.directory / "runs").iterdir()) / "report.json").exists()
    assert not_theirs(loomnet.directory / "runs") == []


def test_what_a_killed_run_wrote_is_the_users_too(as_sudo):
    loomnet, run, _ = as_sudo
    run.process.send_signal(signal.SIGKILL)
    run.wait(10)
    loomnet.clean()
    assert not_theirs(loomnet.directory / "runs") == []
