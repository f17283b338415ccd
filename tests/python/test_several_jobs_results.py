"""What reads the report of a run of several jobs keeps the jobs apart: comparisons, baselines,
sweeps, tables, plots; and a crosscheck refuses such a run before it starts."""

import json
import re
import textwrap

import pytest

import endings
import loomnet as ln
from loomnet.base.errors import UsageError
from loomnet.cli import main
from loomnet.labs.crosscheck import crosscheck, replay_of
from loomnet.labs.replay import replayed
from loomnet.measures.rows import metric, numbered
from loomnet.results.comparison import worse
from loomnet.results.plots import goodput_figure, iteration_figure
from loomnet.running import request as runners

HEAD = """
    import loomnet as ln

    def fabric():
        # Two jobs of two hosts each share no link: none changes the other's figures.
        return ln.star(hosts=4, rate="10 Gb/s", delay="1 us")

    def job(name, repeat=6, size="1 MB"):
        return ln.AllReduce(size=size, repeat=repeat, ranks=2, name=name)
"""
SCENARIOS = (
    HEAD
    + """
    @ln.scenario
    def several(lab: ln.Lab, a: ln.Size = "1 MB", b: ln.Size = "1 MB", late: ln.Time = "0 s"):
        lab.run(fabric(), [ln.AllReduce(size=a, repeat=6, ranks=2, name="a"),
                           ln.AllReduce(size=b, repeat=6, ranks=2, name="b", start=late)])

    @ln.scenario
    def one(lab: ln.Lab):
        lab.run(fabric(), job("a"))
"""
)


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / "jobs.py").write_text(textwrap.dedent(SCENARIOS))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def report(here, folder, name="several", **values):
    return ln.load(f"jobs.py::{name}").run(directory=here / folder, **values)


def names(rows):
    return {row.name for row in rows}


# --- comparing -----------------------------------------------------------------------------------
@pytest.mark.parametrize("worse", ["a", "b"])
def test_a_regression_of_any_job_is_seen(here, capsys, worse):
    first, second = report(here, "one"), report(here, "two", **{worse: "2 MB"})
    expected = {f"{worse}.before.iteration_s", f"{worse}.jct_s"}
    for found in (
        ln.compare(first, second),
        ln.compare(here / "one", here / "two"),
        ln.compare(first.results[None], second.results[None]),
    ):
        assert expected <= names(found.regressions) and found.exit_code == 1
        assert all(name.startswith(f"{worse}.") for name in names(found.regressions))
        assert len(found) == len(first.rows)
    assert main(["compare", "one", "two"]) == 1
    assert f"{worse}.before.iteration_s" in capsys.readouterr().out


def test_a_run_of_one_job_is_no_match_for_a_run_of_two(here, capsys):
    one, two = report(here, "one", "one"), report(here, "two")
    with pytest.raises(UsageError, match="no number in common; labels and jobs are part of"):
        ln.compare(one, two)
    assert main(["compare", "one", "two"]) == 2
    for each in (one, two):
        each.rows.append(metric("mine", 1.0))
    assert "before.iteration_s" in names(ln.compare(one, two).regressions)
    # One job of several is compared with a run of that job alone by the names they share.
    assert names(ln.compare(one.results[None], two.results[None].job("a"))) >= {
        "before.iteration_s",
        "errors",
    }


def test_rows_and_checks_of_one_name_are_all_compared(here):
    def made(folder, size, limit):
        lab = ln.Lab("same", directory=here / folder)
        fabric = ln.star(hosts=4, rate="10 Gb/s", delay="1 us")
        lab.run(fabric, [ln.AllReduce(size=size, repeat=6, ranks=2, name=name) for name in "xy"])
        lab.run(fabric, ln.AllReduce(size="1 MB", repeat=6, ranks=2), label="x")
        lab.check("twice", 1, le=limit)
        lab.check("twice", 1, le=1)
        return lab.report

    found = ln.compare(made("one", "1 MB", 1), made("two", "2 MB", 0))
    assert {"x.before.iteration_s", "y.before.iteration_s", "check twice"} <= names(
        found.regressions
    )
    assert {"x.before.iteration_s (2)", "check twice (2)"} <= names(found)
    assert not names(found.regressions) & {"x.before.iteration_s (2)", "check twice (2)"}


def test_names_are_numbered_until_each_is_its_own():
    assert numbered(["x", "y", "x", "x (2)", "x"]) == ["x", "y", "x (2)", "x (2) (2)", "x (3)"]
    assert worse("a.strange_s (2)", None) == "higher" and worse("strange (2)", None) == "any"


