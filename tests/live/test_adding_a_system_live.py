"""A system in one new folder, on the live clock."""

import sys
from pathlib import Path

import loomnet as ln

sys.path.append(str(Path(__file__).parents[1] / "python"))
from toy_system import added


def test_one_folder_is_enough(uses_machine, tmp_path):
    fabric = ln.clos.two_tier(
        planes=1, leaves=2, spines=1, hosts_per_leaf=2, rate="20 Mb/s", delay="0.5 ms"
    ).program("p0.leaf0", "mirror")
    with added(tmp_path / "systems"):
        lab = ln.Lab("toy", clock="live", seed=1, directory=tmp_path / "runs")
        r = lab.run(fabric, ln.AllReduce("40 kB", repeat=5, allreduce="toy", shown=True))
    assert r.data.ended == "finished" and r.data.fidelity.unexplained == 0
    assert r["toy_pairs"] == 1 and r.data.fidelity.notes["toy"] == "was there"
