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
from loomnet.results.comparison import NEVER, change_text, worse
from loomnet.results.report import Report, RunFidelity


def report(
    behind=None,
    checks=(),
    reason="never measured",
    scenario="demo",
    seed=0,
    parameters=None,
    clock="virtual",
    **figures,
):
    made = Report(scenario, parameters or {}, clock, seed)
    for name, value in figures.items():
        unit = "s" if name.endswith("_s") else None
        made.rows.append(
            metric(
                name, value, unit=unit, label="mrc", reason=None if value is not None else reason
            )
        )
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
    ],
)
def test_verdict_of_one_figure(name, a, b, verdict):
    found = ln.compare(report(**{name: a}), report(**{name: b}), rel=0.05)
    (row,) = found
    assert row.name == f"mrc.{name}" and row.verdict == verdict
    bad = verdict in ("worse", "changed")
    assert found.ok is not bad and found.exit_code == int(bad)
    assert len(found.regressions) == int(verdict == "worse")
    assert len(found.unjudged) == int(verdict == "changed")
    assert ("1 changed, and which way is worse is not known" in found.summary) is (
        verdict == "changed"
    )


@pytest.mark.parametrize(
    ("reason", "there", "back"),
    [
        ("never 3 iterations within 1.1 x 0.5 s", "worse", "better"),  # it recovers no more
        ("the run stalled: no operation finished for 5 s", "worse", "better"),
        ("the job failed: rank 2", "worse", "better"),
        ("3 whole iterations in the phase, 5 needed", "unmeasured", "unmeasured"),
        ("this transport does not count it", "unmeasured", "unmeasured"),
        ("the job finished before this phase", "unmeasured", "unmeasured"),
    ],
)
def test_what_was_not_measured_is_not_worse(reason, there, back):
    one, other = report(recovery_s=1.0, lost=0), report(recovery_s=None, lost=0, reason=reason)
    assert verdicts(one, other)["mrc.recovery_s"] == there
    assert verdicts(other, one)["mrc.recovery_s"] == back
    found = ln.compare(one, other)
    assert found.ok is (there == "unmeasured") and reason in repr(found)
    assert ("1 not measured in one of the two" in found.summary) is (there == "unmeasured")


def test_a_table_says_what_was_not_measured_and_leaves_out_what_neither_has():
    one = report(recovery_s=1.0, lost=2, blip_s=None, iteration_s=1.0)
    other = report(recovery_s=None, lost=2, blip_s=None, iteration_s=12.5, reason="too few")
    rows = {row["number"]: row for row in ln.compare(one, other).table.rows}
    assert set(rows) == {"mrc.recovery_s", "mrc.lost", "mrc.iteration_s"}
    assert rows["mrc.recovery_s"]["verdict"] == "not measured"
    assert rows["mrc.lost"]["verdict"] is None
    assert rows["mrc.iteration_s"]["change"] == "x 12.5", "of tenfold a percentage says little"
    assert [change_text(each) for each in (8.9, 998.9, 38_566, 2e9)] == [
        "+890.0%",
        "x 1,000",
        "x 38,600",
        "x 2e+09",
    ]
    assert {row["number"]: row for row in ln.compare(other, one).table.rows}["mrc.iteration_s"][
        "change"
    ] == "-92.0%"


def test_a_figure_below_its_runs_resolution_is_neither_better_nor_worse():
    one, other = report(blip_s=1.0, lost=2), report(blip_s=3.0, lost=2)
    other.rows[0] = metric("blip_s", 3.0, unit="s", label="mrc", stands=False)
    for a, b in ((one, other), (other, one)):
        assert verdicts(a, b) == {"mrc.blip_s": "unsure", "mrc.lost": "same"}
        assert "below the resolution of its run" in repr(ln.compare(a, b))
    assert ln.compare(one, other).ok


