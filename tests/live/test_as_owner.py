"""What root does in a user's clone, script/bootstrap and script/test do as that user."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "script"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user: run as root")


@pytest.fixture
def clone():
    """A folder that a user without a name made, with the scripts in it."""
    uid = 61234
    as_user = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    made = subprocess.run(
        [*as_user, "mktemp", "-d", "/tmp/loomnet-owner-XXXXXX"],
        capture_output=True,
        text=True,
        check=True,
    )
    folder = Path(made.stdout.strip())
    yield folder, uid
    shutil.rmtree(folder)


def as_owner(folder: Path, *command: str) -> str:
    done = subprocess.run(
        ["bash", "-c", 'source "$0"; as_owner "$@"', SCRIPTS / "common.sh", *command],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "SUDO_UID": "0"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_command_runs_as_the_clones_owner_with_nothing_of_root(clone):
    folder, uid = clone
    said = as_owner(folder, "sh", "-c", 'id -u; id -g; id -G; echo "$HOME"; echo "[$SUDO_UID]"')
    assert said.splitlines() == [str(uid)] * 3 + [f"{folder}/build/home", "[]"]
    as_owner(folder, "mkdir", "-p", "build/logs")
    assert (folder / "build/logs").stat().st_uid == uid


def test_in_a_clone_of_roots_a_command_stays_as_it_is(tmp_path):
    assert as_owner(tmp_path, "id", "-u") == "0"
