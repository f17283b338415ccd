"""Symphony's scenarios: bar S2 at six seeds, a quick pass over the others, hostile packets
and workloads, and the reader that looks up the witness of a mark in a capture."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from clusters import cluster as cluster
from scenario_lib import lib

import loomnet as ln
from loomnet.cli import main

rings = lib("symphony")

pytest.importorskip("loomnet._core")
FOLDER = Path(__file__).parents[2] / "scenarios" / "symphony"


def go(tmp_path: Path, name: str, **values: Any) -> Any:
    seed = values.pop("seed", 1)
    return ln.load(FOLDER / f"{name}.py").run(seed=seed, directory=tmp_path / name, **values)


def failed(report: Any) -> set[str]:
    return {check.name for check in report.checks if not check.ok}


def names(report: Any) -> set[str]:
    return {check.name for check in report.checks}


def figures(report: Any) -> dict[str, Any]:
    return {row.dotted: row.value for row in report.rows}


# --- bars -----------------------------------------------------------------------------------------
@pytest.mark.in_turns
def test_s2_two_flows_at_six_seeds(tmp_path: Path) -> None:
    reports = [go(tmp_path / str(seed), "two_flows", seed=seed, hosts="B") for seed in range(6)]
    for report in reports:
        assert {"S2-gap-B", "S2-laggard-step-4-B", "S2-leader-ends-B", "S2-last-end-B"} <= names(
            report
        )
        # Of some seeds the leader ends a little more than 8 % later; see the mean.
        assert failed(report) <= {"S2-leader-ends-B"}
    leaders = [
        check.value
        for report in reports
        for check in report.checks
        if check.name == "S2-leader-ends-B"
    ]
    assert sum(leaders) / len(leaders) < 1.10


@pytest.mark.in_turns
@pytest.mark.parametrize("seeds", [2, pytest.param(24, marks=pytest.mark.soak)])
def test_s3_a_narrower_gap_at_no_great_cost(tmp_path: Path, seeds: int) -> None:
    """Each of the seeds 1 to 6 holds the bars alone: the gap is 18 to 45 % narrower, where 15 are
    asked for, and the completion at most 3.8 % later, where 5 are allowed."""
    report = go(tmp_path, "bars", only="S3", seeds=seeds)
    assert failed(report) == set()
    assert {"S3-gap-16", "S3-gap-32", "S3-completion-16", "S3-completion-32"} <= names(report)
    assert {"S3-16.S13-leader-later", "S3-32.S13-leader-later"} <= set(figures(report))


@pytest.mark.in_turns
@pytest.mark.parametrize("seeds", [2, pytest.param(24, marks=pytest.mark.soak)])
def test_the_other_bars(tmp_path: Path, seeds: int) -> None:
    report = go(tmp_path, "bars", only="S4,S5,S6,S7,S8,S9,S10,S12,S14,S15", seeds=seeds)
    # The completion of one job among others is noisy: of two seeds S14 says nothing.
    assert failed(report) - ({"S14-background"} if seeds < 20 else set()) == set()
    assert {
        "S7-files-that-differ-off",
        "S8-extra-marks-prob",
        "S9-same-marks",
        "S10-without-witness",
        "S12-completion-differs",
        "S14-rows-begun-again",
        "S15-marks-in-warm-up",
    } <= names(report)


@pytest.mark.parametrize("seeds", [3, pytest.param(24, marks=pytest.mark.soak)])
def test_s11_does_not_hold_by_default(tmp_path: Path, seeds: int) -> None:
    report = go(tmp_path, "bars", only="S11", seeds=seeds)
    assert failed(report) == {"S11-longer"}
    assert figures(report)["gate-4.S11-longer"] < 0.10  # four packets that wait make it hold


@pytest.mark.parametrize(
    "name, only, line",
    [
        ("bars", "s1", 'no bar "s1".*; there are S3, S4'),
        ("hostile", "table-fill", 'no attack "table-fill"; nearest: table-full'),
        ("when", "re-hash, new queue pairs;steps", 'no condition "steps"'),
        ("workloads", "5 jobs", 'no workload "5 jobs"; nearest: '),
    ],
)
def test_a_part_that_is_not_there(tmp_path: Path, name: str, only: str, line: str) -> None:
    with pytest.raises(ln.UsageError, match=line):
        go(tmp_path, name, only=only)


# --- other scenarios ------------------------------------------------------------------------------
@pytest.mark.in_turns
@pytest.mark.parametrize("seeds", [1, pytest.param(24, marks=pytest.mark.soak)])
def test_hostile_packets(tmp_path: Path, seeds: int) -> None:
    report = go(tmp_path, "hostile", seeds=seeds)
    noisy = {name for name in names(report) if name.endswith("-other-job-later")}
    assert failed(report) - (noisy if seeds < 20 else set()) == set()
    found = figures(report)
    assert found["unknown-job.ring_later"] == found["impossible-rank.ring_later"] == 0


@pytest.mark.parametrize(
    "seeds, only",
    [
        (1, "all-reduce, 8 ranks;reduce-scatter, 16 ranks;2 jobs;beside an all-to-all"),
        pytest.param(24, "", marks=pytest.mark.soak),
    ],
)
def test_workloads(tmp_path: Path, seeds: int, only: str) -> None:
    report = go(tmp_path, "workloads", seeds=seeds, only=only)
    noisy = {"all-to-all-later"} if seeds < 20 else set()
    assert failed(report) - noisy == set()
    assert figures(report)["w2.gain" if not only else "w5.gain"] > 0


def test_when(tmp_path: Path) -> None:
    report = go(
        tmp_path,
        "when",
        hosts=8,
        seeds=1,
        step="300 kB",
        only="re-hash, new queue pairs;fixed + bursts",
    )
    assert failed(report) == set()
    found = figures(report)
    (s1,) = (row for row in report.rows if row.name == "S1")
    assert s1.reason.startswith("1 seeds from 1000001 on")  # not those that chose the condition
    assert found["c1.fluid_gain"] > 0 and found["c1.room"] < 1
    assert {"c2.saved_no_marks", "c2.saved_alone"} <= set(found)
    assert (tmp_path / "when" / "gain.png").stat().st_size > 10_000


def test_marks(tmp_path: Path) -> None:
    report = go(tmp_path, "marks", hosts=8, seeds=2, step="1 MB", only="hosts B", pfc="4 MB")
    found = figures(report)
    assert failed(report) == set()
    # Rules take marks back, and a ring without any is the fastest but for those that align it.
    assert {
        found[f"m1-{kind}.taken_back"] > 0.05
        for kind in ("not_owner", "leaders", "not_random", "not_leader")
    } == {True}
    assert found["m1-no_marks.times_ideal"] < found["m1-off.times_ideal"]
    assert {"m1.not_owner_over_not_random", "m1.alone_over_no_marks"} <= set(found)
    assert found["no_marks-4MB.queue_p99"] > found["off-4MB.queue_p99"]


@pytest.mark.parametrize(("host", "reacts"), [("N", True), ("astra-sim", False)])
def test_other_hosts(tmp_path: Path, host: str, reacts: bool) -> None:
    settings = {
        "hosts": 8,
        "host": host,
        "rehash": "fixed",
        "queue_pair": "persistent",
        "step": "1 MB",
        "jitter": 0.3,
    }
    found = {
        kind: figures(go(tmp_path / kind, "ring", symphony=kind, **settings))
        for kind in ("off", "no_marks")
    }
    times = [each["completion"] for each in found.values()]
    assert (times[0] is not None) == reacts
    assert (times[0] != times[1]) == reacts
    assert found["off"]["turns_passed_by_marked_paths"] == 0


def test_a_gain_of_hosts_that_had_nothing_to_react_to_is_null(tmp_path: Path) -> None:
    report = go(
        tmp_path,
        "when",
        hosts=4,
        seeds=1,
        step="20 kB",
        oracle=False,
        only="re-hash, new queue pairs",
    )
    [gain] = [row for row in report.rows if row.name == "gain"]
    assert gain.value is None and gain.reason.startswith("no CNP occurred")
    assert "S1" not in figures(report)


def test_the_sweep_of_rings(
    tmp_path: Path, cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--set", "symphony=off,on", "--set", "hosts=4", "--set", "rehash=step,fixed"]
    words += ["--set", "step=300 kB", "--seeds", "2", "--out", str(tmp_path / "out")]
    assert main(["sweep", str(FOLDER / "ring.py"), *words, "--scheduler", cluster]) == 0
    assert "8 points, 0 failed, 0 missing" in capsys.readouterr().out


# --- claims, and marks in captures ----------------------------------------------------------------
@pytest.fixture(scope="module")
def lied_to(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Captures of a ring of 8, job 0, beside senders that claim to be its rank 8 in step 0."""
    folder = tmp_path_factory.mktemp("lied")
    fabric = rings.shared_fabric(8).program("*", "symphony", tau="1 step", shift=17)
    files = {
        f"p0.leaf{leaf}:p0.spine{spine}": folder / f"{leaf}-{spine}.pcapng"
        for leaf in range(2)
        for spine in range(4)
    }
    ring = ln.AllReduce(
        "8 MB",
        transport="roce",
        queue_pair="per-step",
        whole_steps=True,
        first_step=5,
        name="ring",
        hosts=[f"h{i}" for i in range(8)],
    )
    lab = ln.Lab("lied", seed=3, directory=folder / "run")
    lab.run(
        fabric,
        [ring, rings.liars(8, "5 ms", [rings.RingClaim(gen=0, rank=8, ranks=9, step=2)])],
        roce={"preset": "B", "identity": "hdr"},
        pcap=files,
    )
    return list(files.values())


