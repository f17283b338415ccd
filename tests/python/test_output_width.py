"""What runs print on a terminal of 80 columns: nothing is wider, and no heading, name or number is
cut, on scenarios of each kind of job."""

import io
import math
import re
from types import SimpleNamespace
from typing import cast

import pytest
from rich.console import Console

import loomnet as ln
from loomnet.base.number_text import number_text
from loomnet.base.printing import print_line
from loomnet.cli.console import print_report
from loomnet.labs.progress import progress_text, share_done
from loomnet.labs.told import with_the_end
from loomnet.measures.training import NO_FAULT
from loomnet.results.tables import EXPECTED
from loomnet.running.request import Progress


def fabric(**changes):
    return ln.clos.two_tier(
        **{
            "planes": 2,
            "leaves": 2,
            "spines": 2,
            "hosts_per_leaf": 2,
            "rate": "100 Gb/s",
            "delay": "1 us",
            **changes,
        }
    )


def faults(*names):
    return [
        ln.down("h0--p0.leaf0", at=ln.step(8 + 20 * i), duration=ln.iterations(8), phase=name)
        for i, name in enumerate(names)
    ]


@ln.scenario
def six_phases(lab: ln.Lab):
    """Names as long as those of the main job, two transports."""
    rows = faults("nic_link_down", "leaf_spine_down", "silent_loss", "spine_down")
    for name in ("mrc", "roce"):
        lab.run(fabric(), ln.AllReduce("256 kB", 100, name), rows, label=name)
    lab.check("capacity", lab.results["mrc"]["nic_link_down.goodput_ratio"], ge=0.1)


@ln.scenario
def several(lab: ln.Lab):
    """Two jobs, of which one has no faults of its own."""
    jobs = [
        ln.AllReduce("256 kB", 30, name="a_training_job", hosts=["h0", "h1"]),
        ln.Flows(sizes=["64 kB"], count=20, name="background", hosts=["h2", "h3"]),
    ]
    lab.run(fabric(), jobs, faults("a_fault_with_a_rather_long_name"))
    lab.metric("a_number_of_ones_own_with_a_long_name_s", 3.4314159e-5, unit="s")


@ln.scenario
def incast(lab: ln.Lab):
    """Flows, drops, and nulls with reasons."""
    r = lab.run(fabric(hosts_per_leaf=4, pfc=False), ln.Incast("2 MB", 1, "roce"))
    for name, (value, unit) in r.flow_figures().items():
        lab.metric(name, value, unit=unit)


def shown(scenario, folder, **terminal):
    """What is printed, and the report."""
    stream = io.StringIO()
    console = Console(file=stream, width=80, legacy_windows=False, **terminal)
    said = []
    report = scenario.run(directory=folder, say=said.append)
    print_report(report, console)
    return re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue()), report


@pytest.mark.parametrize("scenario", [six_phases, several, incast], ids=lambda each: each.name)
def test_a_terminal_of_80_columns_shows_all(tmp_path, scenario):
    text, report = shown(scenario, tmp_path, force_terminal=True)
    path = str(tmp_path)
    wide = [line for line in text.splitlines() if len(line) > 80 and path not in line]
    assert not wide and "…" not in text
    numbers = text.split()
    empty = {(row.label, row.job) for row in report.rows if row.phase}
    for row in report.rows:
        if row.value is None or row.reason == NO_FAULT or row.name == EXPECTED:
            continue
        number = number_text(row.value, row.unit).split()[0]
        assert number in numbers, (row, text)
        empty.discard((row.label, row.job))
    assert not empty, "each run has a number in a table"
    flat = re.sub(r"\s", "", text)
    for name in {row.name for row in report.rows if row.value is not None}:
        assert name in flat
    for phase in {row.phase for row in report.rows if row.phase and row.value is not None}:
        assert all(part in text for part in phase.split("_"))


@pytest.mark.parametrize("scenario", [six_phases, several], ids=lambda each: each.name)
def test_tables_have_no_empty_column_and_no_number_in_e_notation(tmp_path, scenario):
    text, _ = shown(scenario, tmp_path)
    for table in re.findall(r"^number.*?\n(?:.+\n)+", text, re.MULTILINE):
        lines = table.splitlines()
        rule = next(i for i, line in enumerate(lines) if set(line.strip()) == {"─"})
        ends = {match.end() for line in lines[:rule] for match in re.finditer(r"\S+", line)}
        for end in ends:
            column = [line[max(end - 6, 0) : end].strip() for line in lines[rule + 1 :]]
            assert any(column), (end, table)
        assert not re.search(r"\de-\d", table)


def test_a_run_says_what_it_wrote_with_sizes(tmp_path):
    text, _ = shown(incast, tmp_path)
    line = next(each for each in text.splitlines() if each.startswith("wrote: "))
    found = dict(re.findall(r"(\S+) ([\d.]+ k?M?B)", line))
    assert set(found) == {path.name for path in tmp_path.iterdir()}
    assert next(iter(found)) == "report.json"
    for name, size in found.items():
        real = (tmp_path / name).stat().st_size
        assert size == f"{math.ceil(real / 1000)} kB"