def test_reasons_that_say_never_are_those_that_runs_give(tmp_path):
    fabric = ln.star(hosts=2, rate="10 Gb/s", delay="1 us")
    fault = ln.down("h0--p0.leaf0", at="0.2 ms", duration="1 s", phase="down")
    r = ln.run(
        fabric,
        ln.AllReduce("200 kB", 40, "mrc", stall_timeout="10 ms"),
        [fault],
        directory=tmp_path,
    )
    assert r.data.ended == "stalled" and NEVER.match(r.metric("down.iteration_s").reason)
    same = ln.run(fabric, ln.AllReduce("200 kB", 4), directory=tmp_path / "b", jitter="0 s")
    assert not NEVER.match(same.metric("before.iteration_s").reason)


def test_what_the_runs_differ_in_is_said():
    one = report(lost=1, parameters={"planes": 4, "rate": "1 Gb/s"})
    other = report(lost=1, parameters={"planes": 8, "rate": "1 Gb/s"}, seed=7, scenario="flap")
    found = ln.compare(one, other)
    assert found.setups() == [
        "scenario: demo in demo, flap in flap",
        "seed: 0 in demo, 7 in flap",
        "planes: 4 in demo, 8 in flap",
    ]
    assert "note: the runs differ: planes: 4 in demo, 8 in flap" in repr(found)
    assert "planes: 4 in demo" in found._repr_html_()
    assert ln.compare(one, one).setups() == [] and "differ" not in repr(ln.compare(one, one))


def test_without_rel_small_changes_are_none_and_live_ones_may_be_larger():
    one = report(blip_s=1.0)
    assert verdicts(one, report(blip_s=1.009))["mrc.blip_s"] == "same"
    assert verdicts(one, report(blip_s=1.02))["mrc.blip_s"] == "worse"
    assert verdicts(one, report(blip_s=1.04, clock="live"))["mrc.blip_s"] == "same"
    assert "beyond 1 %" in ln.compare(one, one).summary
    assert "beyond 5 %" in ln.compare(one, one, rel=0.05).summary


def test_a_tolerance_per_figure():
    one, other = report(blip_s=1.0, iteration_s=1.0), report(blip_s=1.1, iteration_s=1.1)
    assert verdicts(one, other, rel={"*": 0.01, "blip_s": 0.15}) == {
        "mrc.blip_s": "same",
        "mrc.iteration_s": "worse",
    }
    assert verdicts(one, other, rel={"*_s": 0.15, "mrc.blip_s": 0.01}) == {
        "mrc.blip_s": "worse",
        "mrc.iteration_s": "same",
    }
    with pytest.raises(ln.UsageError, match=r'rel: no number "blap_s"; nearest: mrc\.blip_s'):
        ln.compare(one, other, rel={"blap_s": 0.1})
    with pytest.raises(ln.UsageError, match='rel=-1 of "blip_s" must be a number, 0 or more'):
        ln.compare(one, other, rel={"blip_s": -1})


def test_long_names_head_no_column(tmp_path):
    for name in ("flap-20261125T101500-0-1d2c3b", "flap-20261125T101700-7-9a8b7c"):
        write(tmp_path / name, report(blip_s=1.0 if "-0-" in name else 2.0))
    found = ln.compare(*sorted(tmp_path.iterdir()))
    assert found.table.columns == ("number", "A", "B", "change", "verdict", "reason")
    assert repr(found).startswith("A: flap-20261125T101500-0-1d2c3b\nB: flap-")


def test_a_check_has_no_change_in_percent():
    good, bad = report(checks=[("bar", 2)], lost=1), report(checks=[("bar", 0.5)], lost=1)
    (row,) = [row for row in ln.compare(good, bad) if row.name == "check bar"]
    assert row.verdict == "worse" and row.change is None


