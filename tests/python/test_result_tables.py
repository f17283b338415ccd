"""What a run prints: every number whole and readable at every width, nothing empty, nothing without
a name; and the progress line."""

import io
import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from scripted import ScriptedRunner
from synthetic import steady_run

import loomnet as ln
from loomnet.base.number_text import DIGITS, PREFIXED, PREFIXES, number_text
from loomnet.base.units import Time
from loomnet.cli.console import print_report
from loomnet.labs.progress import Watch, progress_bar, progress_line
from loomnet.measures.rows import check, metric
from loomnet.results.report import Report
from loomnet.results.tables import dropped_table, figure_tables
from loomnet.running.request import Progress

UNITS = ["s", "ratio", "packets", "paths", "b/s", "B/s", "B", "loss", "Gb/s", None]
NUMBERS = st.one_of(
    st.floats(min_value=-1e300, max_value=1e300),
    st.floats(min_value=1e-12, max_value=1e12),
    st.integers(min_value=-(10**18), max_value=10**18),
)
NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,70}", fullmatch=True)


def parsed(text):
    """The number in what number_text() wrote."""
    number, _, rest = text.partition(" ")
    for power, prefix in PREFIXES.items():
        if rest in [prefix + unit for unit in ("", *PREFIXED)]:
            return float(number) * 10.0**power
    raise AssertionError(f"{text!r} is no number with a prefix and a unit")


@settings(deadline=None)  # a busy machine is no slow table
@given(NUMBERS, st.sampled_from(UNITS))
def test_every_number_parses_back_to_its_value(value, unit):
    text = number_text(value, unit)
    assert parsed(text) == pytest.approx(value, rel=0.51 * 10 ** (1 - DIGITS), abs=1e-320)
    assert len(text) <= 15


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (3.431e-5, "s", "34.31 us"),
        (4.26e-6, "s", "4.26 us"),
        (0.0005639, "s", "563.9 us"),
        (0.00099999, "s", "1 ms"),
        (659.25, "s", "659.2 s"),
        (7200.0, "s", "7200 s"),
        (0, "s", "0 s"),
        (0.7568421, "ratio", "0.7568"),
        (1, "ratio", "1"),
        (5e-5, "ratio", "5e-05"),
        (703, "packets", "703"),
        (99_999, "packets", "99999"),
        (1_200_000, "packets", "1.2 M"),
        (4e11, "b/s", "400 Gb/s"),
        (1.05e9, "B", "1.05 GB"),
        (44204.3, "B/s", "44.2 kB/s"),
        (12345, "s", "12345 s"),
        (12345.6, None, "12346"),
        (2.302585, "loss", "2.303"),
        (None, "s", "–"),
        (math.nan, "s", "nan"),
    ],
)
def test_numbers_as_text(value, unit, text):
    assert number_text(value, unit) == text


def printed(report, width):
    stream = io.StringIO()
    print_report(report, Console(file=stream, width=width, legacy_windows=False))
    return stream.getvalue()


def tables_as_text(report, width):
    stream = io.StringIO()
    console = Console(file=stream, width=width)
    for table in figure_tables(report, width):
        console.print(table, crop=False)
    return stream.getvalue()


def wide_report(phases, figures, value=3.4314159e-5):
    report = Report("wide")
    report.rows = [
        metric(figure, value * (1 + i + 10 * j), unit="s", phase=phase, label="mrc")
        for i, phase in enumerate(phases)
        for j, figure in enumerate(figures)
    ]
    return report


@pytest.mark.parametrize("width", [40, 80, 100, 120])
@pytest.mark.parametrize(
    "phases",
    [
        ["before", "nic_link_down", "leaf_spine_down", "silent_loss", "spine_down", "after"],
        ["before", "a_phase_whose_name_alone_is_longer_than_half_of_a_terminal_is_wide", "after"],
        [f"phase{i}" for i in range(40)],
    ],
)
def test_tables_fit_and_lose_no_number(width, phases):
    report = wide_report(phases, ["iteration_s", "recovery_s", "a" * 60 + "_s"])
    text = tables_as_text(report, width)
    assert max(map(len, text.splitlines())) <= width and "…" not in text
    for row in report.rows:
        assert text.split().count(number_text(row.value, "s").split()[0]) >= 1, (row, text)


@settings(deadline=None)
@given(
    st.lists(NAMES, min_size=1, max_size=8, unique=True),
    st.lists(NAMES, min_size=1, max_size=4, unique=True),
    NUMBERS,
    st.sampled_from(UNITS),
    st.sampled_from([20, 80, 100, 120]),
)
def test_any_names_and_values_are_whole(phases, figures, value, unit, width):
    report = Report("any")
    report.rows = [metric(f, value, unit=unit, phase=p) for p in phases for f in figures]
    text = tables_as_text(report, width)
    assert "…" not in text
    if width >= 80:
        assert max(map(len, text.splitlines())) <= width
    shown = number_text(report.rows[0].value, unit)
    assert text.count(shown) >= len(report.rows)
    whole = re.sub(r"\s", "", text)
    assert all(letter in whole for letter in "".join(phases + figures))


