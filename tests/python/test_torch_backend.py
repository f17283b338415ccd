"""The torch backend in real processes over the loopback NIC: every collective against Gloo,
training wrappers, and what happens when a rank dies, hangs, disagrees or writes garbage."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent / "torch_ranks"))
from launch import Ranks

WORLD = 4


def case_names(script: str) -> list[str]:
    source = (Path(__file__).parent / "torch_ranks" / script).read_text().splitlines()
    return [
        line.split("(")[0].removeprefix("def ")
        for before, line in itertools.pairwise(source)
        if before == "@case"
    ]


@pytest.fixture(
    scope="module",
    params=[(1, False), (3, False), (1, True)],
    ids=["one-queue-pair", "three-queue-pairs", "sums"],
)
def cases(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    directory = tmp_path_factory.mktemp("cases")
    channels, sums = request.param
    with Ranks("cases.py", WORLD, directory=directory, channels=channels, sums=sums) as ranks:
        ranks.wait(240)
        assert (ranks.nic.sums > 0) == sums
    return ranks


@pytest.mark.parametrize("name", case_names("cases.py"))
def test_collective(cases: Ranks, name: str) -> None:
    for rank in range(WORLD):
        assert f"case {name} ok" in cases.log(rank), cases.log(rank)


def test_collectives_leave_in_peace(cases: Ranks) -> None:
    assert cases.status == dict.fromkeys(range(WORLD), 0), cases.logs()
    assert all(cases.nic.fault(r) == "none" for r in range(WORLD))


@pytest.fixture(scope="module", params=[False, True], ids=["ring", "sums"])
def training(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    with Ranks(
        "training.py", WORLD, directory=tmp_path_factory.mktemp("training"), sums=request.param
    ) as ranks:
        ranks.wait(240)
        assert (ranks.nic.sums > 0) == request.param
    return ranks


@pytest.mark.parametrize("name", case_names("training.py"))
def test_training(training: Ranks, name: str) -> None:
    for rank in range(WORLD):
        assert f"case {name} ok" in training.log(rank), training.log(rank)


MAPPED = {"LOOMNET_MAP_BACKEND": "1", "LOOMNET_TRANSPORT": "mrc", "LOOMNET_HASH_EVERY": "20"}
AS_GLOO = ("called gloo cpu:gloo,cuda:gloo gloo gloo gloo", "profiled ['gloo:all_reduce']")
STEP, HASH, WORK_BEGIN, WORK_END, FAILURE = 1, 2, 4, 5, 6


def test_plain_script_is_mapped_and_measured(tmp_path: Path) -> None:
    with Ranks("job.py", 3, directory=tmp_path, **MAPPED) as ranks:
        assert ranks.wait(120) == {0: 0, 1: 0, 2: 0}, ranks.logs()
        marks = [ranks.nic.take_marks(r) for r in range(3)]
    assert ranks.log(0).count("backend gloo mapped to loomnet (mrc)") == 1
    assert "mapped" not in ranks.log(1)
    total = sum(range(10_000)) * 6
    assert all(f"sum {total} backend gloo" in ranks.log(r) for r in range(3)), ranks.logs()
    assert all(line in ranks.log(r) for r in range(3) for line in AS_GLOO), ranks.logs()
    for mine in marks:
        assert [m[3] for m in mine if m[0] == STEP] == list(range(1, 41))
        assert [m[3] for m in mine if m[0] == HASH] == [20, 40]
        ends = [m for m in mine if m[0] == WORK_END]
        assert len(ends) == sum(m[0] == WORK_BEGIN for m in mine) >= 41
        assert all(m[1] == 0 and m[4] <= m[2] for m in ends), "ended before it began"
        assert sum(m[5] == 4 * (32 * 8 + 8) for m in ends) >= 39  # one gradient bucket per step
    hashes = {tuple((m[3], m[4], m[5]) for m in mine if m[0] == HASH) for mine in marks}
    assert len(hashes) == 1, "parameters differ between ranks"


def test_stock_gloo_is_measured_alike(tmp_path: Path) -> None:
    with Ranks(
        "job.py",
        3,
        directory=tmp_path,
        LOOMNET_STOCK_GLOO="1",
        LOOMNET_HASH_EVERY="20",
        LOOMNET_HOST_ADDRESS="127.0.0.1",
    ) as ranks:
        assert ranks.wait(120) == {0: 0, 1: 0, 2: 0}, ranks.logs()
        marks = ranks.nic.take_marks(0)
        assert ranks.nic.bytes == 0, "Gloo's bytes went over the NIC"
    assert "mapped" not in ranks.log(0)
    assert all(line in ranks.log(r) for r in range(3) for line in AS_GLOO), ranks.logs()
    assert [m[3] for m in marks if m[0] == STEP] == list(range(1, 41))
    ends = [m for m in marks if m[0] == WORK_END]
    assert len(ends) == sum(m[0] == WORK_BEGIN for m in marks)
    assert sum(m[5] == 4 * (32 * 8 + 8) for m in ends) >= 39


@pytest.mark.parametrize(
    "fault, words",
    [
        ("kill", "rank 1 was killed"),
        ("raise", "rank 1 aborted"),
        ("leave", "rank 1"),
    ],
)
def test_death_of_a_rank_is_named(tmp_path: Path, fault: str, words: str) -> None:
    with Ranks("job.py", 3, fault, "1", directory=tmp_path, **MAPPED) as ranks:
        ranks.wait(120)
    assert ranks.status[0] == ranks.status[2] == 1, ranks.logs()
    for rank in (0, 2):
        assert words in ranks.log(rank), ranks.log(rank)
        limit = 30 if fault == "leave" else 10  # leaving is no error until somebody needs the rank
        assert ranks.ended[rank] - ranks.ended[1] < limit, ranks.ended


def test_run_ends_the_job_after_a_step(tmp_path: Path) -> None:
    with Ranks("job.py", 3, "stop", "9", directory=tmp_path, **MAPPED) as ranks:
        ranks.wait_for(0, "step 6 ", 120)
        ranks.nic.last_step(12)
        assert ranks.wait(60) == {0: 0, 1: 0, 2: 0}, ranks.logs()
    assert all("step 11 " in ranks.log(r) and "step 13 " not in ranks.log(r) for r in range(3))


def test_rank_that_scribbles_is_cut_off(tmp_path: Path) -> None:
    with Ranks("garbage.py", 3, "scribble", "2", directory=tmp_path) as ranks:
        for rank in (0, 1):
            ranks.wait_for(rank, "error:", 120) if rank not in ranks.status else None
            assert "rank 2 was cut off" in ranks.log(rank), ranks.log(rank)
        assert ranks.nic.fault(2) != "none"
        assert ranks.nic.fault(0) == ranks.nic.fault(1) == "none"


def test_memory_cannot_be_shrunk(tmp_path: Path) -> None:
    with Ranks("garbage.py", 2, "shrink", "1", directory=tmp_path) as ranks:
        assert ranks.wait(120) == {0: 0, 1: 0}, ranks.logs()
    assert "refused: Operation not permitted" in ranks.log(1)


def test_import_outside_a_run_changes_nothing() -> None:
    script = (
        "import torch, torch.distributed as dist\n"
        "assert dist.Backend.default_device_backend_map['cpu'] == 'gloo'\n"
        "store = dist.HashStore()\n"
        "try: dist.init_process_group('loomnet', store=store, rank=0, world_size=1)\n"
        "except RuntimeError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=90
    )
    assert "loomnet run" in done.stdout and done.stdout.count("\n") == 1, done.stdout + done.stderr


@pytest.mark.parametrize("groups", [24, pytest.param(100, marks=pytest.mark.soak)])
def test_more_groups_than_channels(tmp_path: Path, groups: int) -> None:
    with Ranks("groups.py", 8, str(groups), directory=tmp_path) as ranks:
        assert ranks.wait(240) == dict.fromkeys(range(8), 0), ranks.logs()
    assert all("groups ok" in ranks.log(r) for r in range(8)), ranks.logs()