def test_packets_say_what_a_hostile_sender_claims(lied_to: list[Path]) -> None:
    found = [each for file in lied_to for each in rings.departures(file)]
    forged = [each for each in found if each.rank == 8]
    assert forged and {(each.job, each.ring, each.nranks) for each in forged} == {(0, 0, 9)}
    assert {each.prog >> 16 for each in forged} == {2}
    assert {each.rank for each in found if each.nranks == 8} == set(range(8))


def test_the_reader_finds_a_witness_and_finds_none_where_there_is_none(lied_to: list[Path]) -> None:
    seen = [mark for file in lied_to for mark in rings.marks_seen(file)]
    assert len(seen) > 20 and {mark.wrong for mark in seen} == {None}
    assert min(mark.epochs for mark in seen) >= 2
    far = [mark.wrong for file in lied_to for mark in rings.marks_seen(file, tau=20 * rings.STEP)]
    assert all(wrong and "ahead of rank" in wrong for wrong in far)
    for file in lied_to:  # the liar's packets say another step than the switch has seen
        data = file.read_bytes().replace(
            bytes.fromhex("0008 0009 0002"), bytes.fromhex("0008 0009 0003")
        )
        file.with_suffix(".other").write_bytes(data)
    other = [
        mark.wrong for file in lied_to for mark in rings.marks_seen(file.with_suffix(".other"))
    ]
    assert sum(wrong is not None and "rank 8 was at" in wrong for wrong in other) > 20