def test_the_main_jobs_six_phases_are_one_table_of_80_characters():
    phases = ["before", "nic_link_down", "leaf_spine_down", "silent_loss", "spine_down", "after"]
    assert len(figure_tables(wide_report(phases, ["iteration_s", "expected_capacity"]), 80)) == 1


def test_a_table_says_what_is_null_and_leaves_out_what_is_empty():
    report = Report("s")
    report.rows = [
        metric("iteration_s", 0.5, unit="s", phase="before"),
        metric("recovery_s", None, unit="s", phase="before", reason="never 3 iterations"),
        metric("readmitted", None, phase="before", reason="this transport does not count it"),
        metric("iteration_s", 0.7, unit="s", phase="down", stands=False),
        metric("recovery_s", 1.5, unit="s", phase="down"),
        metric("readmitted", None, phase="down", reason="this transport does not count it"),
        metric("iteration_s", None, unit="s", phase="never", reason="the job finished before"),
        metric("expected_capacity", 0.75, phase="down"),
        metric("expected_capacity", 1, phase="never"),
    ]
    text = printed(report, 80)
    assert re.search(r"number +before +down", text)
    assert re.search(r"iteration_s +500 ms +700 ms \?\s", text) and "p99" in text
    assert re.search(r"recovery_s +– +1.5 s", text)
    assert re.search(r"expected_capacity +0.75", text)
    table, _, rest = text.partition("null:")
    assert "readmitted" not in table and "never" not in table
    assert "before.readmitted" in rest and "never.iteration_s" in rest


def test_every_column_has_a_name_and_a_label_is_in_the_title(tmp_path):
    lab = ln.Lab("named", directory=tmp_path, runner=ScriptedRunner(lambda request: steady_run()))
    fabric = ln.star(hosts=2, rate="10 Gb/s", delay="1 us")
    lab.run(fabric, ln.AllReduce("1 MB", 3))
    lab.run(fabric, ln.AllReduce("1 MB", 3), label="roce")
    for table in figure_tables(lab.report, 80):
        assert all(str(column.header) for column in table.columns)
    text = printed(lab.report, 80)
    assert "named, virtual" in text and "named: roce, virtual" in text


def test_of_many_runs_only_what_the_scenario_says_is_printed(tmp_path):
    """And each run that is no result."""

    def run(request):
        return steady_run(log=[])

    texts = []
    for number in (12, 13):
        lab = ln.Lab("many", directory=tmp_path / str(number), runner=ScriptedRunner(run))
        fabric = ln.star(hosts=2, rate="10 Gb/s", delay="1 us")
        for each in range(number):
            lab.run(fabric, ln.AllReduce("1 MB", 3), label=f"run{each}")
        lab.metric("ratio", 1.5)
        lab.report.fidelity[3].fidelity.unexplained = 7
        texts.append(printed(lab.report, 80))
    few, many = texts
    assert few.count("fidelity run") == 12
    assert many.count("fidelity run") == 1 and "fidelity run3: 7 packets unexplained" in many
    assert "fidelity: 12 runs kept up" in many and "not a result: " in many
    assert "numbers of each of the 13 runs: in report.json" in many
    assert "ratio: 1.5" in few and "ratio: 1.5" in many
    assert "run5" in few and "run5" not in many


def lossy_lab(tmp_path, **keywords):
    def run(request):
        return steady_run(
            log=[],
            totals={"link p0.leaf0->p0.spine0": {f"drop_reason_{i}": 10**i for i in range(14)}},
        )

    lab = ln.Lab("lossy", directory=tmp_path, runner=ScriptedRunner(run))
    fabric = ln.star(hosts=2, rate="10 Gb/s", delay="1 us")
    lab.run(fabric, keywords.pop("job", ln.AllReduce("1 MB", 3)), **keywords)
    return lab.report


@pytest.mark.parametrize("label", [None, "mrc", "a" * 90])
def test_drops_are_whole_at_any_width(tmp_path, label):
    report = lossy_lab(tmp_path, label=label)
    stream = io.StringIO()
    table = dropped_table(report)
    Console(file=stream, width=80).print(table, crop=False)
    text = stream.getvalue()
    assert max(map(len, text.splitlines())) <= 80 and "…" not in text
    assert str(10**13) in text and all(str(column.header) for column in table.columns)
    assert ("run" in text) == (label is not None)


def test_a_loss_is_missed_only_where_there_was_to_be_one(tmp_path):
    """Of a traffic model nothing is said; of a script whose log= matched no line it is."""
    assert "final_loss" not in printed(lossy_lab(tmp_path / "a"), 80)
    assert "final_loss" not in [row.name for row in lossy_lab(tmp_path / "b").rows]
    script = tmp_path / "train.py"
    script.write_text("")
    job = ln.TorchJob(str(script), compute="1 ms", log=r"step (?P<step>\d+) loss (?P<loss>\S+)")
    text = printed(lossy_lab(tmp_path / "c", job=job), 80)
    assert "final_loss: – (no loss was read from rank 0's output)" in text