@pytest.mark.parametrize("changed", ["a", "b"])
@pytest.mark.parametrize("whole", [True, False])
def test_a_baseline_guards_every_job(here, changed, whole):
    def given(folder, **values):
        made = report(here, folder, **values)
        return made if whole else made.results[None]

    (here / "kept.json").write_text(report(here, "kept").to_json())
    ln.assert_matches(given("same"), here / "kept.json")
    with pytest.raises(AssertionError, match=rf"\n  {changed}\.before\.iteration_s: "):
        ln.assert_matches(given("other", **{changed: "2 MB"}), here / "kept.json")


def test_a_comparison_draws_every_job(here):
    first, second = report(here, "one"), report(here, "two", b="2 MB")
    drawn = [axes.get_ylabel() for axes in ln.compare(first, second).figure().axes]
    assert [text.partition("\n")[0].rpartition(" ")[2] for text in drawn] == ["a", "b", "a", "b"]


def test_plots_have_a_line_or_a_panel_per_job(here):
    result = report(here, "one", b="2 MB").results[None]
    (axes,) = iteration_figure({"run": result}).axes
    lines = {line.get_label(): list(line.get_ydata()) for line in axes.lines}
    assert set(lines) == {"run a", "run b"} and max(lines["run a"]) < min(lines["run b"])
    assert len(goodput_figure({"run": result}, every="1 ms").axes) == 2


# --- playing again -------------------------------------------------------------------------------
def test_pictures_of_several_jobs_have_one_clock_and_tables_their_own(here):
    def one(start, name):
        return ln.AllReduce("1 MB", repeat=6, ranks=2, name=name, start=start)

    fabric = ln.star(hosts=4, rate="10 Gb/s", delay="1 us")
    r = ln.run(fabric, [one("0 s", "a"), one("20 ms", "b")])
    early, late = r.job("a"), r.job("b")
    assert late.time_zero_s == 0.02 and early.time_zero_s == 0
    assert late.iterations[0]["start_s"] == 0 and late.series("goodput").times[0] == 0
    for figure in (r.plot(), late.plot("iterations"), iteration_figure({"": r})):
        *_, axes = figure.axes
        assert axes.get_xlabel() == "emulated time since a began (ms)"
        last = [list(line.get_xdata()) for line in axes.lines if len(line.get_xdata()) == 6][-1]
        assert last == pytest.approx(  # ends of b's iterations
            [1e3 * (0.02 + row["end_s"]) for row in late.iterations]
        )
    first, second, _ = r.plot().axes
    assert "finished at" in first.texts[0].get_text() and not second.texts
    [bins] = [patch for patch in second.patches if not patch.get_fill()][:1]
    values, edges, _ = bins.get_data()
    assert edges[0] == 0 and 20 <= edges[list(values > 0).index(True) + 1] < 21
    axes = early.series("goodput", every="1 ms").plot()
    late.series("goodput", every="1 ms").plot(axes)
    assert axes.get_xlim()[0] == 0 and axes.get_xlim()[1] > 1e3 * (0.02 + late.data.end_ps / 1e12)
    # The first job is the one whose time 0 faults have: another may begin before it.
    r = ln.run(fabric, [one("20 ms", "b"), one("0 s", "a")])
    assert r.job("a").time_zero_s == -0.02
    *_, axes = r.plot().axes
    assert axes.get_xlim()[0] == pytest.approx(-20)
    assert axes.get_xlabel().startswith("emulated time since b began (ms)")


def test_a_replay_names_the_job_that_differs(here):
    report(here, "one")
    assert replayed(here / "one", directory=here / "again").identical
    content = json.loads((here / "one" / "report.json").read_text())
    row = next(
        row
        for row in content["metrics"]
        if row["labels"].get("job") == "a" and row["name"] == "iteration_s"
    )
    row["value"] *= 2
    (here / "one" / "report.json").write_text(json.dumps(content))
    (line,) = replayed(here / "one", directory=here / "more").differences
    assert line.startswith("a.before.iteration_s: ")


def never(clock):
    def runner():
        raise AssertionError(f"a run began on the {clock} clock")

    return runner


live = never("live")