def test_what_is_wrong_is_refused_in_a_line(lied_to: list[Path]) -> None:
    claim = rings.RingClaim()
    cut, text = lied_to[0].with_suffix(".cut"), lied_to[0].with_suffix(".txt")
    cut.write_bytes(lied_to[0].read_bytes()[:5_000])
    text.write_text("no capture at all")
    for make, says in (
        (lambda: ln.Flows("1 MB", count=2, claims=[claim]), "give steps="),
        (lambda: rings.RingClaim(rank=1 << 16), "rank"),
        (lambda: list(rings.departures(cut)), "cut off at byte"),
        (lambda: list(rings.departures(text)), "no pcapng block at byte 0"),
    ):
        with pytest.raises(ln.UsageError, match=says) as refused:
            make()
        assert "\n" not in str(refused.value)


# --- what a newcomer mistypes ---------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        (
            "when",
            {"only": "nonsense"},
            'only: no condition "nonsense"; nearest: re-hash, one queue pair',
        ),
        ("bars", {"only": "s5"}, "only: S5 send no packets, and a scenario must"),
        ("two_flows", {"hosts": "B,Z"}, "hosts: no preset 'Z'; there are A, B, C, D"),
        ("two_flows", {"hosts": " "}, "hosts: names no preset; there are A, B, C, D"),
        ("two_flows", {"steps": 3}, "two_flows.steps: Input should be greater than or equal to 4"),
        ("two_flows", {"size": "1 B"}, "Flows: steps: 16 steps of a flow of 1 B"),
    ],
)
def test_a_mistake_is_one_line_before_any_run(
    tmp_path: Path, name: str, values: dict[str, Any], words: str
) -> None:
    with pytest.raises(ln.UsageError, match=f"^{re.escape(words)}"):
        go(tmp_path, name, **values)


def test_spaces_between_names_do_no_harm(tmp_path: Path) -> None:
    report = go(tmp_path, "two_flows", hosts="B, C", size="10 MB")
    assert {"S2-gap-B", "S2-gap-C"} <= names(report)
    (last,) = (check for check in report.checks if check.name == "S2-last-end-B")
    assert last.value > 0.97 and last.reason is None  # a reason is that of an early end


@pytest.mark.parametrize("runs", [{}, None, "ring_steps"])
def test_a_picture_of_no_runs_is_refused(runs: Any) -> None:
    with pytest.raises(ln.UsageError, match="steps_figure: give runs by name"):
        rings.steps_figure(runs)