def test_a_baseline_with_a_choice_of_figures(tmp_path):
    write(tmp_path / "kept", report(blip_s=1.0, iteration_s=1.0, lost=3, seed=1))
    kept = tmp_path / "kept" / "report.json"
    made = report(blip_s=1.1, iteration_s=1.0, lost=3, seed=7)
    with pytest.raises(AssertionError) as failed:
        ln.assert_matches(made, kept, rel=0.02)
    assert "mrc.blip_s: 1 in the baseline, 1.1 now (+10.00%)" in str(failed.value)
    assert "note: seed: 1 in the baseline, 7 in this run" in str(failed.value)
    shown = [
        entry for entry in failed.traceback if not entry.frame.f_locals.get("__tracebackhide__")
    ]
    assert [entry.path.name for entry in shown] == ["test_compare.py"]
    ln.assert_matches(made, kept, rel={"*": 0.02, "blip_s": 0.15})
    ln.assert_matches(made, kept, only=["iteration_s", "lost"])
    ln.assert_matches(made, kept, ignore="blip_s")
    with pytest.raises(ln.UsageError, match='assert_matches: no number "blap_s"'):
        ln.assert_matches(made, kept, only="blap_s")


@given(st.floats(-1e6, 1e6), st.floats(0, 1))
def test_a_result_equals_itself_and_an_improvement_is_the_others_regression(value, rel):
    one, other = report(blip_s=value), report(blip_s=value + 1)
    assert ln.compare(one, one, rel=rel).ok
    there, back = verdicts(one, other, rel=0), verdicts(other, one, rel=0)
    assert (there, back) == ({"mrc.blip_s": "worse"}, {"mrc.blip_s": "better"})


def test_names_that_are_gone_are_regressions_and_new_ones_are_not():
    a, b = report(lost=1, blip_s=1.0), report(lost=1, iteration_s=2.0)
    found = ln.compare(a, b)
    assert {r.name: r.verdict for r in found} == {
        "mrc.lost": "same",
        "mrc.blip_s": "missing",
        "mrc.iteration_s": "new",
    }
    assert [r.name for r in found.regressions] == ["mrc.blip_s"]
    with pytest.raises(ln.UsageError, match="no number in common"):
        ln.compare(report(lost=1), report(blip_s=1.0))


def test_runs_with_other_labels_are_compared_from_files_as_from_memory(tmp_path, capsys):
    fabric = ln.star(hosts=2, rate="10 Gb/s", delay="1 us")
    runs = [
        ln.run(fabric, ln.AllReduce("200 kB", 8, each), label=label, directory=tmp_path / label)
        for label, each in (("one", "mrc"), ("two", "roce"))
    ]
    memory, files = ln.compare(*runs), ln.compare(tmp_path / "one", tmp_path / "two")
    assert [row.name for row in memory] == [row.name for row in files]
    assert "label: one in one, two in two" in files.setups()
    assert main(["compare", str(tmp_path / "one"), str(tmp_path / "two")]) in (0, 1)
    assert "before.busbw" in capsys.readouterr().out
    mixed = ln.compare(tmp_path / "one", runs[1])
    assert [row.name for row in mixed] == [row.name for row in files]
    # Of a report with several runs the labels tell which is which.
    one, both = report(lost=1), report(lost=1)
    both.rows.append(metric("lost", 2, label="roce"))
    assert verdicts(one, both) == {"mrc.lost": "same", "roce.lost": "new"}


def test_only_what_changed_is_a_table_of_its_own():
    a, b = report(lost=1, blip_s=1.0, gone=None), report(lost=1, blip_s=2.0, gone=None)
    assert ln.compare(a, b).changes.column("number") == ["mrc.blip_s"]
    assert ln.compare(a, b).summary == "2 numbers, 1 regression beyond 1 %; 1 measured in neither"
    assert "nothing differs" in repr(ln.compare(a, a).changes)


def test_how_often_two_transports_repeat_packets_is_not_compared(tmp_path):
    fabric = ln.clos.two_tier(
        planes=2, leaves=2, spines=1, hosts_per_leaf=2, rate="10 Gb/s", delay="1 us"
    )
    fault = ln.loss("h0--p0.leaf0", 0.02, at="0 s", duration="1 s", phase="loss")
    mrc, roce = (
        ln.run(
            fabric,
            ln.AllReduce("400 kB", 6, each, stall_timeout=None),
            [fault],
            directory=tmp_path / each,
        )
        for each in ("mrc", "roce")
    )
    assert mrc["loss.retransmitted"] != roce["loss.retransmitted"]
    [row] = [row for row in ln.compare(mrc, roce) if row.name == "loss.retransmitted"]
    assert row.verdict == "apart" and "different transports" in row.reason
    assert row not in ln.compare(mrc, roce).regressions
    [row] = [row for row in ln.compare(mrc, mrc) if row.name == "loss.retransmitted"]
    assert row.verdict == "same"


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
    assert found.table.columns[1:3] == ("mrc", "roce")
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