def test_a_crosscheck_of_several_jobs_is_refused_before_the_live_run(here, monkeypatch, capsys):
    monkeypatch.setitem(runners.RUNNERS, "live", f"{__name__}:live")
    assert main(["crosscheck", "jobs.py::several"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "a run has 2 jobs" in line and "run one job, or" in line and "loomnet compare" in line
    assert not (here / "runs").exists()


def test_compute_times_of_several_jobs_are_not_replayed(here):
    made = report(here, "one")
    with pytest.raises(UsageError, match="run one job, or"):
        replay_of(made)
    with pytest.raises(UsageError, match="run one job, or"):
        report(here, "two", replay_gaps={None: ()})
    assert not (here / "two").exists()


def test_agreements_are_of_every_job(here):
    first, second = report(here, "one"), report(here, "two", b="2 MB")
    found = {each.name: each.ok for each in crosscheck(first, second)}
    assert found["a.before.iteration_s"] and not found["b.before.iteration_s"]
    assert {"a.completion_s", "b.completion_s"} <= set(found)
    assert not all(each.ok for each in crosscheck(first, report(here, "three", "one")))


# --- sweeps --------------------------------------------------------------------------------------
def test_a_sweep_has_a_column_per_job_and_figure(here):
    pytest.importorskip("polars")
    pytest.importorskip("distributed")
    table = ln.sweep(
        "jobs.py::several", a=["1 MB", "2 MB"], jobs=1, out=here / "sweep", watch=lambda *_: None
    ).frame
    assert {"a.jct_s", "b.jct_s", "a.before.iteration_s", "b.before.iteration_s"} <= set(
        table.columns
    )
    assert not {"jct_s", "before.iteration_s"} & set(table.columns)
    assert table["a.jct_s"][1] > 1.8 * table["a.jct_s"][0]
    assert table["b.jct_s"][1] == table["b.jct_s"][0]


# --- what is printed -----------------------------------------------------------------------------
def blocks(text):
    """Of every printed table: its title -> figure -> cells."""
    found, cells = {}, None
    for line in text.splitlines():
        if (title := re.fullmatch(r"(\S.*), virtual clock, seed \d+", line)) is not None:
            cells = found.setdefault(title[1], {})
        elif not line.strip():
            cells = None if cells else cells
        elif cells is not None:
            name, *rest = re.split(r"\s{2,}", line.strip())
            cells[name] = rest
    return found


def test_the_table_has_a_block_per_job(here, capsys):
    assert main(["run", "jobs.py::several", "--set", "b=4MB"]) == 0
    found = blocks(capsys.readouterr().out)
    assert set(found) == {"several: a", "several: b"}
    assert found["several: a"]["number"] == found["several: b"]["number"] == ["before"]
    assert found["several: a"]["iteration_s"] != found["several: b"]["iteration_s"]
    assert main(["run", "jobs.py::one"]) == 0
    assert set(blocks(capsys.readouterr().out)) == {"one"}


def test_a_failed_jobs_cells_errors_and_nulls_are_its_own(here, capsys):
    arguments = endings.Row("raise", "mid", "last", 2, "virtual").arguments(0.1)
    (here / "fails.py").write_text(
        textwrap.dedent(
            HEAD
            + f"""
    @ln.scenario
    def fails(lab: ln.Lab):
        bad = ln.TorchJob({str(endings.SCRIPT)!r}, args={arguments!r}, ranks=2, compute="1 ms",
                          name="bad", log=r"step (?P<step>[0-9]+) loss (?P<loss>[0-9.]+)")
        lab.run(fabric(), [job("good"), bad], label="both")
    """
        )
    )
    assert main(["run", "fails.py"]) == 1
    out = capsys.readouterr().out
    found = blocks(out)
    assert set(found) == {"fails: both.good"} and found["fails: both.good"]["iteration_s"]
    errors = [line for line in out.splitlines() if line.startswith("error ")]
    assert errors and all(line.startswith("error both.bad at ") for line in errors)
    assert "null: both.bad.before.iteration_s" in out and ": the job failed: " in out
    assert "the run failed" not in out
    assert "both.bad.final_loss: " in out and "both.good.final_loss" not in out


def test_the_tables_of_a_notebook_name_the_job(here):
    made = report(here, "one")
    assert made.metrics.columns[3:5] == ("label", "job")
    assert {row["job"] for row in made.metrics} == {"a", "b"}
    assert "job" not in report(here, "two", "one").metrics.columns


# --- running -------------------------------------------------------------------------------------
def test_run_takes_a_list_of_jobs(here):
    fabric = ln.star(hosts=4, rate="10 Gb/s", delay="1 us")
    r = ln.run(
        fabric,
        [ln.AllReduce(size="1 MB", ranks=2, name="a"), ln.Incast(size="1 MB", ranks=2, name="b")],
    )
    assert set(r.jobs) == {"a", "b"} and r["b.jct_s"] > 0
    assert [path.name.split("-")[0] for path in (here / "runs").iterdir()] == [
        "all_reduce_and_incast"
    ]
    assert not ln.run(fabric, [ln.AllReduce(size="1 MB", ranks=2)]).jobs
    with pytest.raises(UsageError, match="5 is not a job"):
        ln.run(fabric, 5)
