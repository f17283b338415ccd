"""The pytest plugin: `lab` writes to tmp_path, tells how to replay, passes no late engine."""

import importlib
import json
import textwrap

import pytest
from scripted import ScriptedRunner
from synthetic import steady_run

import loomnet as ln
from loomnet.base.errors import FidelityError
from loomnet.measures.run_data import Fidelity

pytest_plugins = ["pytester"]

# pytester forgets modules that a test in this process loaded; a class of a module loaded twice
# would not be itself. So all are loaded before the first.
importlib.import_module("loomnet.running.virtual_clock")
importlib.import_module("numpy")
PUBLIC = [getattr(ln, name) for name in ln.__all__]

CONFTEST = """
    import pytest
    from scripted import ScriptedRunner
    from synthetic import steady_run
    from loomnet.running import request as runners
    from loomnet.measures.run_data import Fidelity

    LATE = False

    def engine():
        def make(request):
            data = steady_run(windows=())
            data.fidelity = Fidelity(fell_behind="a hog" if LATE else None, packets=1)
            return data
        return ScriptedRunner(make)

    @pytest.fixture(autouse=True)
    def scripted(monkeypatch):
        monkeypatch.setitem(runners.RUNNERS, "virtual", f"{__name__}:engine")
"""
TEST = """
    import loomnet as ln

    def test_it(lab, tmp_path):
        fabric = ln.star(hosts=2, rate="1 Gb/s", delay="1 us")
        r = lab.run(fabric, ln.AllReduce("1 MB"))
        assert lab.clock == "virtual" and lab.seed == 7
        assert r["errors"] == 0 and lab.directory == tmp_path / "lab"
"""


def run(pytester, test, late=False):
    import pathlib
    import sys

    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    text = textwrap.dedent(CONFTEST).replace("LATE = False", f"LATE = {late}")
    pytester.makeconftest(text)
    pytester.makepyfile(test_sample=textwrap.dedent(test))
    arguments = ["-p", "no:cacheprovider", "--loomnet-seed", "7"]
    if not pytester.plugins and "loomnet" not in installed_plugins():
        arguments += ["-p", "loomnet.pytest_plugin"]
    return pytester.runpytest_inprocess(*arguments)


def installed_plugins():
    from importlib.metadata import entry_points

    return {entry.name for entry in entry_points(group="pytest11")}


def test_lab_runs_and_writes_to_tmp_path(pytester):
    run(pytester, TEST).assert_outcomes(passed=1)


def test_a_failure_shows_the_line_that_replays_it(pytester):
    outcome = run(pytester, TEST.replace('r["errors"] == 0', 'r["errors"] == 1'))
    outcome.assert_outcomes(failed=1)
    outcome.stdout.fnmatch_lines(
        ["*pytest test_sample.py::test_it --loomnet-clock virtual --loomnet-seed 7*"]
    )


def test_an_engine_that_fell_behind_is_an_error(pytester):
    outcome = run(pytester, TEST, late=True)
    outcome.assert_outcomes(passed=1, errors=1)
    outcome.stdout.fnmatch_lines(["*the engine did not keep up: *a hog*"])


def outcome_of(pytester, test, *arguments, inprocess=True, **files):
    """The plugin on a test of real (small) runs on the virtual clock."""
    pytester.makepyfile(test_real=textwrap.dedent(test), **files)
    words = ["-p", "no:cacheprovider", *arguments]
    if "loomnet" not in installed_plugins():
        words += ["-p", "loomnet.pytest_plugin"]
    return (pytester.runpytest_inprocess if inprocess else pytester.runpytest_subprocess)(*words)


REAL = """
    import pytest
    import loomnet as ln

    def one_run(lab, **options):
        return lab.run(ln.star(hosts=2, rate="10 Gb/s", delay="1 us"),
                       ln.AllReduce("100 kB", 6), **options)
"""


