"""The cost of a run in Python is linear in the length of its job. The cost is counted in calls and
lines, and in rows that the engine hands over, which are the same on every machine; with --soak in
instructions, the engine's among them."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scenario_lib import lib

pytest.importorskip("loomnet._core")

import loomnet as ln
from loomnet import _core

mfabric = lib("mfabric")


def fabric(hosts_per_leaf=4):
    return ln.clos.two_tier(
        planes=1, leaves=2, spines=2, hosts_per_leaf=hosts_per_leaf, rate="10 Gb/s", delay="5 us"
    )


def later(count):
    """Flows that begin one after another."""
    return ln.Flows(
        sizes=["10 kB"],
        count=count,
        transport="tcp",
        starts=[f"{20 * number} us" for number in range(count)],
    )


def experts(iterations):
    """Circuits are patched in each iteration: events of a panel and of a region's controller."""
    made, job = mfabric.compared(
        "mixnet",
        servers=8,
        rate="100 Gb/s",
        preset=None,
        control={},
        profile="1 ms",
        alpha=6,
        data=1,
        pipeline=1,
        layers=2,
        micro_batches=1,
        iterations=iterations,
    )
    ln.run(made, job, model="fluid", write=False)


CASES = {
    "iterations of flows": lambda n: ln.run(
        fabric(), ln.Permutation("4 kB", repeat=n, transport="roce"), write=False
    ),
    "iterations of a collective": lambda n: ln.run(
        fabric(), ln.AllReduce("4 kB", repeat=n, transport="roce"), write=False
    ),
    "iterations of a model": lambda n: ln.run(
        fabric(),
        ln.ModelJob(buckets=["10 kB"], compute="10 us", iterations=n, transport="roce"),
        write=False,
    ),
    "flows": lambda n: ln.run(fabric(), later(n), write=False),
    "hosts": lambda n: ln.run(
        fabric(n // 4), ln.Permutation("4 kB", transport="roce"), write=False
    ),
    "jobs": lambda n: ln.run(
        fabric(n),
        [
            ln.AllReduce(
                "4 kB", ranks=2, name=f"job{i}", start=f"{i * 640 / n} us", transport="roce"
            )
            for i in range(n)
        ],
        write=False,
    ),
    "samples of a queue": lambda n: ln.run(
        fabric(),
        ln.Permutation("1 MB", transport="tcp"),
        write=False,
        sample=ln.Time.of(4 * 10**10 // n),
        queues=["p0.leaf0->h0"],
        links=["p0.leaf0->*"],
    ),
    "samples of senders": lambda n: ln.run(
        fabric(),
        ln.Permutation("1 MB", transport="tcp"),
        write=False,
        sample=ln.Time.of(4 * 10**10 // n),
        observe=["cwnd", "acked"],
    ),
    "senders that come and go": lambda n: ln.run(
        fabric(), later(n), write=False, sample="20 us", observe=["cwnd"]
    ),
}
CASES["events of circuits"] = experts
CASES["faults"] = lambda n: ln.run(
    fabric(),
    ln.AllReduce("4 kB", repeat=4 * n, transport="roce"),
    [
        ln.delay(
            "h0--p0.leaf0", "1 us", at=ln.step(4 * i + 1), duration=ln.iterations(2), phase=f"p{i}"
        )
        for i in range(n)
    ],
    write=False,
)
LEAST = {"hosts": 32, "jobs": 32, "events of circuits": 10, "faults": 40}


def calls(run, n, file=""):
    """Calls and lines, in files whose names end so."""
    found = 0

    def count(frame, event, _argument):
        nonlocal found
        if not frame.f_code.co_filename.endswith(file):
            return None
        found += event in ("call", "line")
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        run(n)
    finally:
        sys.settrace(before)
    return found


def crossing(run, n, monkeypatch):
    """Rows of arrays and lists that methods of the engine's classes have returned."""
    found = 0

    def counting(method):
        def counted(*given, **named):
            nonlocal found
            rows = method(*given, **named)
            for each in rows.values() if isinstance(rows, dict) else (rows,):
                if isinstance(each, (np.ndarray, list)):
                    found += len(each)
            return rows

        return counted

    with monkeypatch.context() as patch:
        for kind in vars(_core).values():
            if not isinstance(kind, type) or not kind.__module__.startswith("loomnet"):
                continue
            for name, method in vars(kind).items():
                if not name.startswith("_") and type(method).__name__ == "instancemethod":
                    patch.setattr(kind, name, counting(method))
        run(n)
    return found


@pytest.mark.parametrize("what", CASES)
def test_four_times_as_much_takes_five_times_the_calls_at_most(what, monkeypatch):
    least = LEAST.get(what, 200)
    CASES[what](least)  # so that imports are not counted
    one, four = calls(CASES[what], least), calls(CASES[what], 4 * least)
    assert four <= 5 * one, f"{one} calls for {least}, {four} for {4 * least}"
    one, four = (crossing(CASES[what], each, monkeypatch) for each in (least, 4 * least))
    assert 0 < four <= 5 * one, f"{one} rows for {least}, {four} for {4 * least}"


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="no valgrind, which counts them")
@pytest.mark.parametrize("what", CASES)
def test_four_times_as_much_takes_five_times_the_instructions_at_most(what, tmp_path):
    """Of the whole process, less those of a run that is as short as can be."""
    least = LEAST.get(what, 200)

    def instructions(n):
        out = tmp_path / f"{n}.out"
        code = f"import test_linear_cost as t; t.CASES[{what!r}]({n})"
        subprocess.run(
            [
                "valgrind",
                "--tool=callgrind",
                f"--callgrind-out-file={out}",
                sys.executable,
                "-c",
                code,
            ],
            check=True,
            capture_output=True,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parent), "PYTHONHASHSEED": "0"},
        )
        return int(re.search(r"^(?:summary|totals): (\d+)", out.read_text(), re.MULTILINE)[1])

    shortest, one, four = (instructions(each) for each in (max(least // 10, 4), least, 4 * least))
    assert four - shortest <= 5 * (one - shortest), (shortest, one, four)


def test_rounds_of_twice_the_flows_take_hardly_more_calls():
    """What is the same for all flows of a pair is worked out once for each pair."""

    def rounds(hosts_per_leaf, n):
        job = ln.Permutation("4 kB", repeat=n, transport="roce")
        ln.run(fabric(hosts_per_leaf), job, write=False)

    rounds(4, 20)  # so that imports are not counted
    few, many = (
        calls(lambda n, each=each: rounds(each, n), 400)
        - calls(lambda n, each=each: rounds(each, n), 200)
        for each in (4, 8)
    )
    assert 0 < many <= 1.5 * few, f"{few} more calls for 200 rounds of 8 flows, {many} of 16"


def test_what_reads_its_history_again_is_found():
    def again(n):
        history = []
        for number in range(n):
            history.append(number)
            _ = [each + 1 for each in history]

    assert calls(again, 800) > 5 * calls(again, 200)
