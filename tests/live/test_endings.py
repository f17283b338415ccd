"""The live rows of the table of endings: a failed rank is a failed run there too."""

import random

import pytest
from command_line import Loomnet

import endings

LIVE = [row for row in endings.ROWS if row.clock == "live"]


def end(loomnet, row: endings.Row, delay: float, torch: bool = False) -> None:
    arguments = " ".join([*row.arguments(delay), *(["torch"] if torch else [])])
    run = loomnet.live(
        "ends", f"script={endings.SCRIPT}", f"args={arguments}", f"ranks={row.ranks}"
    )
    status = run.wait(120)
    report = loomnet.report()
    (fidelity,) = report["fidelity"]
    (count,) = (each["value"] for each in report["metrics"] if each["name"].endswith("errors"))
    logs = {int(path.stem): path.read_text() for path in loomnet.directory.glob("runs/*/ranks/*")}
    if status == 3:  # a busy machine, not this test's matter; the report shows the rest
        status = int(fidelity["ended"] != "finished")
    endings.check(row, fidelity["ended"], [run.output] if count else [], status, logs)


@pytest.mark.parametrize("row", LIVE, ids=str)
def test_each_ending_is_told(loomnet, row):
    end(loomnet, row, random.uniform(0, 0.5))


@pytest.mark.soak
@pytest.mark.parametrize(("torch", "times"), [(False, 10), (True, 2)], ids=["plain", "torch"])
@pytest.mark.parametrize("row", LIVE, ids=str)
@pytest.mark.timeout(3600)
def test_each_ending_is_told_every_time(uses_machine, tmp_path, row, torch, times):
    fallen = []
    for number in range(times):
        folder = tmp_path / str(number)
        folder.mkdir()
        delay = random.uniform(0, 3 if row.when == "late" else 0.5)
        try:
            end(Loomnet(folder), row, delay, torch)
        except AssertionError as error:
            fallen.append(f"{number}, delay {delay:.3f}: {error}")
    print(f"{row}: {times - len(fallen)} of {times}")
    assert not fallen, "\n".join(fallen)
