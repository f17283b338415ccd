"""Comparing two results: which way is worse, nulls, names that came or went, exit statuses."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import loomnet as ln
from loomnet.cli import main
from loomnet.measures.rows import check, metric
from loomnet.measures.run_data import Fidelity
from loomnet.results.comparison import worse
from loomnet.results.report import Report, RunFidelity


def report(behind=None, checks=(), **figures):
    made = Report("demo")
    for name, value in figures.items():
        unit = "s" if name.endswith("_s") else None
        made.rows.append(metric(name, value, unit=unit, label="mrc", reason="never" * (not value)))
    made.checks += [check(name, value, ge=1) for name, value in checks]
    made.fidelity.append(RunFidelity("mrc", Fidelity(fell_behind=behind), "finished"))
    return made


def verdicts(a, b, **options):
    return {row.name: row.verdict for row in ln.compare(a, b, **options)}


@pytest.mark.parametrize(
    ("name", "unit", "direction"),
    [
        ("mrc.down.goodput_ratio", "ratio", "lower"),
        ("mrc.down.blip_s", "s", "higher"),
        ("down.recovery_s", "s", "higher"),
        ("lost", "packets", "higher"),
        ("busbw", "GB/s", "lower"),
        ("goodput_of_line_rate", "ratio", "lower"),
        ("slowdown_p99", "ratio", "higher"),
        ("unfinished", "flows", "higher"),
        ("flows", "flows", "any"),
        ("latency", "us", "higher"),
        ("readmitted", "paths", "any"),
        ("temperature", None, "any"),
    ],
)
def test_which_way_is_worse(name, unit, direction):
    assert worse(name, unit) == direction


@pytest.mark.parametrize(
    ("name", "a", "b", "verdict"),
    [
        ("goodput_ratio", 0.8, 0.7, "worse"),
        ("goodput_ratio", 0.7, 0.8, "better"),
        ("blip_s", 1.0, 1.2, "worse"),
        ("blip_s", 1.2, 1.0, "better"),
        ("blip_s", 1.0, 1.05, "same"),  # within 5 %
        ("goodput_ratio", 1.0, 0.95, "same"),
        ("lost", 0, 1, "worse"),  # no share of zero is large enough
        ("strange", 1.0, 2.0, "changed"),
        ("strange", 1.0, 1.04, "same"),
        ("recovery_s", None, None, "same"),
        ("recovery_s", 1.0, None, "worse"),  # it never recovers any more
        ("recovery_s", None, 1.0, "better"),
        ("strange", None, 1.0, "changed"),
    ],
)
def test_verdict_of_one_figure(name, a, b, verdict):
    found = ln.compare(report(**{name: a}), report(**{name: b}), rel=0.05)
    (row,) = found
    assert row.name == f"mrc.{name}" and row.verdict == verdict
    bad = verdict in ("worse", "changed")
    assert found.ok is not bad and found.exit_code == int(bad)
    assert len(found.regressions) == int(bad)


@given(st.floats(-1e6, 1e6), st.floats(0, 1))
def test_a_result_equals_itself_and_an_improvement_is_the_others_regression(value, rel):
    one, other = report(blip_s=value), report(blip_s=value + 1)
    assert ln.compare(one, one, rel=rel).ok
    there, back = verdicts(one, other), verdicts(other, one)
    assert (there, back) == ({"mrc.blip_s": "worse"}, {"mrc.blip_s": "better"})


def test_names_that_are_gone_are_regressions_and_new_ones_are_not():
    a, b = report(lost=1, blip_s=1.0), report(lost=1, iteration_s=2.0)
    found = ln.compare(a, b)
    assert {r.name: r.verdict for r in found} == {
        "mrc.lost": "same", "mrc.blip_s": "missing", "mrc.iteration_s": "new"}
    assert [r.name for r in found.regressions] == ["mrc.blip_s"]
    with pytest.raises(ln.UsageError, match="no figure in common"):
        ln.compare(report(lost=1), report(blip_s=1.0))


def test_a_check_that_fails_now_is_a_regression():
    good, bad = report(checks=[("bar", 2)], lost=1), report(checks=[("bar", 0)], lost=1)
    assert verdicts(good, bad)["check bar"] == "worse"
    assert verdicts(bad, good)["check bar"] == "better"
    assert ln.compare(bad, bad).ok


def test_a_run_that_fell_behind_is_no_result():
    found = ln.compare(report(lost=1), report(lost=1, behind="a hog beside it"))
    assert found.exit_code == 3 and not found.ok
    assert found.behind == ["demo (b): mrc: a hog beside it"]


def test_two_runs_in_a_notebook(tmp_path):
    fabric = ln.star(hosts=2, rate="10 Gb/s", delay="1 us")
    runs = [
        ln.run(fabric, ln.AllReduce("200 kB", 8, t), directory=tmp_path / t)
        for t in ("mrc", "roce")
    ]
    found = ln.compare(*runs)
    assert found.table.columns[2:4] == ("mrc", "roce")
    page = found._repr_html_()
    assert "<table>" in page and "data:image/png;base64," in page
    by_name = {row.name: row for row in found}
    assert by_name["before.iteration_s"].a == runs[0]["before.iteration_s"]
    again = ln.compare(tmp_path / "mrc", tmp_path / "roce" / "report.json")
    assert {r.name: r.verdict for r in again} == {r.name: r.verdict for r in found}
    assert "<img" in again._repr_html_()  # bars: files hold no series


def write(folder, made):
    folder.mkdir()
    (folder / "report.json").write_text(made.to_json())


def test_command_compare(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "one", report(blip_s=1.0, lost=3))
    write(tmp_path / "two", report(blip_s=1.04, lost=3))
    assert main(["compare", "one", "two"]) == 1
    out = capsys.readouterr().out
    assert "mrc.blip_s" in out and "mrc.lost" not in out and "1 regression" in out
    assert "A: one\nB: two\n" in out and max(map(len, out.splitlines())) <= 80
    assert re.search(r"mrc.blip_s +1 s +1.04 s +\+4.0% +worse", out)
    assert main(["compare", "one", "two/report.json", "--rel", "5%"]) == 0
    assert main(["compare", "one", "two", "--rel", "0.05", "--all"]) == 0
    assert "mrc.lost" in capsys.readouterr().out
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "report.json").write_text("{")
    old = json.loads((tmp_path / "one" / "report.json").read_text()) | {"schema_version": 0}
    (tmp_path / "old.json").write_text(json.dumps(old))
    for words, message in (
        (["one", "none"], "none: No such file"),
        (["one", "broken"], ": not JSON: "),
        (["one", "old.json"], "no report of schema_version 1"),
        (["one", "two", "--rel", "five"], "write 5% or 0.05"),
        (["one", "two", "--rel", "-1%"], "0 or more"),
        (["one"], "Missing argument"),
    ):
        assert main(["compare", *words]) == 2
        err = capsys.readouterr().err
        assert message in err and err.count("\n") == 1
