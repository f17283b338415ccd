"""How the ranks of a job end decides how its run ends: a failed rank is a failed run."""

import json
import random
from pathlib import Path

import pytest

import endings
import loomnet as ln

VIRTUAL = [row for row in endings.ROWS if row.clock == "virtual"]
# Imports of PyTorch take seconds: once each what its own shutdown, hooks or forks might change. One
# of them in ranks that import it each by itself, others in ranks that are forked after it; those
# that miss a module end before it.
WITH_TORCH = [
    (endings.Row(*cells), script)
    for *cells, script in (
        ("raise", "mid", "last", 2, "virtual", "ends.py"),
        ("import", "import", "all", 4, "virtual", "ends.py"),
        ("kill", "late", "last", 2, "virtual", "ends_forked.py"),
        ("unfinished", "after", "first", 2, "virtual", "ends_forked.py"),
        ("_exit0", "after", "all", 2, "virtual", "ends_forked.py"),
    )
]


@ln.scenario
def ends(lab: ln.Lab, row: str, delay: float, torch: bool = False, script: str = "ends.py"):
    """One job without a check: what it reports is its ranks' doing alone."""
    cells = endings.Row(**json.loads(row))
    fabric = ln.clos.two_tier(
        planes=1, leaves=1, spines=1, hosts_per_leaf=4, rate="400 Gb/s", delay="1 us"
    )
    arguments = [*cells.arguments(delay), *(["torch"] if torch else [])]
    lab.run(
        fabric,
        ln.TorchJob(
            endings.SCRIPT.with_name(script),
            args=arguments,
            ranks=cells.ranks,
            compute="1 ms",
            allow_no_network=True,
        ),
    )  # ranks that end early do not use it


def end(
    directory: Path, row: endings.Row, delay: float, torch: bool = False, script: str = "ends.py"
) -> None:
    report = ends.run(
        row=json.dumps(vars(row)),
        delay=delay,
        torch=torch,
        script=script,
        directory=directory,
        max_wall_s=120,
    )
    (run,) = report.results.values()
    logs = {int(path.stem): path.read_text() for path in directory.glob("**/ranks/*.log")}
    endings.check(
        row,
        run.data.ended,
        [f"{e.who}: {e.message}" for e in run.data.errors],
        report.exit_code,
        logs,
    )


@pytest.mark.parametrize("row", VIRTUAL, ids=str)
def test_each_ending_is_told(tmp_path, row):
    end(tmp_path, row, random.uniform(0, 0.5) if row.when == "late" else random.uniform(0, 0.1))


@pytest.mark.parametrize(("row", "script"), WITH_TORCH, ids=str)
def test_each_ending_is_told_with_pytorch(tmp_path, row, script):
    pytest.importorskip("torch")
    end(tmp_path, row, random.uniform(0, 0.5), torch=True, script=script)


@pytest.mark.soak
@pytest.mark.parametrize(("torch", "times"), [(False, 200), (True, 10)], ids=["plain", "torch"])
@pytest.mark.parametrize("row", VIRTUAL, ids=str)
@pytest.mark.timeout(7200)
def test_each_ending_is_told_every_time(tmp_path, row, torch, times):
    """A line with the count for each row that falls: a race shows in one run of hundreds."""
    fallen = []
    for number in range(times):
        delay = random.uniform(0, 3 if row.when == "late" else 0.1)
        try:
            end(tmp_path / str(number), row, delay, torch)
        except AssertionError as error:
            fallen.append(f"{number}, delay {delay:.3f}: {error}")
    print(f"{row}: {times - len(fallen)} of {times}")
    assert not fallen, "\n".join(fallen)
