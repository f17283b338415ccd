"""`loomnet bench`: nccl-tests' columns, factors and sizes, on real bytes; oracles for both ends."""

import itertools
import json

import pytest

import loomnet as ln
from loomnet.cli import main
from loomnet.labs import bench as benching

NCCL_FACTORS = {  # of 8 ranks, as nccl-tests' document on performance states them
    "all_reduce": 2 * 7 / 8,
    "all_gather": 7 / 8,
    "reduce_scatter": 7 / 8,
    "alltoall": 7 / 8,
    "broadcast": 1,
    "reduce": 1,
    "sendrecv": 1,
}


def fabric(planes=2, hosts=2):
    return ln.clos.two_tier(
        planes=planes, leaves=2, spines=2, hosts_per_leaf=hosts, rate="100 Gb/s", delay="1 us"
    )


def rows(name, wanted, **options):
    options = {"transport": "mrc", "repeat": 2} | options
    on = options.pop("fabric", None) or fabric()
    return list(benching.measured(benching.BENCHMARKS[name], on, wanted, **options))


def test_bus_factors_are_those_of_nccl_tests():
    found = {name: each.job.bus_factor(8) for name, each in benching.BENCHMARKS.items()}
    assert found == NCCL_FACTORS


@pytest.mark.parametrize("transport", ["mrc", "roce", "tcp"])
@pytest.mark.parametrize("name", benching.BENCHMARKS)
def test_every_collective_moves_real_bytes_and_none_is_wrong(name, transport):
    found = rows(name, [256, 30_000, 200_000], transport=transport)
    assert [row.wrong for row in found] == [0, 0, 0]
    assert all(a.time_us < b.time_us for a, b in itertools.pairwise(found))
    for row in found:
        blocks = benching.BENCHMARKS[name].blocks
        assert row.size == row.count * 4 * (4 if blocks else 1)
        assert row.algbw == pytest.approx(row.size / row.time_us / 1e3)
        assert row.busbw == pytest.approx(row.algbw * benching.BENCHMARKS[name].job.bus_factor(4))


def test_lengths_only_is_timed_like_bytes():
    real, bare = (rows("all_reduce", [50_000], compare_bytes=flag)[0] for flag in (True, False))
    assert real.time_us == bare.time_us and (real.wrong, bare.wrong) == (0, None)
    assert bare.text().split()[-1] == "N/A"


def test_smallest_message_takes_the_path_and_the_largest_the_line_rate():
    small = rows("sendrecv", [8], fabric=fabric(planes=1))[0]
    # Host r is on leaf r mod 2, so every neighbour is four links of 1 us away, there and back with
    # the acknowledgement; the rest is serialisation of about 200 B at 100 Gb/s, eight times.
    assert 8.0 < small.time_us < 8.0 + 8 * 0.03
    large = rows("all_reduce", [8 << 20], repeat=1, compare_bytes=False)[0]
    line = 2 * 100e9 / 8 / 1e9  # GB/s, both planes
    assert 0.75 * line < large.busbw < line * 2048 / (2048 + 166) * 1.001


def test_a_round_of_a_rooted_collective_ends_when_its_last_rank_has_it():
    row = rows("broadcast", [8])[0]
    assert row.time_us > 4.0
    assert row.root == 0 and rows("all_reduce", [8])[0].root == -1


def test_sizes_as_nccl_tests_writes_them():
    assert benching.sizes("8", "64", 2, None) == [8, 16, 32, 64]
    assert benching.sizes("1K", "1M", 32, None) == [1024, 32768, 1 << 20]
    assert benching.sizes("1 MB", "2 MB", 2, "500 kB") == [10**6, 15 * 10**5, 2 * 10**6]
    for spelling in ("all_reduce", "AllReduce", "allreduce", "all_reduce_perf", "all-reduce"):
        assert benching.benchmark_named(spelling).job is ln.AllReduce
    assert benching.benchmark_named("all_to_all").job is ln.AllToAll


def test_command_prints_the_table(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["bench", "all_gather", "-b", "8", "-e", "4K", "-f", "8", "--planes", "1", "-n", "2"]
    assert main([*words, "--json", "rows.json"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("# loomnet") and "4 ranks, mrc" in out[0]
    heads = next(line for line in out if "redop" in line).lstrip("#").split()
    assert heads == ["size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong"]
    table = [line.split() for line in out if not line.startswith("#")]
    assert [row[0] for row in table] == ["64", "512", "4096"]  # 8 B hold no element per rank
    assert all(row[2:5] == ["int32", "none", "-1"] and row[8] == "0" for row in table)
    assert out[-2] == "# Out of bounds values : 0 OK" and "Avg bus bandwidth" in out[-1]
    assert [row["size"] for row in json.loads((tmp_path / "rows.json").read_text())] == [
        64,
        512,
        4096,
    ]
    assert {p.name for p in tmp_path.iterdir()} == {"rows.json"}  # no run is left behind


def test_command_takes_a_fabric_of_ones_own(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "import loomnet as ln\n"
        "fabric = ln.star(hosts=3, rate='10 Gb/s', delay='1 us')\n"
        "def pair(): return ln.star(hosts=2, rate='10 Gb/s', delay='1 us')\n"
    )
    size = ["-b", "1K", "-e", "1K", "-n", "1"]
    assert main(["bench", "reduce", *size, "--fabric", "mine.py", "--ranks", "3"]) == 0
    assert "star-3" in capsys.readouterr().out
    assert main(["bench", "reduce", *size, "--fabric", "mine.py::pair", "--ranks", "2"]) == 0
    assert main(["bench", "reduce", *size, "--fabric", "mine.py", "--ranks", "4"]) == 2
    assert "4 ranks but 3 hosts" in capsys.readouterr().err
    assert main(["bench", "reduce", *size, "--fabric", "mine.py::fabrik"]) == 2
    assert 'no fabric named "fabrik"; nearest: fabric' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["all_redcue"], '"all_redcue" is no collective of bench; nearest: all_reduce, '),
        (["all_reduce", "-b", "0"], "begin with 4 B or more"),
        (["all_reduce", "-b", "1M", "-e", "1K"], "end with no less"),
        (["all_reduce", "-f", "1"], "the factor must be 2 or more"),
        (["all_reduce", "-e", "64Q"], "-e 64Q: "),
        (["all_reduce", "-n", "0"], "-n must be 1 or more"),
        (["all_reduce", "--transport", "gluu"], "gloo"),
        (["all_reduce", "--rate", "400"], "has no unit"),
        (["all_gather", "-b", "8", "-e", "8"], "no size has an element for each of 4 ranks"),
        (["all_reduce", "--fabric", "none.py"], 'no file "none.py"'),
        (["all_reduce", "--leaves", "0"], "two_tier.leaves: 0"),
    ],
)
def test_bad_input_is_one_line(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["bench", *words]) == 2
    shown = capsys.readouterr()
    assert message in shown.err and shown.err.count("\n") == 1 and not shown.out
    assert not list(tmp_path.iterdir())
