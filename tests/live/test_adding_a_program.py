"""A system whose switch program has table rows of its own: a Python folder, a C++ folder and the
program's files in ebpf/ are all that an engine needs to be built with it, for both clocks."""

import shutil
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "python"))
from toy_program import TALLY, built, copied, played

pytest.importorskip("pybind11")


@pytest.mark.skipif(shutil.which("ninja") is None, reason="no ninja, which builds the engine")
@pytest.mark.timeout(600)
def test_its_own_files_are_enough_on_both_clocks(uses_machine, tmp_path):
    assert {each.parent.relative_to(TALLY).as_posix() for each in TALLY.rglob("*.*")} == {
        "python/loomnet/systems/tally",
        "core/switch/tally",
        "ebpf",
    }
    tree = copied(tmp_path / "tree")
    built(tree)
    for clock in ("virtual", "live"):
        assert "counted" in played(tree, clock, tmp_path / clock)
