"""A job whose ranks hang ends on the virtual clock, wherever in their life they do, and says what
each of them waits for."""

import pytest
from hanging import CASES, SCRIPT, check

import loomnet as ln
from loomnet.labs.lab import Lab

pytest.importorskip("torch")
SHORT = {("rendezvous", "sleep"), ("no_optimizer", "receive")}


@pytest.mark.parametrize(
    ("stage", "way"),
    [pytest.param(*case, marks=() if case in SHORT else pytest.mark.soak) for case in CASES],
)
def test_every_hang_ends_and_is_named(tmp_path, stage, way):
    lab = Lab("hangs", directory=tmp_path / "run", max_wall_s=100)
    r = lab.run(
        ln.star(hosts=2, rate="100 Gb/s", delay="1 us"),
        ln.TorchJob(SCRIPT, args=[stage, way], ranks=2, compute="1 ms", stall_wall="3 s"),
    )
    check(r, stage, way)