def test_folders_of_a_run_are_one_item_each_and_many_are_summed(tmp_path):
    from loomnet.cli.console import MOST_WRITTEN, _written_text

    (tmp_path / "ranks").mkdir()
    for rank in range(3):
        (tmp_path / "ranks" / f"{rank}.log").write_text("x" * 1000)
    (tmp_path / "report.json").write_text("{}")
    assert _written_text(tmp_path) == "report.json 1 kB, ranks/ 3 kB in 3 files"
    (tmp_path / "large.bin").write_bytes(bytes(2_340_000))
    assert "large.bin 2.34 MB" in _written_text(tmp_path)
    for extra in range(20):
        (tmp_path / f"extra{extra:02}.csv").write_text("x" * 500)
    text = _written_text(tmp_path)
    assert "large.bin 2.34 MB" in text, "the largest are named"
    assert text.count(",") == MOST_WRITTEN and text.endswith("15 more: 8 kB")


def test_the_progress_line_fits_and_keeps_share_and_time_left():
    at = Progress(
        ln.Time("12.34 s"),
        step=41,
        total=60,
        loss=0.8123,
        iteration=ln.Time("420 ms"),
        phase="nic_link_down",
        paths_good=31,
        paths_total=32,
    )
    whole = progress_text("a_long_label", at, left_s=6)
    assert all(part in whole for part in ("loss 0.81", "iteration 420 ms", "paths 31/32"))
    for width in (78, 60, 40):
        text = progress_text("a_long_label", at, left_s=6, width=width)
        assert "step 41 of 60 (68 %)" in text and text.endswith("about 6 s left")
        assert len(text) <= max(width, 58)
    assert "[nic_link_down]" in progress_text("a_long_label", at, left_s=6, width=78)
    good = Progress(ln.Time("1 s"), step=1, paths_good=32, paths_total=32)
    assert progress_text("x", good) == "x  1 s  step 1", "paths are told where one is lost"


@pytest.mark.parametrize(
    "job",
    [
        ln.AllReduce("1 MB", 60),
        ln.Incast("200 MB"),
        ln.Permutation("20 MB", 3),
        ln.Flows("1 TB", pairs=[(0, 1)], lifetimes=["10 ms"], starts=["1 ms"], transport="tcp"),
    ],
    ids=lambda each: each.kind,
)
def test_a_run_tells_its_share_as_it_goes(tmp_path, monkeypatch, job):
    monkeypatch.setattr("loomnet.running.reporting.PROGRESS_S", 0.0)
    monkeypatch.setattr("loomnet.running.virtual_clock.MOST_EVENTS", 20_000)
    seen = []
    lab = ln.Lab(directory=tmp_path, on_progress=lambda label, at: seen.append(share_done(at)))
    lab.run(fabric(), job)
    known = [each for each in seen if each is not None]
    assert known == sorted(known) and known[0] < 0.5 < known[-1] <= 1


def test_the_progress_line_passes_on_what_is_waited_for(tmp_path):
    from loomnet.faults.timetable import Timetable

    counters = {"paths_good": 0, "paths_total": 0}
    at = Progress.of(
        0, [], cast(Timetable, SimpleNamespace(windows=[])), counters, waits="a store", share=0.5
    )
    assert at.waits == "a store" and at.share == 0.5
    assert "waiting for a store" in progress_text("x", at, silent_s=9)


def test_a_script_may_say_how_many_steps_it_takes(tmp_path):
    (tmp_path / "train.py").write_text("")
    job = ln.TorchJob("train.py", steps=40, compute="1 ms")
    seen = []
    with_the_end(lambda label, at: seen.append(at), "x", job)(Progress(ln.Time("1 ms"), step=10))
    assert share_done(seen[0]) == 0.25
    with pytest.raises(ln.UsageError, match="steps"):
        ln.TorchJob("train.py", steps=0)


def test_long_lines_go_on_at_a_word_on_a_terminal_and_stay_whole_in_a_file():
    line = "note: " + "word " * 40 + "runs/a-path-that-is-never-cut/report.json"
    for terminal in (True, False):
        stream = io.StringIO()
        print_line(Console(file=stream, width=80, force_terminal=terminal), line)
        printed = stream.getvalue().splitlines()
        assert (len(printed) > 1) == terminal and (max(map(len, printed)) <= 80) == terminal
        assert " ".join(" ".join(printed).split()) == line


def test_the_progress_line_has_the_share_where_it_is_known():
    now = ln.Time("1 ms")
    steps = progress_text("x", Progress(now, step=30, total=60), left_s=4)
    assert steps == "x  1 ms  step 30 of 60 (50 %)  about 4 s left"
    assert progress_text("x", Progress(now, total=60)) == "x  1 ms  step 0 of 60 (0 %)"
    flows = Progress(now, total=1, share=0.25)
    assert progress_text("x", flows, left_s=200) == "x  1 ms (25 %)  about 3 min left"
    assert progress_text("x", Progress(now, until=ln.Time("4 ms"))) == "x  1 ms of 4 ms (25 %)"
    assert progress_text("x", Progress(now, step=3)) == "x  1 ms  step 3"
