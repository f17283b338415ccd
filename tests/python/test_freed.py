"""Runs on the virtual clock leave nothing in the process that ran them, however they end."""

import pytest

import endings
import freed
import loomnet as ln


def fabric():
    return ln.clos.two_tier(
        planes=1, leaves=1, spines=1, hosts_per_leaf=4, rate="400 Gb/s", delay="1 us"
    )


@ln.plugin.priority("freed_level")
class Level(ln.plugin.Priority):
    def priority(self, message):
        return 7


def ranks(tmp_path, way):
    if way == "wall":
        (tmp_path / "hangs.py").write_text("import time\ntime.sleep(60)\n")
        return ln.TorchJob(tmp_path / "hangs.py", ranks=2, compute="1 ms")
    row = endings.Row(way, "mid", "last", 2, "virtual")
    return ln.TorchJob(endings.SCRIPT, args=row.arguments(0.1), ranks=2, compute="1 ms")


@pytest.mark.parametrize(
    "kind", ["flows", "collective", "model", "asked", "exit0", "raise", "kill", "wall"]
)
def test_a_run_that_is_over_holds_nothing(tmp_path, kind):
    @ln.scenario
    def one(lab: ln.Lab):
        if kind == "flows":
            job = ln.Permutation(size="1 MB")
        elif kind == "collective":
            job = ln.AllReduce(size="1 MB")
        elif kind in ("model", "asked"):
            job = ln.ModelJob(
                "resnet50",
                scale=1000,
                iterations=2,
                jitter=0.1,
                priority="esa" if kind == "model" else "freed_level",
            )
        else:
            job = ranks(tmp_path, kind)
        lab.run(fabric(), job)

    with freed.without_collector():
        report = one.run(directory=tmp_path / "runs", max_wall_s=3 if kind == "wall" else 60)
        (result,) = report.results.values()
    assert (result.data.ended == "finished") == (kind in ("flows", "collective", "model", "asked"))
