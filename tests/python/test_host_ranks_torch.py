"""PyTorch on hosts of several ranks, on the virtual clock: what is learnt does not depend on where
ranks are, and when it is learnt does."""

import re
from pathlib import Path

import pytest

import loomnet as ln

pytest.importorskip("torch")
SCRIPT = Path(__file__).parent / "host_ranks" / "digest.py"
LINE = re.compile(r"DIGEST (\w+) rank (\d) local (\d) of (\d) on (\w+)")
TRANSPORTS = ["mrc", "roce", "gloo"]


def fabric(hosts, ranks, **changes):
    values = {
        "planes": 2,
        "leaves": 2,
        "spines": 1,
        "hosts_per_leaf": hosts // 2,
        "rate": "10 Gb/s",
        "delay": "1 us",
        "ranks_per_host": ranks,
        **changes,
    }
    return ln.clos.two_tier(**values)


def job(**changes):
    return ln.TorchJob(SCRIPT, **{"ranks": 4, "compute": "1 ms", **changes})


def run(tmp_path, made, jobs):
    return ln.Lab("ranks", seed=1, directory=tmp_path / "runs").run(made, jobs)


def lines(result):
    """Of each rank: digest, rank, local rank, local world, host."""
    logs = sorted(result.data.directory.glob("ranks/*.log"))
    return [match.groups() for log in logs if (match := LINE.search(log.read_text()))]


@pytest.mark.parametrize(
    "transport",
    [pytest.param(each, marks=pytest.mark.soak) if each != "mrc" else each for each in TRANSPORTS],
)
def test_two_hosts_of_two_ranks_learn_what_four_hosts_do(tmp_path, transport):
    spread = run(tmp_path / "4x1", fabric(4, 1), job(transport=transport))
    packed = run(tmp_path / "2x2", fabric(2, 2), job(transport=transport))
    for result in (spread, packed):
        assert result.data.ended == "finished", result.data.errors
        assert result["errors"] == 0 and result.data.deterministic
        assert result.data.fidelity.unexplained == 0
    own = lines(packed)
    assert {digest for digest, *_ in own} == {digest for digest, *_ in lines(spread)}
    assert len({digest for digest, *_ in own}) == 1
    assert [where for _, *where in own] == [
        ["0", "0", "2", "h0"],
        ["1", "1", "2", "h0"],
        ["2", "0", "2", "h1"],
        ["3", "1", "2", "h1"],
    ]
    assert [where for _, *where in lines(spread)] == [
        [str(rank), "0", "1", f"h{rank}"] for rank in range(4)
    ]
    moved = packed.data.totals["nic h0"]
    assert moved["local_bytes"] > 0 and moved["bytes_placed"] > 0
    assert "local_bytes" not in spread.data.totals["nic h0"]


def test_a_host_that_is_not_full_says_so_to_its_ranks(tmp_path):
    own = lines(run(tmp_path, fabric(2, 3), job()))
    assert [where for _, *where in own] == [
        ["0", "0", "3", "h0"],
        ["1", "1", "3", "h0"],
        ["2", "2", "3", "h0"],
        ["3", "0", "1", "h1"],
    ]


@pytest.mark.soak  # test_real_ranks.py does it with a rank on each host
def test_a_seed_gives_the_same_times(tmp_path):
    first, second = (run(tmp_path / str(n), fabric(2, 2), job()) for n in range(2))
    assert first.data.completion_ps == second.data.completion_ps
    assert first.data.iterations == second.data.iterations
    assert first.data.totals == second.data.totals
    assert lines(first) == lines(second)


@pytest.mark.soak
def test_iterations_follow_the_local_link_where_that_is_slow(tmp_path):
    lengths = []
    for local in ("900 GB/s", "10 MB/s"):
        result = run(tmp_path / local.replace("/", ""), fabric(2, 2, local_link=local), job())
        lengths.append(result.data.iterations[-1].length_ps / 1e12)
    # 4,310 parameters are 17 kB; of a ring of four, 1.5 times that crosses each local link.
    assert lengths[1] - lengths[0] == pytest.approx(4310 * 4 * 1.5 / 10e6, rel=0.2)


@pytest.mark.soak
def test_two_jobs_on_the_same_hosts_each_learn_as_alone(tmp_path):
    both = ["h0", "h1"]
    result = run(
        tmp_path / "both",
        fabric(2, 2),
        [job(name="a", hosts=both), job(name="b", hosts=both, transport="roce")],
    )
    alone = {digest for digest, *_ in lines(run(tmp_path / "alone", fabric(4, 1), job()))}
    for name in "ab":
        own = result.job(name)
        assert own.data.ended == "finished" and own["errors"] == 0
        assert {digest for digest, *_ in lines(own)} == alone


@pytest.mark.parametrize("rank", [1, pytest.param(3, marks=pytest.mark.soak)])
def test_a_rank_that_dies_is_named_beside_another_on_its_host(tmp_path, rank):
    result = run(tmp_path, fabric(2, 2), job(args=["--dies", str(rank)]))
    assert result.data.ended == "failed"
    assert result.data.errors[0].who == f"rank {rank}"
    assert "exit status 3" in result.data.reason
