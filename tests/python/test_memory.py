"""What a run needs of the machine's memory: little where little is moved, said where it is much,
refused in one line where the machine has less."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import loomnet as ln
from loomnet.base.errors import UsageError
from loomnet.labs import memory

pytest.importorskip("loomnet._core")
HERE = Path(__file__).parent


def two_tier(delay="1 us", rate="100 Gb/s"):
    return ln.clos.two_tier(planes=2, leaves=2, spines=2, hosts_per_leaf=4, rate=rate, delay=delay)


def under(gib, code):
    """Runs Python code in a process with so much address space; its status and words."""

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (gib << 30, gib << 30))

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, preexec_fn=limit
    )
    return done.returncode, done.stdout + done.stderr


BENCH = "import sys; from loomnet.cli import main; sys.argv[1:] = {!r}.split(); status = main(); "
# Of the process itself: ru_maxrss begins with what its parent had when it was forked.
BENCH += "print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0]); sys.exit(status)"


@pytest.mark.parametrize("size", ["64", "1M"])
def test_a_long_round_trip_costs_no_memory_that_no_byte_needs(size):
    line = f"bench all_reduce --ranks 8 -b {size} -e {size} --delay 1ms -n 1 -w 0"
    status, words = under(16, BENCH.format(line))
    assert status == 0, words
    assert int(words.split()[-1]) < 1 << 20  # KiB; it was 4 GiB for 64 B on 4 ranks


def test_the_line_before_a_run_says_what_it_needs_where_that_is_much(lab, monkeypatch):
    said = []
    monkeypatch.setattr(lab, "_say", said.append)
    lab.run(two_tier(), ln.AllReduce("1 kB"), payload=True, label="small")
    assert "memory" not in said[-1]
    monkeypatch.setattr(memory, "_free", lambda: (300 << 20, "MemAvailable"))
    lab.run(two_tier(), ln.AllReduce("4 MB"), payload=True, label="large")
    assert "; needs up to " in said[-1] and "tensors 96 MB" in said[-1]
    assert "\n" not in said[-1]


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (ln.AllReduce("128 GiB"), "lower AllReduce.size or AllReduce.ranks"),
        (ln.AllToAll("64 GiB"), "lower AllToAll.size"),
        (ln.Permutation("1 MB", 10**6), "lower Permutation.count or repeat"),
        (ln.Flows("1 MB", count=10**6), "lower Flows.count"),
    ],
)
def test_more_than_the_machine_has_is_refused_in_one_line(lab, job, words):
    with pytest.raises(UsageError, match="memory: this run needs up to") as refused:
        lab.run(two_tier(), job, payload=True)
    assert words in str(refused.value)
    assert "free (" in str(refused.value) and "\n" not in str(refused.value)


def test_so_is_more_than_the_address_space_left():
    line = "bench all_reduce --ranks 8 -b 64M -e 64M --delay 1ms -n 1 -w 0"
    status, words = under(2, BENCH.format(line))
    assert status == 2, words
    assert "RLIMIT_AS" in words and "Traceback" not in words


@pytest.mark.parametrize(
    "line", ["bench all_reduce -b 1T -e 1T", "bench all_reduce -b 1e18B -e 1e18B"]
)
def test_a_bench_of_more_than_there_is_is_one_line(line):
    status, words = under(4, BENCH.format(line))
    assert status == 2, words
    assert "Traceback" not in words and len(words.strip().splitlines()) <= 3


def worlds(first, count):
    done = subprocess.run(
        [sys.executable, HERE / "worlds.py", str(first), str(count)], capture_output=True, text=True
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == count, done.stderr
    return rows


def check_worlds(rows):
    failed = [row for row in rows if "failed" in row]
    assert not failed, json.dumps(failed, indent=1)
    assert max(row["rss_mb"] for row in rows) < 2048
    # A world that is refused proves little.
    assert sum(row["ended"] == "refused" for row in rows) <= len(rows) // 10


def test_random_worlds_hold_every_promise_within_two_gigabytes():
    check_worlds(worlds(0, 25))


@pytest.mark.soak
def test_a_thousand_random_worlds():
    rows = [row for first in range(0, 1000, 100) for row in worlds(first, 100)]
    check_worlds(rows)
    print(f"{len(rows)} worlds, at most {max(row['rss_mb'] for row in rows)} MB")