def test_options_and_mark_set_clock_seed_and_wall_time(pytester):
    test = (
        REAL
        + """
    def test_options(lab):
        assert (lab.clock, lab.seed, lab._max_wall_s) == ("virtual", 5, 120.0)

    @pytest.mark.loomnet(clock="virtual", seed=8, max_wall="30 s")
    def test_mark_wins(lab):
        assert (lab.seed, lab._max_wall_s) == (8, 30.0)
        assert one_run(lab)["errors"] == 0
    """
    )
    arguments = ("--strict-markers", "--loomnet-seed", "5", "--loomnet-max-wall", "2 min")
    outcome_of(pytester, test, *arguments).assert_outcomes(passed=2)


def test_what_is_misspelt_is_said(pytester):
    test = (
        REAL
        + """
    @pytest.mark.loomnet(clok="live")
    def test_name(lab): pass

    @pytest.mark.loomnet(clock="sundial")
    def test_clock(lab): pass
    """
    )
    outcome = outcome_of(pytester, test)
    outcome.assert_outcomes(errors=2)
    outcome.stdout.fnmatch_lines(
        [
            "*mark loomnet(clok): write clock=, seed=, max_wall=*",
            '*clock="sundial" is not one of virtual, live*',
        ]
    )
    assert outcome_of(pytester, test, "--loomnet-max-wall", "90").ret == 4
    assert outcome_of(pytester, test, "--loomnet-seed", "-1").ret == 4


def test_the_replay_line_names_the_file_from_where_pytest_started(pytester):
    test = "def test_it(lab):\n    assert False"
    pytester.mkdir("deep")
    (pytester.path / "deep" / "test_far.py").write_text(test)
    (pytester.path / "pytest.ini").write_text("[pytest]\n")
    outcome = outcome_of(pytester, "", "deep", "--loomnet-max-wall", "2 min")
    outcome.stdout.fnmatch_lines(
        [
            "pytest deep/test_far.py::test_it --loomnet-clock virtual --loomnet-seed 0 "
            "--loomnet-max-wall '2 min'",
            "output: */lab",
        ]
    )


SCENARIO = """
    import loomnet as ln

    @ln.scenario
    def tiny(lab: ln.Lab, hosts: int = 2):
        r = lab.run(ln.star(hosts=hosts, rate="10 Gb/s", delay="1 us"), ln.AllReduce("100 kB", 6))
        lab.check("hosts", hosts, le=3)
        lab.check("errors", r["errors"], eq=0)
"""


def test_run_file_gives_reports_that_know_what_failed(pytester):
    test = (
        REAL
        + """
    def test_file(lab):
        one, two, three = (lab.run_file("tiny.py::tiny", hosts=h) for h in (2, 3, 4))
        assert one.ok and two.ok and not three.ok
        assert [check.name for check in three.failed] == ["hosts"]
        assert one.parameters == {"hosts": 2} and three.seed == 7
        folders = {r.directory for r in (one, two, three)}
        assert len(folders) == 3 and all((f / "report.json").is_file() for f in folders)
    """
    )
    pytester.makepyfile(tiny=textwrap.dedent(SCENARIO))
    outcome_of(pytester, test, "--loomnet-seed", "7").assert_outcomes(passed=1)


def test_a_scenario_file_whose_engine_fell_behind_is_an_error_too(pytester):
    pytester.makepyfile(tiny=textwrap.dedent(SCENARIO))
    test = """
    def test_it(lab):
        lab.run_file("tiny.py")  # and never looks
    """
    outcome = run(pytester, test, late=True)
    outcome.assert_outcomes(passed=1, errors=1)
    outcome.stdout.fnmatch_lines(["*the engine did not keep up: *a hog*"])


BASELINE = (
    REAL
    + """
    def test_guarded(lab):
        one_run(lab, label="mrc")
        lab.check("none", 0, eq=0)
        ln.assert_matches(lab.report, "kept/report.json", rel=0.01)

    def test_one_result(lab):
        ln.assert_matches(one_run(lab), "kept/result.json")
"""
)


