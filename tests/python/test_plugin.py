"""The pytest plugin: `lab` writes to tmp_path, tells how to replay, passes no late engine."""

import textwrap

pytest_plugins = ["pytester"]

CONFTEST = """
    import pytest
    from scripted import ScriptedRunner
    from synthetic import steady_run
    from loomnet import runner as runners
    from loomnet.rundata import Fidelity

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
        ["*pytest 'test_sample.py::test_it' --loomnet-clock virtual --loomnet-seed 7*"]
    )


def test_an_engine_that_fell_behind_is_an_error(pytester):
    outcome = run(pytester, TEST, late=True)
    outcome.assert_outcomes(passed=1, errors=1)
    outcome.stdout.fnmatch_lines(["*the engine did not keep up: *a hog*"])
