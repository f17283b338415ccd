"""The torch backend in real processes over the loopback NIC: every collective against Gloo, training
wrappers, and what happens when a rank dies, hangs, disagrees or writes garbage."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent / "torch_ranks"))
from launch import Ranks  # noqa: E402

WORLD = 4


def case_names(script: str) -> list[str]:
    source = (Path(__file__).parent / "torch_ranks" / script).read_text().splitlines()
    return [line.split("(")[0].removeprefix("def ") for before, line in
            zip(source, source[1:], strict=False) if before == "@case"]


@pytest.fixture(scope="module", params=[1, 3], ids=["one-queue-pair", "three-queue-pairs"])
def cases(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    directory = tmp_path_factory.mktemp("cases")
    with Ranks("cases.py", WORLD, directory=directory, channels=request.param) as ranks:
        ranks.wait(80)
    return ranks


@pytest.mark.parametrize("name", case_names("cases.py"))
def test_collective(cases: Ranks, name: str) -> None:
    for rank in range(WORLD):
        assert f"case {name} ok" in cases.log(rank), cases.log(rank)


def test_collectives_leave_in_peace(cases: Ranks) -> None:
    assert cases.status == dict.fromkeys(range(WORLD), 0), cases.logs()
    assert all(cases.nic.fault(r) == "none" for r in range(WORLD))