def test_baselines_are_written_on_request_and_guard_after_that(pytester):
    outcome = outcome_of(pytester, BASELINE)
    outcome.assert_outcomes(failed=2)
    outcome.stdout.fnmatch_lines(["*no baseline *kept/report.json: write it with *"])
    outcome_of(pytester, BASELINE, "--loomnet-update-baselines").assert_outcomes(passed=2)
    kept = pytester.path / "kept" / "report.json"
    text = kept.read_text()
    outcome_of(pytester, BASELINE).assert_outcomes(passed=2)

    content = json.loads(text)
    (row,) = [r for r in content["metrics"] if r["name"] == "iteration_s"]
    row["value"] *= 1.005  # within one per cent
    kept.write_text(json.dumps(content))
    outcome_of(pytester, BASELINE).assert_outcomes(passed=2)
    row["value"] *= 0.9  # a better figure than the baseline's is a difference too
    content["checks"][0]["ok"] = False
    kept.write_text(json.dumps(content))
    outcome = outcome_of(pytester, BASELINE)
    outcome.assert_outcomes(passed=1, failed=1)
    outcome.stdout.fnmatch_lines(
        [
            "*2 of * numbers differ from *report.json by more than 1 %:",
            "*mrc.before.iteration_s: * in the baseline, * now (*%)*",
            "*check none: *holds now*",
        ]
    )
    outcome.stdout.no_fnmatch_line("*baselines.py*")  # the failure shows the test alone
    outcome.stdout.no_fnmatch_line("*arguments.py*")
    outcome_of(pytester, BASELINE, "--loomnet-update-baselines").assert_outcomes(passed=2)
    assert kept.read_text() == text


def test_a_late_run_is_neither_held_against_a_baseline_nor_made_one(tmp_path):
    data = steady_run(fidelity=Fidelity(fell_behind="a hog", packets=1))
    lab = ln.Lab(runner=ScriptedRunner(lambda request: data), directory=tmp_path / "lab")
    r = lab.run(ln.star(hosts=2, rate="1 Gb/s", delay="1 us"), ln.AllReduce("1 MB"))
    with pytest.raises(FidelityError, match="a hog"):
        ln.assert_matches(r, tmp_path / "kept.json")
    with pytest.raises(ln.UsageError, match="neither a report nor a result"):
        ln.assert_matches({}, tmp_path / "kept.json")


def test_names_are_unique_under_xdist(pytester):
    pytest.importorskip("xdist")
    test = (
        REAL
        + """
    @pytest.mark.parametrize("n", range(4))
    def test_same(lab, n, request):
        one_run(lab)
        with open(request.config.rootpath / "seen.txt", "a") as out:
            out.write(f"{lab.directory}\\n")
        (lab.directory / "mine").mkdir()  # fails where another test writes too
    """
    )
    other = textwrap.dedent(test)
    outcome = outcome_of(pytester, test, "-n", "2", inprocess=False, test_twin=other)
    outcome.assert_outcomes(passed=8)
    seen = (pytester.path / "seen.txt").read_text().split()
    assert len(set(seen)) == 8
    # Both workers had some. The last such part: this test may itself run under a worker.
    assert len({line.split("popen-")[-1][:3] for line in seen}) == 2


def test_a_failure_under_xdist_still_has_its_replay_line(pytester):
    pytest.importorskip("xdist")
    test = "def test_it(lab):\n    assert lab.seed == 1"
    outcome = outcome_of(pytester, test, "-n", "1", "--loomnet-seed", "3", inprocess=False)
    outcome.assert_outcomes(failed=1)
    outcome.stdout.fnmatch_lines(
        ["pytest test_real.py::test_it --loomnet-clock virtual --loomnet-seed 3"]
    )