def test_a_baseline_that_fails_only_where_a_figure_is_worse(tmp_path):
    write(tmp_path / "kept", report(blip_s=1.0, iteration_s=1.0, lost=3))
    kept = tmp_path / "kept" / "report.json"
    better, worse = (
        report(blip_s=0.5, iteration_s=1.0, lost=0),
        report(blip_s=0.5, iteration_s=1.1, lost=3),
    )
    ln.assert_matches(better, kept, worse_only=True)
    with pytest.raises(AssertionError, match="2 of 3 numbers differ from"):
        ln.assert_matches(better, kept)
    with pytest.raises(AssertionError) as failed:
        ln.assert_matches(worse, kept, rel=0.02, worse_only=True)
    assert "1 of 3 numbers are worse than in" in str(failed.value)
    assert "iteration_s: 1 in the baseline, 1.1 now" in str(failed.value)
    assert "blip_s" not in str(failed.value)
    ln.assert_matches(worse, kept, rel=0.2, worse_only=True)
    # A figure that is gone is worse; a new one is not.
    with pytest.raises(AssertionError, match="lost"):
        ln.assert_matches(report(blip_s=1.0, iteration_s=1.0), kept, worse_only=True)
    ln.assert_matches(
        report(blip_s=1.0, iteration_s=1.0, lost=3, retransmitted=9), kept, worse_only=True
    )


def test_a_check_of_no_number_is_refused(tmp_path):
    write(tmp_path / "kept", report(blip_s=1.0))
    kept = tmp_path / "kept" / "report.json"
    for options, said in (
        ({"only": []}, r"only=\[\] looks at no number"),
        ({"ignore": "*"}, "ignore= leaves no number"),
        ({"worse_only": 1}, "worse_only"),
    ):
        with pytest.raises(ln.UsageError, match=said):
            ln.assert_matches(report(blip_s=1.0), kept, **options)


def test_fabrics_that_differ_are_told(tmp_path):
    def run(limit, pattern="*->*", delay="1 us"):
        fabric = ln.clos.two_tier(
            planes=1, leaves=2, spines=2, hosts_per_leaf=1, rate="25 Gb/s", delay=delay
        )
        fabric.override(pattern, data_limit=limit)
        return ln.run(fabric, ln.AllReduce("64 kB", transport="mrc"), write=False)

    one = run("1 MB")
    found = ln.compare(one, run("40 kB"))
    assert found.heads == ("A", "B") and found.lines[:2] == [
        "A: link data_limit=1 MB",
        "B: link data_limit=40 kB",
    ]
    assert not ln.compare(one, run("1 MB")).lines
    # The same settings in another place.
    left, right = run("1 MB", "p0.leaf0->p0.spine0"), run("1 MB", "p0.leaf1->p0.spine0")
    assert all(side.startswith("wiring=") for side in ln.compare(left, right).heads)
    # Beside a report that was kept, and one of before that was known.
    (tmp_path / "kept.json").write_text(_report_of(one))
    with pytest.raises(AssertionError, match="note: link delay: 1 us in the baseline, 2 us in"):
        ln.assert_matches(run("1 MB", delay="2 us"), tmp_path / "kept.json")
    old = json.loads(_report_of(one))
    del old["fabrics"]
    (tmp_path / "kept.json").write_text(json.dumps(old))
    assert not any(
        "link" in line for line in ln.compare(tmp_path / "kept.json", run("40 kB")).setups()
    )


def _report_of(result):
    from loomnet.results.baselines import _as_report

    return _as_report(result).to_json()
