"""What the live tests share: skipped by probe with doctor's line, a machine left as it was found,
and `loomnet` as a user starts it."""

import math
import shutil
import tempfile
from pathlib import Path

import machine
import pytest
from command_line import Loomnet

from loomnet.live import doctor, pace
from loomnet.live.nodes import HostSpec, LiveFabric
from loomnet.processes import journal as ownership

_REASON = doctor.why_not_live()


def pytest_collection_modifyitems(items):
    if _REASON is not None:
        for item in items:
            if "uses_machine" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.skip(reason=_REASON))


@pytest.fixture
def ends_when_late():
    """For a test of just that."""


@pytest.fixture(autouse=True)
def _goes_on_when_late(request, monkeypatch):
    """What a run does is the same on a slow or busy machine, where Loomnet would end it early."""
    if "ends_when_late" not in request.fixturenames:
        monkeypatch.setattr(pace, "_LATE_SECONDS", math.inf)
        monkeypatch.setattr(pace, "_TOO_LATE", (math.inf, 1.0))


@pytest.fixture
def uses_machine():
    """Fails the test if it leaves anything on the machine that was not there before."""
    before = machine.look()
    yield
    left = machine.left_since(before)
    assert not left, "left behind: " + ", ".join(left)


@pytest.fixture
def loomnet(uses_machine, tmp_path):
    """The command line in a directory of its own; what still runs at the end is killed."""
    tool = Loomnet(tmp_path)
    yield tool
    tool.end()


@pytest.fixture
def directory():
    """A directory that every user may enter: pytest's own is its user's alone."""
    path = Path(tempfile.mkdtemp(prefix="loomnet-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def lock(directory):
    """A run's."""
    with ownership.RunLock(directory) as lock:
        yield lock


@pytest.fixture
def pair(lock):
    """Two hosts that only the management network joins."""
    with LiveFabric(lock, [HostSpec("h0", 0), HostSpec("h1", 1)]) as fabric:
        yield fabric