def test_metrics_and_checks_have_their_units():
    report = Report("units")
    report.rows = [
        metric("blip_s", 0.0001148, unit="s"),
        metric("errors", 0, unit="errors"),
        metric("final_loss", 1.353, unit="loss"),
        metric("steps", 4, unit="hops"),
        metric("busbw", 45.4, unit="GB/s"),
        metric("rate", 4e10, unit="b/s"),
    ]
    report.checks = [
        check("near", 0.750001, le=0.75),
        check("share", 0.7568421, approx=2 / 3, abs=0.1),
    ]
    text = printed(report, 80)
    for line in (
        "blip_s: 114.8 us",
        "errors: 0",
        "final_loss: 1.353",
        "steps: 4 hops",
        "busbw: 45.4 GB/s",
        "rate: 40 Gb/s",
        "FAIL near: 0.750001  [≤ 0.75]",
        "ok   share: 0.7568  [0.6667 ± 0.1]",
    ):
        assert line in text.splitlines(), text


# --- progress -------------------------------------------------------------------------------------
class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_progress_has_units_share_total_and_time_left():
    clock = Clock()
    watch = Watch(clock)
    lines = []
    for step in range(0, 60, 6):
        lines.append(
            watch.text(
                "flap",
                Progress(
                    Time.of(step * 536_000_000),
                    step=step or None,
                    total=60,
                    iteration=Time("536 us") if step else None,
                    phase="down" if step > 30 else None,
                ),
            )[0]
        )
        clock.now += 1
    assert lines[0] == "flap  0 s  step 0 of 60 (0 %)" and "left" not in lines[1]
    assert lines[5] == "flap  16.1 ms  step 30 of 60 (50 %)  iteration 536 us  about 5 s left"
    assert "[down]" in lines[9] and "about 1 s left" in lines[9]


def test_progress_of_a_job_that_ends_by_time():
    clock = Clock()
    watch = Watch(clock)
    for now in (1, 2, 4):
        text, _ = watch.text("mrc", Progress(Time(f"{now} s"), step=now, until=Time("8 s")))
        clock.now += now * 60
    assert text == "mrc  4 s of 8 s (50 %)  step 4  about 4 min left"


def test_progress_without_an_end_promises_none():
    text, _ = Watch().text("x", Progress(Time("1.23456 s"), step=3, loss=0.81234))
    assert text == "x  1.23 s  step 3  loss 0.8123"


def test_silence_says_what_is_waited_for_from_the_fifth_second():
    clock = Clock()
    watch = Watch(clock)
    still = Progress(Time("1 s"), step=3, waits="rank 2 in wait_for_store (train.py:7)")
    assert watch.text("x", still) == ("x  1 s  step 3", False)
    clock.now += 4.9
    assert watch.text("x", still) == ("x  1 s  step 3", False)
    clock.now += 0.2
    text, waiting = watch.text("x", still)
    assert waiting and text.endswith(
        "nothing has moved for 5 s: waiting for rank 2 in wait_for_store (train.py:7)"
    )
    moved = Progress(Time("1.1 s"), step=3, waits=still.waits)
    assert watch.text("x", moved) == ("x  1.1 s  step 3", False)


def test_a_log_gets_a_line_per_phase_and_per_thing_waited_for(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("loomnet.labs.progress.time.monotonic", clock)
    monkeypatch.setattr(Watch.__init__, "__defaults__", (clock,))
    stream = io.StringIO()
    with progress_line(Console(file=stream, width=80)) as update:
        for waits in (None, "rank 1", "rank 1", "rank 2", "rank 2"):
            for _ in range(10):
                clock.now += 1
                update("x", Progress(Time("1 s"), waits=waits))
    lines = stream.getvalue().splitlines()
    assert [line.partition("waiting for ")[2] for line in lines] == ["", "rank 1", "rank 2"]


def test_the_lab_adds_where_the_job_ends(tmp_path):
    seen = []
    lab = ln.Lab(
        directory=tmp_path,
        runner=ScriptedRunner(lambda request: steady_run()),
        on_progress=lambda label, progress: seen.append(progress),
    )
    lab.run(ln.star(hosts=2, rate="10 Gb/s", delay="1 us"), ln.AllReduce("1 MB", 7))
    assert [(each.total, each.until) for each in seen] == [(7, None)]


def test_a_sweep_foretells_its_end_though_points_take_longer_than_half_a_minute():
    clock, stream = Clock(), io.StringIO()
    console = Console(file=stream, force_terminal=True, width=100, get_time=clock)
    with progress_bar("sweep", console) as update:
        for ended in range(5):
            update(ended, 10)
            clock.now += 40
    last = stream.getvalue().rpartition("sweep")[2]
    assert "4/10" in last and "-:--:--" not in last and "0:04:" in last, last
